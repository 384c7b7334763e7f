"""Deadlines that nobody waits for any more are swept out, and no others."""

from __future__ import annotations

import pytest

import events as ev
from services.state import snapshot
from services.state.deadlines import SWEPT_AFTER
from services.state.fold import State
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
