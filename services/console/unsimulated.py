"""What a JobSet says, or that of a TrainJob, or Volcano's Job, and is not simulated: which of its jobs or tasks start
first, and that none stands beside another. They are all made at once, and placed like any others; a warning tells it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from services.console.misspelt import all_metadata, named
from services.simulator.operators import admitted
from services.simulator.operators.trainer import RUNTIMES

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
HAVING = {("jobset.x-k8s.io", "JobSet"), ("trainer.kubeflow.org", "TrainJob")}
HAVING |= {("batch.volcano.sh", kind) for kind in ("Job", "CronJob")}
AT_ONCE = "has no effect here: all of its jobs are made at once"
TASKS_AT_ONCE = "has no effect here: the pods of all tasks are made at once"
BESIDE = "has no effect here: its jobs may share such a domain"


def unsimulated(objects: Sequence[dict[str, Any]]) -> list[str]:
    """One sentence for each, in the order of the objects."""
    runtimes = [obj for obj in objects if obj["kind"] in RUNTIMES]
    having = (obj for obj in objects if _group_and_kind(obj) in HAVING)
    return [f"{named(obj)}: {said}" for obj in having for said in _of(obj, runtimes)]


def _group_and_kind(obj: dict[str, Any]) -> tuple[str, str]:
    return obj["apiVersion"].rpartition("/")[0], obj["kind"]


def _of(obj: dict[str, Any], runtimes: Sequence[dict[str, Any]]) -> Iterator[str]:
    made, _ = admitted([obj, *runtimes])  # none of what its webhook refuses, which is told elsewhere
    for one in made:
        whose, spec = f"its {one['kind']}'s " if one is not obj else "", one.get("spec") or {}
        match _group_and_kind(one):
            case ("jobset.x-k8s.io", "JobSet"):
                said = (*_of_order(spec), *_of_topology(one))
            case ("batch.volcano.sh", "Job"):
                said = (*_of_dependence(spec, "tasks", TASKS_AT_ONCE),)
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
