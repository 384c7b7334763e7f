"""An event loop in virtual time: it never waits, and everything happens in one order that the program alone decides.

When nothing is ready the clock jumps to the next timer. Each callback belongs to the simulated process in whose context
it was scheduled (asyncio hands contexts on to tasks, timers and futures by itself), and that process may have been
stopped or killed: then it is put aside, until the process goes on. So a stop is a SIGSTOP, and a kill, after which it
never does, is a kill -9 at an await.

A history is some ten thousand callbacks and timers, of which most do next to nothing: so handles, timers and
`asyncio.timeout` are here again, without what only debugging and real sockets need.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol

import msgspec

START_S = 1_000.0
RUNNING, STOPPED, DEAD = "running", "stopped", "dead"


class Handle(msgspec.Struct, eq=False):
    """A callback that is ready, or due at some time; as asyncio's of that name."""

    callback: Callable[..., object]
    arguments: tuple[Any, ...]
    context: Context
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled


class Host(Protocol):
    """What the loop knows of a process."""

    condition: str
    backlog: list[Handle]
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
        self._timers: list[tuple[float, int, Handle]] = []
        self._numbers = itertools.count()
        self.set_task_factory(_task)
        self.nothing: asyncio.Future[None] = self.create_future()
        """Is there already: what is awaited where nothing has to be waited for."""
        self.nothing.set_result(None)

    def time(self) -> float:
        return self.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """In a heap of tuples, which are compared without a call; equal times in the order in which they were set."""
        handle = Handle(callback, args, copy_context() if context is None else context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context)
        heapq.heappush(self._timers, (self.now_s + delay, next(self._numbers), handle))
        return handle

    def at(self, when_s: float, callback: Callable[..., object], *arguments: Any) -> Handle:
        """Outside of all processes."""
        return self.call_at(when_s, callback, *arguments, context=OUTSIDE)

    def after(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> Handle:
        return self.call_later(delay_s, callback, *arguments, context=OUTSIDE)

    def resume(self, host: Host) -> None:
        """What became ready while the host was stopped runs next."""
        host.condition = RUNNING
        self._ready.extend(host.backlog)  # type: ignore[attr-defined]
        host.backlog.clear()

    def _run_once(self) -> None:
        """All there is to run, until somebody stops the loop: `run_forever` would only call again."""
        ready, owner = self._ready, PROCESS  # type: ignore[attr-defined]
        while not self._stopping:  # type: ignore[attr-defined]
            if not ready:
                self._jump()
                continue
            handle = ready.popleft()
            if handle.is_cancelled:
                continue
            context = handle.context
            host = context.get(owner)
            if host is not None and host.condition is not RUNNING:
                host.backlog.append(handle)
                continue
            try:
                context.run(handle.callback, *handle.arguments)
            except Exception as error:
                self.call_exception_handler({"message": "a callback failed", "exception": error})

    def _jump(self) -> None:
        """To the next timer, and make ready everything that is due then."""
        timers, ready = self._timers, self._ready  # type: ignore[attr-defined]
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Stuck("nothing is ready and nothing is due: everybody waits for ever")
        now_s = self.now_s = max(self.now_s, timers[0][0])
        while timers and timers[0][0] <= now_s:
            handle = heapq.heappop(timers)[2]
            if not handle.is_cancelled:
                ready.append(handle)

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    def _process_events(self, event_list: object) -> None:
        raise NotImplementedError


class Stuck(RuntimeError):
    """Nothing can happen any more."""


def _task(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Task:
    return Task(coroutine, loop=loop, **options)


class Timeout:
    """`asyncio.timeout`, as far as the services use it: after `delay` seconds what is in it is cancelled, and that
    cancellation becomes a TimeoutError. Its two halves wait for nothing."""

    __slots__ = ("_before", "_delay", "_expired", "_handle", "_nothing", "_task")

    def __init__(self, delay: float | None) -> None:
        self._delay = delay
        self._expired = False

    def __aenter__(self) -> asyncio.Future[None]:
        task = asyncio.current_task()
        loop: Any = asyncio.get_running_loop()
        assert task is not None
        self._task, self._before = task, task.cancelling()
        self._handle: Handle | None = None
        if self._delay is not None:
            soon = self._delay <= 0
            self._handle = loop.call_soon(self._expire) if soon else loop.call_later(self._delay, self._expire)
        self._nothing: asyncio.Future[None] = loop.nothing
        return self._nothing

    def __aexit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> asyncio.Future[None]:
        if self._handle is not None:
            self._handle.is_cancelled = True
            self._handle = None  # it names this, and no two may keep each other alive: nobody collects garbage here
        if self._expired and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError
        return self._nothing

    def _expire(self) -> None:
        self._task.cancel()
        self._expired = True
