"""Volcano's Job (``batch.volcano.sh/v1alpha1``): one PodGroup and the pods of its tasks.

The PodGroup is named ``<job>-<uid>`` and carries the job's minimum, the tasks' own minima, queue and priority class. Pods
are named ``<job>-<task>-<index>`` and name their PodGroup in the annotation ``scheduling.k8s.io/group-name``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.simulator.operators.making import Object, counted, denied, flag, listed, mapping, owned, owned_pod
from services.simulator.operators.pod_groups import GROUP_NAME, POD_GROUP
from services.simulator.workloads import namespace_of, uid_of

WEBHOOK = "validatejob.volcano.sh"
FIRST_RUN_MINUTE = 26_297_280
"""2020-01-01 in minutes since 1970: a CronJob names its Jobs by the minute for which they were scheduled."""


def of_job(job: Object, given: Sequence[Object]) -> Iterator[Object]:
    spec = mapping(job, job, "spec", "spec")
    tasks = _tasks(job, spec)
    group = _pod_group(job, spec, tasks)
    yield group
    for number, (name, replicas, _minimum, task) in enumerate(tasks):
        for index in range(replicas):
            yield _pod(job, spec, group["metadata"]["name"], name, index, task, f"spec.tasks[{number}]")


def of_cron_job(cron_job: Object, given: Sequence[Object]) -> Iterator[Object]:
    """Its first run."""
    spec = mapping(cron_job, cron_job, "spec", "spec")
    template = mapping(cron_job, spec, "jobTemplate", "spec.jobTemplate")
    if not flag(cron_job, spec, "suspend", "spec.suspend"):
        name = f"{cron_job['metadata']['name']}-{FIRST_RUN_MINUTE}"
        job_spec = mapping(cron_job, template, "spec", "spec.jobTemplate.spec")
        job = owned(cron_job, "batch.volcano.sh/v1alpha1", "Job", name, job_spec)
        for field in ("labels", "annotations"):
            if extra := (template.get("metadata") or {}).get(field):
                job["metadata"][field] = extra
        yield job


Task = tuple[str, int, int, Object]
"""(name, replicas, its own minimum, the task)."""


def _tasks(job: Object, spec: Object) -> list[Task]:
    """The tasks, as Volcano's webhook lets them pass. A task's own minimum is its replicas unless it says less."""
    found: list[Task] = []
    said: list[str] = []
    for number, task in enumerate(listed(job, spec, "tasks", "spec.tasks")):
        where = f"spec.tasks[{number}]"
        name = str(task.get("name") or f"default{number}")
        replicas = counted(job, task, "replicas", 1, f"{where}.replicas")
        minimum = counted(job, task, "minAvailable", replicas, f"{where}.minAvailable")
        if any(name == other for other, *_ in found):
            said.append(f"{where}.name: duplicated task name {name}")
        if minimum > replicas:
            said.append(f"{where}.minAvailable: {minimum} is greater than its {replicas} replicas")
        found.append((name, replicas, minimum, task))
    total = sum(replicas for _, replicas, _, _ in found)
    if not found:
        said.append("spec.tasks: no task specified in job spec")
    elif counted(job, spec, "minAvailable", total, "spec.minAvailable") > total:
        said.append(
            f"spec.minAvailable: job 'minAvailable' {spec['minAvailable']} should not be greater than the total of"
            f" {total} replicas in tasks"
        )
    if said:
        raise denied(job, WEBHOOK, "; ".join(said))
    return found


def _pod_group(job: Object, spec: Object, tasks: list[Task]) -> Object:
    """Without a minimum of its own, or with 0, the job has its tasks' together (Volcano's webhook)."""
    minimums = {name: minimum for name, _, minimum, _ in tasks}
    group_spec: Object = {
        "minMember": counted(job, spec, "minAvailable", 0, "spec.minAvailable") or sum(minimums.values()),
        "queue": spec.get("queue") or "default",
        "minTaskMember": minimums,
    }
    group_spec |= {name: spec[name] for name in ("priorityClassName", "networkTopology") if spec.get(name) is not None}
    subgroups = [
        _subgroups(job, number, name, task)
        for number, (name, _, _, task) in enumerate(tasks)
        if task.get("partitionPolicy")
    ]
    if subgroups:
        group_spec["subGroupPolicy"] = subgroups
    group = owned(job, POD_GROUP, "PodGroup", f"{job['metadata']['name']}-{uid_of(job)}", group_spec)
    group["metadata"]["labels"] = dict(job["metadata"].get("labels") or {})
    group["metadata"]["annotations"] = dict(job["metadata"].get("annotations") or {})
    return group


def _subgroups(job: Object, number: int, name: str, task: Object) -> Object:
    """What a task's `partitionPolicy` becomes, as far as anybody reads it."""
    said = mapping(job, task, "partitionPolicy", f"spec.tasks[{number}].partitionPolicy")
    policy = {"name": name, "subGroupSize": said.get("partitionSize"), "minSubGroups": said.get("minPartitions")}
    return policy | ({"networkTopology": said["networkTopology"]} if said.get("networkTopology") is not None else {})


def _pod(job: Object, spec: Object, group: str, task: str, index: int, of: Object, path: str) -> Object:
    name = job["metadata"]["name"]
    queue = str(spec.get("queue") or "default")
    known = {
        "volcano.sh/job-name": name,
        "volcano.sh/queue-name": queue,
        "volcano.sh/task-spec": task,
        "volcano.sh/task-index": str(index),
    }
    template = mapping(job, of, "template", f"{path}.template")
    said = mapping(job, template, "spec", f"{path}.template.spec")
    fields: Object = {"schedulerName": said.get("schedulerName") or spec.get("schedulerName") or "volcano"}
    volumes = listed(job, spec, "volumes", "spec.volumes")
    if volumes:
        claimed = (_claimed(job, number, volume) for number, volume in enumerate(volumes))
        fields["volumes"] = [*(said.get("volumes") or ()), *claimed]
    if spec.get("priorityClassName") and not said.get("priorityClassName"):
        fields["priorityClassName"] = spec["priorityClassName"]
    return owned_pod(
        job,
        f"{name}-{task}-{index}",
        of,
        path,
        known | {"volcano.sh/job-namespace": namespace_of(job)},
        known | {"volcano.sh/job-version": "0", "volcano.sh/template-uid": f"{name}-{task}", GROUP_NAME: group},
        fields,
    )


def _claimed(job: Object, number: int, volume: Object) -> Object:
    """A job's volume, which each of its pods has: of a claim that is there, or that the controller makes."""
    claim = volume.get("volumeClaimName") or f"{job['metadata']['name']}-{number}"
    return {"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim}}
