"""What came late of jobs that are forgotten: found, and cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from services.federator.records import Stray

if TYPE_CHECKING:
    from services.federator.state import State


def found(state: State, event: ev.StrayFound) -> None:
    if not state.is_forgotten(event.job) or event.uid in state.strays.get(event.account, ()):
        state.ignore(event)
        return
    state.strays.setdefault(event.account, {})[event.uid] = Stray(event.job, event.cluster, event.name)


def cleared(state: State, event: ev.StrayCleared) -> None:
    there = state.strays.get(event.account, {})
    if event.uid not in there:
        state.ignore(event)
        return
    del there[event.uid]
    if not there:
        del state.strays[event.account]
