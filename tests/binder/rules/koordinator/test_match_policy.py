"""Seed 002, After Gang, failed bindings and failover; and the later code's match policies."""

import events as ev
from events.objects import NodeAssignment
from services.state.partitions import partition_of
from tests.world import World, of_type

BOTH = ("default/a", "default/b")


def running(says: dict[str, object] | None = None) -> World:
    """The gang ``default/a`` of three, bound; its node has room for more."""
    world = World()
    world.node("n0")
    world.koordinator("default/a", 3, 3, says)
    world.settle()
    return world


def lose(world: World, *uids: str) -> None:
    for uid in uids:
        world.deleted(uid)


def test_once_satisfied_later_pods_are_no_longer_constrained() -> None:
    """When once Gang has been satisfied, all subsequent resource allocations are no longer constrained by Gang rules, and
    their performance is similar to ordinary pod."""
    world = running()
    lose(world, "a-1", "a-2")
    world.koordinator("default/a", 2, 3)
    world.settle()
    assert world.bound() == ["a-0", "a-1"], "two of a minimum of three"


def test_later_pods_that_do_not_fit_keep_no_others_waiting() -> None:
    world = running()
    lose(world, "a-1", "a-2")
    world.pod("large", node="n0", candidate=False, cpu=6)
    world.koordinator("default/a", 3, 3)
    world.settle()
    assert len(world.bound()) == 3, "large, the first, and one more"
    assert world.state.groups["default/a"].cohort


def test_a_gang_of_a_group_that_is_not_satisfied_keeps_no_satisfied_one_waiting() -> None:
    world = running()
    groups = {"groups": BOTH}
    world.koordinator("default/a", 4, 3, groups)
    world.koordinator("default/b", 1, 2, groups)
    assert world.state.groups["default/a"].gangs == BOTH
    world.settle()
    assert world.bound() == ["a-0", "a-1", "a-2", "a-3"]
    world.koordinator("default/b", 2, 2, groups)
    world.settle()
    assert len(world.bound()) == 6


def test_nor_does_a_satisfied_one_that_lost_pods_keep_the_others_waiting() -> None:
    """It needs no minimum any more."""
    world = running()
    lose(world, "a-1", "a-2")
    groups = {"groups": BOTH}
    world.koordinator("default/a", 1, 3, groups)
    world.koordinator("default/b", 2, 2, groups)
    world.settle()
    assert world.bound() == ["a-0", "b-0", "b-1"]


def test_later_pods_are_bound_beside_a_gang_that_waits_at_permit() -> None:
    world = running()
    groups = {"groups": BOTH}
    world.koordinator("default/a", 4, 3, groups)
    world.koordinator("default/b", 2, 2, groups)
    world.propose("default/a", {"b-0": "n0", "a-3": "n0"})
    permit, hold = world.judge()
    assert isinstance(permit, ev.GangPermitted)
    assert [(one.node, [pod.uid for pod in one.pods]) for one in permit.bindings] == [("n0", ["a-3"])]
    assert isinstance(hold, ev.GangHeld)
    assert list(world.state.groups["default/a"].held) == ["b-0"]


def test_later_pods_alone_are_bound_and_nothing_waits() -> None:
    world = running()
    groups = {"groups": BOTH}
    world.koordinator("default/a", 4, 3, groups)
    world.koordinator("default/b", 1, 2, groups)
    place = world.propose("default/a", {}, {"a-3": "n0"})
    (permit,) = world.judge()
    assert isinstance(permit, ev.GangPermitted)
    assert permit.proposals == (place,)
    assert list(world.state.permitted) == ["a-3"]


def test_a_node_may_be_named_for_pods_of_both() -> None:
    """Those of the gang that starts yet are required together, the later pods of the other one by one."""
    world = running()
    groups = {"groups": BOTH}
    world.node("n1")
    world.koordinator("default/a", 4, 3, groups)
    world.koordinator("default/b", 3, 3, groups)
    optional = (NodeAssignment("n0", ("b-0", "a-3", "b-1")), NodeAssignment("n1", ("b-2",)))
    placed = ev.GangPlaced(group="default/a", partition=partition_of("default/a"), required=(), optional=optional)
    world.append("planner.a", [placed], cause="by hand")
    (permit,) = world.judge()
    assert isinstance(permit, ev.GangPermitted)
    assert [(one.node, [pod.uid for pod in one.pods]) for one in permit.bindings] == [
        ("n0", ["b-0", "b-1"]),
        ("n1", ["b-2"]),
        ("n0", ["a-3"]),
    ]


