"""Who waits in vain is told so: what the nodes would have too little of if nothing else ran."""

from __future__ import annotations

from events.objects import Taint, Toleration
from services.console.summary import why_waiting
from tests.world import World

GPUS = Taint(key="gpus", value="", effect="NoSchedule")


def why(world: World, uid: str) -> str:
    world.settle()
    return why_waiting(world.state, world.state.pods[uid])


def test_a_pod_that_is_larger_than_every_node() -> None:
    world = World()
    world.node("n0", cpu=8, memory_gi=32)
    world.node("n1", cpu=16, memory_gi=64)
    world.pod("wide", cpu=20.5)
    world.pod("deep", memory_gi=65)
    assert why(world, "wide").endswith(
        "2 Insufficient cpu. No node that takes such a pod offers 20.5 cpu; the most is 16."
    )
    assert why(world, "deep").endswith("No node that takes such a pod offers 65Gi memory; the most is 64Gi.")


def test_a_resource_that_no_node_has() -> None:
    """As one that is misspelt."""
    world = World()
    world.node("n0")
    world.pod("odd", gpu=1)
    assert why(world, "odd").endswith("No node that takes such a pod offers nvidia.com/gpu.")


def test_a_pod_that_asks_for_what_different_nodes_have() -> None:
    world = World()
    world.node("n0", cpu=2, gpu=8)
    world.node("n1", cpu=64)
    world.pod("both", cpu=32, gpu=1)
    assert why(world, "both").endswith("No node that takes such a pod offers all that it asks for.")


def test_nodes_that_the_pod_may_not_go_to_do_not_count() -> None:
    world = World()
    world.node("n0", cpu=8)
    world.node("n1", cpu=64, taints=(GPUS,))
    world.pod("large", cpu=20)
    world.pod("tolerant", cpu=20, tolerations=(Toleration(key="gpus", operator="Exists", value="", effect=""),))
    assert why(world, "large").endswith("No node that takes such a pod offers 20 cpu; the most is 8.")
    assert world.bound() == ["tolerant"]


def test_where_no_node_takes_it_the_refusal_says_all() -> None:
    world = World()
    world.node("n0", cpu=8, taints=(GPUS,))
    world.pod("small", cpu=1)
    assert why(world, "small").endswith("1 node(s) had untolerated taint {gpus: }.")


def test_who_has_to_wait_for_others_is_not_told_that_it_waits_in_vain() -> None:
    world = World()
    world.node("n0", cpu=8)
    world.gang("first", 6, 6)
    world.gang("second", 8, 8)
    world.settle()
    assert why(world, "second-0").endswith("2 of the 8 pods that must start together have a node.")


def test_a_gang_that_is_larger_than_the_cluster() -> None:
    world = World()
    for i in range(3):
        world.node(f"n{i}", cpu=5)
    world.gang("train", 8, 8, cpu=2)
    assert why(world, "train-0").endswith("have a node. If nothing else ran, only 6 of these 8 would have one.")


def test_what_runs_of_a_gang_is_not_needed_again() -> None:
    world = World()
    world.node("n0", cpu=4)
    world.gang("train", 6, 4)
    assert why(world, "train-5").endswith("have a node.")
    assert len(world.bound()) == 4


def test_a_gang_that_lost_a_pod_since_is_not_told_of_nodes() -> None:
    world = World()
    world.node("n0", cpu=3)
    world.pod("busy", cpu=1, priority=1)
    world.gang("train", 3, 3)
    world.settle()
    world.deleted("train-2")
    assert "nothing else" not in why_waiting(world.state, world.state.pods["train-0"])


def test_a_member_that_fits_nowhere_counts_only_if_the_minimum_needs_it() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.pod("odd", "train", minimum=2, cpu=3)
    for name in ("even-0", "even-1", "busy-0", "busy-1"):
        gang, minimum = ("train", 2) if name.startswith("even") else ("", 0)
        world.pod(name, gang, minimum=minimum, priority=0 if gang else 1)
    assert why(world, "odd").endswith("pods that must start together have a node.")
    world.deleted("even-1")
    assert "No node that takes such a pod offers 3 cpu; the most is 2." in why(world, "odd")
