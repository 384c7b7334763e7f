"""JobSet (``jobset.x-k8s.io``) and Kubeflow Trainer's TrainJob (``trainer.kubeflow.org``), which makes one.

A JobSet makes batch Jobs, ``<jobset>-<replicated job>-<index>``. A TrainJob takes the JobSet of its runtime and runs its
job *node* on as many nodes as it asks for. A runtime that is not among the given objects is taken to be Trainer's own
``torch-distributed``: one node, one container. With the runtime's ``podGroupPolicy.coscheduling`` all pods are one gang.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.simulator.operators.making import (
    SCHEDULER_PLUGINS_GROUP,
    SCHEDULER_PLUGINS_LABEL,
    Object,
    counted,
    listed,
    mapping,
    owned,
)
from services.simulator.workloads import copy_of, namespace_of

JOB_SET = "jobset.x-k8s.io/v1alpha2"
JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
TRAINER = "node"
"""The replicated job, and its container, that a TrainJob's ``trainer`` describes."""
COSCHEDULING_TIMEOUT_S = 60


def of_job_set(job_set: Object, given: Sequence[Object]) -> Iterator[Object]:
    spec = mapping(job_set, job_set, "spec", "spec")
    name = job_set["metadata"]["name"]
    for number, replicated in enumerate(listed(job_set, spec, "replicatedJobs", "spec.replicatedJobs")):
        where = f"spec.replicatedJobs[{number}]"
        template = mapping(job_set, replicated, "template", f"{where}.template")
        for index in range(counted(job_set, replicated, "replicas", 1, f"{where}.replicas")):
            job_spec = copy_of(mapping(job_set, template, "spec", f"{where}.template.spec"))
            for count in ("parallelism", "completions"):
                counted(job_set, job_spec, count, 1, f"{where}.template.spec.{count}")
            _default_restarts(job_set, job_spec, f"{where}.template.spec.template")
            job_spec["completionMode"] = job_spec.get("completionMode") or "Indexed"  # its webhook's default, too
            if spec.get("suspend"):
                job_spec["suspend"] = True
            labels = {
                JOB_SET_LABEL: name,
                "jobset.sigs.k8s.io/replicatedjob-name": str(replicated.get("name", "")),
                "jobset.sigs.k8s.io/job-index": str(index),
            }
            _label_pods(job_set, job_spec, labels, f"{where}.template.spec")
            job = owned(job_set, "batch/v1", "Job", f"{name}-{replicated.get('name', number)}-{index}", job_spec)
            job["metadata"]["labels"] = labels
            yield job


def _default_restarts(job_set: Object, job_spec: Object, path: str) -> None:
    """As JobSet's webhook: pods of Jobs may not say `Always`, which they would by default."""
    pods = mapping(job_set, mapping(job_set, job_spec, "template", path), "spec", f"{path}.spec")
    if pods:
        pods.setdefault("restartPolicy", "OnFailure")


def of_train_job(train_job: Object, given: Sequence[Object]) -> Iterator[Object]:
    spec = mapping(train_job, train_job, "spec", "spec")
    runtime = _runtime(train_job, spec, given)
    job_set = copy_of(mapping(train_job, runtime.get("template") or {}, "spec", "the runtime's template.spec"))
    trainer = mapping(train_job, spec, "trainer", "spec.trainer")
    nodes = counted(train_job, trainer, "numNodes", 0, "spec.trainer.numNodes")
    pods = 0
    for replicated in listed(train_job, job_set, "replicatedJobs", "the runtime's replicatedJobs"):
        job_spec = replicated.setdefault("template", {}).setdefault("spec", {})
        if replicated.get("name") == TRAINER:
            _train(job_spec, trainer, nodes or (runtime.get("mlPolicy") or {}).get("numNodes") or 1)
        pods += counted(train_job, replicated, "replicas", 1, "replicas") * int(job_spec.get("parallelism") or 1)
    name = train_job["metadata"]["name"]
    policy = (runtime.get("podGroupPolicy") or {}).get("coscheduling")
    if policy is not None:
        timeout_s = policy.get("scheduleTimeoutSeconds") or COSCHEDULING_TIMEOUT_S
        group_spec = {"minMember": pods, "scheduleTimeoutSeconds": timeout_s}
        yield owned(train_job, SCHEDULER_PLUGINS_GROUP, "PodGroup", name, group_spec)
        for replicated in job_set["replicatedJobs"]:
            job_spec = replicated["template"]["spec"]
            _label_pods(train_job, job_spec, {SCHEDULER_PLUGINS_LABEL: name}, "the runtime's job")
    if spec.get("suspend"):
        job_set["suspend"] = True
    yield owned(train_job, JOB_SET, "JobSet", name, job_set)


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
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": TRAINER, "image": "pytorch/pytorch"}]}}
    return {"template": {"spec": {"replicatedJobs": [{"name": TRAINER, "template": {"spec": {"template": template}}}]}}}


def _train(job_spec: Object, trainer: Object, nodes: int) -> None:
    """The job *node*, as the TrainJob's ``trainer`` asks for it."""
    job_spec |= {"parallelism": nodes, "completions": nodes, "completionMode": "Indexed"}
    for container in ((job_spec.get("template") or {}).get("spec") or {}).get("containers") or ():
        if container.get("name") == TRAINER:
            for field, value in (("image", trainer.get("image")), ("resources", trainer.get("resourcesPerNode"))):
                if value is not None:
                    container[field] = value


def _label_pods(owner: Object, job_spec: Object, labels: dict[str, str], path: str) -> None:
    template = mapping(owner, job_spec, "template", f"{path}.template")
    metadata = mapping(owner, template, "metadata", f"{path}.template.metadata")
    told = mapping(owner, metadata, "labels", f"{path}.template.metadata.labels")
    job_spec["template"] = {**template, "metadata": {**metadata, "labels": {**told, **labels}}}
