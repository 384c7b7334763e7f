"""Planner shards: which of them live, and a change of hands.

A shard joins by its `PlannerTaken`, and leaves by its own `PlannerLeft` or by the binder's `ShardLost`. Who owns which
partition is the binder's to say. A change of hands moves no state: every shard has folded everything. Only what waits
on the previous owner's clock, which may never tick again, must not stay there: parked groups are ready at once for
their new owner, with the attempts that they had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from events.subjects import shard_of
from services.state import groups, reasons, versions

if TYPE_CHECKING:
    from services.state.fold import State


def taken(state: State, event: ev.PlannerTaken) -> None:
    versions.taken(state, event)
    state.shards[shard_of(state.writer)] = state.sequence


def left(state: State, event: ev.PlannerLeft) -> None:
    state.shards.pop(shard_of(state.writer), None)


def lost(state: State, event: ev.ShardLost) -> None:
    """Ends the process that joined by `event.taken`; one that took the shard since is not meant."""
    if state.shards.get(event.shard) == event.taken:
        del state.shards[event.shard]
    else:
        state.ignore(event)


def assigned(state: State, event: ev.PartitionsAssigned) -> None:
    """New owners. Parked groups that moved and would be retried are ready, shards that own nothing wait for nothing. An
    old epoch is inert."""
    if event.epoch <= state.epoch:
        return
    moved = [new != old for new, old in zip(event.owners, state.owners, strict=True)]
    state.epoch, state.owners = event.epoch, event.owners
    for cohort in list(state.cohorts.values()):
        if reasons.follows(cohort.reason).retried:
            for key in [key for key in cohort.groups if moved[state.groups[key].partition]]:
                groups.make_ready(state, state.groups[key])
    for writer, clock in state.clocks.items():
        if writer.startswith("planner.") and shard_of(writer) not in event.owners:
            clock.unarmed.clear()
            clock.armed.clear()
