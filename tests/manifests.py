"""Kubernetes objects as users and kubelets write them, with no more in them than a test asks for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from services.simulator.manifests import read_yaml
from services.simulator.operators import admitted

Object = dict[str, Any]

GANG = "scheduling.x-k8s.io/pod-group"
"""The label that puts a pod into the gang of a PodGroup."""


def node(name: str, **allocatable: str) -> Object:
    """A node with 4 CPUs, 8 GiB and room for 110 pods, but for what `allocatable` says."""
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"} | allocatable}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def pod(name: str, gang: str = "", cpu: str = "1", *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """The pod ``default/name``, a candidate; of the gang of the PodGroup `gang`, if any."""
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    marks = {**(labels or {}), **({GANG: gang} if gang else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": marks},
        "spec": {"schedulerName": "muster", "containers": containers, **spec},
    }


def pod_group(name: str, minimum: int) -> Object:
    """The PodGroup ``default/name``."""
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": minimum},
    }


def load_yaml(paths: Iterable[Path | str]) -> list[Object]:
    """All objects of the files. Raises ManifestError for the first that cannot be taken."""
    objects, refused = read_yaml(list(paths))
    if refused:
        raise refused[0]
    return objects


def operated(objects: list[Object]) -> list[Object]:
    """The objects, each followed by what its controller makes of it. Raises what a webhook says where one refuses."""
    made, refused = admitted(objects)
    if refused:
        raise refused[0]
    return made
