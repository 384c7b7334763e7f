"""Kubernetes' own gangs, one row for each version of ``scheduling.k8s.io``: a new version is a row, or a file like this.

- 1.35, v1alpha1: ``spec.workloadRef`` names a group of a Workload, which declares it. A replica key makes a gang of its
  own with the same declaration. The gang's name is ``workload:group`` or ``workload:group:key``.
- 1.36, v1alpha2, and 1.37, v1beta1: ``spec.schedulingGroup.podGroupName`` names a PodGroup, which carries a copy of what
  a Workload's template said. So Workloads of these versions are not read.
"""

from __future__ import annotations

from typing import Any

from events import dialects
from events.objects import Declaration, Membership
from services.ingest.dialects.reading import gang_key, misnamed
from services.ingest.rejection import Rejection, integer, shown
from services.kubernetes.objects import Pod, PodGroup, Workload

OF_WORKLOADS = "kubernetes/v1alpha1"
OF_POD_GROUPS = "kubernetes/v1alpha2"
"""Of a pod in v1beta1 as well: the field is the same, and only the PodGroup tells."""


def membership(pod: Pod) -> Membership | Rejection | None:
    group, workload = pod.spec.scheduling_group, pod.spec.workload_ref
    if group is not None and group.pod_group_name:
        key = gang_key(OF_POD_GROUPS, pod.metadata, group.pod_group_name, "spec.schedulingGroup.podGroupName")
        return key if isinstance(key, Rejection) else Membership(gang=key, dialect=OF_POD_GROUPS, declared=None)
    if workload is None or not (workload.name or workload.pod_group):
        return None
    parts = {"name": workload.name, "podGroup": workload.pod_group}
    if workload.pod_group_replica_key:
        parts["podGroupReplicaKey"] = workload.pod_group_replica_key
    for field, part in parts.items():
        if bad := misnamed(part, f"spec.workloadRef.{field}"):
            return bad
    key = dialects.gang_key(OF_WORKLOADS, pod.metadata.namespace, ":".join(parts.values()))
    return Membership(gang=key, dialect=OF_WORKLOADS, declared=None)


def workload_group(gang: str) -> tuple[str, str]:
    """Of a gang's key: (``namespace/workload``, the group within it)."""
    workload, _, rest = gang.partition("@")[0].partition(":")
    return workload, rest.partition(":")[0]


def declaration(seen: PodGroup, priority: int | None) -> Declaration | Rejection:
    """A PodGroup's, v1alpha2 and v1beta1."""
    parent = seen.spec.parent_composite_pod_group_name
    if parent:  # which may have to start whole, or in one place: nothing is read of it
        expected = "no composite group: they are not supported yet"
        return Rejection("spec.parentCompositePodGroupName", shown(parent), expected)
    constraints = seen.spec.scheduling_constraints
    topology = constraints.get("topology") if isinstance(constraints, dict) else None
    if topology:
        expected = "no topology constraint: it is not supported yet"
        return Rejection("spec.schedulingConstraints.topology", shown(topology), expected)
    if seen.spec.priority is not None:
        own = integer(seen.spec.priority, "spec.priority", least=-(2**31))
        if isinstance(own, Rejection):
            return own
        priority = own
    minimum = _minimum(seen.spec.scheduling_policy, "spec.schedulingPolicy")
    if isinstance(minimum, Rejection):
        return minimum
    return Declaration(min_member=minimum, waiting_time_ms=0, priority=priority)


def declarations(seen: Workload) -> dict[str, Declaration] | Rejection:
    """Of a Workload, v1alpha1: name of the group → what it declares."""
    groups = seen.spec.pod_groups or []
    if not isinstance(groups, list):
        return Rejection("spec.podGroups", shown(groups), "a list of groups")
    found: dict[str, Declaration] = {}
    for number, group in enumerate(groups):
        field = f"spec.podGroups[{number}]"
        name = group.get("name") if isinstance(group, dict) else None
        if not isinstance(name, str) or not name:
            return Rejection(field, shown(group), "a group with a name and a policy")
        minimum = _minimum(group.get("policy"), f"{field}.policy")
        if isinstance(minimum, Rejection):
            return minimum
        found[name] = Declaration(min_member=minimum, waiting_time_ms=0)
    return found


def _minimum(policy: Any, field: str) -> int | Rejection:
    """Exactly one policy: ``gang`` with its minCount, or ``basic``, where nothing has to start together."""
    known = sorted(policy.keys() & {"gang", "basic"}) if isinstance(policy, dict) else []
    if len(known) == 1 and isinstance(policy[known[0]], dict):
        return 1 if known == ["basic"] else integer(policy["gang"].get("minCount"), f"{field}.gang.minCount")
    return Rejection(field, "" if policy is None else shown(policy), "one of gang and basic")
