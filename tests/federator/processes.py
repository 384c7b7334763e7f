"""A federation's log in memory, and one federator process after the other over it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

import events as ev
from events import envelope
from events.memory import MemoryLog
from services.federator.backends import Reach
from services.federator.bodies import Bodies, Cipher
from services.federator.records import SETTLED, Job
from services.federator.service import Federator
from services.federator.state import State
from tests import waiting
from tests.federator.blobs import MemoryBlobs


class Processes:
    """What outlives a process, and the process of now. `start` is left to whoever knows the clusters."""

    def __init__(self) -> None:
        self.log = MemoryLog("federation")
        self.blobs = MemoryBlobs()
        self.bodies = Bodies(self.blobs, Cipher([Cipher.new_key()]))
        self.federator: Federator
        self._reaches: Mapping[str, Reach] = {}
        self._running: asyncio.Task[None] | None = None

    async def begin(self, reaches: Mapping[str, Reach]) -> Federator:
        """The next one, ready; `reaches` by account."""
        self._reaches = reaches
        self.federator = Federator(self.log, reaches, self.bodies, holder="test")
        self._running = asyncio.create_task(self.federator.run())
        await self.until(self.federator.ready.is_set, "the federator to be ready")
        return self.federator

    async def kill(self) -> None:
        """At once, wherever it is."""
        if self._running is None:
            return
        self._running.cancel()
        await self.ended(asyncio.CancelledError)

    async def ended(self, by: type[BaseException]) -> None:
        """The process of now ends, by an error of this kind."""
        assert self._running is not None
        with pytest.raises(by):
            await self._running
        self._running = None
        for reach in self._reaches.values():
            await reach.backend.close()

    def job(self, name: str) -> Job:
        """As the federator of now knows it."""
        state = self.federator.state
        return state.jobs[state.names[name]]

    def said(self) -> list[ev.Event]:
        """All events of the log."""
        return [event for stored in self.log.commits for event in envelope.decode_events(stored)]

    def folded(self) -> State:
        """The log, from its beginning."""
        state = State()
        for stored in self.log.commits:
            state.apply_stored(stored)
        return state

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """As `tests.waiting.until`; raises what ended the federator meanwhile."""

        def holds() -> object:
            if self._running is not None and self._running.done():
                self._running.result()
            return condition()

        await waiting.until(holds, what)

    async def settled(self, *names: str) -> None:
        await self.until(lambda: all(self.job(name).phase == SETTLED for name in names), "everything to settle")
