"""Replay a log up to a place: the state there."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from time import time_ns as now_ns
from typing import Any

from events import envelope
from events.envelope import Commit, Stored
from events.log import EventLog
from services.console.errors import Unusable
from services.feed.core import timestamp
from services.start import NoStart, beginning, read_on, state_at
from services.state.form import Form
from services.state.snapshot import FORM

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_SEQUENCE = 20
"""Digits of 64 bits."""
_NANOSECONDS = re.compile(r"[.,][0-9]{6}([0-9]{1,3})")
"""What Python's times have no room for."""


class BadPlace(Unusable):
    """Neither a sequence nor a time."""


def read_place(text: str) -> tuple[int | None, int | None]:
    """(sequence, None) or (None, time in ns) of a ``--at``: a number, or RFC 3339. Raises BadPlace."""
    if text.isascii() and text.isdecimal():
        if len(text) > LONGEST_SEQUENCE:
            raise BadPlace(f"--at {text}: expected a sequence of at most {LONGEST_SEQUENCE} digits")
        return int(text), None
    try:
        moment = datetime.fromisoformat(text.replace("z", "Z"))
        moment = moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # in UTC it may lie in another year, which no calendar has
        raise BadPlace(
            f"--at {text or repr(text)}: expected a sequence, or a time such as 2026-11-21T19:05:00Z"
        ) from None
    cut_off = _NANOSECONDS.search(text)
    beyond_ns = int(cut_off[1].ljust(3, "0")) if cut_off else 0
    return None, (moment - EPOCH) // timedelta(microseconds=1) * 1_000 + beyond_ns


def check_place(sequence: int | None, end: int) -> None:
    """Raises BadPlace for one that the log has not."""
    if sequence is not None and sequence > end:
        raise BadPlace(f"--at {sequence}: the log ends at {end}")


async def check_time(log: EventLog, time_ns: int, newest_ns: int) -> None:
    """Raises BadPlace for a time that is still to come, by this clock and that of the log's newest commit."""
    if time_ns > max(newest_ns, now_ns()):
        end = await place_of(log, await log.end())
        raise BadPlace(f"--at {timestamp(time_ns)}: still to come; the log ends at {end}")


async def replay(log: EventLog, at: str | None = None, form: Form[Any] = FORM) -> Any:
    """The state at `at`; by default at the log's end. `form`: that of the log's kind.

    Of a sequence: the state after that commit. Of a time: the state before the first commit that is younger, by its
    writer's clock; where no commit is younger the state at the end, unless the time is still to come. Raises BadPlace,
    LogError, UnknownCommit.
    """
    sequence, time_ns = read_place(at) if at is not None else (None, None)
    if time_ns is not None:
        return await _before(log, time_ns, form)
    end = await log.end()
    check_place(sequence, end)
    try:
        return (await state_at(log, sequence, form=form)).state
    except NoStart as error:
        if sequence is None:
            raise
        oldest = (await beginning(log, form)).state.sequence
        raise BadPlace(f"--at {sequence}: {error}; the first place that is left is {oldest}") from error


async def place_of(log: EventLog, sequence: int) -> str:
    """A place for people: with its time, where it has one. Raises LogError."""
    time = await when(log, sequence)
    return f"{sequence}, {time}" if time else f"{sequence}"


async def when(log: EventLog, sequence: int) -> str:
    """The time of a commit by its writer's clock, in RFC 3339; "" for none: none there, purged, or nobody's.

    Raises LogError.
    """
    found = await log.at(sequence)
    return timestamp(time_ns) if found is not None and (time_ns := _time_ns(found)) else ""


async def _before(log: EventLog, time_ns: int, form: Form[Any]) -> Any:
    """Folded from where the log can be folded at all: times are the writers' own, and no snapshot stands for one."""
    reading = await Reading.of(log, form)
    async for _ in reading.up_to(time_ns=time_ns):
        pass
    return reading.state


class Reading:
    """A log that is folded commit by commit, from where it can be folded at all."""

    def __init__(self, log: EventLog, state: Any, end: int) -> None:
        self.state = state
        """Behind the commit that was read last."""
        self.end = end
        """Of the log, as it was when this began."""
        self._log, self._first = log, state.sequence

    @classmethod
    async def of(cls, log: EventLog, form: Form[Any]) -> Reading:
        """Raises LogError."""
        state = (await beginning(log, form)).state
        return cls(log, state, await log.end())

    async def up_to(self, sequence: int | None = None, time_ns: int | None = None) -> AsyncGenerator[Commit | None]:
        """Each commit behind its fold, None for what is nobody's; up to one, or to the last that is not younger, or all.

        Raises BadPlace, LogError, UnknownCommit.
        """
        state, newest_ns = self.state, 0
        if sequence is not None and sequence < self._first:
            raise BadPlace(f"--at {sequence}: everything before {self._first} was purged; that is the first place left")
        async for batch in read_on(self._log, self._first, self.end if sequence is None else sequence):
            for stored in batch:
                if time_ns is not None:
                    newest_ns = max(newest_ns, _time_ns(stored))
                    if newest_ns > time_ns:
                        self._check_left(time_ns)
                        return
                yield state.apply_stored(stored)
        if time_ns is not None:
            await check_time(self._log, time_ns, newest_ns)

    def _check_left(self, time_ns: int) -> None:
        """Raises BadPlace, where nothing was read before the first that is younger, and something was purged."""
        if 0 < self._first == self.state.sequence:
            told = f"what follows {self._first} is younger, and everything before was purged"
            raise BadPlace(f"--at {timestamp(time_ns)}: {told}")


def _time_ns(stored: Stored) -> int:
    """0 for what is nobody's commit."""
    header = envelope.header_of(stored)
    return 0 if header is None else header.time_ns
