"""What jobs say and is not simulated; a warning tells it.

- A JobSet, or that of a TrainJob, or Volcano's Job: which of its jobs or tasks start first, and that none stands beside
  another. They are all made at once, and placed like any others.
- A TrainJob of Trainer 2.1 or before: overrides of its pods, which are `runtimePatches` by now.
- A job whose pods another controller makes, such as MultiKueue's, which makes them in another cluster.
- A Job of which Kubernetes' own controller makes a gang, as it asks for by `scheduling` (1.37, WorkloadWithJob).
- A StatefulSet whose pods are made one by one, each when the one before it is ready, which is the default. They are made
  at once, and a gang of them would start here, and never in a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from services.console.misspelt import all_metadata, named
from services.console.unread_gangs import names_gang
from services.simulator.operators import admitted, group_and_kind
from services.simulator.operators.kubeflow import REPLICA_SPECS
from services.simulator.operators.trainer import RUNTIMES
from services.simulator.workloads import count, is_workload

ORDERED = "OrderedReady"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
HAVING = {("jobset.x-k8s.io", "JobSet"), ("trainer.kubeflow.org", "TrainJob")}
HAVING |= {("batch.volcano.sh", kind) for kind in ("Job", "CronJob")}
MANAGERS = {
    ("batch", "Job"): ("kubernetes.io/job-controller",),
    ("jobset.x-k8s.io", "JobSet"): ("jobset.sigs.k8s.io/jobset-controller",),
    ("trainer.kubeflow.org", "TrainJob"): ("trainer.kubeflow.org/trainjob-controller",),
    **{
        ("kubeflow.org", kind): ("kubeflow.org/training-operator", "kubeflow.org/mpi-operator")
        for kind in REPLICA_SPECS
    },
}
"""(API group, kind) → how `managedBy` names its own controllers, which are meant where it is not said."""
AT_ONCE = "has no effect here: all of its jobs are made at once"
TASKS_AT_ONCE = "has no effect here: the pods of all tasks are made at once"
NO_GANG = "spec.scheduling has no effect here: no PodGroup is made of its pods"
OVERRIDES = "spec.podTemplateOverrides has no effect here: Trainer reads spec.runtimePatches"
BESIDE = "has no effect here: its jobs may share such a domain"
ONE_BY_ONE = (
    f"spec.podManagementPolicy is {ORDERED}: a cluster makes each pod when the one before it is ready, so that a gang "
    "that needs several of them never starts. Parallel makes them at once, as `muster simulate` does in any case"
)
"""Said by the demo, too, whose cluster does so."""


def unsimulated(objects: Sequence[dict[str, Any]]) -> list[str]:
    """One sentence for each, in the order of the objects."""
    runtimes = [obj for obj in objects if obj["kind"] in RUNTIMES]
    told = ((obj, (*_of_manager(obj), *_of_scheduling(obj), *_one_by_one(obj), *_of(obj, runtimes))) for obj in objects)
    return [f"{named(obj)}: {said}" for obj, sentences in told for said in sentences]


def _of_manager(obj: dict[str, Any]) -> Iterator[str]:
    kind, field, spec = group_and_kind(obj), "spec", obj.get("spec")
    if kind[0] == "kubeflow.org" and isinstance(spec, dict):
        field, spec = "spec.runPolicy", spec.get("runPolicy")
    manager = spec.get("managedBy") if isinstance(spec, dict) else None
    if kind in MANAGERS and manager not in (None, *MANAGERS[kind]):
        yield f"{field}.managedBy has no effect here: its pods are made as by its own controller"


def _of_scheduling(obj: dict[str, Any]) -> Iterator[str]:
    """Of one whose pods name a PodGroup, or that belongs to another object, the Job controller makes none."""
    if group_and_kind(obj) != ("batch", "Job") or not is_workload(obj) or obj["metadata"].get("ownerReferences"):
        return
    asked, pod_spec = obj["spec"].get("scheduling"), obj["spec"]["template"].get("spec") or {}
    policy = asked.get("schedulingPolicy") if isinstance(asked, dict) else None
    a_gang = isinstance(policy, dict) and policy.get("gang") is not None
    constrained = isinstance(asked, dict) and bool(asked.get("schedulingConstraints"))
    if (a_gang or constrained) and not pod_spec.get("schedulingGroup"):
        yield NO_GANG


def _one_by_one(obj: dict[str, Any]) -> Iterator[str]:
    if obj["kind"] != "StatefulSet" or not is_workload(obj):
        return
    spec, made = obj["spec"], admitted([obj])[0]  # Volcano's controller makes a gang of the pods of some
    ordered = (spec.get("podManagementPolicy") or ORDERED) == ORDERED and count(spec, "replicas") > 1
    metadata, pod_spec = (spec["template"].get(part) or {} for part in ("metadata", "spec"))
    several = any(one["kind"] == "PodGroup" and one["spec"]["minMember"] > 1 for one in made)
    if ordered and (several or names_gang(metadata, pod_spec)):
        yield ONE_BY_ONE


def _of(obj: dict[str, Any], runtimes: Sequence[dict[str, Any]]) -> Iterator[str]:
    if group_and_kind(obj) not in HAVING:
        return
    made, _ = admitted([obj, *runtimes])  # none of what its webhook refuses, which is told elsewhere
    for one in made:
        whose, spec = f"its {one['kind']}'s " if one is not obj else "", one.get("spec") or {}
        match group_and_kind(one):
            case ("jobset.x-k8s.io", "JobSet"):
                said = (*_of_order(spec), *_of_topology(one))
            case ("batch.volcano.sh", "Job"):
                said = (*_of_dependence(spec, "tasks", TASKS_AT_ONCE),)
            case ("trainer.kubeflow.org", "TrainJob") if spec.get("podTemplateOverrides"):
                said = (OVERRIDES,)
            case _:
                said = ()
        yield from (whose + sentence for sentence in said)


def _of_order(spec: dict[str, Any]) -> Iterator[str]:
    policy, replicated = spec.get("startupPolicy"), spec.get("replicatedJobs") or []
    if isinstance(policy, dict) and policy.get("startupPolicyOrder") == "InOrder" and len(replicated) > 1:
        yield f"spec.startupPolicy.startupPolicyOrder {AT_ONCE}"
    yield from _of_dependence(spec, "replicatedJobs", AT_ONCE)


def _of_dependence(spec: dict[str, Any], field: str, at_once: str) -> Iterator[str]:
    for number, one in enumerate(spec.get(field) or []):
        if one.get("dependsOn"):
            yield f"spec.{field}[{number}].dependsOn {at_once}"


def _of_topology(job_set: dict[str, Any]) -> Iterator[str]:
    for path, metadata, _ in all_metadata(job_set):
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and annotations.get(EXCLUSIVE):
            yield f"{path}.annotations[{EXCLUSIVE}] {BESIDE}"
