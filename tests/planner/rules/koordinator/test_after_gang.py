"""Seed 002, After Gang: once a gang has been satisfied, its later pods are planned like ordinary pods."""

import pytest

import events as ev
from events.objects import Declaration
from tests.world import World, of_type


def satisfied(**says: str) -> World:
    """A gang of three that runs, and by now says that it has six; a fourth pod came, and there is room for it."""
    world = World()
    world.node("n0", cpu=4)
    world.koordinator("default/a", 3, 3, says)
    world.settle()
    assert world.bound() == ["a-0", "a-1", "a-2"]
    world.koordinator("default/a", 4, 6, says)
    return world


def test_when_once_gang_has_been_satisfied_allocations_are_no_longer_constrained_by_gang_rules() -> None:
    [placed] = of_type(satisfied().plan(), ev.GangPlaced)
    assert placed.required == ()
    assert [one.pods for one in placed.optional] == [("a-3",)]


@pytest.mark.parametrize("seen", ["as it is", "before its label"])
def test_any_pod_that_has_been_bound_satisfies_it(seen: str) -> None:
    world = World()
    world.node("n0", cpu=4)
    if seen == "before its label":
        world.pod("a-0", node="n0")
    declared = Declaration(min_member=3, waiting_time_ms=0, match_policy="once-satisfied", said=("min_member",))
    world.pod("a-0", "a", dialect="koordinator/v1alpha1", declared=declared, node="n0")
    world.pod("a-1", "a", dialect="koordinator/v1alpha1", declared=declared)
    world.settle()
    assert world.bound() == ["a-0", "a-1"]


def test_their_performance_is_similar_to_ordinary_pods() -> None:
    """Of those that come, each is placed or refused alone."""
    world = satisfied()
    world.koordinator("default/a", 6, 6)
    [placed] = of_type(world.plan(), ev.GangPlaced)
    assert [one.pods for one in placed.optional] == [("a-3",)]
    world.settle()
    assert world.bound() == ["a-0", "a-1", "a-2", "a-3"]
    [cohort] = world.state.cohorts.values()
    assert cohort.reason == "InsufficientRoom"


@pytest.mark.parametrize("policy", ["waiting-and-running", "only-waiting"])
def test_under_the_later_codes_other_policies_gang_rules_stay_effective(policy: str) -> None:
    [refused] = of_type(satisfied(match_policy=policy).plan(), ev.GroupsRefused)
    assert refused.reason == "TooFewPods"


ROLES = {"groups": ("default/a", "default/b")}
IN_WAVES = ROLES | {"match_policy": "only-waiting"}


def full() -> World:
    """A group of two gangs with a pod each, on a node that takes no third: one that was satisfied, one in waves."""
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 1, 1, ROLES)
    world.koordinator("default/b", 1, 1, IN_WAVES)
    world.settle()
    return world


def test_what_a_satisfied_gang_cannot_have_hides_from_nobody_that_its_group_lacks_room() -> None:
    """Else the others would not be tried when there is room."""
    world = full()
    assert world.bound() == ["a-0", "b-0"]
    declared = world.state.gangs["default/a"].declaration
    claim = world.scheduling_class(unsupported=("persistentVolumeClaim",))
    world.pod("a-1", "a", of=claim, dialect="koordinator/v1alpha1", declared=declared)
    world.koordinator("default/b", 2, 1, IN_WAVES)
    [refused] = of_type(world.plan(), ev.GroupsRefused)
    assert refused.reason == "InsufficientRoom"
    assert refused.detail.endswith("have a node. Of others: not supported yet: persistentVolumeClaim")
    world.node("n1", cpu=2)
    world.pass_s(60)
    world.settle()
    assert world.bound() == ["a-0", "b-0", "b-1"]


def test_where_both_lack_room_that_is_said_once() -> None:
    world = full()
    world.koordinator("default/a", 2, 1, ROLES)
    world.koordinator("default/b", 2, 1, IN_WAVES)
    [refused] = of_type(world.plan(), ev.GroupsRefused)
    assert refused.reason == "InsufficientRoom"
    assert "Of others" not in refused.detail


def test_what_keeps_a_satisfied_gangs_pods_is_said_where_more_room_would_not_help_the_others() -> None:
    world = World()
    world.node("n0")
    world.koordinator("default/a", 1, 1)
    world.settle()
    declared = world.state.gangs["default/a"].declaration
    world.koordinator("default/a", 1, 1, ROLES)
    world.koordinator("default/b", 1, 2, ROLES)
    claim = world.scheduling_class(unsupported=("persistentVolumeClaim",))
    world.pod("a-1", "a", of=claim, dialect="koordinator/v1alpha1", declared=declared)
    [refused] = of_type(world.plan(), ev.GroupsRefused)
    assert refused.reason == "UnsupportedConstraint"