def test_a_failed_binding_rolls_back_that_pod_only() -> None:
    """When binding failed, […] the collection of Gang's resource is over, we will do nothing except roll back the failed
    pod resource."""
    world = World()
    world.node("n0", cpu=3)
    world.koordinator("default/a", 3, 3)
    world.plan()
    world.judge()
    names = {"uid": "a-1", "namespace": "default", "name": "a-1", "node": "n0"}
    world.append(
        "binder", [ev.BindingFailed(**names, reason="Rejected", message="", assigned_node="")], cause="outcome"
    )
    assert sorted(world.bind()) == ["a-0", "a-2"]
    world.pod("stranger", node="n0", candidate=False)
    world.pass_s(5)
    world.settle()
    assert world.bound() == ["a-0", "a-2", "stranger"], "the others stay, and it waits alone"
    lose(world, "stranger")
    world.pass_s(60)
    world.settle()
    assert world.bound() == ["a-0", "a-1", "a-2"]


def test_failover_a_gang_with_a_bound_pod_counts_as_satisfied() -> None:
    """When handle failover case, if any pod in Gang has been bound, we set ResourceSatisfied=true."""
    world = World()
    world.node("n0")
    world.koordinator("default/a", 2, 3)
    assert [event.reason for event in of_type(world.plan(), ev.GroupsRefused)] == ["TooFewPods"]
    world.assigned("a-0", "n0")
    world.settle()
    assert world.bound() == ["a-0", "a-1"]


def test_a_gang_that_is_freed_while_its_pods_wait_is_bound() -> None:
    """Somebody else binds one of its pods while others wait at permit."""
    world = World()
    world.node("n0")
    world.koordinator("default/a", 3, 3)
    world.propose("default/a", {"a-0": "n0"})
    world.judge()
    world.assigned("a-2", "n0")
    [permit] = of_type(world.judge(), ev.GangPermitted)
    assert [one.uid for assignment in permit.bindings for one in assignment.pods] == ["a-0"]
    assert not world.state.holding


def test_what_is_freed_while_it_waits_is_bound_as_far_as_its_node_has_room() -> None:
    """Somebody else binds one pod of a gang to the node where the others wait; its gang group goes on waiting."""
    world = World()
    world.node("n0", cpu=2)
    world.node("n1", cpu=3)
    groups = {"groups": BOTH}
    world.koordinator("default/a", 3, 3, groups)
    world.koordinator("default/b", 2, 2, groups)
    world.propose("default/a", {"a-0": "n1", "b-0": "n1", "a-1": "n0", "a-2": "n0"})
    world.judge()
    world.assigned("a-0", "n0")
    [permit] = of_type(world.judge(), ev.GangPermitted)
    assert [one.uid for assignment in permit.bindings for one in assignment.pods] == ["a-2"]
    assert permit.dropped == ("a-1",)
    assert list(world.state.groups["default/a"].held) == ["b-0"]
    assert (world.state.table.held <= world.state.table.allocatable).all()
    world.settle()
    assert world.where("a-0", "a-1", "a-2") == ["n0", "n1", "n0"]


def test_a_gang_whose_last_pod_is_gone_begins_anew() -> None:
    world = World()
    world.node("n0")
    world.pod_group("a", 2, dialect="koordinator/v1alpha1", match_policy="once-satisfied")
    world.koordinator("default/a", 2, 2)
    world.settle()
    lose(world, "a-0", "a-1")
    world.koordinator("default/a", 1, 2)
    assert [event.reason for event in of_type(world.plan(), ev.GroupsRefused)] == ["TooFewPods"]


def test_waiting_and_running_counts_both() -> None:
    world = running({"match_policy": "waiting-and-running"})
    lose(world, "a-1", "a-2")
    world.koordinator("default/a", 2, 3, {"match_policy": "waiting-and-running"})
    assert [event.reason for event in of_type(world.plan(), ev.GroupsRefused)] == ["TooFewPods"]
    world.koordinator("default/a", 3, 3, {"match_policy": "waiting-and-running"})
    world.settle()
    assert world.bound() == ["a-0", "a-1", "a-2"]


def test_only_waiting_counts_those_that_wait() -> None:
    """len(WaitingForBindChildren) >= MinRequiredNumber: a wave of pods needs the whole minimum anew."""
    says = {"match_policy": "only-waiting"}
    world = running(says)
    lose(world, "a-1", "a-2")
    world.koordinator("default/a", 3, 3, says)
    [refused] = of_type(world.plan(), ev.GroupsRefused)
    assert refused.detail == "gang default/a needs 3 more pods; 2 may be scheduled, others are gated or done"
    world.koordinator("default/a", 4, 3, says)
    world.settle()
    assert world.bound() == ["a-0", "a-1", "a-2", "a-3"]


def test_only_waiting_holds_below_a_minimum_of_waiting_pods() -> None:
    says = {"match_policy": "only-waiting"}
    world = running(says)
    world.koordinator("default/a", 5, 3, says)
    world.propose("default/a", {"a-3": "n0"})
    assert [type(event) for event in world.judge()] == [ev.GangHeld]
