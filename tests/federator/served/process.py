"""One run of the federator's service, and who starts, stops and kills it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from events.jetstream import JetStreamLog
from events.log import LogError
from events.object_store import Bucket, bodies_bucket
from services.console.retention import retain
from services.console.verify import verify
from services.federator.bodies import Bodies
from services.federator.service import Federator
from services.federator.snapshot import FORM
from services.snapshots import Taking, take
from services.writer import SteppedDown
from tests.federator.audit import Violation
from tests.simulation.broker import Broker
from tests.simulation.clock import Clock
from tests.simulation.launch import retain_at_ns
from tests.simulation.loop import STOPPED, VirtualLoop
from tests.simulation.processes import Process
from tests.simulation.supervisor import Starts

if TYPE_CHECKING:
    from services.federator.backends import Reach
    from services.federator.bodies import Blobs

FEDERATOR, SNAPSHOT, RETENTION, VERIFY = "federator", "snapshot", "retention", "verify"
NAME = "fed"
"""Of the federation."""
MOST_SKEW_MS = 300_000


class Running(Process):
    """The service in a context of its own."""

    federator: Federator | None = None
    answering: set[asyncio.Task[Any]]
    """Requests under way."""

    @property
    def ready(self) -> bool:
        return self.running and self.federator is not None and self.federator.ready.is_set()


class Plain:
    """Instead of Fernet, which draws from the machine's entropy: no two bodies are sealed alike."""

    def __init__(self) -> None:
        self._sealed = 0

    def sealed(self, body: bytes) -> bytes:
        self._sealed += 1
        return b"%d %b" % (self._sealed, body)

    def opened(self, data: bytes) -> bytes:
        return data.partition(b" ")[2]


class Around(Protocol):
    """A history, as far as its processes know it."""

    seed: int
    loop: VirtualLoop
    broker: Broker
    count: Counter[str]
    process: Any

    def fail(self, error: BaseException) -> None: ...

    async def reaches(self, process: Running) -> dict[str, Reach]:
        """By account."""
        ...

    def blobs(self, process: Running, bucket: Bucket) -> Blobs: ...


class Supervisor(Starts):
    """One process is wanted always; another is started while the first is stopped, and finds out that it is not alone."""

    def __init__(self, world: Around, snapshot_after_bytes: int) -> None:
        self.world = world
        self.ever: list[Running] = []
        self._cipher: Any = Plain()
        self._taking = Taking(snapshot_after_bytes, {}) if snapshot_after_bytes else None
        self._source = random.Random(f"{world.seed}/supervisor")

    def alive(self) -> list[Process]:
        return [one for one in self.ever if one.running]

    def serving(self) -> Running | None:
        """Who answers requests, if anybody does."""
        return next((one for one in self.ever if one.slot == FEDERATOR and one.ready), None)

    def start(self, slot: str) -> Running:
        loop, number = self.world.loop, len(self.ever)
        source = random.Random(f"{self.world.seed}/{number}")
        skew_ns = source.randrange(-MOST_SKEW_MS, MOST_SKEW_MS) * 1_000_000
        process = Running(slot, number, source, skew_ns, "", loop.create_future())
        process.starts, process.answering = self, set()
        process.link = self.world.broker.link(process, random.Random(f"{self.world.seed}/link/{number}"))
        self.ever.append(process)
        process.start(loop, self._main(process), lambda task: self._ended(process, task))
        return process

    def replace(self) -> None:
        """Another federator, unless there is one."""
        if not any(one.slot == FEDERATOR for one in self.alive()) and not self.over:
            self.world.process = self.start(FEDERATOR)

    async def _main(self, process: Running) -> Any:
        log = process.log = JetStreamLog(await process.link.open(), NAME)
        try:
            if process.slot == SNAPSHOT:
                return msgspec.json.encode(await take(log, FORM))
            if process.slot == RETENTION:
                return await retain(log, None, days=1, now_ns=retain_at_ns(Clock(self.world.loop)))
            if process.slot == VERIFY:
                return await verify(log)
            reaches = await self.world.reaches(process)
            blobs = self.world.blobs(process, Bucket(log.connection, bodies_bucket(NAME)))
            bodies = Bodies(blobs, self._cipher)
            process.federator = Federator(log, reaches, bodies, holder=process.name, snapshots=self._taking)
            await process.federator.run()
        finally:
            for link in process.elsewhere:
                await link.close()
            await log.close()

    def _ended(self, process: Running, task: asyncio.Task[Any]) -> None:
        if self.over:
            return
        self._is_over(process)
        for one in process.answering:
            one.cancel()
        if task.cancelled() or (error := task.exception()) is None:
            if not task.cancelled() and process.slot == FEDERATOR:
                self.world.fail(Violation(f"{process} ended without a word"))
        elif not isinstance(error, SteppedDown | LogError):
            self.world.fail(error)
        else:
            self.world.count[f"ended: {type(error).__name__}"] += 1

    def _is_over(self, process: Running) -> None:
        process.over = True
        if not process.gone.done():
            process.gone.set_result(None)
        self.world.loop.after(self._source.uniform(0.5, 20.0), self.replace)

    def kill(self, process: Process) -> None:
        if process.over:
            return
        process.kill()
        self._is_over(process)  # type: ignore[arg-type]

    def stop(self, process: Process, for_s: float) -> None:
        """SIGSTOP, and SIGCONT; mostly another one is started meanwhile."""
        if not process.running:
            return
        process.condition = STOPPED
        self.world.loop.after(for_s, self.wake, process)
        if self._source.random() < 0.7:
            self.world.loop.after(self._source.uniform(2.0, 20.0), self.replace)

    def wake(self, process: Process) -> None:
        if not process.over and process.condition is STOPPED:
            self.world.loop.resume(process)

    def tell_to_stop(self, process: Process) -> None:
        """SIGTERM."""
        if process.running and process.task is not None:
            process.task.cancel()

    def restart(self) -> None:
        """All of them: who stands still ends when it goes on."""
        for process in self.ever:
            if not process.over and process.task is not None:
                process.task.cancel()

    def cut_off(self, process: Process, until_s: float) -> None:
        """There is no lease."""

    def dispose(self) -> None:
        self.over = True
        tasks = []
        for process in self.ever:
            process.link.is_closed = True
            self.world.loop.resume(process)
            tasks += [one for one in (process.task, *process.answering) if one is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            self.world.loop.run_until_complete(asyncio.wait(tasks, timeout=60.0))
