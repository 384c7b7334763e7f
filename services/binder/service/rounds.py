"""Writing behind: queues are written in rounds, while no binding waits and at a bounded rate; what failed goes back
into its queue later. What has no answer by the next round keeps only its own namespace from that: one tenant's webhook
may take its time before it fails, of each write.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from services.decider import Decider
from services.kubernetes.errors import ApiError, NotFound
from services.state.fold import State
from services.telemetry.repeated import Repeated

logger = logging.getLogger("muster.binder")
ROUND_S = 0.5
"""How often something is written behind."""
OVERDUE_S = 5.0
"""How often under lasting load."""
AGAIN_S = 15.0
"""How often what failed, and may be answered otherwise later, is tried again: an API server that restarts takes seconds,
and an object that always fails must not hold up every round."""
REFUSED_TIMES = 20
"""After so many times as long what was refused for good is: a permission may be granted, a definition be replaced."""
WRITES_KEPT = 20_000
"""Failed writes that are remembered, at most; and refused ones."""
BURST_WRITES = 50.0
UNANSWERED_WRITES = 100
"""Writes of one kind that may be without an answer at a time: one namespace, of which a burst is, never has them all."""
SLICE_NOTED = 8_192
"""Pods or gangs that a start looks at between two yields: some milliseconds."""
SLICE_LOOKED = 4_096
"""Pods, those of a gang included, that a round looks at between two yields for what is to be written: 30 ms."""

K = TypeVar("K")


class Queue(Generic[K]):
    """What waits, each once. That of one namespace stands in line, and the namespaces take turns: thousands of writes
    about one tenant's pods hold up nobody else's.
    """

    def __init__(self, namespace_of: Callable[[K], str], *, most: int = 0) -> None:
        """Of more than `most` in one line the oldest are lost; 0: none are."""
        self._namespace_of, self._most = namespace_of, most
        # Of a plain dict the first key takes ever longer to find when many were taken: 100,000 would cost 5 s.
        self._lines: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()
        self._unanswered: Counter[str] = Counter()
        """Namespace → writes that have no answer yet."""

    def __bool__(self) -> bool:
        """Whether somebody has something to take."""
        return any(True for _ in self.namespaces())

    def __iter__(self) -> Iterator[K]:
        return itertools.chain.from_iterable(self._lines.values())

    def put(self, *keys: K) -> None:
        for key in keys:
            line = self._lines.setdefault(self._namespace_of(key), OrderedDict())
            line[key] = None
            if self._most and len(line) > self._most:
                line.popitem(last=False)

    def namespaces(self) -> Iterator[str]:
        """Who has something to take, in the order of their turns."""
        return (namespace for namespace in self._lines if namespace not in self._unanswered)

    def write(self, key: K, make: Callable[[], Coroutine[None, None, int]], *, lasting: bool = True) -> Write:
        """That of what was taken."""
        return Write(make, partial(self.put, key), lasting, partial(self._until_answered, key))

    @contextmanager
    def _until_answered(self, key: K) -> Iterator[None]:
        """While this lasts its namespace has no turn."""
        namespace = self._namespace_of(key)
        self._unanswered[namespace] += 1
        try:
            yield
        finally:
            self._unanswered[namespace] -= 1
            if not self._unanswered[namespace]:
                del self._unanswered[namespace]

    def take(self, namespace: str | None = None) -> K:
        """The oldest of that namespace, or of the one whose turn it is, off the queue."""
        namespace = next(self.namespaces()) if namespace is None else namespace
        line = self._lines.pop(namespace)
        key, _ = line.popitem(last=False)
        if line:
            self._lines[namespace] = line
        return key


def queue_of_pods(decider: Decider) -> Queue[str]:
    """Of their UIDs."""
    return Queue(lambda uid: namespace_of(decider.state, uid))


def namespace_of(state: State, uid: str) -> str:
    """That of the pod, if it is there."""
    pod = state.pods.get(uid)
    return pod.fact.namespace if pod is not None else ""


class Rate:
    """A bounded rate with a burst: what was saved up while nothing was written may be spent at once."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._saved = BURST_WRITES
        self._since_s = time.monotonic()
        self.unanswered = 0
        """Writes that were begun and have no answer yet."""

    def allowance(self) -> int:
        """Writes that may be made now."""
        now_s = time.monotonic()
        self._saved = min(BURST_WRITES, self._saved + (now_s - self._since_s) * self._per_s)
        self._since_s = now_s
        return max(0, min(int(self._saved), UNANSWERED_WRITES - self.unanswered))

    def spend(self, writes: int) -> None:
        """Count writes that are made; more than were allowed are saved up again first."""
        self._saved -= writes


