"""Who publishes the feed (`muster feed`), started, killed, stopped and doubled: the service itself, over connections of
its own. From `FED_FROM` on, in a part of the histories. What must hold of what it publishes says `feed_stream`.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from events.feed import MAX_AGE_S, MAX_BYTES, Feed
from events.jetstream import JetStreamLog
from events.log import LogError
from services.feed import service
from tests.simulation.clock import Clock
from tests.simulation.feed_stream import FeedStream
from tests.simulation.launch import CLUSTER
from tests.simulation.loop import STOPPED
from tests.simulation.planting import FED_FROM, FEDERATIONS
from tests.simulation.processes import Process
from tests.simulation.supervisor import Starts
from tests.simulation.witness import Violation

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

FEED = "feed"
FED = 0.5
"""In how many histories there is one."""
TO_BE_DELETED = "delete the feed's stream"
"""So ends what it says to its operator where the stream is another log's."""


class Feeds(Starts):
    def __init__(self, world: World) -> None:
        self.world = world
        self.ever: list[Process] = []
        self.stream = FeedStream(world.broker, world.safely)
        self._source = random.Random(f"{world.plan.seed}/feeds")
        self.is_wanted = (
            world.plan.seed >= FED_FROM and world.plan.workload not in FEDERATIONS and self._source.random() < FED
        )

    def begin(self) -> None:
        if self.is_wanted:
            self.world.broker.feed = self.stream
            self.world.loop.after(self._source.uniform(0.0, 3.0), self.replace)

    def alive(self) -> list[Process]:
        return [one for one in self.ever if one.running]

    def replace(self) -> None:
        """Another one, unless there is one."""
        if not self.alive() and not self.over:
            self.start(FEED)

    def start(self, slot: str) -> Process:
        world, number = self.world, len(self.ever)
        source = random.Random(f"{world.plan.seed}/feed/{number}")
        skew_ns = source.randint(-10_000, 10_000) * 1_000_000
        process = Process(slot, number, source, skew_ns, "", world.loop.create_future())
        process.starts = self
        process.link = world.broker.link(process, random.Random(f"{world.plan.seed}/feed/{number}/log"))
        own = world.broker.link(process, random.Random(f"{world.plan.seed}/feed/{number}/own"))
        process.elsewhere.append(own)
        self.ever.append(process)
        process.start(world.loop, self._main(process), lambda task: self._ended(process, task))
        return process

    async def _main(self, process: Process) -> None:
        log = process.log = JetStreamLog(await process.link.open(), CLUSTER)
        feed = Feed(await process.elsewhere[0].open(), CLUSTER)
        try:
            await feed._keep_stream(MAX_AGE_S, MAX_BYTES, self.world.broker.replicas)
            await service.run(log, feed, max_age_s=MAX_AGE_S, clock_ns=Clock(self.world.loop).time_ns)
        finally:
            await log.close()
            await feed.close()

    def _ended(self, process: Process, task: asyncio.Task[Any]) -> None:
        if self.over or process.over:
            return
        self._is_over(process)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.world.fail(Violation(f"{process} ended without a word"))
        elif not isinstance(error, LogError):
            self.world.fail(error)
        elif str(error).endswith(TO_BE_DELETED):
            self.world.tried["feeds begun anew"] += 1
            self.stream.delete()

    def _is_over(self, process: Process) -> None:
        process.over = True
        process.gone.set_result(None)
        self.world.loop.after(self._source.uniform(0.2, 4.0), self.replace)

    def kill(self, process: Process) -> None:
        if not process.over:
            process.kill()
            self._is_over(process)

    def stop(self, process: Process, for_s: float) -> None:
        """SIGSTOP; mostly another is started meanwhile."""
        if process.running:
            process.condition = STOPPED
            self.world.loop.after(for_s, self.wake, process)
            if self._source.random() < 0.7:
                self.world.loop.after(self._source.uniform(0.5, 4.0), self.replace)

    def wake(self, process: Process) -> None:
        if not process.over and process.condition is STOPPED:
            self.world.loop.resume(process)

    def end(self, process: Process) -> None:
        if process.running and process.task is not None:
            process.task.cancel()

    def stop_all(self) -> None:
        for process in self.ever:
            self.kill(process)

    def strike(self, fault: Fault) -> bool:
        """What is to happen to who is there."""
        until_s = self.world.loop.now_s + fault.for_s
        alive = self.alive()
        for process in alive:
            match fault.what:
                case "crash":
                    self.kill(process)
                case "stop":
                    self.stop(process, fault.for_s)
                case "another":
                    self.start(FEED)
                case "restart":
                    self.end(process)
                case "lag":
                    process.link.lag_s = fault.for_s / 4
                    self.world.loop.at(until_s, setattr, process.link, "lag_s", 0.0)
                case "disconnect" | "cut off":
                    link = process.elsewhere[0] if fault.what == "cut off" else process.link
                    link.break_until(until_s)
                case _:
                    raise NotImplementedError(fault)
        return bool(alive)

    def heal(self) -> None:
        """One is enough."""
        for process in self.ever:
            self.wake(process)
        for process in self.alive()[1:]:
            self.end(process)

    def restless(self) -> str:
        """What keeps it from being at rest; empty: nothing."""
        if not self.is_wanted:
            return ""
        if len(self.alive()) != 1:
            return f"the feed: {self.alive()}"
        behind = self.stream.behind
        return f"the feed is behind {self.stream.place}: {behind}" if behind else ""

    def dispose(self) -> None:
        self.over = True
        for process in self.ever:
            for link in (process.link, *process.elsewhere):
                link.is_closed = True
            self.world.loop.resume(process)
        tasks = [process.task for process in self.ever if process.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            self.world.loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
