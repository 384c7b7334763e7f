"""How gangs are declared: the dialects, in the order in which a pod is asked for them.

Of two dialects on one pod the first counts. What a user wrote goes before what controllers add: Kubernetes' own fields,
which a Job controller may fill in for every job, come last. `docs/dialects.md` tells what each field does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from events import dialects
from events.objects import Declaration, Membership
from services.ingest.dialects import batch, coscheduling, koordinator, native
from services.ingest.rejection import Rejection, shown
from services.kubernetes.objects import Pod, PodGroup

ON_PODS: tuple[Callable[[Pod], Membership | Rejection | None], ...] = (
    coscheduling.V1ALPHA1.membership,  #       label scheduling.x-k8s.io/pod-group
    koordinator.membership,  #                 annotations gang.scheduling.koordinator.sh/…, or koord-scheduler
    coscheduling.V0_19.membership,  #          label pod-group.scheduling.sigs.k8s.io
    coscheduling.KEP_2.membership,  #          label pod-group.scheduling.x-k8s.io/name
    coscheduling.V0_18.membership,  #          label pod-group.scheduling.sigs.k8s.io/name
    coscheduling.PROPOSAL_2020.membership,  #  label pod-group/name
    batch.membership,  #                       annotation scheduling.k8s.io/group-name, group-min-member
    native.membership,  #                      spec.schedulingGroup, spec.workloadRef
)

Read = Callable[[PodGroup, int | None], Declaration | Rejection]
ON_POD_GROUPS: dict[str, Read] = {
    "coscheduling/v1alpha1": lambda seen, _: coscheduling.declaration(seen),
    "coscheduling/v0.19": lambda seen, _: coscheduling.declaration(seen),
    "koordinator/v1alpha1": lambda seen, _: koordinator.declaration(seen),
    "kube-batch/v1alpha1": batch.declaration,
    "kube-batch/v1alpha2": batch.declaration,
    "volcano/v1beta1": batch.declaration,
    "kubernetes/v1alpha2": native.declaration,
    "kubernetes/v1beta1": native.declaration,
}
"""Dialect of a PodGroup → how it is read, given the priority of the class that it names."""


def membership(pod: Pod) -> Membership | Rejection | None:
    """The gang that the pod names, None for a regular pod, or what is wrong with the declaration."""
    spec = pod.spec
    if not (pod.metadata.labels or pod.metadata.annotations or spec.scheduling_group or spec.workload_ref):
        return None
    found = next((found for read in ON_PODS if (found := read(pod)) is not None), None)
    if isinstance(found, Membership) and koordinator.timed_out(pod, found):
        return msgspec.structs.replace(found, timed_out=True)
    return found


def of_pod_group(seen: PodGroup) -> str:
    """Its dialect. PodGroups of one API group are Koordinator's or coscheduling's."""
    found = [name for name, api_version in dialects.POD_GROUPS.items() if api_version == seen.api_version]
    return koordinator.DIALECT if koordinator.DIALECT in found and koordinator.is_of_group(seen) else found[0]


def priority_class_of(seen: PodGroup) -> str | Rejection:
    """The PriorityClass that gives a PodGroup its priority, in dialects where one may; empty for none."""
    name, family = seen.spec.priority_class_name, dialects.family(of_pod_group(seen))
    if name is None or family not in ("kube-batch", "volcano", "kubernetes"):
        return ""
    if family == "kubernetes" and seen.spec.priority is not None:
        return ""  # its admission resolved the class already
    if isinstance(name, str):
        return name
    return Rejection("spec.priorityClassName", shown(name), "a name")


def pod_group_versions() -> Iterable[tuple[str, ...]]:
    """The apiVersions of PodGroups, those of one API group together, the newest first."""
    groups: dict[str, dict[str, None]] = {}
    for api_version in dialects.POD_GROUPS.values():
        groups.setdefault(api_version.partition("/")[0], {})[api_version] = None
    return [tuple(reversed(versions)) for versions in groups.values()]
