"""Log time: ticks in, deadlines due (design, section 3, Time)."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from events import Ticked
from services.state.clock import (
    HEARTBEAT_NS,
    JUMP_NS,
    TICK_SPACING_NS,
    absence,
    advance,
    set_deadline,
    tick,
    wanted_in_ns,
)
from services.state.records import Clock
from tests.world import SECOND_NS, World


def ticked(clock: Clock, now_ns: int) -> list[tuple[str, str]]:
    """The owner looks at its clock; what fell due."""
    event = tick(clock, now_ns)
    return [] if event is None else [(one.kind, one.key) for one in advance(clock, event)[1]]


def started(now_ns: int = 100 * SECOND_NS) -> Clock:
    """A clock with one deadline of five seconds that began to run at `now_ns`."""
    clock = Clock()
    set_deadline(clock, "permit", "a", 5_000)
    assert ticked(clock, now_ns) == []
    return clock


def test_no_tick_is_wanted_while_nothing_is_pending() -> None:
    clock = Clock()
    assert tick(clock, 1_000 * SECOND_NS) is None
    assert wanted_in_ns(clock, 1_000 * SECOND_NS) is None


def test_a_deadline_starts_to_run_at_the_owners_next_tick() -> None:
    clock = Clock()
    set_deadline(clock, "permit", "a", 5_000)
    event = tick(clock, 100 * SECOND_NS)
    assert event is not None
    assert advance(clock, event) == ([("permit", "a")], [])
    assert ticked(clock, 104 * SECOND_NS) == []
    assert ticked(clock, 105 * SECOND_NS) == [("permit", "a")]
    assert tick(clock, 200 * SECOND_NS) is None


def test_a_deadline_is_due_neither_early_nor_twice() -> None:
    clock = started()
    assert tick(clock, 105 * SECOND_NS - 1) is None
    assert ticked(clock, 105 * SECOND_NS) == [("permit", "a")]
    set_deadline(clock, "permit", "b", 1_000)
    assert ticked(clock, 106 * SECOND_NS) == []
    assert ticked(clock, 107 * SECOND_NS) == [("permit", "b")]


def test_equal_deadlines_fall_due_in_the_order_in_which_they_were_set() -> None:
    clock = Clock()
    for key in "cab":
        set_deadline(clock, "retry", key, 1_000)
    ticked(clock, SECOND_NS)
    assert ticked(clock, 2 * SECOND_NS) == [("retry", "c"), ("retry", "a"), ("retry", "b")]


def test_at_most_ten_ticks_a_second() -> None:
    clock = started()
    set_deadline(clock, "permit", "b", 1)
    assert tick(clock, 100 * SECOND_NS + TICK_SPACING_NS - 1) is None
    assert tick(clock, 100 * SECOND_NS + TICK_SPACING_NS) is not None


def test_while_a_deadline_is_pending_the_owner_ticks_every_ten_seconds() -> None:
    clock = Clock()
    set_deadline(clock, "retry", "a", 300_000)
    ticked(clock, 100 * SECOND_NS)
    assert tick(clock, 100 * SECOND_NS + HEARTBEAT_NS - 1) is None
    assert tick(clock, 100 * SECOND_NS + HEARTBEAT_NS) == Ticked(time_ns=110 * SECOND_NS, jumped_ns=0)


def test_a_jump_of_more_than_thirty_seconds_is_logged_and_moves_no_deadline() -> None:
    clock = started()
    jump_ns = JUMP_NS + SECOND_NS
    event = tick(clock, 100 * SECOND_NS + jump_ns)
    assert event == Ticked(time_ns=131 * SECOND_NS, jumped_ns=jump_ns)
    assert advance(clock, event) == ([], [])
    assert ticked(clock, 135 * SECOND_NS) == []
    assert ticked(clock, 136 * SECOND_NS) == [("permit", "a")]


def test_a_step_of_thirty_seconds_is_no_jump() -> None:
    clock = started()
    assert ticked(clock, 130 * SECOND_NS) == [("permit", "a")]


def test_while_no_binder_is_active_nothing_waits() -> None:
    """Waiting time counts only while a binder is active: who takes over begins with a tick that counts as none."""
    clock = started()
    assert absence(clock, 0, 100 * SECOND_NS + TICK_SPACING_NS - 1) == [], "ticks are further apart"
    [event] = absence(clock, 0, 120 * SECOND_NS)
    assert event == Ticked(time_ns=120 * SECOND_NS, jumped_ns=20 * SECOND_NS)
    assert advance(clock, event) == ([], [])
    assert ticked(clock, 124 * SECOND_NS) == []
    assert ticked(clock, 125 * SECOND_NS) == [("permit", "a")]


def test_who_was_active_before_counts_until_he_was_not() -> None:
    clock = started()
    counts, does_not = absence(clock, 102 * SECOND_NS, 120 * SECOND_NS)
    assert counts == Ticked(time_ns=102 * SECOND_NS, jumped_ns=0)
    assert does_not == Ticked(time_ns=120 * SECOND_NS, jumped_ns=18 * SECOND_NS)
    assert [advance(clock, counts), advance(clock, does_not)] == [([], []), ([], [])]
    assert ticked(clock, 122 * SECOND_NS) == []
    assert ticked(clock, 123 * SECOND_NS) == [("permit", "a")]


def test_an_absence_in_which_nothing_had_begun_to_wait_needs_no_tick() -> None:
    clock = Clock()
    assert absence(clock, 0, 100 * SECOND_NS) == []
    set_deadline(clock, "permit", "a", 5_000)
    assert absence(clock, 0, 100 * SECOND_NS) == [], "it begins with the next tick"


def test_a_clock_that_was_set_back_ticks_when_it_has_caught_up() -> None:
    clock = started()
    assert tick(clock, 50 * SECOND_NS) is None
    assert advance(clock, Ticked(time_ns=50 * SECOND_NS, jumped_ns=0)) == ([], [])
    assert clock.time_ns == 100 * SECOND_NS
    assert ticked(clock, 105 * SECOND_NS) == [("permit", "a")]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(0, 60_000)),
        st.tuples(st.just("back"), st.integers(0, 5_000)),
        st.tuples(st.just("set"), st.integers(1, 20_000)),
    ),
    max_size=60,
)


@given(STEPS)
def test_ticks_are_monotone_spaced_and_never_early(steps: list[tuple[str, int]]) -> None:
    """Whatever the owner's clock does: order, at most ten a second, no deadline before its length has passed."""
    clock, now_ns, ticks = Clock(), 1_000 * SECOND_NS, []
    counted_ns: dict[str, int] = {}
    lengths: dict[str, int] = {}
    for number, (what, ms) in enumerate(steps):
        if what == "set":
            lengths[str(number)] = ms * 1_000_000
            set_deadline(clock, "permit", str(number), ms)
        else:
            now_ns += ms * 1_000_000 * (1 if what == "wait" else -1)
        event = tick(clock, now_ns)
        if event is None:
            continue
        step_ns = event.time_ns - clock.time_ns
        ticks.append(event.time_ns)
        began, due = advance(clock, event)
        for key in counted_ns:
            counted_ns[key] += 0 if step_ns > JUMP_NS else step_ns
        for one in due:
            assert counted_ns.pop(one.key, 0) >= lengths[one.key]
        for _, key in began:
            if key not in {one.key for one in due}:
                counted_ns[key] = 0
    for one, other in itertools.pairwise(ticks):
        assert other - one >= TICK_SPACING_NS


