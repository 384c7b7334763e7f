"""The log in memory: for `simulate`, tests and replays. Synchronous at heart (`append_now`), async at the edge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from events import envelope
from events.envelope import Header, Stored
from events.log import Conflict, check_size

BATCH = 512


class MemoryLog:
    """An `EventLog` that lives as long as its process."""

    def __init__(self, cluster: str = "memory") -> None:
        self.cluster = cluster
        self.commits: list[Stored] = []
        self._last: dict[str, int] = {}
        self._grown = asyncio.Event()

    def append_now(self, subject: str, header: Header, payload: bytes, expected: int, traceparent: str = "") -> int:
        """`append` without a loop. Raises Conflict, TooLarge."""
        message_id = envelope.message_id(subject, expected, payload)
        header_bytes = envelope.encode_header(header)
        check_size(subject, header_bytes, payload)
        actual = self._last.get(subject, 0)
        if actual != expected:
            if actual and self.commits[actual - 1].message_id == message_id:
                return actual
            raise Conflict(subject, expected, actual)
        sequence = len(self.commits) + 1
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
        return self.commits[sequence - 1] if sequence else None

    async def end(self) -> int:
        return len(self.commits)

    async def read(self, after: int = 0, until: int | None = None) -> AsyncIterator[list[Stored]]:
        stop = len(self.commits) if until is None else min(until, len(self.commits))
        for start in range(after, stop, BATCH):
            yield self.commits[start : min(start + BATCH, stop)]

    async def follow(self, after: int = 0) -> AsyncIterator[list[Stored]]:
        place = after
        while True:
            batch = self.commits[place : place + BATCH]
            if batch:
                place += len(batch)
                yield batch
                continue
            self._grown.clear()
            if place >= len(self.commits):
                await self._grown.wait()

    async def close(self) -> None:
        return None
