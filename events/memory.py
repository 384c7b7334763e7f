"""The log in memory: for `simulate`, tests and replays. Synchronous at heart (`append_now`), async at the edge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from events import envelope
from events.envelope import Header, Stored
from events.log import Bounds, Conflict, check_place, check_purge, check_size
from events.snapshots import MemorySnapshots

BATCH = 512


class MemoryLog:
    """An `EventLog` that lives as long as its process."""

    def __init__(self, cluster: str = "memory") -> None:
        self.cluster = cluster
        self.commits: list[Stored] = []
        """Those that are there; after a purge the first is not number 1."""
        self.snapshots = MemorySnapshots()
        self._purged = 0
        self._last: dict[str, int] = {}
        self._grown = asyncio.Event()

    def append_now(self, subject: str, header: Header, payload: bytes, expected: int, traceparent: str = "") -> int:
        """`append` without a loop. Raises Conflict, TooLarge."""
        message_id = envelope.message_id(subject, expected, payload)
        header_bytes = envelope.encode_header(header)
        check_size(subject, header_bytes, payload)
        actual = self._last.get(subject, 0)
        if actual != expected:
            if actual and self._at(actual).message_id == message_id:
                return actual
            raise Conflict(subject, expected, actual)
        sequence = self._end() + 1
        self.commits.append(
            Stored(
                sequence=sequence,
                subject=subject,
                message_id=message_id,
                header=header_bytes,
                payload=payload,
                traceparent=traceparent,
            )
        )
        self._last[subject] = sequence
        self._grown.set()
        return sequence

    async def append(
        self, subject: str, header: Header, payload: bytes, expected: int, *, traceparent: str = ""
    ) -> int:
        return self.append_now(subject, header, payload, expected, traceparent)

    async def last(self, subject: str) -> Stored | None:
        sequence = self._last.get(subject, 0)
        return self._at(sequence) if sequence else None

    async def at(self, sequence: int) -> Stored | None:
        return self._at(sequence) if self._purged < sequence <= self._end() else None

    async def bounds(self) -> Bounds:
        return Bounds(self._purged + 1, self._end())

    async def end(self) -> int:
        return self._end()

    async def read(self, after: int = 0, until: int | None = None) -> AsyncIterator[list[Stored]]:
        stop = self._end() if until is None else min(until, self._end())
        check_place(self.cluster, after, self._purged + 1)
        for start in range(max(after, self._purged), stop, BATCH):
            yield self._batch(start, min(start + BATCH, stop))

    async def follow(self, after: int = 0) -> AsyncIterator[list[Stored]]:
        place = after
        while True:
            batch = self._batch(place, max(place, self._purged) + BATCH)
            if batch:
                place = batch[-1].sequence
                yield batch
            else:
                self._grown.clear()
                await self._grown.wait()

    async def stays(self, for_s: float) -> None:
        await asyncio.sleep(for_s)

    async def purge(self, first: int) -> None:
        check_purge(first, self._end())
        gone = max(0, first - 1 - self._purged)
        del self.commits[:gone]
        self._purged += gone
        self._last = {subject: sequence for subject, sequence in self._last.items() if sequence >= first}

    def _end(self) -> int:
        return self._purged + len(self.commits)

    def _batch(self, after: int, stop: int) -> list[Stored]:
        check_place(self.cluster, after, self._purged + 1)
        return self.commits[max(0, after - self._purged) : stop - self._purged]

    def _at(self, sequence: int) -> Stored:
        return self.commits[sequence - 1 - self._purged]

    async def close(self) -> None:
        return None
