"""What declares something of a gang in words that Muster knows, and has no effect here: told, as nothing fails for it.

- A minimum that stands beside no gang's name: a name is indispensable (seed 002, API; seed 000, PodGroup).
- A gang of a system whose declarations are not read (Kueue, KAI, YuniKorn, Armada).
- Task topology (seed 003), which is not built yet. It is a preference, so that the job is placed without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from services.console.misspelt import all_metadata, named
from services.ingest.dialects import batch, coscheduling, koordinator

_GENERATIONS = (
    coscheduling.V1ALPHA1,
    coscheduling.KEP_2,
    coscheduling.V0_19,
    coscheduling.V0_18,
    coscheduling.PROPOSAL_2020,
)
NAMES = {
    *(("labels", each.gang) for each in _GENERATIONS),
    ("annotations", koordinator.PREFIX + "name"),
    ("annotations", batch.GROUP_NAME),
}
MINIMUMS = {
    *(("labels", each.minimum) for each in _GENERATIONS if each.minimum),
    ("annotations", koordinator.PREFIX + "min-available"),
}
OTHERS = {
    ("labels", "kueue.x-k8s.io/pod-group-name"): "Kueue",
    ("annotations", "kueue.x-k8s.io/pod-group-name"): "Kueue",
    ("annotations", "pod-group-name"): "KAI",
    ("annotations", "yunikorn.apache.org/task-group-name"): "YuniKorn",
    ("annotations", "armadaproject.io/gangId"): "Armada",
}
"""Where other systems name a pod's gang → whose that is."""
TASK_TOPOLOGY = "volcano.sh/task-topology"
"""The annotation of the proposal; the code's names go on from there."""
TASK_TOPOLOGY_PLUGIN = "task-topology"
ALONE = "its pods are placed one by one"
NO_TOPOLOGY = "task topology has no effect yet: tasks are placed as if they had none"


def unread_gangs(objects: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for each, in the order of the objects."""
    return [f"{named(obj)}: {said}" for obj in objects for said in _of(obj)]


def _of(obj: dict[str, Any]) -> Iterator[str]:
    for path, metadata in all_metadata(obj):
        keys = [(place, key) for place in ("labels", "annotations") for key in _mapping(metadata.get(place))]
        if NAMES.isdisjoint(keys):
            yield from (f"{path}.{place}[{key}] {said}" for place, key in keys if (said := _of_no_gang(place, key)))
        for place, key in keys:
            if place == "annotations" and key.startswith(TASK_TOPOLOGY):
                yield f"{path}.{place}[{key}]: {NO_TOPOLOGY}"
    plugins = _mapping(_mapping(obj.get("spec")).get("plugins"))
    if obj["apiVersion"] == "batch.volcano.sh/v1alpha1" and TASK_TOPOLOGY_PLUGIN in plugins:
        yield f"spec.plugins.{TASK_TOPOLOGY_PLUGIN}: {NO_TOPOLOGY}"


def _of_no_gang(place: str, key: str) -> str:
    """What is said of a label or annotation beside which no gang is named; empty for nothing."""
    if (place, key) in MINIMUMS:
        return f"is a minimum, and no gang is named beside it: {ALONE}"
    whose = OTHERS.get((place, key))
    return f"names a gang of {whose}, which is not read: {ALONE}" if whose else ""


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
