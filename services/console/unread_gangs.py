"""What manifests say of gangs in words that have no effect here. Nothing fails because of it, so that a warning tells it.

- A pod that says a minimum and names no gang: a name is indispensable (seed 002, API; seed 000, PodGroup).
- A pod that names a gang of a system whose declarations are not read (Kueue, KAI, YuniKorn, Armada), and no other.
- Task topology (seed 003), which is not built yet. It is a preference, so that the job is placed without it.

Neither of the first two is said where the pods are a gang all the same: as another declaration names one, or as a
controller makes one of them, like Volcano's of its Jobs. Nor is it said of pods that have their node already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from services.console.misspelt import all_metadata, named
from services.ingest.dialects import batch, coscheduling, koordinator
from services.simulator.operators import admitted

NAMES = {
    *(("labels", each.gang) for each in coscheduling.GENERATIONS),
    ("annotations", koordinator.PREFIX + "name"),
    *(("annotations", key) for key in (batch.GROUP_NAME, batch.KUBE_BATCH_MINIMUM, batch.VOLCANO_MINIMUM)),
}
"""What makes a pod one of a gang: its name, or a minimum of its owner's pods."""
NATIVE_NAMES = ("schedulingGroup", "workloadRef")
"""Fields of a pod's spec that do so."""
MINIMUMS = {
    *(("labels", each.minimum) for each in coscheduling.GENERATIONS if each.minimum),
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
VOLCANO_JOBS = {"Job": ("spec",), "CronJob": ("spec", "jobTemplate", "spec")}
"""Kind → where the spec of the job stands that names its plugins."""
ALONE = "its pods are placed one by one"
NO_TOPOLOGY = "task topology has no effect yet: tasks are placed as if they had none"


def unread_gangs(objects: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for each, in the order of the objects."""
    return [f"{named(obj)}: {said}" for obj in objects for said in (*_of_pods(obj), *_of_topology(obj))]


def _of_pods(obj: dict[str, Any]) -> list[str]:
    found = [
        f"{path}.{place}[{key}] {said}"
        for path, keys in _alone(obj)
        for place, key in keys
        if (said := _of_no_gang(place, key))
    ]
    return [] if found and _is_made_a_gang(obj) else found


def _alone(obj: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """(path, labels and annotations) of a pod, or of each template of pods, that names no gang and has no node."""
    for path, metadata, holder in all_metadata(obj):
        spec = _mapping(holder.get("spec"))
        if "containers" in spec and not names_gang(metadata, spec) and not spec.get("nodeName"):
            yield path, _keys(metadata)


def names_gang(metadata: dict[str, Any], spec: dict[str, Any]) -> bool:
    """Whether a pod, or a template of pods, says by itself which gang it is of."""
    says = {place: _mapping(metadata.get(place)) for place in ("labels", "annotations")}
    return any(spec.get(field) for field in NATIVE_NAMES) or any(says[place].get(key) for place, key in NAMES)


def _is_made_a_gang(obj: dict[str, Any]) -> bool:
    """Whether a controller makes a PodGroup of its pods, whatever these say."""
    made, _ = admitted([obj])
    return any(one["kind"] == "PodGroup" for one in made)


def _of_no_gang(place: str, key: str) -> str:
    """What is said of a label or annotation beside which no gang is named; empty for nothing."""
    if (place, key) in MINIMUMS:
        return f"is a minimum, and no gang is named beside it: {ALONE}"
    whose = OTHERS.get((place, key))
    return f"names a gang of {whose}, which is not read: {ALONE}" if whose else ""


def _of_topology(obj: dict[str, Any]) -> Iterator[str]:
    for path, metadata, _ in all_metadata(obj):
        for place, key in _keys(metadata):
            if place == "annotations" and key.startswith(TASK_TOPOLOGY):
                yield f"{path}.{place}[{key}]: {NO_TOPOLOGY}"
    if obj["apiVersion"] == "batch.volcano.sh/v1alpha1" and obj["kind"] in VOLCANO_JOBS:
        fields, spec = VOLCANO_JOBS[obj["kind"]], obj
        for field in fields:
            spec = _mapping(spec.get(field))
        if TASK_TOPOLOGY_PLUGIN in _mapping(spec.get("plugins")):
            yield f"{'.'.join(fields)}.plugins.{TASK_TOPOLOGY_PLUGIN}: {NO_TOPOLOGY}"


def _keys(metadata: dict[str, Any]) -> list[tuple[str, str]]:
    return [(place, key) for place in ("labels", "annotations") for key in _mapping(metadata.get(place))]


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
