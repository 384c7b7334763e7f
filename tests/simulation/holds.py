"""Held assignments and their time (7.4), reckoned from what the binder said and its ticks, not from deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import events as ev
from services.state import timeouts, verdicts

if TYPE_CHECKING:
    from services.state.fold import State


class _Wait(NamedTuple):
    """Pods of a group that wait since one proposal; `ends_ns` on the binder's clock, from its next tick on."""

    group: str
    length_ns: int
    ends_ns: int | None


class Holds:
    """Of each hold that stands: until when it may, by proposal."""

    def __init__(self) -> None:
        self._waits: dict[int, _Wait] = {}

    def held(self, event: ev.GangHeld) -> None:
        place = verdicts.place_of(event.proposal)
        self._waits[place] = _Wait(event.group, event.waiting_ms * 1_000_000, None)

    def ticked(self, state: State) -> str:
        """The binder's clock moved: a group whose time is over and that does not know it; empty: none."""
        now_ns = state.clocks["binder"].counted_ns
        for place, wait in list(self._waits.items()):
            if wait.group not in state.holding or state.groups[wait.group].held_since > place:
                del self._waits[place]
            elif wait.ends_ns is None:
                self._waits[place] = wait._replace(ends_ns=now_ns + wait.length_ns)
            elif (
                wait.ends_ns <= now_ns and self._counts(state, place, wait) and not state.groups[wait.group].permit_due
            ):
                return wait.group
        return ""

    def may_time_out(self, group: str, held_since: int, now_ns: int) -> bool:
        """Whether some pods of this hold have waited for as long as they were told to."""
        waits = ((place, wait) for place, wait in self._waits.items() if wait.group == group and place >= held_since)
        return any(wait.ends_ns is not None and wait.ends_ns <= now_ns for _, wait in waits)

    def _counts(self, state: State, place: int, wait: _Wait) -> bool:
        """Koordinator's time runs from the first proposal of a hold, the others' for the pods of each."""
        group = state.groups[wait.group]
        if timeouts.rules_apply(state, group):
            return place == group.held_since
        return any(state.claims[uid].proposal == place for uid in group.held)
