"""Log time: ticks in, deadlines due.

Each deciding writer has its own clock, which only its own `Ticked` events move. A deadline is set with a length and
starts to run at the owner's next tick, so that no decision needs a time that is not in the log. A tick that leaps by
more than `JUMP_NS` is logged and counts as no time at all: it moves no deadline. Neither does the tick of a binder that
took over, stood still, or did not hear the log (`absence`): waiting time counts only while a binder is active.
"""

from __future__ import annotations

import heapq

from events import Ticked
from services.state.records import Clock, Deadline

JUMP_NS = 30_000_000_000
"""A longer step between two ticks of one writer is a jump: a pause, a clock set anew, a time without deadlines."""
HEARTBEAT_NS = 10_000_000_000
"""While a deadline is pending its owner ticks at least this often, so that waiting is never mistaken for a jump."""
TICK_SPACING_NS = 100_000_000
"""At most ten ticks a second."""
BACKOFF, RETRY, PERMIT = "backoff", "retry", "permit"
NOMINATION, GROUP_NOMINATION, RESERVATION = "nomination", "group nomination", "reservation"
"""The kinds of deadlines, as snapshots have them. The keys: of `BACKOFF` and `RETRY` the cohort's place, of `NOMINATION`
the failed pod's UID, of the others a `group_key`. What each does when it is due is the table `deadlines.DUE`."""


def tick(clock: Clock, now_ns: int) -> Ticked | None:
    """The tick that the owner should append when its clock says `now_ns`; None when none is wanted yet.

    The owner's clock never runs behind its own log time: a service that takes over starts it there.
    """
    step_ns = now_ns - clock.time_ns
    if step_ns < TICK_SPACING_NS:
        return None
    due = bool(clock.armed) and clock.armed[0].due_ns <= clock.counted_ns + step_ns
    if not (clock.unarmed or due or (clock.armed and step_ns >= HEARTBEAT_NS)):
        return None
    return _ticked(step_ns, now_ns)


def _ticked(step_ns: int, now_ns: int) -> Ticked:
    return Ticked(time_ns=now_ns, jumped_ns=step_ns if step_ns > JUMP_NS else 0)


def absence(clock: Clock, heard_ns: int, now_ns: int) -> list[Ticked]:
    """The ticks by which the time between `heard_ns` and `now_ns` counts as none, in which the owner was not active; what
    it had counted to before, if anything, counts.

    Empty where nothing has begun to wait. A time that is shorter than ticks are apart counts as any other.
    """
    if not clock.armed:
        return []
    found, last_ns = [], clock.time_ns
    if heard_ns - last_ns >= TICK_SPACING_NS:
        found.append(_ticked(heard_ns - last_ns, heard_ns))
        last_ns = heard_ns
    if now_ns - last_ns >= TICK_SPACING_NS:
        found.append(Ticked(time_ns=now_ns, jumped_ns=now_ns - last_ns))
    return found


def wanted_in_ns(clock: Clock, now_ns: int) -> int | None:
    """After how many ns `tick` may want one; None while no deadline is pending."""
    if clock.unarmed:
        return max(0, clock.time_ns + TICK_SPACING_NS - now_ns)
    if not clock.armed:
        return None
    due_in_ns = min(clock.armed[0].due_ns - clock.counted_ns, HEARTBEAT_NS)
    return max(0, clock.time_ns + max(due_in_ns, TICK_SPACING_NS) - now_ns)


def group_key(since: int, group: str) -> str:
    """The key of a deadline about something of a group: the place or sequence at which that began, and the group."""
    return f"{since}/{group}"


def of_group(key: str) -> tuple[int, str]:
    """The inverse of `group_key`."""
    since, _, group = key.partition("/")
    return int(since), group


def set_deadline(clock: Clock, kind: str, key: str, after_ms: int) -> None:
    """`kind` falls due for `key` after `after_ms` of the owner's log time, from its next tick on."""
    clock.unarmed.append((after_ms * 1_000_000, kind, key))


def runs(clock: Clock, kind: str, key: str) -> bool:
    """Whether such a deadline has begun to run and is still to come."""
    return any((one.kind, one.key) == (kind, key) for one in clock.armed)


def advance(clock: Clock, event: Ticked) -> tuple[list[tuple[str, str]], list[Deadline]]:
    """Fold a tick; returns the (kind, key) that started to run and the deadlines that fell due, each in order."""
    if event.time_ns < clock.time_ns:
        return [], []
    clock.counted_ns += 0 if event.jumped_ns else event.time_ns - clock.time_ns
    clock.time_ns = event.time_ns
    started = []
    for length_ns, kind, key in clock.unarmed:
        clock.serial += 1
        heapq.heappush(clock.armed, Deadline(clock.counted_ns + length_ns, clock.serial, kind, key))
        started.append((kind, key))
    clock.unarmed.clear()
    due = []
    while clock.armed and clock.armed[0].due_ns <= clock.counted_ns:
        due.append(heapq.heappop(clock.armed))
    return started, due
