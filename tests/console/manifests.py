"""Nodes, pods and workloads as people write them, and what `muster simulate` answers of them."""

from __future__ import annotations

from events.policy import DEFAULT_POLICY
from services.console.simulate import simulate
from services.state.validate import validate_state


def node(name: str, cpu: str = "8", memory: str = "32Gi", **labels: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}},
    }


def pod_spec(cpu: str = "1", **fields: object) -> dict:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {"containers": [container], **fields}


def pod(name: str, cpu: str = "1", labels: dict | None = None, **fields: object) -> dict:
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(cpu, **fields)}


def workload(kind: str, name: str, replicas: int, labels: dict | None = None, **asks: str) -> dict:
    labels = {"app": name, **(labels or {})}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(**asks)}
    spec: dict = {"template": template}
    if kind == "Job":
        spec |= {"parallelism": replicas, "completions": replicas}
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec |= {"replicas": replicas, "selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def placed(*objects: dict, policy=DEFAULT_POLICY) -> dict:
    simulation = simulate(objects, policy)
    validate_state(simulation.state)
    return simulation.answer()


def given_out(told: dict, **metadata: object) -> dict:
    """As a server says of a pod that it has."""
    told["metadata"] |= {"uid": f"uid-of-{told['metadata']['name']}", **metadata}
    return told
