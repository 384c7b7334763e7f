"""kube-batch and Volcano: an annotation names the PodGroup, or the pod says how many of its owner's pods start together.

The name is the same in both, and in all three API groups of their PodGroups: ``scheduling.k8s.io/group-name``. Without it
``group-min-member`` declares a gang of the pods of one controller, which has the name that the project's own controller
gives it: the controller's UID in kube-batch, ``podgroup-<UID>`` in Volcano. So a pod that only names its queue is a gang
with a minimum of one, as in Volcano.

Volcano reads ``group-min-member`` on the owner, where its own controller makes a PodGroup of it; the pod's own (from
the owner's template) is read here.
"""

from __future__ import annotations

import msgspec

from events.objects import Declaration, Membership
from services.ingest.dialects.reading import annotation, gang_key, label, misnamed, of_annotation, one_of
from services.ingest.rejection import Rejection, integer, shown
from services.kubernetes.objects import Metadata, Pod, PodGroup

KUBE_BATCH, VOLCANO = "kube-batch/v1alpha1", "volcano/v1beta1"
GROUP_NAME = "scheduling.k8s.io/group-name"
KUBE_BATCH_MINIMUM = "scheduling.k8s.io/group-min-member"
VOLCANO_MINIMUM = "scheduling.volcano.sh/group-min-member"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
TASK = "volcano.sh/task-spec"
DEFAULT_QUEUE = "default"
MOST_TASKS = 1_000
"""That may have a minimum: each fact about a member of the gang adds all of them up."""


def membership(pod: Pod) -> Membership | Rejection | None:
    metadata = pod.metadata
    name, minimum_key = annotation(metadata, GROUP_NAME), _minimum_key(metadata)
    if not (name or minimum_key or annotation(metadata, QUEUE_NAME)):
        return None
    dialect = VOLCANO if _is_volcanos(pod) else KUBE_BATCH
    gang = gang_key(dialect, metadata, name or _of_owner(dialect, metadata), of_annotation(GROUP_NAME))
    if isinstance(gang, Rejection):
        return gang
    declared = _declared(metadata, minimum_key) if minimum_key or not name else None
    if isinstance(declared, Rejection):
        return declared
    found = Membership(gang=gang, dialect=dialect, declared=declared)
    task = annotation(metadata, TASK) or label(metadata, TASK)
    if task and (bad := misnamed(task, of_annotation(TASK))):
        return bad
    return msgspec.structs.replace(found, task=task) if task else found


def _minimum_key(metadata: Metadata) -> str:
    return next((key for key in (VOLCANO_MINIMUM, KUBE_BATCH_MINIMUM) if annotation(metadata, key)), "")


def _is_volcanos(pod: Pod) -> bool:
    keys = (*(pod.metadata.annotations or ()), *(pod.metadata.labels or ()))
    return pod.spec.scheduler_name == "volcano" or any("volcano.sh/" in key for key in keys)


def _of_owner(dialect: str, metadata: Metadata) -> str:
    """The gang that the pods of one controller are; a pod without a controller is one of its own."""
    owners = metadata.owner_references or ()
    uid = next((owner.uid for owner in owners if owner.controller), "") or metadata.uid
    return f"podgroup-{uid}" if dialect == VOLCANO else uid


def _declared(metadata: Metadata, minimum_key: str) -> Declaration | Rejection:
    minimum: int | Rejection = 1
    if minimum_key:
        minimum = integer(annotation(metadata, minimum_key), of_annotation(minimum_key), least=0)
    if isinstance(minimum, Rejection):
        return minimum
    queue = annotation(metadata, QUEUE_NAME) or DEFAULT_QUEUE
    if bad := misnamed(queue, of_annotation(QUEUE_NAME)):
        return bad
    return Declaration(min_member=max(1, minimum), waiting_time_ms=0, queue=queue)


def declaration(seen: PodGroup, priority: int | None) -> Declaration | Rejection:
    """A PodGroup's. Without a minimum, or with 0, nothing has to start together: that is a minimum of one. Its tasks then
    have none, since theirs count only where that of the whole is no smaller than theirs together.

    `priority` is that of the class that it names; None where it names none, or an unknown one.
    """
    spec = seen.spec
    minimum = integer(0 if spec.min_member is None else spec.min_member, "spec.minMember", least=0)
    tasks = _task_minimums(spec.min_task_member)
    topology, subgroups = _topology(spec.network_topology), _subgroups(spec.sub_group_policy)
    for found in (minimum, tasks, _named(spec.queue, "spec.queue"), topology, subgroups):
        if isinstance(found, Rejection):
            return found
    assert isinstance(minimum, int)
    assert isinstance(tasks, dict)
    return Declaration(
        min_member=max(1, minimum),
        waiting_time_ms=0,
        queue=spec.queue or DEFAULT_QUEUE,
        priority=priority,
        task_minimums=tasks if minimum else {},
    )


def _task_minimums(value: object) -> dict[str, int] | Rejection:
    field = "spec.minTaskMember"
    if value is None:
        return {}
    if not isinstance(value, dict):
        return Rejection(field, shown(value), "an object of task names and integers")
    if len(value) > MOST_TASKS:
        return Rejection(field, f"{len(value)} tasks", f"at most {MOST_TASKS} tasks")
    found: dict[str, int] = {}
    for task in sorted(value):
        if bad := misnamed(task, field):
            return bad
        minimum = integer(value[task], f"{field}.{task}", least=0)
        if isinstance(minimum, Rejection):
            return minimum
        if minimum:
            found[task] = minimum
    return found


def _named(value: object, field: str) -> Rejection | None:
    if value is None or value == "":
        return None
    return misnamed(value, field) if isinstance(value, str) else Rejection(field, shown(value), "a name")


def _topology(value: object, of: str = "spec") -> Rejection | None:
    """A hard constraint that nobody honours here must not be placed as if it were not there. Without a mode it is one."""
    if not isinstance(value, dict):
        return None
    mode, field = value.get("mode") or "hard", f"{of}.networkTopology.mode"
    if mode == "hard":
        return Rejection(field, "hard", "no hard network topology: it is not supported yet")
    found = one_of(mode, field, ("hard", "soft"))
    return found if isinstance(found, Rejection) else None


def _subgroups(policies: object) -> Rejection | None:
    """Nor must subgroups that are to start together: `subGroupSize` pods of one, `minSubGroups` of them."""
    for at, policy in enumerate(policies if isinstance(policies, list) else ()):
        of = f"spec.subGroupPolicy[{at}]"
        said = policy if isinstance(policy, dict) else {}
        for name, none in (("subGroupSize", 1), ("minSubGroups", 0)):
            if said.get(name) not in (None, none):
                expected = f"{none} or nothing: minimums of subgroups are not supported yet"
                return Rejection(f"{of}.{name}", shown(said[name]), expected)
        if found := _topology(said.get("networkTopology"), of):
            return found
    return None
