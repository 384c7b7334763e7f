"""What tests append, and how they read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import msgspec

from events import Ticked, subjects
from events.envelope import Header, Stored, encode_events
from events.log import EventLog

HEADER = Header(writer="binder", epoch=3, basis=17, time_ns=1_700_000_000_000_000_000, cause="decide")


def payload(number: int) -> bytes:
    """A commit's payload that no other number has."""
    return encode_events([Ticked(time_ns=number, jumped_ns=0)])


def number_of(commit: Stored) -> int:
    """The inverse of `payload`."""
    (tick,) = msgspec.json.decode(commit.payload, type=list[Ticked])
    return tick.time_ns


async def append(log: EventLog, writer: str, number: int, expected: int) -> int:
    return await log.append(subjects.subject(log.cluster, writer), HEADER, payload(number), expected)


async def fill(log: EventLog, writer: str, count: int) -> int:
    """Appends `count` commits, numbered from 1, to an empty subject; returns the sequence of the last."""
    sequence = 0
    for number in range(1, count + 1):
        sequence = await append(log, writer, number, sequence)
    return sequence


async def collect(batches: AsyncIterator[list[Stored]], count: int | None = None) -> list[Stored]:
    """All commits of a `read`, or the first `count` of a `follow`."""
    commits: list[Stored] = []
    async for batch in batches:
        assert batch, "a batch is never empty"
        commits += batch
        if count is not None and len(commits) >= count:
            break
    return commits


def sequences(commits: list[Stored]) -> list[int]:
    return [commit.sequence for commit in commits]


async def append_through(
    writer: EventLog, reader: EventLog, total: int, crash: Callable[[list[int]], Awaitable[None]]
) -> None:
    """Appends `total` commits and follows them while `crash`, which is given the sequences so far, hurts the server.

    Nothing is lost or repeated, neither by the writer nor by the reader.
    """
    written: list[int] = []

    async def write() -> None:
        for number in range(total):
            written.append(await append(writer, "binder", number, written[-1] if written else 0))

    async def follow() -> list[tuple[int, int]]:
        async with aclosing(reader.follow()) as batches:
            return [(commit.sequence, number_of(commit)) for commit in await collect(batches, total)]

    _, seen, _ = await asyncio.gather(write(), follow(), crash(written))
    assert written == list(range(1, total + 1))
    assert seen == list(zip(written, range(total), strict=True))