class Write(NamedTuple):
    """Of one object, to be made when its turn comes: a round that is cancelled before leaves nothing unawaited."""

    make: Callable[[], Coroutine[None, None, int]]
    """Returns how many requests it took."""
    again: Callable[[], None]
    """Puts it back into its queue."""
    lasting: bool = True
    """Whether it is still worth writing minutes after it was refused. A Kubernetes event is not."""
    until_answered: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered for as long as it has no answer."""


class Behind(Protocol):
    """A kind of writes that waits for its rounds."""

    rate: Rate

    def due(self, most: int) -> Iterator[Write | None]:
        """What is to be written now, the oldest first, at most so much. Taken from its queue. None: others may have their
        turn, as most of what waits may need no write."""

    def report(self) -> None:
        """Say in the log what was written, if it is to know."""


class Rounds:
    """The rounds of all queues, and what of them failed."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        """`busy`: whether bindings wait."""
        self.busy = busy
        self.failed: deque[Callable[[], None]] = deque(maxlen=WRITES_KEPT)
        """What puts back into their queues the writes that failed, and may not fail later."""
        self.refused: deque[Callable[[], None]] = deque(maxlen=WRITES_KEPT)
        """And those that were refused for good, as far as the API server knew, or whose pod is gated."""
        self._warnings: dict[tuple[str, int], Repeated] = {}
        """Of each kind of request, and each code with which it was answered: one says nothing of another."""

    async def now_and_then(self, queue: Behind) -> None:
        """A round now and then, while no binding waits (under lasting load more seldom): what the queue may write, all
        at once. Many writes in one round cost much less than the same writes one by one: the process wakes up once. One
        that takes long is not waited for.
        """
        written_s = time.monotonic()
        async with asyncio.TaskGroup() as begun:
            while True:
                await asyncio.sleep(ROUND_S)
                now_s = time.monotonic()
                if now_s - written_s > OVERDUE_S or not self.busy():
                    written_s = now_s
                    one = begun.create_task(self.round(queue.rate, queue.due))
                    await asyncio.wait({one}, timeout=ROUND_S)
                    queue.report()

    async def round(self, rate: Rate, due: Callable[[int], Iterator[Write | None]]) -> None:
        chosen: list[Write] = []
        for write in due(rate.allowance()):
            if write is None:
                await asyncio.sleep(0)
            else:
                chosen.append(write)
                rate.spend(1)
        await asyncio.gather(*(self._written(write, rate) for write in chosen))

    async def _written(self, write: Write, rate: Rate) -> None:
        """Made, and what it took beyond one request spent."""
        rate.unanswered += 1
        try:
            with write.until_answered():
                rate.spend(await self.write(write) - 1)
        finally:
            rate.unanswered -= 1

    async def write(self, write: Write) -> int:
        """How many requests it took. Its failure costs only itself."""
        try:
            return await write.make()
        except ApiError as error:
            if not (isinstance(error, NotFound) or error.namespace_is_going):  # gone by then; a webhook may say so, too
                self._warn(error)
            if error.retryable or error.for_nobody:
                self.failed.append(write.again)
            elif write.lasting:
                self.refused.append(write.again)
            return 1

    def _warn(self, error: ApiError) -> None:
        what = (error.request.rpartition(" ")[0], error.code)
        if what not in self._warnings:
            self._warnings[what] = Repeated(logger, "written behind, and refused: %d, the last: %s")
        self._warnings[what].warn(error)

    async def put_back_forever(self) -> None:
        """What failed soon, what was refused much later."""
        for rounds in itertools.count(1):
            await asyncio.sleep(AGAIN_S)
            _put_back(self.failed)
            if rounds % REFUSED_TIMES == 0:
                _put_back(self.refused)


def _put_back(waiting: deque[Callable[[], None]]) -> None:
    while waiting:
        waiting.popleft()()
