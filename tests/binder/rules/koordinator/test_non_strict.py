"""Seed 002, Strict and NonStrict, where bindings are decided: what waits, and for how long."""

import events as ev
from tests.world import World, of_type

LOOSE = {"mode": "NonStrict"}


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
