"""The kinds that the simulated API serves, and what discovery says of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@dataclass(frozen=True, slots=True)
class Resource:
    """One plural under one group and version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    status: bool = False
    """Whether there is a status subresource: then writes to the object leave its status alone, and vice versa."""
    custom: bool = False
    """Defined by a CustomResourceDefinition: no strategic merge, no unconditional update."""
    generation: bool = True
    """Whether changes of the spec raise metadata.generation."""
    subresources: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    """What users call it: kubectl asks discovery what ``po`` is."""
    categories: tuple[str, ...] = ()

    @property
    def names(self) -> dict[str, list[str]]:
        """What it can be asked for by, beside plural and kind, as discovery says it."""
        said = {"shortNames": self.short, "categories": self.categories}
        return {field: list(names) for field, names in said.items() if names}

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def qualified(self, subresource: str = "") -> str:
        """``pods``, ``pods/binding``, ``podgroups.scheduling.x-k8s.io``: how messages name it."""
        plural = f"{self.plural}/{subresource}" if subresource else self.plural
        return f"{plural}.{self.group}" if self.group else plural


ALL = ("all",)
"""The category of what ``kubectl get all`` asks for."""
POD = ("binding", "eviction", "resize")
BUILT_IN = (
    Resource("", "v1", "namespaces", "Namespace", namespaced=False, status=True, generation=False, short=("ns",)),
    Resource("", "v1", "nodes", "Node", namespaced=False, status=True, generation=False, short=("no",)),
    Resource("", "v1", "pods", "Pod", status=True, subresources=POD, short=("po",), categories=ALL),
    Resource("", "v1", "limitranges", "LimitRange", generation=False, short=("limits",)),
    Resource("", "v1", "events", "Event", generation=False, short=("ev",)),
    Resource("events.k8s.io", "v1", "events", "Event", generation=False, short=("ev",)),
    Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short=("pc",)),
    Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False),
    Resource("apps", "v1", "deployments", "Deployment", status=True, short=("deploy",), categories=ALL),
    Resource("apps", "v1", "replicasets", "ReplicaSet", status=True, short=("rs",), categories=ALL),
    Resource("apps", "v1", "statefulsets", "StatefulSet", status=True, short=("sts",), categories=ALL),
    Resource("apps", "v1", "daemonsets", "DaemonSet", status=True, short=("ds",), categories=ALL),
    Resource("batch", "v1", "jobs", "Job", status=True, categories=ALL),
    Resource("coordination.k8s.io", "v1", "leases", "Lease", generation=False),
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        status=True,
        short=("crd", "crds"),
        categories=("api-extensions",),
    ),
)

