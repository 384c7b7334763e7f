"""JobSet (``jobset.x-k8s.io``): batch Jobs, ``<jobset>-<replicated job>-<index>``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.simulator.operators.making import Object, counted, flag, listed, mapping, owned
from services.simulator.workloads import copy_of

JOB_SET = "jobset.x-k8s.io/v1alpha2"
JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"


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
            job_spec["suspend"] = flag(job_set, spec, "suspend", "spec.suspend")  # whatever the template says
            _claim_volumes(job_set, spec, job_spec)
            labels = {
                JOB_SET_LABEL: name,
                "jobset.sigs.k8s.io/replicatedjob-name": str(replicated.get("name", "")),
                "jobset.sigs.k8s.io/job-index": str(index),
            }
            mark_pods(job_set, job_spec, "labels", labels, f"{where}.template.spec")
            job = owned(job_set, "batch/v1", "Job", f"{name}-{replicated.get('name', number)}-{index}", job_spec)
            asked = copy_of(mapping(job_set, template, "metadata", f"{where}.template.metadata"))
            told = mapping(job_set, asked, "labels", f"{where}.template.metadata.labels")
            job["metadata"] |= {"labels": told | labels, "annotations": asked.get("annotations") or {}}
            yield job


def _default_restarts(job_set: Object, job_spec: Object, path: str) -> None:
    """As JobSet's webhook: pods of Jobs may not say `Always`, which they would by default."""
    pods = mapping(job_set, mapping(job_set, job_spec, "template", path), "spec", f"{path}.spec")
    if pods:
        pods["restartPolicy"] = pods.get("restartPolicy") or "OnFailure"


def _claim_volumes(job_set: Object, spec: Object, job_spec: Object) -> None:
    """A volume for each claim of the JobSet's `volumeClaimPolicies` that a container mounts."""
    pod = (job_spec.get("template") or {}).get("spec") or {}
    containers = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    mounted = {mount.get("name") for container in containers for mount in container.get("volumeMounts") or ()}
    for policy in listed(job_set, spec, "volumeClaimPolicies", "spec.volumeClaimPolicies"):
        for template in listed(job_set, policy, "templates", "spec.volumeClaimPolicies.templates"):
            name = mapping(job_set, template, "metadata", "spec.volumeClaimPolicies.templates.metadata").get("name")
            if name in mounted:
                claim = {"claimName": f"{name}-{job_set['metadata']['name']}"}
                pod["volumes"] = [*(pod.get("volumes") or ()), {"name": name, "persistentVolumeClaim": claim}]


def mark_pods(owner: Object, job_spec: Object, field: str, pairs: dict[str, str], path: str) -> None:
    """Gives the template of a Job's pods these labels or annotations (`field`)."""
    template = mapping(owner, job_spec, "template", f"{path}.template")
    metadata = mapping(owner, template, "metadata", f"{path}.template.metadata")
    told = mapping(owner, metadata, field, f"{path}.template.metadata.{field}")
    job_spec["template"] = {**template, "metadata": {**metadata, field: {**told, **pairs}}}
