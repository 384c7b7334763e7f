"""An event loop in virtual time: it never waits, and everything happens in one order that the program alone decides.

When nothing is ready the clock jumps to the next timer. Each callback belongs to the simulated process in whose context
it was scheduled (asyncio hands contexts on to tasks, timers and futures by itself), and that process may have been
stopped or killed: then it is put aside, until the process goes on. So a stop is a SIGSTOP, and a kill, after which it
never does, is a kill -9 at an await.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, Protocol

START_S = 1_000.0
RUNNING, STOPPED, DEAD = "running", "stopped", "dead"


class Host(Protocol):
    """What the loop knows of a process."""

    condition: str
    backlog: list[asyncio.Handle]
    """What became ready since it was stopped or killed, in order."""


PROCESS: ContextVar[Any] = ContextVar("process", default=None)
"""The simulated process that is running; None outside of them all."""
OUTSIDE = Context()
"""The world around the processes: networks, servers, kubelets. Nothing of it stops when a process does."""
_serials = itertools.count()


class Task(asyncio.Task[Any]):
    """Hashed by a serial number: asyncio keeps tasks in sets, and the order of those decides who is cancelled first."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._serial = next(_serials)
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self._serial


class VirtualLoop(asyncio.BaseEventLoop):
    """`run_until_complete` as always; `at` for the world's own timers. Without a next timer it raises Stuck."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = START_S
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self.set_task_factory(_task)

    def time(self) -> float:
        return self.now_s

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """In a heap of tuples, which are compared without a call; equal times in the order in which they were set."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def at(self, when_s: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        """Outside of all processes."""
        return self.call_at(when_s, callback, *arguments, context=OUTSIDE)

    def after(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay_s, callback, *arguments, context=OUTSIDE)

    def resume(self, host: Host) -> None:
        """What became ready while the host was stopped runs next."""
        host.condition = RUNNING
        self._ready.extend(host.backlog)  # type: ignore[attr-defined]
        host.backlog.clear()

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if not ready:
            self._jump()
        while ready and not self._stopping:  # type: ignore[attr-defined]
            handle = ready.popleft()
            if handle._cancelled:
                continue
            host = handle._context.get(PROCESS)
            if host is not None and host.condition is not RUNNING:
                host.backlog.append(handle)
                continue
            handle._run()

    def _jump(self) -> None:
        """To the next timer, and make ready everything that is due then."""
        timers, ready = self._timers, self._ready  # type: ignore[attr-defined]
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Stuck("nothing is ready and nothing is due: everybody waits for ever")
        now_s = self.now_s = max(self.now_s, timers[0][0])
        while timers and timers[0][0] <= now_s:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                ready.append(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers stay in the heap until they are due."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    def _process_events(self, event_list: object) -> None:
        raise NotImplementedError


class Stuck(RuntimeError):
    """Nothing can happen any more."""


def _task(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Task:
    return Task(coroutine, loop=loop, **options)