@given(STEPS)
def test_who_sleeps_as_long_as_wanted_misses_no_deadline(steps: list[tuple[str, int]]) -> None:
    """`wanted_in_ns` is when `tick` wants one: not before, and then it does."""
    clock, now_ns = Clock(), 1_000 * SECOND_NS
    for number, (what, ms) in enumerate(steps):
        if what == "set":
            set_deadline(clock, "permit", str(number), ms)
        wait_ns = wanted_in_ns(clock, now_ns)
        if wait_ns is None:
            assert tick(clock, now_ns + JUMP_NS) is None
            continue
        if wait_ns > 0:
            assert tick(clock, now_ns + wait_ns - 1) is None
        now_ns += wait_ns
        event = tick(clock, now_ns)
        assert event is not None
        advance(clock, event)


def test_each_writer_has_its_own_clock() -> None:
    """A deadline is judged only by its owner's ticks: binder for permits and waiting, shard for backoff."""
    world = World()
    world.node("n0", cpu=1)
    uids = world.gang("train", 2, 2)
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    for second in range(1_001, 1_030):
        world.append("planner.a", [Ticked(time_ns=second * SECOND_NS, jumped_ns=0)], cause="tick")
    assert not world.state.groups["default/train"].permit_due
    for second in range(1_001, 1_013):
        world.append("binder", [Ticked(time_ns=second * SECOND_NS, jumped_ns=0)], cause="tick")
    assert world.state.groups["default/train"].permit_due
