"""DaemonSets in `muster simulate`: they take their room on each node that takes them."""

import json
from pathlib import Path

from tests.console.manifests import given_out, node, placed, pod, pod_spec, workload
from tests.manifests import GANG, load_yaml, pod_group


def daemons(name: str, cpu: str = "1", **fields: object) -> dict:
    found = workload("DaemonSet", name, 0)
    found["spec"]["template"]["spec"] = pod_spec(cpu, **fields)
    return found


def test_a_daemon_set_takes_its_room_on_each_node() -> None:
    """As it was: it was named as not read, took no room, and a gang fitted that does not fit."""
    nodes = [node("n1", cpu="4"), node("n2", cpu="4", gpu="yes")]
    gang = [pod_group("g", 4), *(pod(f"g-{number}", "2", {GANG: "g"}) for number in range(4))]
    assert len(placed(*nodes, *gang)["bound"]) == 4
    found = placed(*nodes, daemons("agent"), *gang)
    assert sorted(found["bound"].values()) == ["n1", "n2"]
    assert all(name.startswith("default/agent-") for name in found["bound"])
    assert (found["unread"], found["warnings"], found["rejected"]) == ({}, [], [])
    assert "Insufficient cpu" in found["waiting"]["default/g-0"]
    found = placed(*nodes, daemons("agent", nodeSelector={"gpu": "yes"}), *gang)
    assert list(found["bound"].values()) == ["n2"]


def test_a_daemon_for_which_its_node_has_no_room_waits_for_that_node() -> None:
    found = placed(node("n1", cpu="4"), node("n2", cpu="1"), daemons("agent", "2"))
    assert list(found["bound"].values()) == ["n1"]
    (why,) = found["waiting"].values()
    assert why.startswith("0/2 nodes are available")


def test_a_daemon_goes_to_a_node_that_is_cordoned_and_none_is_made_for_one_that_is_refused() -> None:
    cordoned, odd = node("n1"), node("N2")
    cordoned["spec"] = {
        "unschedulable": True,
        "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    }
    found = placed(cordoned, odd, daemons("agent"))
    assert (list(found["bound"].values()), found["waiting"]) == (["n1"], {})


def test_a_daemon_set_that_no_node_takes_is_told() -> None:
    (said,) = placed(node("n1"), daemons("agent", nodeSelector={"gpu": "yes"}))["warnings"]
    assert said.startswith("DaemonSet default/agent: no pod is made of it: no node has what")


def test_a_daemon_set_listed_with_its_pods_makes_no_others(tmp_path: Path) -> None:
    agent = daemons("agent")
    listed = given_out(
        pod("agent-x7kqb", nodeName="n1"),
        ownerReferences=[
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
        ],
    )
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("n1"), agent, listed]}))
    assert placed(*load_yaml([file]))["bound"] == {"default/agent-x7kqb": "n1"}
