"""The state at a place of a log: the newest snapshot that is good, and what was committed since.

Everybody who needs a state begins here: services when they start, the process that takes the next snapshot, the
console. A snapshot is good when it can be read, is of this log and of a state version that this code has, has the digest
under which it is kept, and the log behind it does not say otherwise. One that is not is logged and skipped, and the one
before is tried; a log that still begins at 1 can always be folded from there. What the log says otherwise may come after
the end at which a service began, as where a server told it that is cut off from the others: the service ends by that, and
its next start finds it said. Restoring and folding go in slices, so that a large state does not cost its service the
lease.

A snapshot of an earlier state version than the one in force is as good as any other: it is the state at its place, and
the switch stands behind it, in the tail that is folded.

A log is a cluster's unless the `Form` of another kind is given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar, overload

from events import SnapshotTaken, subjects
from events.envelope import MalformedCommit, Stored, decode_events, header_of, message_id
from events.log import EventLog, LogError, Purged
from events.snapshots import BrokenSnapshot, Kept
from services.state.fold import State
from services.state.form import Damaged, Folded, Form, listed
from services.state.snapshot import FORM

logger = logging.getLogger("muster.start")
FOLD_BYTES = 250_000
"""So much of a log is folded between two turns of the event loop, which takes some 10 ms; and a commit in one piece, as
others read the state between these turns. It is not a number of events: one may be about 40,000 pods."""
S = TypeVar("S", bound=Folded)
T = TypeVar("T")


class NoStart(LogError):
    """The log was purged, and no snapshot is there on which what is left could stand."""


class Start(NamedTuple, Generic[S]):
    """A state and where it came from."""

    state: S
    base: Kept | None
    """The snapshot; None when the log was folded from its first commit."""
    tail_bytes: int
    """What was folded behind it."""
    commit: str
    """By what the log knows the last commit that the state has; empty for none, and of an earlier version's snapshot."""


class Tail(NamedTuple):
    """What was folded."""

    bytes: int
    commit: str
    """By what the log knows the last of it; empty for none."""


@overload
async def state_at(log: EventLog, until: int | None = None) -> Start[State]: ...
@overload
async def state_at(log: EventLog, until: int | None = None, *, form: Form[S]) -> Start[S]: ...
async def state_at(log: EventLog, until: int | None = None, *, form: Form[Any] = FORM) -> Start[Any]:
    """The state after commit `until` (default: the log's end as of now), from the newest good snapshot at or before it.

    Raises NoStart, LogError, UnknownCommit.
    """
    first, end = await log.bounds()
    place = end if until is None else min(until, end)
    for kept in await log.snapshots.listed():
        if first - 1 <= kept.sequence <= place and (state := await _own(log, kept, form)) is not None:
            with suppress(SnapshotDenied):
                tail = await fold(log, state, place, of=kept)
                if max(state.snapshots, default=0) < kept.sequence:  # else it would have said so by then
                    await _check_ahead(log, kept, place, end)
                return Start(state, kept, tail.bytes, tail.commit or kept.commit)
    if place < first - 1:
        raise NoStart(f"the log begins at {first}: the state at {place} cannot be rebuilt")
    if first > 1:
        raise NoStart(f"the log begins at {first}, and no snapshot from there to {place} can be used")
    state = form.empty()
    return Start(state, None, *await fold(log, state, place))


@overload
async def beginning(log: EventLog) -> Start[State]: ...
@overload
async def beginning(log: EventLog, form: Form[S]) -> Start[S]: ...
async def beginning(log: EventLog, form: Form[Any] = FORM) -> Start[Any]:
    """From where the log can still be folded: an empty state, or that of a purged log's oldest good snapshot.

    Raises NoStart, LogError.
    """
    first, end = await log.bounds()
    if first == 1:
        return Start(form.empty(), None, 0, "")
    for kept in reversed(await log.snapshots.listed()):
        if first - 1 <= kept.sequence <= end and (state := await _own(log, kept, form)) is not None:
            return Start(state, kept, 0, kept.commit)
    raise NoStart(f"the log begins at {first}, and none of its snapshots can be used")


async def _own(log: EventLog, kept: Kept, form: Form[S]) -> S | None:
    """`restored`, unless it is another log's."""
    if await is_of_another(log, kept):
        _left_out(kept, "it is of another log of this name")
        return None
    return await restored(log, kept, form)


