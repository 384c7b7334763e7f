"""Seed 002, Strict and NonStrict, where bindings are decided: what waits, and for how long."""

import pytest

import events as ev
from events.objects import Declaration, HostPort
from services.binder import core as binder
from services.state.records import AWAITING
from tests.world import World, of_type

LOOSE = {"mode": "NonStrict"}
WEB = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)


def held(world: World, key: str = "default/a") -> list[str]:
    return list(world.state.groups[key].held)


def half() -> World:
    """Two of three wait at permit; the third has no room."""
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 3, 3, LOOSE)
    world.settle()
    return world


def test_what_is_allocated_waits_although_the_rest_is_refused() -> None:
    world = half()
    assert held(world) == ["a-0", "a-1"]
    assert world.state.cohorts[world.state.groups["default/a"].cohort].reason == "InsufficientRoom"
    assert world.judge() == [], "no LeftQueue"


def test_what_a_strict_gang_has_waiting_is_released() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 3, 3)
    world.propose("default/a", {"a-0": "n0"})
    world.judge()
    world.plan()
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["LeftQueue"]


def test_the_waiting_time_bounds_what_waits() -> None:
    """`WaitTime` is the max wait time since first pod comes to permit stage."""
    world = half()
    world.pass_s(8)
    world.node("n1", cpu=0)
    world.settle()
    assert held(world) == ["a-0", "a-1"]
    world.pass_s(3)
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["Timeout"]
    assert not world.state.claims


def test_a_pod_that_cannot_be_taken_has_no_impact_on_the_others() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 3, 3, LOOSE)
    place = world.propose("default/a", {}, {"a-0": "n0", "a-1": "gone", "a-2": "n0"})
    assert world.judge() == [
        ev.GangReleased(group="default/a", reason="NotTaken", pods=("a-1",)),
        ev.GangHeld(group="default/a", proposal=place, waiting_ms=10_000),
    ]
    assert held(world) == ["a-0", "a-2"]
    assert "a-1" not in world.state.claims


def test_a_proposal_of_which_nothing_can_be_taken_is_refused() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 3, 3, LOOSE)
    world.propose("default/a", {}, {"a-0": "gone"})
    assert [event.reason for event in world.judge() if isinstance(event, ev.ProposalRefused)] == ["NodeGone"]


def test_what_waits_is_bound_when_the_minimum_is_lowered() -> None:
    world = half()
    world.koordinator("default/a", 3, 2, LOOSE)
    [permit] = of_type(world.judge(), ev.GangPermitted)
    assert [one.uid for assignment in permit.bindings for one in assignment.pods] == ["a-0", "a-1"]
    world.settle()
    assert world.bound() == ["a-0", "a-1"]


def test_a_proposal_that_comes_before_that_permit_is_judged_all_the_same() -> None:
    """Decided before it, and behind it in the log: the group still awaits its verdict."""
    world = half()
    world.koordinator("default/a", 3, 2, LOOSE)
    basis, decided = world.state.sequence, binder.decide_now(world.state)
    assert of_type(decided, ev.GangPermitted)
    world.node("n1", cpu=1)
    world.propose("default/a", {}, {"a-2": "n1"})
    world.append("binder", decided, cause="decide", basis=basis)
    assert world.state.groups["default/a"].phase == AWAITING
    assert of_type(world.judge(), ev.GangPermitted)
    world.settle()
    assert world.bound() == ["a-0", "a-1", "a-2"]


def test_a_hold_whose_pods_went_before_it_is_none() -> None:
    world = World()
    world.node("n0")
    world.koordinator("default/a", 4, 3, LOOSE)
    world.propose("default/a", {}, {"a-0": "n0"})
    basis, decided = world.state.sequence, binder.decide_now(world.state)
    assert of_type(decided, ev.GangHeld)
    world.deleted("a-0")
    world.append("binder", decided, cause="decide", basis=basis)
    assert not world.state.holding
    world.settle()
    assert world.bound() == ["a-1", "a-2", "a-3"]


@pytest.mark.parametrize("lowered", [2, 1])
def test_what_waits_counts_for_the_lowered_minimum_as_far_as_its_node_takes_it(lowered: int) -> None:
    """At quorum, each held assignment [is judged] against the state at that place (design, rule 4)."""
    world = World()
    for name in ("n0", "n1"):
        world.node(name, cpu=1)
    uids = world.koordinator("default/a", 3, 3, LOOSE)
    world.settle()
    assert held(world) == ["a-0", "a-1"]
    stays, goes = world.state.claims["a-0"].node, world.state.claims["a-1"].node
    world.node(goes, unschedulable=True)
    world.koordinator("default/a", 3, lowered, LOOSE)
    judged = world.judge()
    if lowered == 2:
        assert judged == []
        assert held(world) == uids[:2]
    else:
        (permit,) = of_type(judged, ev.GangPermitted)
        assert [(one.node, [pod.uid for pod in one.pods]) for one in permit.bindings] == [(stays, ["a-0"])]
        assert permit.dropped == ("a-1",)


def waiting_with_a_port() -> World:
    world = World()
    world.node("n0")
    said = Declaration(min_member=2, waiting_time_ms=0, mode="NonStrict", said=("min_member", "mode"))
    world.pod("a-0", "a", dialect="koordinator/v1alpha1", declared=said, ports=WEB)
    world.pod("a-1", "a", dialect="koordinator/v1alpha1", declared=said, gated=True)
    world.propose("default/a", {}, {"a-0": "n0"})
    world.judge()
    assert held(world) == ["a-0"]
    world.pod("a-1", "a", dialect="koordinator/v1alpha1", declared=said)
    return world


def test_what_waits_stands_with_its_own_host_port() -> None:
    world = waiting_with_a_port()
    world.plan()
    assert [type(event) for event in world.judge()] == [ev.GangPermitted]
    assert list(world.state.permitted) == ["a-0", "a-1"]


def test_what_waits_falls_where_another_has_its_host_port_by_now() -> None:
    """Whoever binds without asking: another scheduler, or a user."""
    world = waiting_with_a_port()
    world.pod("stranger", node="n0", candidate=False, ports=WEB)
    world.plan()
    assert of_type(world.judge(), ev.GangReleased) == [
        ev.GangReleased(group="default/a", reason="HoldBroken", pods=("a-0",))
    ]


def test_a_group_of_both_modes_waits_for_the_non_strict_one() -> None:
    world = World()
    world.node("n0", cpu=3)
    groups = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 2, 2, groups)
    world.koordinator("default/b", 2, 2, LOOSE | groups)
    world.settle()
    assert held(world) == ["a-0", "a-1", "b-0"]
    world.pass_s(2)
    world.node("n1", cpu=1)
    world.settle()
    assert len(world.bound()) == 4


def test_a_strict_gang_that_lacks_its_minimum_has_all_of_its_group_released() -> None:
    """If `Strict`, we will […] release all assumed pods."""
    world = World()
    world.node("n0", cpu=1)
    groups = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 2, 2, groups)
    world.koordinator("default/b", 2, 2, LOOSE | groups)
    world.propose("default/a", {}, {"b-0": "n0"})
    world.judge()
    assert held(world) == ["b-0"]
    world.plan()
    assert world.judge() == [ev.GangReleased(group="default/a", reason="LeftQueue", pods=("b-0",))]
