"""Who may try to be what: one holder for each role, and who waits for it.

From `LEASED_FROM` on, and in federated histories from `DENSE_FROM`, each process has its lease as in earnest
(`events.lease`, over its connection to the log), and `Claims` only tells who has which. Before, `Leases` are a model of
that: a holder that dies or is stopped keeps its lease until it runs out; one that is cut off loses it as well and
learns so itself; one that ends gives it back. The binder looks at the planners' through an `Eye`.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from events import lease
from events.jetstream import JetStreamLog
from events.lease import Held, Lease, Watch
from services.console.launch import while_held
from tests.simulation.lease_stream import LeaseStream
from tests.simulation.loop import VirtualLoop

if TYPE_CHECKING:
    from tests.simulation.processes import Process

LEASE_S = 3.0


class Seat(Protocol):
    """A process's own: it waits for its turn, and runs as long as it has it. `eye`: the binder's."""

    eye: Any

    async def turn(self) -> None: ...

    async def hold(self, service: Coroutine[Any, Any, None]) -> None: ...


class Holding(Protocol):
    """What the supervisor needs of leases."""

    @property
    def holders(self) -> dict[str, Process]: ...

    def seat(self, process: Process, log: JetStreamLog) -> AbstractAsyncContextManager[Seat]: ...

    def seize(self, process: Process) -> None: ...

    def give_back(self, process: Process) -> None: ...

    def fall_silent(self, process: Process) -> None: ...

    def speak_again(self, process: Process) -> None: ...

    def lost(self, process: Process) -> None: ...


class Leases:
    """`lost` is told of a process whose lease another may have by now, when it would find out itself."""

    def __init__(self, loop: VirtualLoop, source: random.Random, lost: Callable[[Process], None]) -> None:
        self.holders: dict[str, Process] = {}
        self.eyes: list[Eye] = []
        self.lost = lost
        self._loop, self._source = loop, source
        self._waiting: dict[str, deque[tuple[Process, asyncio.Future[None]]]] = {}

    def seat(self, process: Process, _: JetStreamLog) -> AbstractAsyncContextManager[Seat]:
        return nullcontext(ModelSeat(self, process))

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
            self._loop.after(self._source.uniform(0.0, LEASE_S / 3), self.lost, process)

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


class ModelSeat:
    def __init__(self, leases: Leases, process: Process) -> None:
        self._leases, self._process = leases, process
        self.eye = Eye(leases, process) if process.slot == "binder" else None

    async def turn(self) -> None:
        if self._leases.holders.get(self._process.slot) is not self._process:
            await self._leases.acquire(self._process)

    async def hold(self, service: Coroutine[Any, Any, None]) -> None:
        await service


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


class Claims:
    """Who has which, by the server's last words. What becomes of a lease its holder finds out for himself."""

    def __init__(self, stream: LeaseStream, cluster: str, ever: list[Process], replicas: int) -> None:
        self._stream, self._cluster, self._ever, self._replicas = stream, cluster, ever, replicas

    @property
    def holders(self) -> dict[str, Process]:
        """A dead one is there until the server has forgotten it."""
        names = {one.name: one for one in self._ever}
        return {names[word.holder].slot: names[word.holder] for word in self._stream.last.values() if word.holder}

    @asynccontextmanager
    async def seat(self, process: Process, log: JetStreamLog) -> AsyncIterator[Seat]:
        """As `services.console.launch` takes one."""
        own = Lease(log.connection, self._cluster, process.slot, process.name, int(LEASE_S), replicas=self._replicas)
        own._held = Held(process.name, process.name)  # no two processes have one name
        seat = RealSeat(own)
        try:
            if process.slot == "binder":
                async with Watch(log.connection, self._cluster, "planner.*", own.ttl_s) as seat.eye:
                    yield seat
            else:
                yield seat
        finally:
            await own.release()

    def seize(self, process: Process) -> None:
        """Somebody takes the word of who holds it away: whoever is first claims it."""
        self._stream.forget(lease.subject(self._cluster, process.slot))

    def give_back(self, process: Process) -> None: ...

    def fall_silent(self, process: Process) -> None: ...

    def speak_again(self, process: Process) -> None: ...

    def lost(self, process: Process) -> None: ...


class RealSeat:
    def __init__(self, own: Lease) -> None:
        self.eye: Watch | None = None
        self._own = own

    async def turn(self) -> None:
        await self._own.acquire()

    async def hold(self, service: Coroutine[Any, Any, None]) -> None:
        await while_held(self._own, service)
