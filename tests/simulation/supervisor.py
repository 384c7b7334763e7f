"""Who starts the services, starts them again when they have ended, and kills and stops them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from events.log import LogError
from services.kubernetes.errors import ApiError
from services.snapshots import ChildFailed
from services.state.form import UnknownCommit
from services.writer import SteppedDown
from tests.simulation.broker import Link
from tests.simulation.leases import Holding
from tests.simulation.loop import STOPPED, VirtualLoop
from tests.simulation.processes import Process
from tests.simulation.witness import Violation

SHARDS = ("a", "b")
SLOTS = ("ingest", *(f"planner.{shard}" for shard in SHARDS), "binder")
"""What runs always; beside it standbys, shards that come and go, and what is run once."""
ONCE = ("snapshot", "retention", "verify")
LEAVE_WITHIN_S = 3.0
"""After so long a planner that was told to stop is not waited for any more."""


class Starts:
    """Who starts processes and kills them."""

    over = False
    """Whether the history is, and nobody is started again."""

    def alive(self) -> list[Process]:
        raise NotImplementedError

    def start(self, slot: str) -> Process:
        raise NotImplementedError

    def kill(self, process: Process) -> None:
        raise NotImplementedError

    def kill_all(self) -> None:
        for process in self.alive():
            self.kill(process)

    async def child(self, slot: str) -> Any:
        """What a process says that is started for that, and waited for. Raises ChildFailed."""
        if self.over:
            raise ChildFailed("the history is over")
        process = self.start(slot)
        try:
            await asyncio.wait({process.gone})
        finally:
            if not self.over:
                self.kill(process)
        task = process.task
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            raise ChildFailed(f"{process} did not end well")
        return task.result()


class Supervisor(Starts):
    """`failed` is told how a process ended that may not end so."""

    serve: Callable[[Process], Coroutine[Any, Any, Any]]
    """A process's whole life."""

    def __init__(
        self,
        loop: VirtualLoop,
        seed: int,
        source: random.Random,
        link: Callable[[Process, random.Random], Link],
        leases: Callable[[Supervisor], Holding],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.slots: dict[str, list[Process]] = {slot: [] for slot in SLOTS}
        self.ever: list[Process] = []
        self.down: dict[str, float] = {}
        """Slot → until when nobody starts another process for it."""
        self.leases = leases(self)
        self._loop, self._seed, self._source = loop, seed, source
        self._link, self._failed = link, failed
        self._ran: Counter[str] = Counter()

    def alive(self) -> list[Process]:
        return [one for processes in self.slots.values() for one in processes if one.running]

    def deciders(self) -> Iterator[Process]:
        return (one for one in self.alive() if one.decider is not None)

    def start(self, slot: str, *, lacks: str = "", seize: bool = False) -> Process:
        """Another process for the slot, which waits for its lease unless it may `seize` it."""
        self._ran[slot] += 1
        source = random.Random(f"{self._seed}/{slot}/{self._ran[slot]}")
        skew_ns = source.choice([0, source.randint(-50, 50), source.randint(-10_000, 10_000)]) * 1_000_000
        process = Process(slot, self._ran[slot], source, skew_ns, lacks, self._loop.create_future())
        process.starts = self
        process.link = self._link(process, random.Random(f"{process.name}/{self._seed}"))
        self.slots.setdefault(slot, []).append(process)
        self.ever.append(process)
        if seize:
            self.leases.seize(process)
        process.start(self._loop, self.serve(process), lambda task: self._ended(process, task))
        return process

    def replace(self, slot: str) -> None:
        """Another one, unless there is one, or none may be yet."""
        if (until_s := self.down.get(slot, 0.0)) > self._loop.now_s:
            self._loop.at(until_s, self.replace, slot)
        elif not any(one.running for one in self.slots[slot]):
            self.start(slot)

    def _ended(self, process: Process, task: asyncio.Task[Any]) -> None:
        """A process has ended by itself: somebody starts it again. One that was killed as it asked for something may come
        to its end before it is put aside."""
        if self.over or process.over:
            return
        self._is_over(process)
        self.leases.give_back(process)
        if not task.cancelled():
            error = _first(task.exception())
            if error is None and not process.told_to_stop.is_set() and process.slot not in ONCE:
                self._failed(Violation(f"{process} ended without a word"))
            elif error is not None and not isinstance(error, _expected(process)):
                self._failed(error)

    def _is_over(self, process: Process) -> None:
        """It is dead or has ended; somebody starts another in its place."""
        process.over = True
        if not process.gone.done():
            process.gone.set_result(None)
        self.slots[process.slot].remove(process)
        if process.slot in SLOTS:
            self._loop.after(self._source.uniform(0.2, 3.0), self.replace, process.slot)

    def kill(self, process: Process) -> None:
        if process.over:
            return
        process.kill()
        self._is_over(process)
        self.leases.fall_silent(process)

    def stop(self, process: Process, for_s: float) -> None:
        """SIGSTOP; its lease may run out meanwhile, and another process be started."""
        if not process.running:
            return
        process.condition = STOPPED
        self.leases.fall_silent(process)
        if process.slot in SLOTS:
            self._loop.after(3.0 + self._source.random(), self.replace, process.slot)
        self._loop.after(for_s, self.wake, process)

    def wake(self, process: Process) -> None:
        """SIGCONT."""
        if not process.over and process.condition is STOPPED:
            self._loop.resume(process)
            self.leases.speak_again(process)

    def end(self, process: Process) -> None:
        """Its lease is lost, or it is told to end and has nothing more to say."""
        if process.running and process.task is not None:
            process.task.cancel()

    def tell_to_stop(self, process: Process) -> None:
        """SIGTERM: a planner says that it leaves."""
        if process.slot.startswith("planner") and self.leases.holders.get(process.slot) is process:
            self._loop.call_soon(process.told_to_stop.set, context=process.context)
            self._loop.after(LEAVE_WITHIN_S, self.end, process)
        else:
            self.end(process)

    def stay_down(self, slot: str, for_s: float) -> None:
        """All processes of the slot end, and for so long nobody starts another."""
        self.down[slot] = self._loop.now_s + for_s
        for process in list(self.slots[slot]):
            self.kill(process)

    def stop_all(self, for_s: float) -> None:
        """Nobody is left, and for so long nobody is started."""
        for processes in self.slots.values():
            for process in list(processes):
                self.kill(process)
        self.down |= dict.fromkeys(SLOTS, self._loop.now_s + for_s)

    def cut_off(self, process: Process, until_s: float) -> None:
        """Its lease cannot be renewed until then."""
        process.cut_off = True
        self.leases.fall_silent(process)
        self._loop.at(until_s, self._reachable, process)

    def _reachable(self, process: Process) -> None:
        process.cut_off = False
        if process.running:
            self.leases.speak_again(process)

    def double(self, slot: str, after_s: float) -> None:
        """Two believe that they hold the lease; the first is told some time later, if it lives."""
        first = self.leases.holders.get(slot)
        self.start(slot, seize=True)
        if first is not None:
            self._loop.after(after_s, self.leases.lost, first)

    def join(self, shard: str, for_s: float) -> None:
        """A shard joins, and leaves again."""
        process = self.start(f"planner.{shard}")
        self._loop.after(for_s, self.tell_to_stop, process)

    def heal(self) -> None:
        """Who was stopped goes on; who is there for some time only, goes; who was to stay away comes back."""
        for slot in self.down:
            self._loop.after(self._source.uniform(0.2, 3.0), self.replace, slot)
        self.down.clear()
        for slot, processes in self.slots.items():
            for process in list(processes):
                self.wake(process)
                if slot not in SLOTS:
                    self.tell_to_stop(process)

    def restless(self) -> str:
        """Which role is not held by its one process."""
        for slot, processes in self.slots.items():
            holder = self.leases.holders.get(slot)
            dead = holder is not None and holder not in processes
            if (slot in SLOTS) != (holder is not None) or dead or not all(one.renews for one in processes):
                return f"{slot}: held by {holder} of {processes}"
            if slot in ONCE and processes:
                return f"{slot} runs: {processes}"
        return ""

    def dispose(self) -> None:
        """Every process ends, the dead ones too: what is left of them must not be found by the garbage collector."""
        self.over = True
        for process in self.ever:
            process.link.is_closed = True
            self._loop.resume(process)
            if process.task is not None:
                process.task.cancel()
        tasks = [process.task for process in self.ever if process.task is not None]
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))


def _expected(process: Process) -> tuple[type[Exception], ...]:
    """How a process may end: replaced; log or cluster out of reach; of an older version, before what it lacks."""
    return (SteppedDown, LogError, ApiError, *((UnknownCommit,) if process.lacks else ()))


def _first(error: BaseException | None) -> BaseException | None:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
