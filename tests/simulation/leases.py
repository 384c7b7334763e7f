"""Who may try to be what (`events.lease`, in virtual time): one holder for each role, and who waits for it.

A holder that dies or is stopped keeps its lease until it runs out; one that is cut off loses it as well and learns so
itself; one that ends gives it back. The binder looks at the planners' through an `Eye`.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.loop import VirtualLoop

if TYPE_CHECKING:
    from tests.simulation.processes import Process

LEASE_S = 3.0


class Leases:
    """`lost` is told of a process whose lease another may have by now, when it would find out itself."""

    def __init__(self, loop: VirtualLoop, source: random.Random, lost: Callable[[Process], None]) -> None:
        self.holders: dict[str, Process] = {}
        self.eyes: list[Eye] = []
        self._loop, self._source, self._lost = loop, source, lost
        self._waiting: dict[str, deque[tuple[Process, asyncio.Future[None]]]] = {}

    async def acquire(self, process: Process) -> None:
        """Wait as a standby until the lease is free and this process's."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(process.slot, deque()).append((process, turn))
        self._grant(process.slot)
        await turn

    def seize(self, process: Process) -> None:
        """Have it although another holds it: he was not heard for some time."""
        self.holders[process.slot] = process

    def give_back(self, process: Process) -> None:
        if self.holders.get(process.slot) is process:
            del self.holders[process.slot]
            self._grant(process.slot)
            for eye in self.eyes:
                eye.see()

    def fall_silent(self, process: Process) -> None:
        """It is not renewed from now on."""
        if self.holders.get(process.slot) is process:
            self._loop.after(LEASE_S * (1 - self._source.random() / 3), self._run_out, process)

    def _run_out(self, process: Process) -> None:
        if self.holders.get(process.slot) is process and not process.renews:
            del self.holders[process.slot]
            self._grant(process.slot)

    def speak_again(self, process: Process) -> None:
        """It would renew; when its lease is gone it finds out a moment later."""
        if self.holders.get(process.slot) is not process:
            self._loop.after(self._source.uniform(0.0, LEASE_S / 3), self._lost, process)

    def _grant(self, slot: str) -> None:
        waiting = self._waiting.get(slot, deque())
        while waiting and slot not in self.holders:
            process, turn = waiting.popleft()
            if process.running and not turn.done():
                self.holders[slot] = process
                self._loop.call_soon(_let, turn, context=process.context)


def _let(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class Eye:
    """What the binder sees of the leases, as `events.lease.Watch` shows it."""

    def __init__(self, leases: Leases, process: Process) -> None:
        self.given_back = asyncio.Event()
        self._leases, self._process = leases, process
        leases.eyes.append(self)

    def see(self) -> None:
        self._leases._loop.call_soon(self.given_back.set, context=self._process.context)

    async def is_free(self, role: str) -> bool:
        return role not in self._leases.holders
