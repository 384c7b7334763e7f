"""Taking snapshots: off the hot path, in a process of its own.

A cluster's binder is responsible for them, and a federation's federator. When enough was written since the last one, if
possible while there is no load, its `SnapshotKeeper` starts ``muster snapshot`` as a child of lower priority. The child
restores the newest good snapshot, folds what follows up to the log's end (`services.start`), stores the state under its
sequence, reads it back as a start would, and says what it stored; so every snapshot is a replay of the whole log, by
induction. Then the service appends `SnapshotTaken`, whose digest `muster verify` compares with its own fold.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import msgspec

from events import Event, SnapshotTaken
from events.log import EventLog, LogError
from events.snapshots import Kept
from services.start import Start, is_of_another, restored, state_at
from services.state.form import Folded, Form
from services.state.snapshot import FORM

logger = logging.getLogger("muster.snapshots")
KEPT = 3
"""The two that the log confirmed, and the one that it is about to."""
LOOK_EVERY_S = 1.0
OVERDUE = 4
"""A load is not waited for any more when so many times what makes a snapshot due was written."""
TAKEN_WITHIN_S = 1800.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0
"""After an attempt that failed."""
COMMAND = (sys.executable, "-m", "services", "snapshot", "--json")


async def take(log: EventLog, form: Form[Any] = FORM) -> Kept:
    """Keep the state at the log's end as of now, unless the newest snapshot is that already.

    Raises LogError, also when what was stored does not come back as it was; then it is deleted.
    """
    started = await state_at(log, form=form)
    sequence = started.state.sequence
    base, confirmed = started.base, frozenset(started.state.snapshots)
    if not sequence:
        raise LogError("the log is empty: there is no state to keep")
    if base is not None and base.sequence == sequence:
        return base
    await _drop_old(log, confirmed, base)  # what attempts left that ended before they came to the end of this
    kept, data = await packed(started, form)
    del started  # room for the one that is read back
    await put(log, kept, data, form)
    await _drop_old(log, confirmed, base)
    return kept


async def packed(started: Start[Any], form: Form[Any]) -> tuple[Kept, bytes]:
    """The snapshot of this state, and what it consists of. It is of the log whose commits were folded: the log may have
    another there by now (seed 708242)."""
    state: Folded = started.state
    data, digest = await asyncio.to_thread(form.pack, state)
    kept = Kept(
        sequence=state.sequence, digest=digest, state=state.state_version, bytes=len(data), commit=started.commit
    )
    return kept, data


async def put(log: EventLog, kept: Kept, data: bytes, form: Form[Any]) -> None:
    """Store it, and read it back as a start would. Raises LogError."""
    await log.snapshots.put(kept, data)
    if await restored(log, kept, form) is None:
        await log.snapshots.delete(kept)
        raise LogError(f"snapshot {kept.sequence} did not come back as it was stored")


async def _drop_old(log: EventLog, confirmed: Collection[int], base: Kept | None) -> None:
    """All but the last few; those that the log confirms, without which nothing is purged; the `base` of the newest, which
    is good, as the last few may be damaged; and the one on which a purged log's beginning stands. Those of another log
    before.

    What is ahead of the end goes with one that is shown to be another log's. Else it may be this log's newest: a leader
    that was stopped, and goes on, tells an end that was long ago.
    """
    listed, (_, end) = await log.snapshots.listed(), await log.bounds()
    ahead = [kept for kept in listed if kept.sequence > end]
    others = [kept for kept in listed if kept.sequence <= end and await is_of_another(log, kept)]
    for kept in (*others, *(ahead if others else ())):
        await log.snapshots.delete(kept)
    ours = [kept for kept in listed if kept not in ahead and kept not in others]
    for kept in ours[KEPT:]:
        if kept != base and kept.sequence not in confirmed and kept != await _standing(log, ours):
            await log.snapshots.delete(kept)


async def _standing(log: EventLog, ours: list[Kept]) -> Kept | None:
    """The one on which the beginning of a purged log stands. As of now: it may be purged while others are looked at."""
    first = (await log.bounds()).first
    return min((kept for kept in ours if kept.sequence >= first - 1 > 0), key=lambda kept: kept.sequence, default=None)


class Taking(NamedTuple):
    """How a service takes snapshots."""

    after_bytes: int
    """So much of the log since the last one makes the next one due."""
    environment: Mapping[str, str]
    """The child's: it has the settings, which its command line does not."""