async def is_of_another(log: EventLog, kept: Kept) -> bool:
    """Whether its commit is another than this log's at that place, as far as both say. Snapshots outlive a log that is
    deleted to begin anew, or to be brought back from an archive. Raises LogError."""
    there = await log.at(kept.sequence) if kept.commit else None
    return there is not None and kept.commit not in (identity(there), there.message_id)  # which earlier versions said


def identity(stored: Stored) -> str:
    """By what a log knows a commit: a digest of all of it. The message id is none of its header, which has the time:
    behind a log that was set back the same may be decided at the same place (seed 662815). And who is nobody that is
    known may give none."""
    return message_id(stored.subject, 0, stored.header + stored.payload)


async def restored(log: EventLog, kept: Kept, form: Form[S]) -> S | None:
    """The state of this snapshot; None, and told, when it is not good. Raises LogError but for BrokenSnapshot."""
    if kept.state not in form.folds:
        _left_out(kept, f"it is of state version {kept.state}, and this code has {listed(form.folds)}")
        return None
    try:
        state = await in_slices(form.unpack(await log.snapshots.get(kept), kept.digest))
        if (state.sequence, state.state_version) != (kept.sequence, kept.state):
            raise Damaged(f"it is of {state.sequence}, state version {state.state_version}")
    except (Damaged, BrokenSnapshot) as error:
        _left_out(kept, str(error))
        return None
    return state


async def in_slices(work: Generator[None, None, T]) -> T:
    """The result of the work, with a turn of the event loop between its slices."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)


async def read_on(log: EventLog, after: int, until: int) -> AsyncGenerator[list[Stored]]:
    """All that follows `after`, up to `until`, which the log has reached: to a state of nothing, too, a log that is
    purged meanwhile has no other beginning. Raises Purged, LogError.
    """
    place = after
    async for batch in log.read(after, until):
        if batch[0].sequence != place + 1:
            raise Purged(f"the log begins at {batch[0].sequence}: what follows {place} was purged")
        place = batch[-1].sequence
        yield batch
    if place < until:
        raise Purged(f"what follows {place}, up to {until}, was purged meanwhile")


class SnapshotDenied(LogError):
    """The log names another digest for a snapshot than its own."""


async def fold(log: EventLog, state: Folded, until: int, *, of: Kept | None = None) -> Tail:
    """Fold what follows the state, up to `until`. Raises Purged, LogError, UnknownCommit.

    `of`: the snapshot that the state began as; None: none. Raises SnapshotDenied, as `check` does.
    """
    size = folded = 0
    last: Stored | None = None
    async for batch in read_on(log, state.sequence, until):
        for stored in batch:
            await in_slices(state.apply_stored_in_slices(stored))
            if of is not None:
                check(state, of)
            size += len(stored.header) + len(stored.payload)
            if size - folded >= FOLD_BYTES:
                folded = size
                await asyncio.sleep(0)
        last = batch[-1]
    return Tail(size, "" if last is None else identity(last))


def check(state: Folded, base: Kept) -> None:
    """What follows the snapshot from which the state was restored says the same of it, or nothing: its process may have
    ended in between. Else raises SnapshotDenied, and tells. To be asked behind each commit: behind two later snapshots a
    state remembers nothing of it."""
    _check(state.snapshots.get(base.sequence), base)


def _check(taken: SnapshotTaken | None, base: Kept) -> None:
    if taken is not None and taken.digest != base.digest:
        why = f"its digest is {base.digest}, the log says {taken.digest}"
        _left_out(base, why)
        raise SnapshotDenied(f"what follows snapshot {base.sequence} denies it: {why}")


async def _check_ahead(log: EventLog, base: Kept, after: int, until: int) -> None:
    """As `_check`, of what the log says behind a place, without folding that. What of it was purged says nothing."""
    async for batch in log.read(after, until):
        for stored in batch:
            for taken in snapshots_said(stored):
                if taken.sequence == base.sequence:
                    _check(taken, base)
                    return


def snapshots_said(stored: Stored) -> list[SnapshotTaken]:
    """What a commit says of snapshots, as far as its writer may say it and this version can read it."""
    if b'"SnapshotTaken"' not in stored.payload:
        return []
    header = header_of(stored)
    if header is None or SnapshotTaken not in subjects.WRITES[subjects.role_of(header.writer)]:
        return []
    try:
        return [event for event in decode_events(stored) if isinstance(event, SnapshotTaken)]
    except MalformedCommit:
        return []


def _left_out(kept: Kept, why: str) -> None:
    logger.warning("snapshot %d is left out: %s", kept.sequence, why)
