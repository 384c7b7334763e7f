"""Kubernetes objects for ingest's tests, as the API server would send them; an ingest that has seen some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from events import Event
from services.ingest.differ import Ingest
from services.kubernetes.objects import Node, Pod, PodGroup, PriorityClass, Workload

CREATED = "2026-01-02T03:04:05Z"


def metadata(name: str, namespace: str = "", version: int = 1, uid: str = "", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": CREATED,
        **more,
    }


def node(
    name: str = "n1", version: int = 1, uid: str = "", labels: Any = None, spec: Any = None, **status: Any
) -> Node:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return msgspec.convert(
        {
            "metadata": metadata(name, version=version, uid=uid, labels=labels),
            "spec": spec or {},
            "status": {"allocatable": allocatable, **status},
        },
        Node,
    )


def pod(
    name: str = "p1",
    version: int = 1,
    uid: str = "",
    *,
    requests: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: str = "",
    node: str = "",
    phase: str = "Pending",
    reason: str = "",
    deleting: bool = False,
    scheduler: str = "muster",
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    about = metadata(name, "default", version, uid, labels=labels, annotations=annotations)
    if owner:
        about["ownerReferences"] = [{"uid": owner, "controller": True}]
    if deleting:
        about["deletionTimestamp"] = CREATED
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"} if requests is None else requests}}]
    return msgspec.convert(
        {
            "metadata": about,
            "spec": {"schedulerName": scheduler, "nodeName": node, "containers": containers, **spec},
            "status": {"phase": phase, "reason": reason, **(status or {})},
        },
        Pod,
    )


def pod_group(
    name: str = "g1",
    version: int = 1,
    uid: str = "",
    *,
    api: str = "scheduling.x-k8s.io/v1alpha1",
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> PodGroup:
    about = metadata(name, "default", version, uid, annotations=annotations)
    return msgspec.convert({"apiVersion": api, "metadata": about, "spec": spec}, PodGroup)


def workload(name: str = "w1", version: int = 1, uid: str = "", **minimums: int) -> Workload:
    """Of Kubernetes 1.35: its groups by name, with their minimums."""
    groups = [{"name": group, "policy": {"gang": {"minCount": count}}} for group, count in minimums.items()]
    return msgspec.convert(
        {"metadata": metadata(name, "default", version, uid), "spec": {"podGroups": groups}}, Workload
    )


def priority_class(
    name: str = "high", version: int = 1, value: int = 1000, uid: str = "", **more: Any
) -> PriorityClass:
    about = metadata(name, version=version, uid=uid)
    return msgspec.convert({"metadata": about, "value": value, **more}, PriorityClass)


def ingest(*seen: Any) -> Ingest:
    core = Ingest(["muster"])
    for each in seen:
        core.observe(each)
    return core


def names(events: Iterable[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def tables(core: Ingest) -> dict[str, Any]:
    """Whatever an ingest keeps, its books and theirs with it: where it stands → the table, each once."""
    found: dict[str, Any] = {}
    met: set[int] = set()

    def walk(where: str, kept: Any) -> None:
        if id(kept) in met:
            return
        met.add(id(kept))
        if type(kept).__module__.startswith("services.ingest"):
            for name, part in vars(kept).items():
                walk(f"{where}.{name}" if where else name, part)
        elif isinstance(kept, dict) and where in ("named", "_named", "_books"):
            for name, part in kept.items():
                walk(f"{where}.{name}", part)
        elif isinstance(kept, dict):
            found[where] = kept

    walk("", core)
    return found
