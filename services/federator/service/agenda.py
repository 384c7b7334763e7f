"""What is to be tried on one account, and when: each key once, one attempt at a time, and ever more seldom."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from services.federator.records import Key

AGAIN_S, SELDOM_S = 1.0, 60.0
"""After an attempt that settled nothing: from … to …, doubling."""


@dataclass(slots=True)
class Agenda:
    """Times are seconds of the loop's clock."""

    due: list[tuple[float, int, Key]] = field(default_factory=list)
    entries: dict[Key, int] = field(default_factory=dict)
    """Which of the entries in `due` counts for a key that waits: the last."""
    there: set[Key] = field(default_factory=set)
    tries: dict[Key, int] = field(default_factory=dict)
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    submits_from_s: float = float("-inf")
    """No submission before that: the cluster, or the client's own limit, said so."""
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    locks: WeakValueDictionary[Key, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def add(self, key: Key, due_s: float) -> None:
        """Once, however often."""
        if key not in self.there:
            self.there.add(key)
            self._push(key, due_s)

    def hasten(self, key: Key, due_s: float) -> None:
        """Of a key that waits: what is to be tried is another thing now, whatever the pause was for."""
        self.tries.pop(key, None)
        if key in self.entries:
            self._push(key, due_s)

    def renew(self, due_s: float) -> None:
        """The cluster answers again: nobody waits for what its silence made seldom, and pauses begin anew."""
        self.tries.clear()
        for key in list(self.entries):
            self._push(key, due_s)

    def again(self, key: Key, now_s: float, at_least_s: float = 0.0) -> None:
        """Of a key that `next` gave: later, and each time later still."""
        tries = self.tries[key] = self.tries.get(key, 0) + 1
        pause_s = min(SELDOM_S, AGAIN_S * 2.0 ** min(tries - 1, 10)) * random.uniform(0.5, 1.0)
        self._push(key, now_s + max(at_least_s, pause_s))

    def done(self, key: Key) -> None:
        self.there.discard(key)
        self.tries.pop(key, None)

    def alone(self, key: Key) -> asyncio.Lock:
        """Held while anything is tried of this key."""
        return self.locks.setdefault(key, asyncio.Lock())

    async def next(self) -> Key:
        """The first that is due; waits for one."""
        loop = asyncio.get_running_loop()
        while True:
            while self.due and self.entries.get(self.due[0][2]) != self.due[0][1]:
                heapq.heappop(self.due)
            wait_s = self.due[0][0] - loop.time() if self.due else None
            if wait_s is not None and wait_s <= 0:
                key = heapq.heappop(self.due)[2]
                del self.entries[key]
                return key
            self.grown.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self.grown.wait()
            except TimeoutError:
                continue

    def _push(self, key: Key, due_s: float) -> None:
        self.entries[key] = number = next(self.numbers)
        heapq.heappush(self.due, (due_s, number, key))
        self.grown.set()
