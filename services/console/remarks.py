"""What is said of manifests, beside where their pods go: kinds that nothing is placed of, and what is probably not meant.

It is said of the objects as they are given, before a server or a scheduler has seen them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from services.console.misspelt import misspelt, named
from services.console.unread_gangs import unread_gangs
from services.console.unsimulated import unsimulated
from services.ingest.decoding import KINDS, Kind
from services.simulator.asks import without_limit
from services.simulator.daemons import takes
from services.simulator.offline import is_node
from services.simulator.operators import MAKES, group_and_kind
from services.simulator.operators.kubeflow import REPLICA_SPECS
from services.simulator.operators.trainer import RUNTIMES
from services.simulator.workloads import flatten, is_paused, is_workload

HELPERS = {
    ("", "Namespace"),
    ("", "LimitRange"),
    ("node.k8s.io", "RuntimeClass"),
    *(("trainer.kubeflow.org", kind) for kind in RUNTIMES),
}
"""(API group, kind) of what others name, or what says something of others."""
SUSPENDING: dict[tuple[str, str], tuple[str, ...]] = {
    ("batch", "Job"): ("suspend",),
    ("batch.volcano.sh", "CronJob"): ("suspend",),
    ("jobset.x-k8s.io", "JobSet"): ("suspend",),
    ("trainer.kubeflow.org", "TrainJob"): ("suspend",),
    **{("kubeflow.org", kind): ("runPolicy", "suspend") for kind in REPLICA_SPECS},
}
"""(API group, kind) → the field of its spec by which it makes no pods before somebody resumes it."""
READ = {(kind.resource.api_version, kind.name.partition(".")[0]): kind for kind in KINDS}
"""(apiVersion, kind) of what ingest reads. Other groups have kinds of these names, too."""


class Remarks(NamedTuple):
    """Ready for JSON."""

    unread: dict[str, int]
    """Kinds that are not read, and how many of each."""
    warnings: list[str]
    """What is read, and looks misspelt, is a gang's and not heeded, is suspended, is served by nobody, is refused by a
    cluster, takes no node or has no effect here."""


def remarks(objects: Sequence[dict[str, Any]]) -> Remarks:
    single = list(flatten(objects))
    return Remarks(_unread(single), [said for warn in WARNINGS for said in warn(single)])


def kind_of(obj: dict[str, Any]) -> Kind[Any] | None:
    """Of what ingest reads."""
    return READ.get((obj["apiVersion"], obj["kind"]))


def _unread(objects: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Kinds of which nothing is placed and on which nothing depends here, and how many of each are given; by name."""
    kinds = Counter((obj["kind"], obj["apiVersion"]) for obj in objects if not _is_read(obj))
    return {f"{kind} {api_version}": count for (kind, api_version), count in sorted(kinds.items())}


def _suspended(objects: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for each workload of which no pods are made before somebody resumes it."""
    stopped = ((obj, _stopped(obj)) for obj in objects)
    return [f"{named(obj)}: it is {how}: no pods are made of it before it is resumed" for obj, how in stopped if how]


def can_be_given(scheduler_name: str) -> bool:
    """Whether a service can serve it (`MUSTER_SCHEDULER_NAMES`): there, commas are between names, and spaces around them.
    An API server takes any text."""
    return "," not in scheduler_name and scheduler_name == scheduler_name.strip()


def _unserved(objects: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for each schedulerName that no service can be given."""
    found = []
    for obj in objects:
        pod = obj["spec"]["template"]["spec"] if is_workload(obj) else obj.get("spec") if obj["kind"] == "Pod" else None
        name = str((pod or {}).get("schedulerName") or "")
        if not can_be_given(name):
            found.append(
                f"{named(obj)}: schedulerName {name!r}: no service serves it: expected no comma, nor spaces around"
            )
    return found


def _unlimited(objects: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for each request for which an API server wants a limit. It is counted all the same."""
    found = []
    for obj in objects:
        field = "spec.template.spec" if is_workload(obj) else "spec"
        if is_workload(obj) or (obj["apiVersion"], obj["kind"]) == ("v1", "Pod"):
            spec = obj["spec"]["template"]["spec"] if is_workload(obj) else obj["spec"]
            why = "an API server refuses it without a limit that is equal"
            found += [f"{named(obj)}: {place}: {why}" for place in without_limit(spec, field)]
    return found


def _unheeded(objects: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for all bound pods that keep others away from their node: those are placed there all the same."""
    bound = [
        obj for obj in objects if (obj["apiVersion"], obj["kind"]) == ("v1", "Pod") and obj["spec"].get("nodeName")
    ]
    keeping = [named(obj) for obj in bound if _keeps_away(obj["spec"])]
    if not keeping:
        return []
    more = f" and {len(keeping) - 1} more" if len(keeping) > 1 else ""
    return [f"{keeping[0]}{more}: the required podAntiAffinity of a bound pod keeps no other pod away here"]


def _for_no_node(objects: Sequence[dict[str, Any]]) -> list[str]:
    """One sentence for each DaemonSet of which no pod is made: a label may be misspelt."""
    nodes = [obj for obj in objects if is_node(obj)]
    why = "no pod is made of it: no node has what its nodeSelector and affinity ask for and taints that it tolerates"
    sets = [obj for obj in objects if (obj["apiVersion"], obj["kind"]) == ("apps/v1", "DaemonSet")]
    return [f"{named(obj)}: {why}" for obj in sets if nodes and not any(takes(obj, node) for node in nodes)]


WARNINGS = (misspelt, unread_gangs, unsimulated, _suspended, _unserved, _unlimited, _unheeded, _for_no_node)
"""Each looks through the objects, and says a sentence for what it finds."""


def _keeps_away(spec: dict[str, Any]) -> bool:
    affinity = (spec.get("affinity") or {}).get("podAntiAffinity") or {}
    return bool(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))


def _stopped(obj: dict[str, Any]) -> str:
    """How, by the field of its kind; empty: it is not. The same word elsewhere, as in Volcano's Job, has no effect."""
    kind = group_and_kind(obj)
    if kind == ("apps", "Deployment"):
        return "paused" if is_paused(obj) else ""
    said: Any = obj.get("spec")
    for field in SUSPENDING.get(kind, ()):
        said = said.get(field) if isinstance(said, dict) else None
    return "suspended" if said is True else ""


def _is_read(obj: dict[str, Any]) -> bool:
    named = group_and_kind(obj)
    return is_workload(obj) or named in MAKES or named in HELPERS or kind_of(obj) is not None
