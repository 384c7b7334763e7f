"""The resources that Muster lists, watches and writes, as the API names them."""

from __future__ import annotations

from typing import NamedTuple


class Resource(NamedTuple):
    """A kind of object: its name as errors and RBAC have it, and the path of its list over all namespaces."""

    name: str
    path: str

    @classmethod
    def custom(cls, api_version: str, plural: str) -> Resource:
        """Of an API group that a cluster may lack."""
        return cls(f"{plural}.{api_version.partition('/')[0]}", f"/apis/{api_version}/{plural}")

    @property
    def built_in(self) -> bool:
        """Whether it is Kubernetes' own, defined by no CustomResourceDefinition."""
        return self.path.startswith(("/api/", "/apis/scheduling.k8s.io/"))

    @property
    def plural(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def api_version(self) -> str:
        """What its objects say of themselves: ``v1``, ``scheduling.k8s.io/v1``."""
        return "/".join(self.path.split("/")[2:-1])


NODES = Resource("nodes", "/api/v1/nodes")
PODS = Resource("pods", "/api/v1/pods")
PRIORITY_CLASSES = Resource("priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses")
POD_GROUPS = Resource.custom("scheduling.x-k8s.io/v1alpha1", "podgroups")
WORKLOADS = Resource.custom("scheduling.k8s.io/v1alpha1", "workloads")
