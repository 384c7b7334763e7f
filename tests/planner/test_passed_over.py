"""Who backs off for lack of room is not passed by work of a lower priority, for which there is some (design, 7.12)."""

from __future__ import annotations

from itertools import count

import pytest

import events as ev
from services.state.partitions import partition_of
from tests.world import World, of_type


def full(**high: int) -> World:
    """A node full of pods of priority 0, and a pod of a higher one that was refused and backs off."""
    world = World()
    world.node("n0", cpu=4)
    for number in range(4):
        world.pod(f"low-{number}", created_s=number)
    world.settle()
    world.pod("high", priority=1_000, created_s=9, **high)
    world.settle()
    assert world.state.groups["pod/default/high"].attempts == 1
    return world


@pytest.mark.parametrize("replaced_after_s", [0.0, 0.1])
def test_a_pod_is_not_passed_for_ever(replaced_after_s: float) -> None:
    """As it was: hundreds of lower ones, each made by its Job as another ended, were placed while it backed off."""
    world = full()
    for number in range(4, 40):
        world.pass_s(0.5)
        oldest = next(uid for uid in world.bound() if uid.startswith("low"))
        world.finished(oldest)
        if replaced_after_s:
            world.settle()
            world.pass_s(replaced_after_s)
        world.pod(f"low-{number}", created_s=number)
        world.settle()
        if world.where("high") == ["n0"]:
            break
    assert world.where("high") == ["n0"]
    assert number == 4


def test_while_it_finds_no_room_it_is_not_refused_again() -> None:
    """Its backoff goes on: what is too large for what was given back costs no event."""
    world = full(cpu=3)
    world.pass_s(0.1)
    world.finished("low-0")
    world.pod("low-4", created_s=20)
    decided = world.plan()
    assert [event.group for event in of_type(decided, ev.GangPlaced)] == ["pod/default/low-4"]
    assert not of_type(decided, ev.GroupsRefused)


def test_while_nobody_else_waits_it_backs_off() -> None:
    world = full()
    world.pass_s(0.1)
    world.finished("low-0")
    assert not world.plan_would()
    world.pass_s(2)
    world.settle()
    assert world.where("high") == ["n0"]


def test_nobody_of_its_own_priority_waits_for_it() -> None:
    world = full()
    world.pass_s(0.1)
    world.finished("low-0")
    world.pod("peer", priority=1_000, created_s=20)
    world.settle()
    assert world.where("high", "peer") == ["", "n0"]


def test_it_is_not_passed_by_the_lower_ones_of_those_who_wait_though_others_are_higher() -> None:
    world = full()
    world.pass_s(0.1)
    for uid in ("low-0", "low-1"):
        world.finished(uid)
    world.pod("higher", priority=5_000, created_s=20)
    world.pod("low-4", created_s=20)
    world.settle()
    assert world.where("higher", "high", "low-4") == ["n0", "n0", ""]


@pytest.mark.parametrize("whose", ["its own shard's", "the other's"])
def test_another_shards_has_its_room_left(whose: str) -> None:
    """It is placed by its own shard, which sees that others wait. Seed 460884: where all that waited were the other's, it
    was not looked ahead to."""
    world = full()
    world.join("b")
    world.judge()
    world.pass_s(0.1)
    owner = world.state.owner(world.state.groups["pod/default/high"])
    other = "b" if owner == "a" else "a"
    wanted = owner if whose == "its own shard's" else other
    names = (f"late-{number}" for number in count())
    name = next(name for name in names if world.state.owners[partition_of(f"pod/default/{name}")] == wanted)
    world.finished("low-0")
    world.pod(name, created_s=20)
    assert of_type(world.plan_without_appending(other), ev.GangPlaced) == []
    assert [event.group for event in of_type(world.plan(owner), ev.GangPlaced)] == ["pod/default/high"]
