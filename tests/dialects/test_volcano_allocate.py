"""Volcano's own cases of its action *allocate*, through the real cores under the queue order `kube-batch`.

Seed 004, kube-batch, has that action's code. The cases stand beside the repository. Those are run that ask for nothing
that is not built yet: queues' shares, actions beside allocate, shards of nodes.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from events.policy import DEFAULT_POLICY
from services.console.profiles import PROFILES
from services.console.simulate import simulate
from services.state.validate import validate_state
from tests.shared import SHARED

Object = dict[str, Any]

FILE = SHARED / "oracle" / "volcano_actions.json"
LATER = {
    "allocate_test.go:TestFareShareAllocate[0]": "the queue with the lower share goes first",
}
"""Case → what it asks for that is not built yet."""


def cases() -> list[Object]:
    if not FILE.is_file():
        return []
    found = json.loads(FILE.read_text())["cases"]
    return [case for case in found if case["actions"] == ["allocate"] and "shard" not in case]


def name(case: Object) -> str:
    return str(case["source"]).rpartition("/")[2]


def objects(case: Object) -> list[Object]:
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node["name"], "labels": node.get("labels") or {}},
            "status": {"allocatable": node["allocatable"]},
        }
        for node in case["nodes"]
    ]
    groups = [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": group["name"], "namespace": group["namespace"]},
            "spec": {
                "minMember": group["min_member"],
                "queue": group["queue"],
                "minTaskMember": group.get("min_task_member"),
            },
        }
        for group in case["pod_groups"]
    ]
    return [*nodes, *groups, *map(pod, case["pods"])]


def pod(said: Object) -> Object:
    metadata = {
        "name": said["name"],
        "namespace": said["namespace"],
        "labels": said.get("labels") or {},
        "annotations": {"scheduling.k8s.io/group-name": said["pod_group"]},
    }
    spec: Object = {
        "schedulerName": "volcano",
        "containers": [{"name": "main", "image": "x", "resources": {"requests": said["request"]}}],
        "nodeSelector": said.get("node_selector") or {},
    }
    if said.get("node"):
        spec["nodeName"] = said["node"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("case", [one for one in cases() if name(one) not in LATER], ids=name)
def test_it_binds_what_volcano_binds(case: Object) -> None:
    """Where several nodes are as good, the number counts."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, profile=PROFILES["kube-batch"])
    simulation = simulate(objects(case), policy)
    validate_state(simulation.state)
    placed = {f"{one['namespace']}/{one['name']}" for one in case["pods"] if one.get("node")}
    bound = {uid: node for uid, node in simulation.answer()["bound"].items() if uid not in placed}
    expected = case["expect"]
    assert len(bound) == expected["binds_num"]
    assert len(case["nodes"]) > 1 or bound.items() >= (expected.get("bind_map") or {}).items()


@pytest.mark.skipif(not cases(), reason="../shared is not there")
def test_what_is_left_out_is_a_case() -> None:
    assert LATER.keys() < {name(case) for case in cases()}
