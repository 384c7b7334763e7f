"""Which version of the rules and of the fold is in force, and who has the code for another.

After its Taken each process says what it has code for (`VersionsAnnounced`). An admin's `VersionsSwitched` holds from
its place on if every writer there supports what it names; else it changes nothing. Whether it holds is folded from the
log alone: a process that joined while the admin looked is counted, and every reader comes to the same answer. A process
that comes later and lacks what is in force finds that in the log, and stops before it writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from events import subjects

if TYPE_CHECKING:
    from services.state.fold import State

UNSAID = ev.VersionsAnnounced(rules=(1,), state=(1,))
"""What a process supports that announced nothing: its code is older than the announcement, and has version 1 alone."""


def taken(state: State, event: ev.IngestTaken | ev.PlannerTaken | ev.BinderTaken) -> None:
    """A process became the writer of the commit's subject."""
    state.holders[state.writer] = event.holder
    state.supports.pop(state.writer, None)


def announced(state: State, event: ev.VersionsAnnounced) -> None:
    state.supports[state.writer] = event


def writers(state: State) -> dict[str, ev.VersionsAnnounced]:
    """writer → what it supports, sorted, of all that may write now: the last ingest and binder, the shards that live."""
    gone = {writer for writer in state.holders if subjects.role_of(writer) == "planner"}
    gone.difference_update(f"planner.{shard}" for shard in state.shards)
    return {writer: state.supports.get(writer, UNSAID) for writer in sorted(state.holders) if writer not in gone}


def lacking(state: State, rules: int, version: int) -> dict[str, ev.VersionsAnnounced]:
    """The writers that lack these rules or this state version."""
    return {writer: has for writer, has in writers(state).items() if not _supports(has, rules, version)}


def may_follow(state: State, event: ev.VersionsSwitched) -> bool:
    """Whether the switch takes effect: the state version stays or goes up by one, and every writer supports both."""
    forward = event.state - state.state_version in (0, 1)
    return forward and not lacking(state, event.rules, event.state)


def _supports(has: ev.VersionsAnnounced, rules: int, version: int) -> bool:
    return version in has.state and (not has.rules or rules in has.rules)
