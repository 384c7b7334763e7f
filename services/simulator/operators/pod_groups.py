"""Volcano's PodGroup controller: the pods of an owner that says ``scheduling.volcano.sh/group-min-member`` are a gang.

The annotation stands on what owns the pods: a ReplicaSet, StatefulSet, DaemonSet or batch Job; a Deployment's is its
ReplicaSet's, as the deployment controller copies annotations. The controller makes the PodGroup ``podgroup-<UID of the
owner>`` with this minimum, the pods' priority class, and the queue and network topology that the pods' annotations name,
and annotates the pods with its name. What is no count leaves the minimum at 1, as there. Pods that name a group already
are left alone.

A scheduler never sees the owner: in a cluster it is this controller of Volcano's that makes a gang of the annotation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from services.simulator.forms import misfit
from services.simulator.operators.making import Object, owned
from services.simulator.workloads import is_paused, is_workload, replica_set_of, uid_of

POD_GROUP = "scheduling.volcano.sh/v1beta1"
GROUP_NAME = "scheduling.k8s.io/group-name"
MINIMUM = "scheduling.volcano.sh/group-min-member"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
TOPOLOGY_MODE, TOPOLOGY_TIER = "volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier"
INHERITED = "volcano.sh/"
"""Annotations of the owner that begin like this stand on the PodGroup, too."""
MOST = 2**31 - 1


def grouped(objects: Iterable[Object]) -> Iterator[Object]:
    """The objects; owners with the annotation as their pods will be, each behind its PodGroup.

    One that does not fit its type, as a controller may make it of somebody's template, is left alone: it is refused.
    """
    for obj in objects:
        fits = is_workload(obj) and not misfit(obj["apiVersion"], obj["kind"], obj)
        if not fits or MINIMUM not in (obj["metadata"].get("annotations") or {}):
            yield obj
        elif obj["kind"] != "Deployment":
            yield from _grouped(obj)
        elif is_paused(obj):  # without a ReplicaSet
            yield obj
        else:
            yield from _grouped(replica_set_of(obj))


def _grouped(owner: Object) -> Iterator[Object]:
    template = owner["spec"].get("template") or {}
    metadata = template.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if annotations.get(GROUP_NAME):
        yield owner
        return
    group = _pod_group(owner, template.get("spec") or {}, annotations)
    named = {**metadata, "annotations": {**annotations, GROUP_NAME: group["metadata"]["name"]}}
    yield group
    yield {**owner, "spec": {**owner["spec"], "template": {**template, "metadata": named}}}


def _pod_group(owner: Object, pod_spec: Object, annotations: dict[str, str]) -> Object:
    said = owner["metadata"]["annotations"]
    spec: Object = {"minMember": _minimum(said[MINIMUM])}
    if pod_spec.get("priorityClassName"):
        spec["priorityClassName"] = pod_spec["priorityClassName"]
    if annotations.get(QUEUE_NAME):
        spec["queue"] = annotations[QUEUE_NAME]
    if annotations.keys() & {TOPOLOGY_MODE, TOPOLOGY_TIER}:  # the highest tier decides nothing here
        spec["networkTopology"] = {"mode": "soft" if annotations.get(TOPOLOGY_MODE, "").lower() == "soft" else "hard"}
    group = owned(owner, POD_GROUP, "PodGroup", f"podgroup-{uid_of(owner)}", spec)
    group["metadata"]["annotations"] = {k: v for k, v in {**said, **annotations}.items() if k.startswith(INHERITED)}
    return group


def _minimum(said: str) -> int:
    """A number as Go reads an int32."""
    found = int(said) if re.fullmatch(r"[+-]?[0-9]{1,20}", said) else -1
    return found if 0 <= found <= MOST else 1
