"""Kubeflow Trainer's TrainJob (``trainer.kubeflow.org``): the JobSet of its runtime, as large as it asks for.

The runtime's JobSet is patched by the TrainJob's ``runtimePatches``. Which of its jobs trains, a label says; that one has
the TrainJob's number of nodes and, added to its own, the resources of each. With the runtime's ``podGroupPolicy`` all
pods are one gang, of coscheduling or Volcano. A runtime that is not among the given objects is taken to be Trainer's own
``torch-distributed``: one job, one container.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.simulator.operators.jobset import JOB_SET, mark_pods
from services.simulator.operators.making import (
    SCHEDULER_PLUGINS_GROUP,
    SCHEDULER_PLUGINS_LABEL,
    Object,
    counted,
    flag,
    listed,
    mapping,
    owned,
)
from services.simulator.operators.pod_groups import GROUP_NAME, POD_GROUP, QUEUE_NAME
from services.simulator.patches import strategic
from services.simulator.workloads import copy_of, namespace_of

RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
STEP, TRAINS = "trainer.kubeflow.org/trainjob-ancestor-step", "trainer"
"""The label of a job that says what it does for the TrainJob, and what the one says that trains."""
NODE = "node"
"""The container that trains; MPI's job beside the launcher; where no job has the label, the one that trains."""
COSCHEDULING_TIMEOUT_S = 60


def of_train_job(train_job: Object, given: Sequence[Object]) -> Iterator[Object]:
    spec = mapping(train_job, train_job, "spec", "spec")
    runtime = _runtime(train_job, spec, given)
    template = _patched(train_job, spec, mapping(train_job, runtime, "template", "the runtime's template"))
    job_set = mapping(train_job, template, "spec", "the runtime's template.spec")
    jobs = listed(train_job, job_set, "replicatedJobs", "the runtime's replicatedJobs")
    _size(train_job, jobs, mapping(train_job, spec, "trainer", "spec.trainer"), runtime.get("mlPolicy"))
    policy, metadata = runtime.get("podGroupPolicy") or {}, template.get("metadata") or {}
    if policy.get("coscheduling") is not None:
        yield _coscheduled(train_job, policy["coscheduling"], jobs)
    elif policy.get("volcano") is not None:
        yield _volcanos(train_job, policy["volcano"], jobs, metadata.get("annotations") or {})
    job_set["suspend"] = flag(train_job, spec, "suspend", "spec.suspend")
    made = owned(train_job, JOB_SET, "JobSet", train_job["metadata"]["name"], job_set)
    made["metadata"] |= {field: metadata[field] for field in ("labels", "annotations") if metadata.get(field)}
    yield made


def _runtime(train_job: Object, spec: Object, given: Sequence[Object]) -> Object:
    """The spec of the runtime that the TrainJob names."""
    reference = mapping(train_job, spec, "runtimeRef", "spec.runtimeRef")
    for obj in given:
        if (
            obj.get("kind") in RUNTIMES
            and obj["metadata"].get("name") == reference.get("name")
            and (obj["kind"] == RUNTIMES[0] or namespace_of(obj) == namespace_of(train_job))
        ):
            return mapping(obj, obj, "spec", "spec")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": NODE, "image": "pytorch/pytorch"}]}}
    return {"template": {"spec": {"replicatedJobs": [{"name": NODE, "template": {"spec": {"template": template}}}]}}}


def _patched(train_job: Object, spec: Object, template: Object) -> Object:
    """The runtime's template with all of the TrainJob's patches, a later one upon an earlier."""
    template = copy_of(template)
    for number, patch in enumerate(listed(train_job, spec, "runtimePatches", "spec.runtimePatches")):
        where = f"spec.runtimePatches[{number}].trainingRuntimeSpec"
        said = mapping(train_job, patch, "trainingRuntimeSpec", where)
        template = strategic(template, mapping(train_job, said, "template", f"{where}.template"))
    return template


def _size(train_job: Object, jobs: Sequence[Object], trainer: Object, policy: Object | None) -> None:
    """How many pods each job has, and what those ask for that train; in place."""
    nodes = counted(train_job, trainer, "numNodes", 0, "spec.trainer.numNodes")
    mpi = (policy or {}).get("mpi")
    launches = mpi is not None and bool(mpi.get("runLauncherAsNode"))
    labelled = any(_step(job) == TRAINS for job in jobs)
    for job in jobs:
        is_node = job.get("name") == NODE
        trains = _step(job) == TRAINS if labelled else is_node
        job_spec = job.setdefault("template", {}).setdefault("spec", {})
        count = counted(train_job, job_spec, "parallelism", 1, f"the runtime's job {job.get('name')}: parallelism")
        if trains and policy is not None:
            count = counted(train_job, policy, "numNodes", 1, "the runtime's mlPolicy.numNodes")
        if nodes and (trains if mpi is None else is_node):
            count = max(nodes - 1, 1) if launches else nodes
        job_spec |= {"parallelism": count, "completions": count}
        if trains or (launches and is_node):
            _add_resources(job_spec, trainer.get("resourcesPerNode"))


def _add_resources(job_spec: Object, asked: Object | None) -> None:
    for container in ((job_spec.get("template") or {}).get("spec") or {}).get("containers") or ():
        if asked and container.get("name") == NODE:
            container["resources"] = strategic(container.get("resources"), asked)


def _step(job: Object) -> str:
    metadata = (job.get("template") or {}).get("metadata") or {}
    return str((metadata.get("labels") or {}).get(STEP, ""))


def _coscheduled(train_job: Object, policy: Object, jobs: Sequence[Object]) -> Object:
    """The gang's PodGroup; its pods are labelled with it."""
    name = train_job["metadata"]["name"]
    _mark(train_job, jobs, "labels", {SCHEDULER_PLUGINS_LABEL: name})
    timeout_s = policy.get("scheduleTimeoutSeconds") or COSCHEDULING_TIMEOUT_S
    group_spec = {"minMember": _pods(jobs), "scheduleTimeoutSeconds": timeout_s}
    return owned(train_job, SCHEDULER_PLUGINS_GROUP, "PodGroup", name, group_spec)


def _volcanos(train_job: Object, policy: Object, jobs: Sequence[Object], annotations: Object) -> Object:
    """The gang's PodGroup; its pods are annotated with it. `annotations`: the JobSet's, which name the queue."""
    name = train_job["metadata"]["name"]
    _mark(train_job, jobs, "annotations", {GROUP_NAME: name})
    group_spec: Object = {"minMember": _pods(jobs)}
    if annotations.get(QUEUE_NAME):
        group_spec["queue"] = annotations[QUEUE_NAME]
    pods = ((job["template"]["spec"].get("template") or {}).get("spec") or {} for job in jobs)
    if classes := [pod["priorityClassName"] for pod in pods if pod.get("priorityClassName")]:
        group_spec["priorityClassName"] = classes[-1]
    if policy.get("networkTopology") is not None:
        group_spec["networkTopology"] = policy["networkTopology"]
    return owned(train_job, POD_GROUP, "PodGroup", name, group_spec)


def _pods(jobs: Sequence[Object]) -> int:
    return sum(job["template"]["spec"]["parallelism"] for job in jobs)


def _mark(train_job: Object, jobs: Sequence[Object], field: str, pairs: dict[str, str]) -> None:
    for job in jobs:
        mark_pods(train_job, job["template"]["spec"], field, pairs, "the runtime's job")
