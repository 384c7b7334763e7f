"""The one writer of a federation's log. One commit at a time: its events are made from the state, appended before any
others are, and folded as soon as they are acknowledged; nobody else writes there. What one list shows of very many places
is several commits, behind each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import events as ev
from events import Event
from events.envelope import header_of
from events.log import EventLog, LogError, TooLarge
from services.federator import core, observing
from services.federator.snapshot import FORM
from services.federator.state import WRITER, State, check_versions
from services.start import fold, in_slices, state_at
from services.writer import SteppedDown, Writer


class Decider:
    """`told` is called with the events of each commit that was folded since the subject was taken."""

    def __init__(self, log: EventLog, told: Callable[[Sequence[Event]], None], *, clock_offset_ms: int = 0) -> None:
        self.log = log
        self.state = State()
        self.tail_bytes = 0
        """What was folded since the snapshot from which the state was restored."""
        self.active = False
        """Whether everything up to the subject's taking is folded: the log may be told things."""
        self.writer = Writer(log, WRITER, clock_offset_ms=clock_offset_ms)
        self.writer.rules, self.writer.state = self.state.rules_version, self.state.state_version
        self._told = told
        self._saying = asyncio.Lock()
        self._stirred = asyncio.Event()
        self._reports: list[Event] = []
        self._failure: LogError | SteppedDown | None = None

    async def take(self, holder: str) -> None:
        """Take the subject, unless a later version has it or the log cannot be read, and fold everything up to that.
        Raises LogError, UnknownCommit."""
        last = await self.log.last(self.writer.subject)
        if last is not None and (header := header_of(last)) is not None:
            check_versions(last.sequence, header)
        started = await state_at(self.log, form=FORM)
        taken = await self.writer.take(ev.FederatorTaken(holder=holder))
        tail = await fold(self.log, started.state, taken, of=started.base)
        self.state, self.tail_bytes, self.active = started.state, started.tail_bytes + tail.bytes, True

    async def run(self) -> None:
        """For ever: what the core says, whenever something changed. Raises SteppedDown, LogError, also where it was a
        request that met them: what is in the log may be another than the state by then."""
        while True:
            if self._failure is not None:
                raise self._failure
            while await self.say(lambda: core.decide(self.state), "decide"):
                pass
            while self._reports:
                reported = self._reports.pop(0)
                await self.say(lambda: [reported], "outcome")  # noqa: B023
            await self._stirred.wait()
            self._stirred.clear()

    async def renew(self) -> None:
        """For ever: keep the subject. As all else that is said: what is decided next stands on that."""
        while True:
            await self.writer.renewal_is_due()
            await self.say(lambda: [ev.Renewed()], "renew")

    async def say(self, make: Callable[[], Sequence[Event]], cause: str) -> bool:
        """Append what `make` says of the state as it is then, and fold it; whether that was anything."""
        async with self._saying:
            said = make()
            if not said:
                return False
            for commit in [said] if cause == "decide" else observing.commits(said):
                try:
                    sequence = await self.writer.append(commit, basis=self.state.sequence, cause=cause)
                except (LogError, SteppedDown) as error:
                    if not isinstance(error, TooLarge):
                        self._failure = error
                        self._stirred.set()
                    raise
                await in_slices(self.state.apply_in_slices(sequence, commit))
                if (own := self.writer.stored) is not None:
                    self.tail_bytes += len(own.header) + len(own.payload)
        self._told(said)
        self._stirred.set()
        return True

    def report(self, outcome: Event) -> None:
        """Append it soon."""
        self._reports.append(outcome)
        self._stirred.set()
