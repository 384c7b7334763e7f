"""What a tick does: deadlines begin to run, and those that are due take effect.

`clock` keeps the deadlines of one writer. Here is, for each kind of them, what it does and what it is about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import events as ev
from services.state import cohorts, nominations, reservations, verdicts
from services.state.clock import BACKOFF, GROUP_NOMINATION, NOMINATION, PERMIT, RESERVATION, RETRY, advance

if TYPE_CHECKING:
    from services.state.fold import State


DUE: dict[str, Callable[[State, str], None]] = {
    BACKOFF: cohorts.backoff_over,
    RETRY: cohorts.retry_due,
    PERMIT: verdicts.permit_due,
    NOMINATION: nominations.due,
    GROUP_NOMINATION: nominations.group_due,
    RESERVATION: reservations.due,
}
"""What a deadline does when its owner's tick finds it due."""
STANDS: dict[str, Callable[[State, str], bool]] = {
    BACKOFF: cohorts.stands,
    RETRY: cohorts.stands,
    PERMIT: verdicts.hold_stands,
    NOMINATION: nominations.stands,
    GROUP_NOMINATION: nominations.group_stands,
    RESERVATION: reservations.stands,
}
"""Whether what a deadline is about still exists."""
SWEPT_AFTER = 4_096
"""Each time so many deadlines have begun to run on a clock, those that are about nothing any more are dropped from it:
most outlive what they are about, and may be years long."""


def ticked(state: State, event: ev.Ticked) -> None:
    """Time went on for the writer of this commit."""
    clock = state.clock(state.writer)
    counted = clock.serial
    started, due = advance(clock, event)
    for kind, key in started:
        if kind == BACKOFF:
            cohorts.backoff_started(state, int(key), event.time_ns)
    for one in nominations.in_force(state, clock, due):
        DUE[one.kind](state, one.key)
    if clock.serial // SWEPT_AFTER > counted // SWEPT_AFTER:
        clock.armed = sorted(one for one in clock.armed if STANDS[one.kind](state, one.key))  # sorted, it is a heap
