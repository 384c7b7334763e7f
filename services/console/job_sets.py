"""What a JobSet says, or that of a TrainJob, and is not simulated: which of its jobs start first, and that none stands
beside another. Its jobs are all made at once, and placed like any others, so that a warning tells it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from services.console.misspelt import all_metadata, named
from services.simulator.operators import admitted
from services.simulator.operators.jobset import RUNTIMES

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
HAVING = {("jobset.x-k8s.io", "JobSet"), ("trainer.kubeflow.org", "TrainJob")}
AT_ONCE = "has no effect here: all of its jobs are made at once"
BESIDE = "has no effect here: its jobs may share such a domain"


def unsimulated(objects: Sequence[dict[str, Any]]) -> list[str]:
    """One sentence for each, in the order of the objects."""
    runtimes = [obj for obj in objects if obj["kind"] in RUNTIMES]
    having = (obj for obj in objects if (obj["apiVersion"].rpartition("/")[0], obj["kind"]) in HAVING)
    return [f"{named(obj)}: {said}" for obj in having for said in _of(obj, runtimes)]


def _of(obj: dict[str, Any], runtimes: Sequence[dict[str, Any]]) -> Iterator[str]:
    made, _ = admitted([obj, *runtimes])  # none of what its webhook refuses, which is told elsewhere
    for job_set in (one for one in made if one["kind"] == "JobSet"):
        whose = "its JobSet's " if job_set is not obj else ""
        yield from (whose + said for said in (*_of_order(job_set["spec"]), *_of_topology(job_set)))


def _of_order(spec: dict[str, Any]) -> Iterator[str]:
    policy, replicated = spec.get("startupPolicy"), spec.get("replicatedJobs") or []
    if isinstance(policy, dict) and policy.get("startupPolicyOrder") == "InOrder" and len(replicated) > 1:
        yield f"spec.startupPolicy.startupPolicyOrder {AT_ONCE}"
    for number, one in enumerate(replicated):
        if one.get("dependsOn"):
            yield f"spec.replicatedJobs[{number}].dependsOn {AT_ONCE}"


def _of_topology(job_set: dict[str, Any]) -> Iterator[str]:
    for path, metadata, _ in all_metadata(job_set):
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and annotations.get(EXCLUSIVE):
            yield f"{path}.annotations[{EXCLUSIVE}] {BESIDE}"
