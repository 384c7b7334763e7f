"""DaemonSets: `services.simulator.daemons` against the real controller, on the same nodes."""

from __future__ import annotations

from typing import Any

from deploy.e2e.api import Api
from deploy.e2e.processes import Process
from services.simulator.daemons import TOLERATED, target
from services.simulator.workloads import pods_of
from tests.e2e.cluster import until

Object = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OFFLINE = "node.kubernetes.io/network-unavailable"
BRIEF = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}


def nodes() -> list[Object]:
    tainted = [
        *((key, "", effect) for key, effect in TOLERATED),
        *(("gpu", "", effect) for effect in ("NoSchedule", "NoExecute", "PreferNoSchedule")),
        *((OFFLINE, "", "NoSchedule"), ("size", "5", "NoSchedule")),
    ]
    labels: list[dict[str, str]] = [{}, {"gpu": "4"}, {"gpu": "8", "old": ""}, {"gpu": "007"}, {"gpu": "-"}]
    bare = [_node(f"labels-{place}", each, []) for place, each in enumerate(labels)]
    return bare + [
        _node(f"taint-{place}", {}, [{"key": key, "value": value, "effect": effect}])
        for place, (key, value, effect) in enumerate(tainted)
    ]


def _node(name: str, labels: dict[str, str], taints: list[Object]) -> Object:
    metadata = {"name": name, "labels": {label: value for label, value in labels.items() if value != "-"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}}


def specs() -> list[Object]:
    """What templates of DaemonSets may say of where their pods go."""
    asked = [("In", ["4", "8"]), ("NotIn", ["4"]), ("Exists", []), ("DoesNotExist", []), ("Gt", ["4"]), ("Lt", ["8"])]
    terms: list[Object] = [{"matchExpressions": [{"key": "gpu", "operator": op, "values": to}]} for op, to in asked]
    terms += [
        {"matchFields": [{"key": "metadata.name", "operator": op, "values": ["labels-1"]}]} for op in ("In", "NotIn")
    ]
    tolerated = [{"key": "gpu", "operator": "Exists"}, {"key": "size", "value": "5"}, {"operator": "Exists"}, BRIEF]
    wishing = {REQUIRED: {"nodeSelectorTerms": [terms[0], {}]}, PREFERRED: [{"weight": 1, "preference": terms[2]}]}
    return [
        *({}, {"hostNetwork": True}, {"nodeSelector": {"gpu": "4"}}, {"nodeName": "labels-2"}),
        *({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}} for term in terms),
        {"affinity": {"nodeAffinity": wishing}, "nodeSelector": {"gpu": "8"}},
        *({"tolerations": [each]} for each in tolerated),
    ]


PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


async def test_the_same_pods_are_made_as_by_the_daemon_set_controller(api: Api, controllers: Process) -> None:
    there = [await api.create(node) for node in nodes()]
    expected: list[Object] = []
    for place, spec in enumerate(specs()):
        labels = {"app": f"d{place}"}
        container = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}}
        made = await api.create(
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": f"d{place}", "namespace": "default"},
                "spec": {"selector": {"matchLabels": labels}, "template": template},
            }
        )
        expected += pods_of({"apiVersion": "apps/v1", "kind": "DaemonSet", **made}, there)
    assert len({target(pod) for pod in expected}) == len(there)

    async def as_many() -> bool:
        return len(await api.items("/api/v1/namespaces/default/pods")) >= len(expected)

    await until(as_many, "the controller makes its pods")
    found = await api.items("/api/v1/namespaces/default/pods")
    assert sorted(map(seen, found), key=str) == sorted(map(seen, expected), key=str)


def seen(pod: Object) -> Object:
    """What a scheduler sees of it. The suffix of its name, and the template's hash, are others."""
    metadata, spec = pod["metadata"], pod["spec"]
    labels = {label: "" if label == "controller-revision-hash" else said for label, said in metadata["labels"].items()}
    tolerations = [{field: said for field, said in one.items() if said} for one in spec["tolerations"]]
    return {
        "node": target(pod),
        "generateName": metadata["generateName"],
        "labels": labels,
        "owners": metadata["ownerReferences"],
        "affinity": spec["affinity"],
        "tolerations": sorted(tolerations, key=str),
        "host": spec.get("hostNetwork"),
    }
