"""Objects that tests and benchmarks put into a cluster: ready nodes, pods, gangs."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
GANG_LABEL = "scheduling.x-k8s.io/pod-group"
SCHEDULER = "muster"


def node(
    name: str, *, cpu: str = "32", memory: str = "256Gi", gpus: int = 8, pods: int = 110, kubelet: bool = False
) -> Object:
    """A ready node. With `kubelet` KWOK keeps it alive and runs its pods; without, nobody touches it."""
    room = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(gpus), "pods": str(pods), "ephemeral-storage": "100Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
            "annotations": {"kwok.x-k8s.io/node": "fake"} if kubelet else {},
        },
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake"}],
        },
    }


def nodes(count: int, **room: Any) -> list[Object]:
    return [node(f"node-{number:05d}", **room) for number in range(count)]


def pod(
    name: str,
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    scheduler: str = SCHEDULER,
    cpu: str = "1",
    memory: str = "1Gi",
    gpus: int = 1,
    **spec: Any,
) -> Object:
    """A pod that asks for this much; further fields go into its spec."""
    requests = {"cpu": cpu, "memory": memory} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests, "limits": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"schedulerName": scheduler, "containers": [container]} | spec,
    }


def pod_group(name: str, minimum: int, *, namespace: str = "default", timeout_s: int | None = None) -> Object:
    """A PodGroup of the coscheduling dialect."""
    spec = {"minMember": minimum} | ({} if timeout_s is None else {"scheduleTimeoutSeconds": timeout_s})
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def gang(name: str, size: int, *, namespace: str = "default", **asks: Any) -> list[Object]:
    """The pods of one gang, without its PodGroup."""
    labels = {GANG_LABEL: name}
    return [pod(f"{name}-{number:03d}", namespace=namespace, labels=labels, **asks) for number in range(size)]


def gangs(count: int, size: int, **asks: Any) -> tuple[list[Object], list[Object]]:
    """(PodGroups, pods) of `count` gangs whose minimum is their size, gang by gang."""
    names = [f"gang-{number:03d}" for number in range(count)]
    return [pod_group(name, size) for name in names], [one for name in names for one in gang(name, size, **asks)]
