"""Who is asked for next. The namespaces take turns, and a quarter of the workers is kept from each of them: a webhook
that takes its time before it fails for thousands of one tenant's pods holds up nobody else's.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Generic, TypeVar

from services.binder.service.rounds import Queue

K = TypeVar("K")


class Turns(Generic[K]):
    """What waits for a worker."""

    def __init__(self, namespace_of: Callable[[K], str], workers: int) -> None:
        """Of a key: always the same."""
        self._namespace_of = namespace_of
        self._queue: Queue[K] = Queue(namespace_of)
        self.workers = max(1, workers)
        self._most = self.workers - self.workers // 4
        self._at_work: Counter[str] = Counter()
        self._idle: deque[asyncio.Future[K]] = deque()

    def __bool__(self) -> bool:
        """Whether something waits for a worker, or is at work."""
        return bool(self._queue or self._at_work)

    def put(self, key: K) -> None:
        self._queue.put(key)
        self._hand_out()

    async def take(self) -> K:
        """The next: `done` is to hear of it."""
        idle: asyncio.Future[K] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        self._hand_out()
        return await idle

    def done(self, key: K) -> None:
        namespace = self._namespace_of(key)
        self._at_work[namespace] -= 1
        if not self._at_work[namespace]:
            del self._at_work[namespace]
        self._hand_out()

    def _hand_out(self) -> None:
        while self._idle and (namespace := self._whose_turn()) is not None:
            idle = self._idle.popleft()
            if not idle.done():  # cancelled
                self._at_work[namespace] += 1
                idle.set_result(self._queue.take(namespace))

    def _whose_turn(self) -> str | None:
        return next((one for one in self._queue.namespaces() if self._at_work[one] < self._most), None)
