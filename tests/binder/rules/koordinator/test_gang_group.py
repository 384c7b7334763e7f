"""Seed 002, GangGroup, where bindings are decided: the quorum of every gang, and frozen membership."""

import events as ev
from tests.world import World, of_type

GROUPS = {"groups": ("default/a", "default/b")}
BOTH = ("default/a", "default/b")


def world_with(a: int = 2, b: int = 2, cpu: int = 8) -> World:
    """Two roles of so many pods, all of which must start together."""
    world = World()
    world.node("n0", cpu=cpu)
    world.koordinator("default/a", a, a, GROUPS)
    world.koordinator("default/b", b, b, GROUPS)
    return world


def test_the_pods_of_one_gang_do_not_count_for_another() -> None:
    """Scheduler will calculate all Gangs in GangGroup whether the current number of assumed-pods in each Gang meets the
    Gang's minimum requirement."""
    world = World()
    world.node("n0")
    world.koordinator("default/a", 3, 1, GROUPS)
    world.koordinator("default/b", 1, 1, GROUPS)
    place = world.propose("default/a", {"a-0": "n0", "a-1": "n0"})
    assert world.judge() == [ev.GangHeld(group="default/a", proposal=place, waiting_ms=10_000)]


def test_if_gang_meets_the_bind_condition_every_waiting_pod_succeeds() -> None:
    """If Gang meet the bind-condition, we will give every waiting pod a "Success" status."""
    world = world_with()
    world.propose("default/a", {"a-0": "n0", "a-1": "n0"})
    assert [type(event) for event in world.judge()] == [ev.GangHeld]
    world.propose("default/a", {"b-0": "n0", "b-1": "n0"})
    [permit] = world.judge()
    assert isinstance(permit, ev.GangPermitted)
    assert sorted(world.bind()) == ["a-0", "a-1", "b-0", "b-1"]
    assert all(world.state.gangs[key].satisfied for key in BOTH)


def test_the_longest_waiting_time_of_its_gangs_is_the_groups() -> None:
    world = World()
    world.node("n0")
    world.koordinator("default/a", 1, 1, GROUPS | {"waiting_time_ms": 3_000})
    world.koordinator("default/b", 1, 1, GROUPS | {"waiting_time_ms": 20_000})
    world.propose("default/a", {"a-0": "n0"})
    assert [event.waiting_ms for event in of_type(world.judge(), ev.GangHeld)] == [20_000]


def test_a_deletion_that_breaks_one_minimum_releases_the_whole_group() -> None:
    """The design, section 4: a waiting pod's deletion that breaks the minimum releases all."""
    world = world_with()
    world.propose("default/a", {"a-0": "n0", "a-1": "n0"})
    world.judge()
    world.deleted("b-0")
    assert world.judge() == [ev.GangReleased(group="default/a", reason="MemberDeleted", pods=("a-0", "a-1"))]


def test_so_does_a_waiting_pod_that_is_on_its_way_out() -> None:
    """Although the other gang has its minimum."""
    world = world_with(a=2, b=3)
    world.koordinator("default/b", 3, 2, GROUPS)
    world.propose("default/a", {"a-0": "n0", "b-0": "n0"})
    world.judge()
    world.terminating("a-0")
    assert world.judge() == [ev.GangReleased(group="default/a", reason="MemberDeleted", pods=("a-0", "b-0"))]


def test_when_the_minimum_of_one_gang_went_between_proposal_and_verdict_nobody_is_bound() -> None:
    world = world_with()
    world.plan()
    world.koordinator("default/b", 3, 3, GROUPS)
    assert [type(event) for event in world.judge()] == [ev.GangHeld]
    assert not world.state.permitted


def test_membership_of_a_group_is_frozen_from_proposal_to_settlement() -> None:
    """A gang that joins the group meanwhile is waited for, and is one of it afterwards."""
    world = world_with()
    three = {"groups": ("default/a", "default/b", "default/c")}
    world.plan()
    for gang in ("a", "b", "c"):
        world.koordinator(f"default/{gang}", 2, 2, three)
    assert world.state.groups["default/a"].gangs == BOTH
    assert list(world.state.regrouping) == [*BOTH, "default/c"]
    assert [type(event) for event in world.judge()] == [ev.GangHeld], "c has no minimum yet"
    assert world.state.groups["default/a"].gangs == BOTH, "what is held is not settled"
    world.pass_s(11)
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["Timeout"]
    assert world.state.groups["default/a"].gangs == (*BOTH, "default/c")
    assert not world.state.regrouping
    for uid in world.mark():
        world.says(uid, timed_out=False)
    world.settle()
    assert len(world.bound()) == 6


def test_a_group_parts_when_its_gangs_name_each_other_no_more() -> None:
    world = world_with(cpu=3)
    world.plan()
    assert world.state.groups["default/a"].cohort
    world.koordinator("default/a", 2, 2)
    world.koordinator("default/b", 2, 2)
    assert sorted(world.state.groups) == [*BOTH]
    world.settle()
    assert world.bound() == ["a-0", "a-1"]


def test_a_gang_whose_last_pod_goes_leaves_its_group() -> None:
    world = world_with(1, 1)
    world.plan()
    world.deleted("b-0")
    assert "default/b" in world.state.gangs, "while the proposal stands it is one of the group"
    world.judge()
    assert "default/b" not in world.state.gangs
    assert world.state.groups["default/a"].gangs == ("default/a",)
    assert [event.reason for event in of_type(world.plan(), ev.GroupsRefused)] == ["WaitingForGang"]


def test_a_replaced_member_of_a_group_that_runs_is_bound_again() -> None:
    world = world_with()
    world.settle()
    world.terminating("b-1")
    world.deleted("b-1")
    world.koordinator("default/b", 2, 2, GROUPS)
    world.settle()
    assert len(world.bound()) == 4
