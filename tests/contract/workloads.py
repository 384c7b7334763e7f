"""The second contract: the pods of workloads are those that `services.simulator.workloads` expands them to.

Holds wherever controllers run: in the simulator, and on a real kube-apiserver with the kube-controller-manager's
deployment, replicaset, statefulset and job controllers. Collected like `tests.contract.suite`.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from services.simulator.workloads import pods_of
from tests.contract.client import Client, Object, eventually
from tests.contract.suite import client  # noqa: F401  the fixture

LABELS = {"app": "x"}
TEMPLATE: Object = {
    "metadata": {"labels": LABELS, "annotations": {"note": "kept"}},
    "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]},
}
REPLICATED: Object = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
CLAIM: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
CLAIMING: Object = {**REPLICATED, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": CLAIM}]}
ONCE: Object = {"template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Deployment", {**REPLICATED, "replicas": 2}),
        ("ReplicaSet", {**REPLICATED, "replicas": 2}),
        ("StatefulSet", {**REPLICATED, "replicas": 2, "serviceName": "svc", "podManagementPolicy": "Parallel"}),
        ("StatefulSet", {**CLAIMING, "replicas": 2, "serviceName": "svc", "podManagementPolicy": "Parallel"}),
        ("Job", {**ONCE, "parallelism": 2, "completions": 3}),
        ("Job", {**ONCE, "parallelism": 2, "completions": 3, "completionMode": "Indexed"}),
        ("Job", {**ONCE, "parallelism": 2}),
    ],
)
async def test_a_workload_makes_the_pods_that_it_is_expanded_to(
    client: Client,  # noqa: F811
    kind: str,
    spec: Object,
) -> None:
    group = "batch" if kind == "Job" else "apps"
    path = f"/apis/{group}/v1/namespaces/{client.namespace}/{kind.lower()}s"
    metadata = {"name": "w", "namespace": client.namespace}
    made = (await client.post(path, {"metadata": metadata, "spec": spec})).ok(201)
    expected = list(pods_of({**made, "spec": spec}))
    listed = await eventually(
        lambda: client.get(client.pods), lambda answer: len(answer.body["items"]) == len(expected)
    )
    assert sorted(map(seen, listed.ok()["items"]), key=str) == sorted(map(seen, expected), key=str)


def seen(pod: Object) -> Object:
    """What a scheduler sees of a pod's making, with hashes, UIDs and random suffixes taken out."""
    metadata, spec = pod["metadata"], pod["spec"]
    hashed = metadata["labels"].get("pod-template-hash", "-")

    def told(value: Any) -> str:
        text = str(value).replace(hashed, "HASH") if hashed != "-" else str(value)
        text = re.sub(r"^w-[a-z0-9]{6,10}$", "w-HASH", text)
        text = re.sub(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$", "-RANDOM", text)
        return re.sub(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "UID", text)

    return {
        "name": told(metadata["name"]),
        "generateName": told(metadata["generateName"]),
        "labels": {name: told(value) for name, value in metadata["labels"].items()},
        "annotations": metadata["annotations"],
        "owners": [
            {field: told(value) for field, value in reference.items()} for reference in metadata["ownerReferences"]
        ],
        "place": {field: spec.get(field) for field in ("hostname", "subdomain", "schedulerName", "restartPolicy")}
        | ({} if spec.get("restartPolicy") else {"restartPolicy": "Always"}),
        "claims": [volume for volume in spec.get("volumes") or () if "persistentVolumeClaim" in volume],
    }
