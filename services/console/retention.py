"""Retention: what of a log may be forgotten, archived before it goes.

A log is purged up to the least of three places: the older of the last two snapshots that the log confirms, so that a
start has two to choose from; the last commit that is older than the days asked for; and what the archive holds, unless
none is wanted. Before the purge both snapshots are restored, and what goes is read back from the archive.

What is left begins behind a snapshot of that very place, which is taken before the purge: from its first commit on it can
be folded, verified and replayed, and so can an archive that is begun anew there. Services do not need that snapshot. So
where it cannot be taken, because another version wrote what goes, or cannot be stored, because there is no room even
after the purge, there is a warning and no more.

Active writers are not hurt. They renew their subjects every six hours (`services.writer`), a purge leaves a day at least.
A writer that is gone for longer may lose its last commit; then its subject is empty, its next ``…Taken`` expects nothing,
and whoever still expects the commit that is gone is refused (`events.log`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

import events as ev
from events import envelope
from events.envelope import Stored
from events.homes import SUFFIX, as_imported, copy, is_server, side_by_side, without_credentials
from events.log import EventLog, LogError
from events.snapshots import Kept
from events.sqlite import SqliteLog
from events.subjects import subject
from services.console.counted import counted
from services.console.errors import Unusable
from services.console.kinds import kind_of
from services.snapshots import packed, put
from services.start import restored, state_at
from services.state.form import SNAPSHOTS_KEPT, Folded, Form, UnknownCommit

logger = logging.getLogger("muster.retention")
DAY_NS = 86_400_000_000_000
LOOKS_AGAIN_S = 1.0


class Retained(msgspec.Struct, kw_only=True):
    """What a run found and did."""

    cluster: str
    first: int
    """At which commit the log begins now."""
    last: int
    purged: int = 0
    """Commits that went."""
    archived: int = 0
    """Commits that were new to the archive."""
    archive_end: int | None = None
    """The archive's last commit, read back; None without an archive."""
    because: str = ""
    """What kept the next commit."""
    emptied: list[str] = []
    """Writers whose last commit went: they begin anew."""


class _Bound(msgspec.Struct, frozen=True):
    """The last commit that may go, and why not the next."""

    place: int
    because: str


def check_archive(log: str | None, archive: str) -> None:
    """A log that were its own archive would hold everything, and lose it. Raises Unusable, OSError."""
    if is_server(archive) or not archive.endswith(SUFFIX):
        raise Unusable(f"--archive {without_credentials(archive)}: expected the path of a file *{SUFFIX}")
    if log is not None and Path(log).exists() and Path(archive).exists() and Path(log).samefile(archive):
        raise Unusable(f"--archive {archive}: that is the log itself; expected another file")


async def retain(log: EventLog, archive: EventLog | None, *, days: int, now_ns: int) -> Retained:
    """Archive all of the log, and purge what may go. `archive` None: nothing is archived, by the user's own word.

    `days` 0: nothing is purged. `now_ns`: the wall clock. Raises LogError.
    """
    first, end = await log.bounds()
    found = Retained(cluster=log.cluster, first=first, last=end)
    bounds = []
    if archive is not None:
        found.archived = await copy(log, archive)
        found.archive_end = await _confirmed_end(log, archive)
        bounds.append(_Bound(found.archive_end, f"the archive ends at {found.archive_end}"))
    form = (await kind_of(log)).form
    snapshots, writers = await _known(log, form)
    bounds.append(await _by_snapshots(log, snapshots, form))
    bound = min(bounds, key=lambda one: one.place)
    if not days:
        bound = _Bound(0, "the retention is for ever: neither --days nor MUSTER_RETENTION_DAYS is more than 0")
    elif bound.place >= found.first:
        bound = await _by_age(log, bound, now_ns, days)
    found.because = bound.because
    if bound.place >= found.first:
        if archive is not None:
            await _check_archived(log, archive, found.first, bound.place)
            if isinstance(archive, SqliteLog):
                archive.checkpoint()
        found.emptied = await _emptied(log, writers, bound.place)
        began = (await log.bounds()).first  # another run may have been faster
        if bound.place >= began:
            await _purge(log, bound.place, form)
        found.first = (await log.bounds()).first
        found.purged = found.first - began
    return found


async def _purge(log: EventLog, place: int, form: Form[Any]) -> None:
    """Forget all up to `place`, and keep the snapshot of it.

    It is put first, so that a crash in between leaves nothing that cannot be folded; and once more if it is not there
    then: there was no room before, or who took a snapshot meanwhile dropped this one, for which there was no need yet.
    What he had asked for by then may be done a moment later.
    """
    taken = await _snapshot_of(log, place, form)
    if taken is not None:
        with suppress(LogError):
            await put(log, *taken, form)
    await log.purge(place + 1)
    if taken is None:
        return
    for after_s in (0.0, LOOKS_AGAIN_S):
        await asyncio.sleep(after_s)
        try:
            if taken[0] not in await log.snapshots.listed():
                await put(log, *taken, form)
        except LogError as error:
            logger.warning("the log begins at %d, and no snapshot of %d is kept: %s", place + 1, place, error)