PODGROUPS_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "podgroups.scheduling.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"},
    },
    "spec": {
        "group": "scheduling.x-k8s.io",
        "names": {
            "kind": "PodGroup",
            "listKind": "PodGroupList",
            "plural": "podgroups",
            "singular": "podgroup",
            "shortNames": ["pg", "pgs"],
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "minMember": {"type": "integer", "format": "int32"},
                                    "minResources": {
                                        "type": "object",
                                        "additionalProperties": {"x-kubernetes-int-or-string": True},
                                    },
                                    "scheduleTimeoutSeconds": {"type": "integer", "format": "int32"},
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
"""The PodGroup of scheduler-plugins. A cluster may lack it: then its path answers 404."""

NATIVE_GANGS = (
    Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup", status=True),
    Resource("scheduling.k8s.io", "v1alpha2", "workloads", "Workload"),
)
"""Kubernetes' own gangs (1.36), which a cluster has with the gates GenericWorkload and GangScheduling."""


def pod_groups_crd(api_version: str, *, status: bool = True) -> dict[str, Any]:
    """The PodGroup of another API group; its spec may say what it likes beside the integers that all have.

    `status`: whether it has the subresource. Koordinator's and Volcano's have none.
    """
    group, _, version = api_version.partition("/")
    (own,) = PODGROUPS_CRD["spec"]["versions"]
    schema = own["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"] | {"x-kubernetes-preserve-unknown-fields": True}
    served = own | {
        "name": version,
        "schema": {"openAPIV3Schema": schema | {"properties": schema["properties"] | {"spec": spec}}},
    }
    if not status:
        del served["subresources"]
    return {
        **PODGROUPS_CRD,
        "metadata": {**PODGROUPS_CRD["metadata"], "name": f"podgroups.{group}"},
        "spec": {**PODGROUPS_CRD["spec"], "group": group, "versions": [served]},
    }


def from_crd(crd: dict[str, Any]) -> Iterator[Resource]:
    """One resource for each served version. Raises msgspec.ValidationError for a definition without what a name needs."""
    spec = msgspec.convert(crd, _Definition).spec
    for version in spec.versions:
        if version.served:
            yield Resource(
                spec.group,
                version.name,
                spec.names.plural,
                spec.names.kind,
                namespaced=spec.scope == "Namespaced",
                status="status" in (version.subresources or {}),
                custom=True,
                short=tuple(spec.names.short_names or ()),
                categories=tuple(spec.names.categories or ()),
            )


class _Version(msgspec.Struct):
    name: str
    served: bool = True
    subresources: dict[str, Any] | None = None


class _Names(msgspec.Struct, rename="camel"):
    plural: str
    kind: str
    short_names: list[str] | None = None
    categories: list[str] | None = None


class _Spec(msgspec.Struct):
    group: str
    names: _Names
    versions: list[_Version]
    scope: str = "Namespaced"


class _Definition(msgspec.Struct):
    """A CustomResourceDefinition, as far as it matters here."""

    spec: _Spec


def resource_list(resources: Iterable[Resource], group: str, version: str) -> dict[str, Any] | None:
    """The APIResourceList of one group and version; None where nothing is served under it."""
    served: list[dict[str, Any]] = []
    for resource in resources:
        if (resource.group, resource.version) != (group, version):
            continue
        base = {"singularName": resource.kind.lower(), "namespaced": resource.namespaced, "kind": resource.kind}
        served.append({"name": resource.plural, **base, **resource.names, "verbs": VERBS})
        if resource.status:
            served.append({"name": f"{resource.plural}/status", **base, "verbs": ["get", "patch", "update"]})
        for sub in resource.subresources:
            kind, verbs = {
                "binding": ("Binding", ["create"]),
                "eviction": ("Eviction", ["create"]),
                "resize": ("Pod", ["get", "patch", "update"]),
            }[sub]
            served.append({"name": f"{resource.plural}/{sub}", **base, "kind": kind, "verbs": verbs})
    if not served:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": served,
    }


def group_of(resources: Iterable[Resource], group: str) -> dict[str, Any] | None:
    """The APIGroup; None where it is not served."""
    versions = list(dict.fromkeys(r.version for r in resources if r.group == group))
    if not versions:
        return None
    told = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": told, "preferredVersion": told[0]}


def group_list(resources: Iterable[Resource]) -> dict[str, Any]:
    """The APIGroupList: every group but the core."""
    resources = list(resources)
    names = dict.fromkeys(r.group for r in resources if r.group)
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group_of(resources, name) for name in names]}


def group_discovery(resources: Iterable[Resource]) -> dict[str, Any]:
    """The same as aggregated discovery says it, resources and subresources included."""
    groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for resource in resources:
        if resource.group:
            subresources = ("status",) * resource.status + resource.subresources
            told = {
                "resource": resource.plural,
                "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "singularResource": resource.kind.lower(),
                "verbs": VERBS,
                **resource.names,
                "subresources": [{"subresource": name, "verbs": ["get", "patch", "update"]} for name in subresources],
            }
            groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(told)
    items = [
        {
            "metadata": {"name": name},
            "versions": [
                {"version": version, "resources": told, "freshness": "Current"} for version, told in versions.items()
            ],
        }
        for name, versions in groups.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