class Responsible(Protocol):
    """Who has snapshots taken: `services.decider.Decider`, or the federator."""

    log: EventLog
    active: bool
    """Whether it may append."""
    tail_bytes: int
    """What was folded since the snapshot from which its state was restored."""

    @property
    def state(self) -> Folded: ...

    def report(self, outcome: Event) -> None:
        """Append it soon."""
        ...


class SnapshotKeeper:
    """The part of who is responsible: when a snapshot is due, and what the log is told of it."""

    def __init__(
        self,
        decider: Responsible,
        busy: Callable[[], bool],
        taking: Taking,
    ) -> None:
        self._decider, self._busy = decider, busy
        self._after_bytes, self._environment = taking
        self._newest = -1
        """The newest snapshot that the log confirms, or is about to, whoever took it; -1 before the log was read."""
        self._taken_at_bytes = 0
        """How much was written when that was noticed; a start begins to count at the snapshot that it stands on."""
        self._not_before_s = float("-inf")
        self._pause_s = FIRST_PAUSE_S

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._is_due():
                await self._take()

    def _is_due(self) -> bool:
        state = self._decider.state
        newest = max(state.snapshots, default=0)
        if newest > self._newest and state.sequence:
            self._taken_at_bytes = self._decider.tail_bytes if self._newest >= 0 else 0
            self._newest = newest
        written = self._decider.tail_bytes - self._taken_at_bytes
        if not self._decider.active or written < self._after_bytes or time.monotonic() < self._not_before_s:
            return False
        return written >= OVERDUE * self._after_bytes or not self._busy()

    async def _take(self) -> None:
        """A failure costs nothing but the next attempt's waiting."""
        at_bytes = self._decider.tail_bytes
        try:
            async with asyncio.timeout(TAKEN_WITHIN_S):
                taken = _decode(await self._run_child())
                await self._folds(taken)
        except (ChildFailed, LogError, TimeoutError, OSError, ValueError, msgspec.DecodeError) as error:
            logger.warning("no snapshot was taken: %s", str(error) or type(error).__name__)
            self._not_before_s = time.monotonic() + self._pause_s
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
            return
        if taken.sequence > self._newest:  # else the child came before the report of the last one's was in the log
            self._decider.report(
                SnapshotTaken(sequence=taken.sequence, digest=taken.digest, bytes=taken.bytes, state=taken.state)
            )
            logger.info("snapshot taken", extra={"at": taken.sequence, "bytes": taken.bytes})
        self._newest, self._taken_at_bytes, self._pause_s = taken.sequence, at_bytes, FIRST_PAUSE_S

    async def _folds(self, taken: Kept) -> None:
        """Until what the snapshot is of is folded here, and shown to be this log's: from there on a log that is set back
        is found out before anything is appended. Who was behind would tell a log of what it has lost, also where it came
        to that place before the child ended (found in lossy histories). Raises ChildFailed, LogError."""
        while self._decider.state.sequence < taken.sequence:  # noqa: ASYNC110 - it is mostly a moment
            await asyncio.sleep(LOOK_EVERY_S)
        if await is_of_another(self._decider.log, taken):
            raise ChildFailed(f"the log was set back behind the snapshot of {taken.sequence}")

    async def _run_child(self) -> bytes:
        """The last line that it says. It ends with this task."""
        child = await asyncio.create_subprocess_exec(
            *COMMAND,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            said, _ = await asyncio.gather(child.stdout.read(), _tell(child.stderr))
            await child.wait()
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        if child.returncode:
            raise ChildFailed(f"{' '.join(COMMAND[1:])} ended with {child.returncode}")
        return said.rstrip().rpartition(b"\n")[2]


async def _tell(complaints: asyncio.StreamReader) -> None:
    """In lines of this process's log."""
    rest = b""
    while more := await complaints.read(1 << 16):
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            logger.warning("muster snapshot: %s", line.decode(errors="replace"))
    if rest:
        logger.warning("muster snapshot: %s", rest.decode(errors="replace"))


class ChildFailed(Exception):
    """The process that was to take a snapshot did not."""


_decode = msgspec.json.Decoder(Kept).decode
