"""When refused groups are tried again, where the state knows it: those that back off, and have a reason to be tried.

The seconds are those of the log: a deadline runs on its planner's clock, as of that planner's last tick. A group without
such a reason has no time that could be told: it waits until something changes. It is tried after `retry_ms`, too, but
where nothing has changed it is refused again.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.state.clock import BACKOFF
from services.state.cohorts import has_reason
from services.state.fold import State
from services.state.records import Cohort

Backoffs = Mapping[str, int]
"""Nanoseconds that are left, by the cohort's place as the clocks have it."""


def backoffs(state: State) -> Backoffs:
    """Of all cohorts: clocks are gone through once."""
    clocks = state.clocks.values()
    found = {key: length_ns for clock in clocks for length_ns, kind, key in clock.unarmed if kind == BACKOFF}
    for clock in clocks:
        found |= {one.key: one.due_ns - clock.counted_ns for one in clock.armed if one.kind == BACKOFF}
    return found


def tried_again_s(state: State, cohort: Cohort, left: Backoffs) -> float | None:
    """In how many seconds the first of the cohort's groups is tried; None: that depends on what happens."""
    return _left_s(state, cohort, left) if is_worth_a_try(state, cohort) else None


def is_worth_a_try(state: State, cohort: Cohort) -> bool:
    """Whether something happened since its refusal that could change it, for the cohort or for a group of it."""
    return has_reason(state, cohort) or any(state.groups[key].woken for key in cohort.groups)


def said(state: State, cohort: Cohort, group: str, left: Backoffs) -> str:
    """The same of one group, as a sentence; empty: nobody knows."""
    if not (state.groups[group].woken or has_reason(state, cohort)):
        return ""
    seconds = _left_s(state, cohort, left)
    return "" if seconds is None else f"Tried again in {seconds:g} s."


def _left_s(state: State, cohort: Cohort, left: Backoffs) -> float | None:
    """The clock of a planner that is gone stands still."""
    left_ns = left.get(str(cohort.place)) if cohort.backing_off and cohort.shard in state.shards else None
    return None if left_ns is None else round(left_ns / 1e9, 1)
