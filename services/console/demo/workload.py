"""What `muster demo` runs when it is given nothing else: a cluster of 96 nodes and a workload that has it all.

Two training jobs each need 300 of the 512 GPUs. Placed pod by pod, each would get hold of about half, and neither would
ever start; as gangs one runs, and the other when that one has finished. Around them: smaller gangs in two of
coscheduling's dialects, Deployments, a StatefulSet, single pods, and a gang that fits only a larger cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.simulator.kubelet import DURATION

Object = dict[str, Any]

NAMESPACE = "demo"
GPU = "nvidia.com/gpu"
POD_GROUP = "scheduling.x-k8s.io/pod-group"
LEGACY_NAME = "pod-group.scheduling.x-k8s.io/name"
LEGACY_MINIMUM = "pod-group.scheduling.x-k8s.io/min-available"


def nodes() -> Iterator[Object]:
    """64 nodes with eight GPUs each, 32 without."""
    for number in range(64):
        yield _node(f"gpu-{number:02}", {"cpu": "96", "memory": "768Gi", "pods": "110", GPU: "8"})
    for number in range(32):
        yield _node(f"cpu-{number:02}", {"cpu": "32", "memory": "128Gi", "pods": "110"})


def workload() -> Iterator[Object]:
    """1,261 pods, 1,181 of which find a place."""
    yield from _gang("llama-a", 300, {"cpu": "4", "memory": "16Gi", GPU: "1"}, runs_ms=4_000)
    yield from _gang("llama-b", 300, {"cpu": "4", "memory": "16Gi", GPU: "1"})
    for number in range(8):
        runs_ms = 1_500 if number % 2 else 0
        yield from _gang(f"tune-{number}", 8, {"cpu": "4", "memory": "16Gi", GPU: "1"}, runs_ms=runs_ms)
    for number in range(6):
        yield from _gang(f"mpi-{number}", 20, {"cpu": "2", "memory": "4Gi"})
    yield from _gang("too-large", 80, {"cpu": "8", "memory": "64Gi", GPU: "8"})
    yield _replicas("ReplicaSet", "legacy", 12, {LEGACY_NAME: "legacy", LEGACY_MINIMUM: "6"})
    yield _replicas("Deployment", "web", 160, {})
    yield _replicas("Deployment", "api", 120, {})
    yield _replicas("StatefulSet", "db", 5, {})
    for number in range(100):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"single-{number:03}", "namespace": NAMESPACE},
            "spec": _pod_spec({"cpu": "250m", "memory": "512Mi"}),
        }


def _node(name: str, offers: dict[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": offers, "allocatable": offers, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _pod_spec(asks: dict[str, str]) -> Object:
    limits = {resource: quantity for resource, quantity in asks.items() if "/" in resource}
    resources = {"requests": asks} | ({"limits": limits} if limits else {})
    return {"schedulerName": "muster", "containers": [{"name": "main", "image": "demo", "resources": resources}]}


def _gang(name: str, pods: int, asks: dict[str, str], runs_ms: int = 0) -> Iterator[Object]:
    """A PodGroup and the Job whose pods belong to it; `runs_ms` 0: for ever."""
    yield {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": pods},
    }
    metadata: Object = {"labels": {POD_GROUP: name}}
    if runs_ms:
        metadata["annotations"] = {DURATION: str(runs_ms)}
    yield {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"metadata": metadata, "spec": _pod_spec(asks) | {"restartPolicy": "Never"}},
        },
    }


def _replicas(kind: str, name: str, replicas: int, labels: dict[str, str]) -> Object:
    labels = {"app": name, **labels}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec({"cpu": "500m", "memory": "1Gi"})},
        },
    }
