"""Small objects."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def node(name: str, **allocatable: str) -> Object:
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"} | {k.replace("_", "/"): v for k, v in allocatable.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"capacity": room}}


def pod(name: str, *, cpu: str = "1", annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"containers": [container], **spec},
    }


def template(labels: dict[str, str] | None = None, *, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"labels": labels or {"app": "x"}, "annotations": annotations or {}},
        "spec": {"containers": [{"name": "main", "image": "x"}], **spec},
    }


def workload(kind: str, name: str, **spec: Any) -> Object:
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    base: Object = {"template": template(restartPolicy="Never")} if kind == "Job" else {"template": template()}
    if kind != "Job":
        base["selector"] = {"matchLabels": {"app": "x"}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {**base, **spec}}
