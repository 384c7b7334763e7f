"""Deadlines that nobody waits for any more are swept out, and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import events as ev
from events.objects import ClassRoom
from services.state import snapshot
from services.state.deadlines import SWEPT_AFTER
from services.state.fold import State
from tests.binder.failing import fail, running
from tests.binder.test_nominations import after_three
from tests.world import SECOND_NS, World, of_type


def test_deadlines_that_are_about_nothing_any_more_are_left_out() -> None:
    """A gang that may wait for a year is held and let go of again and again."""
    state = State()
    world = World()
    world.node("n0")
    world.pod_group("train", 2, waiting_time_ms=365 * 86_400_000)
    world.gang("train", 2, 2)
    clock = world.state.clock("binder")
    clock.serial = SWEPT_AFTER - 3
    for turn in range(6):
        world.propose("default/train", {"train-0": "n0"})
        world.judge()
        assert world.state.groups["default/train"].held
        if turn < 5:
            released = ev.GangReleased(group="default/train", pods=("train-0",), reason="LeftQueue")
            world.append("binder", [released], cause="by hand")
        world.append("binder", [ev.Ticked(time_ns=clock.time_ns + SECOND_NS, jumped_ns=0)], cause="tick")
    assert 0 < len(clock.armed) < 6
    assert clock.armed[-1].key.endswith("/default/train")
    again = snapshot.decode(snapshot.encode(world.state))
    assert again.clocks == world.state.clocks != state.clocks


def test_until_so_many_have_begun_to_run_they_stay() -> None:
    """What a clock holds is part of each digest in a log: swept at another place, `verify` would differ there."""
    assert SWEPT_AFTER == 4_096
    world = World()
    world.node("n0")
    world.gang("train", 2, 2)
    clock = world.state.clock("binder")
    clock.serial, kept = SWEPT_AFTER - 3, []
    for _ in range(3):
        world.propose("default/train", {"train-0": "n0"})
        world.judge()
        released = ev.GangReleased(group="default/train", pods=("train-0",), reason="LeftQueue")
        world.append("binder", [released], cause="by hand")
        world.append("binder", [ev.Ticked(time_ns=clock.time_ns + SECOND_NS // 10, jumped_ns=0)], cause="tick")
        kept.append(len(clock.armed))
    assert kept == [1, 2, 0]


@pytest.mark.parametrize("gone", [True, False])
def test_of_a_group_that_waits_anew_the_waiting_time_of_before_is_left_out(gone: bool) -> None:
    """And that of one which is gone by then."""
    world = World()
    world.node("n0")
    world.gang("train", 2, 2)
    world.propose("default/train", {"train-0": "n0"})
    world.judge()
    world.pass_s(1)
    world.append("binder", [ev.GangReleased(group="default/train", pods=("train-0",), reason="LeftQueue")])
    clock = world.state.clock("binder")
    (before,) = clock.armed
    clock.serial = SWEPT_AFTER - 1
    if gone:
        world.deleted("train-0")
        world.deleted("train-1")
        world.gang("other", 2, 2)
    group = "default/other" if gone else "default/train"
    world.propose(group, {f"{group[8:]}-1": "n0"})
    world.judge()
    world.pass_s(1)
    (now,) = clock.armed
    assert now.key.endswith(group)
    assert now.key != before.key


def test_a_deadline_that_somebody_waits_for_is_not_left_out() -> None:
    world = World()
    world.node("n0")
    world.gang("train", 2, 2)
    clock = world.state.clock("binder")
    clock.serial = SWEPT_AFTER - 1
    world.propose("default/train", {"train-0": "n0"})
    world.judge()
    world.pass_s(1)
    assert clock.serial >= SWEPT_AFTER
    world.pass_s(10)
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["Timeout"]


def refused() -> World:
    world = World()
    world.pod("alone")
    world.plan()
    return world


def failed() -> World:
    world, uids = running()
    fail(world, uids[0], "deleted")
    world.judge()
    return world


def reserved() -> World:
    world = World()
    world.node("n0", cpu=2)
    world.pod("runs", node="n0", cpu=2)
    world.gang("train", 2, 2)
    world.plan()
    room = (ClassRoom(world.scheduling_class(), {"n0": 2}),)
    world.append("planner.a", [ev.RoomRequested(group="default/train", room=room)], cause="by hand")
    assert of_type(world.judge(), ev.RoomReserved)
    return world


@pytest.mark.parametrize(
    ("cause", "writer", "kinds"),
    [
        (refused, "planner.a", {"backoff", "retry"}),
        (failed, "binder", {"nomination"}),
        (after_three, "binder", {"group nomination"}),
        (reserved, "binder", {"reservation"}),
    ],
)
def test_whatever_is_waited_for_is_not_left_out(cause: Callable[[], World], writer: str, kinds: set[str]) -> None:
    world = cause()
    clock = world.state.clock(writer)
    assert kinds <= {kind for _, kind, _ in clock.unarmed}
    clock.serial = SWEPT_AFTER - 1
    world.pass_s(0.2)
    assert clock.serial >= SWEPT_AFTER
    assert kinds <= {one.kind for one in clock.armed}


def test_what_is_left_falls_due_in_its_order() -> None:
    """Without those that are about nothing any more; the waiting times of the others are as they were."""
    world = World()
    world.node("n0", cpu=8)
    clock = world.state.clock("binder")
    waits_s = {"gone0": 1, "late": 50, "gone1": 2, "later": 60, "latest": 70, "first": 3}
    for gang, seconds in waits_s.items():
        world.pod_group(gang, 2, waiting_time_ms=seconds * 1000)
        uids = world.gang(gang, 2, 2)
        world.propose(f"default/{gang}", {uids[0]: "n0"})
        world.judge()
    clock.serial = SWEPT_AFTER - len(waits_s)
    for gang in ("gone0", "gone1"):
        for i in range(2):
            world.deleted(f"{gang}-{i}")
    world.pass_s(1)
    assert len(clock.armed) == 4
    world.pass_s(4)
    assert [event.group for event in of_type(world.judge(), ev.GangReleased)] == ["default/first"]
