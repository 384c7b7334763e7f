"""Who waits in vain is told so: what the nodes would have too little of if nothing else ran."""

from __future__ import annotations

from events.objects import HostPort, Taint, Toleration
from tests.facts import scheduling_class
from tests.why import why_waiting
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


def test_amounts_that_differ_are_not_told_as_one() -> None:
    """As it was: no node offers 64Gi memory; the most is 64Gi."""
    world = World()
    world.node("n0", cpu=1_000_000, memory_gi=64)
    most = 64 << 30
    world.facts(scheduling_class("deep", {"memory_bytes": most + 1, "pods": 1}))
    world.pod("deep", of="deep")
    world.pod("wide", cpu=1_000_000.5)
    assert why(world, "deep").endswith(f"a pod offers {most + 1} bytes of memory; the most is {most}.")
    assert why(world, "wide").endswith("a pod offers 1000000.5 cpu; the most is 1000000.")


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
    assert why(world, "train-0").endswith("have a node. If nothing else ran, at most 6 of these 8 would have one.")


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


def test_pods_with_a_host_port_have_a_node_each() -> None:
    world = World()
    for i in range(3):
        world.node(f"n{i}")
    world.gang("train", 4, 4, ports=(HostPort(protocol="TCP", port=80, host_ip="0.0.0.0"),))
    assert why(world, "train-0").endswith("have a node. If nothing else ran, at most 3 of these 4 would have one.")


def test_pods_of_several_classes_share_nodes_so_that_only_the_most_is_said() -> None:
    """Two nodes of 4 take two pods of 3 or two of 2, never two of each."""
    world = World()
    world.node("n0", cpu=4)
    world.node("n1", cpu=4)
    for i in range(3):
        world.pod(f"wide-{i}", "train", minimum=6, cpu=3)
        world.pod(f"narrow-{i}", "train", minimum=6, cpu=2)
    assert why(world, "wide-0").endswith("have a node. If nothing else ran, at most 5 of these 6 would have one.")


def test_a_gang_whose_rules_are_off_needs_one_node_to_go_on() -> None:
    """It ran once, and failed since: each of its pods goes by itself, and none waits in vain for its minimum."""
    world = World()
    world.node("n0", cpu=4)
    uids = world.koordinator("default/train", 4, 3)
    world.settle()
    for uid in uids:
        world.finished(uid, succeeded=False)
        world.pod(f"busy-{uid}", priority=1)
    world.settle()
    for uid in uids[1:]:
        world.deleted(uid)
    world.node("n0", cpu=2)
    world.koordinator("default/train", 4, 3)
    assert why(world, "train-3").endswith("0 of the 1 pods that must start together have a node.")


def test_a_role_whose_rules_are_off_goes_on_without_the_others() -> None:
    """The other role waits in vain. That is not what this one's pods were refused for."""
    world = World()
    world.node("n0", cpu=2)
    roles = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 2, 2)
    world.settle()
    world.koordinator("default/a", 3, 2, roles)
    world.koordinator("default/b", 4, 4, roles)
    assert why(world, "a-2").endswith("0 of the 1 pods that must start together have a node.")


def test_a_role_that_others_keep_out_is_not_told_of_one_whose_rules_are_off() -> None:
    """As it was: the other role's pod waits in vain, and this one, which starts when others end, was told so."""
    world = World()
    world.node("n0", cpu=4)
    roles = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 2, 2)
    world.settle()
    world.pod("other", cpu=2, priority=1)
    world.settle()
    world.koordinator("default/a", 2, 2, roles)
    of_a = world.state.pods["a-0"].fact.gang
    assert of_a is not None
    world.pod("large", "a", cpu=5, dialect="koordinator/v1alpha1", declared=of_a.declared)
    world.koordinator("default/b", 2, 2, roles)
    assert why(world, "b-0").endswith("0 of the 1 pods that must start together have a node.")
    world.deleted("other")
    world.pass_s(2)
    world.settle()
    assert world.where("b-0", "b-1") == ["n0", "n0"]
    assert why(world, "large").endswith("No node that takes such a pod offers 5 cpu; the most is 4.")


def test_pods_of_a_task_beyond_the_minimum_of_the_gang() -> None:
    """Its workers are as many as must start together; of those that store, which only one node takes, two must."""
    world = World()
    world.node("n0", cpu=8, labels={"disk": "ssd"})
    world.node("n1", labels={"disk": "hdd"})
    world.pod_group("job", 6, dialect="volcano/v1beta1", task_minimums={"store": 2})
    for i in range(6):
        world.volcano(f"worker-{i}", "job", "worker", selector={"disk": "hdd"})
    for i in range(2):
        world.volcano(f"store-{i}", "job", "store")
    world.settle()
    for i in range(2):
        world.deleted(f"store-{i}")
    for i in range(2):
        world.volcano(f"store-{i}", "job", "store", cpu=6, selector={"disk": "ssd"})
    assert why(world, "store-1").endswith("If nothing else ran, at most 1 of these 2 would have one.")