async def _snapshot_of(log: EventLog, place: int, form: Form[Any]) -> tuple[Kept, bytes] | None:
    """None where a good one is there, and, which is told, where what goes cannot be folded."""
    try:
        start = await state_at(log, place, form=form)
        if start.base is not None and start.base.sequence == place:
            return None
        return await packed(start, form)
    except (LogError, UnknownCommit) as error:
        logger.warning("the log is to begin at %d, and no snapshot of %d can be taken: %s", place + 1, place, error)
        return None


async def _known(log: EventLog, form: Form[Any]) -> tuple[list[ev.SnapshotTaken], list[str]]:
    """The snapshots that the log confirms, and who writes it. The state that says so may be as large as the one that is
    made after it, and is let go."""
    state: Folded = (await state_at(log, form=form)).state
    return list(state.snapshots.values()), sorted({*state.holders, "admin"})


async def _by_snapshots(log: EventLog, confirmed: list[ev.SnapshotTaken], form: Form[Any]) -> _Bound:
    """The older of the last two, if both can be restored."""
    if len(confirmed) < SNAPSHOTS_KEPT:
        found = f"the log confirms {counted(len(confirmed), 'snapshot')}: {SNAPSHOTS_KEPT} are needed"
        return _Bound(0, f"{found}, of those that binder or federator take (MUSTER_SNAPSHOT_AFTER_BYTES)")
    for taken in confirmed:
        if not await _is_good(log, taken, form):
            return _Bound(0, f"snapshot {taken.sequence} cannot be restored")
    oldest = min(taken.sequence for taken in confirmed)
    return _Bound(oldest, f"the snapshot of {oldest} is the older of the last {SNAPSHOTS_KEPT}")


async def _is_good(log: EventLog, taken: ev.SnapshotTaken, form: Form[Any]) -> bool:
    kept = Kept(sequence=taken.sequence, digest=taken.digest, state=taken.state, bytes=taken.bytes)
    listed = [one for one in await log.snapshots.listed() if msgspec.structs.replace(one, commit="") == kept]
    return bool(listed) and await restored(log, listed[0], form) is not None


async def _by_age(log: EventLog, bound: _Bound, now_ns: int, days: int) -> _Bound:
    """What is older, by its writers' clocks, without a gap.

    A commit from the future says that its writer's clock was ahead, and nothing of its age: it goes with an older one
    behind it. Else a machine that came up with next year's date would have the log kept until next year.
    """
    before_ns, old, ahead = now_ns - days * DAY_NS, 0, 0
    async with aclosing(log.read(0, bound.place)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            for stored in batch:
                header = envelope.header_of(stored)
                if header is None or header.time_ns < before_ns:
                    old = stored.sequence
                elif header.time_ns > now_ns:
                    ahead = stored.sequence
                else:
                    return _Bound(old, f"commit {stored.sequence} is younger than {counted(days, 'day')}")
    return bound if ahead <= old else _Bound(old, f"commit {ahead} is of a time that is still to come")


async def _confirmed_end(log: EventLog, archive: EventLog) -> int:
    """The archive's last commit, read back and compared; and it reaches back as far as the log does.

    Raises LogError.
    """
    (begins, end), first = await archive.bounds(), (await log.bounds()).first
    if not end:
        return 0
    if begins > first:
        raise LogError(f"the archive begins at {begins}, the log at {first}: not all is in it")
    await _check_archived(log, archive, end, end)
    return end


async def _check_archived(log: EventLog, archive: EventLog, first: int, last: int) -> None:
    """These commits are in the archive as they are in the log, with their message ids, by which `verify` checks them: it
    has the only copy of what goes. Raises LogError."""
    async with aclosing(side_by_side(log, archive, first - 1, last)) as batches:
        async for batch, again in batches:
            for here, there in zip_longest(batch, again):
                if here != there and not _is_alike(here, there, log.cluster):
                    place = (here or there).sequence
                    raise LogError(f"commit {place} of the archive is not the log's")


def _is_alike(here: Stored | None, there: Stored | None, cluster: str) -> bool:
    """Where one of them was imported."""
    return here is not None and there is not None and as_imported(here, cluster) == as_imported(there, cluster)


async def _emptied(log: EventLog, writers: list[str], until: int) -> list[str]:
    lasts = {writer: await log.last(subject(log.cluster, writer)) for writer in writers}
    return [writer for writer, last in lasts.items() if last is not None and last.sequence <= until]
