"""Links on which megabytes take seconds, and what is said meanwhile waits behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import nats.aio.client
import nats.errors
import pytest

from events import subjects, tls
from events.answers import Unanswered
from events.client import Client
from events.homes import copy
from events.jetstream import IMPORT_WINDOW, IMPORT_WINDOW_BYTES, JetStreamLog, _windows
from events.log import EventLog
from events.server import EmbeddedServer
from events.snapshots import Kept
from events.sqlite import SqliteLog
from tests.events.proxy import proxy
from tests.events.writing import HEADER, append, collect, sequences
from tests.waiting import until

COMMIT_BYTES = 1_000_000
BYTES_PER_S = COMMIT_BYTES
"""A second for a commit: longer than whoever waits for it is patient, below."""


@pytest.fixture
async def far(
    log: JetStreamLog, server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[JetStreamLog]:
    """The log behind a slow link. Its commits are smaller than the largest that there are, and patience by as much."""
    monkeypatch.setattr("events.connection.REQUEST_WITHIN_S", 0.4)
    monkeypatch.setattr("events.connection.AGAIN_S", 0.05)
    monkeypatch.setattr("events.consumer.SILENCE_S", 0.4)
    monkeypatch.setattr("events.patience.PATIENCE_S", 4.0)
    async with proxy(server.port) as between:
        opened = await JetStreamLog.open(between.url, cluster)
        between.bytes_per_s = BYTES_PER_S
        yield opened
        await opened.close()


async def append_large(log: EventLog, expected: int) -> int:
    large = b'["' + b"x" * COMMIT_BYTES + b'"]'
    return await log.append(subjects.subject(log.cluster, "binder"), HEADER, large, expected)


async def test_large_commits_are_read(log: JetStreamLog, far: JetStreamLog) -> None:
    """As it was: a consumer whose message took longer than a heartbeat may be away was given up, and so was the next."""
    last = 0
    for _ in range(3):
        last = await append_large(log, last)
    async with asyncio.timeout(60):
        assert sequences(await collect(far.read())) == [1, 2, 3]
        assert sequences(await collect(far.follow(), 3)) == [1, 2, 3]


async def test_a_large_commit_is_appended_and_found_again(log: JetStreamLog, far: JetStreamLog) -> None:
    """As it was: what came last was asked for again four times a second, until the link had nothing else to carry."""
    async with asyncio.timeout(60):
        first = await append_large(far, 0)
        found = await far.last(subjects.subject(log.cluster, "binder"))
        assert found is not None
        assert found.sequence == first
        assert await append(far, "binder", 2, first) == 2


async def test_a_snapshot_comes_and_goes(far: JetStreamLog) -> None:
    """As it was: over 1 MB/s none was ever restored, as each part was asked for again before it was here."""
    data = bytes(3 * COMMIT_BYTES)
    kept = Kept(sequence=3, digest="d", state=1, bytes=len(data))
    async with asyncio.timeout(60):
        await far.snapshots.put(kept, data)
        assert await far.snapshots.get(kept) == data


async def test_a_log_is_imported(log: JetStreamLog, far: JetStreamLog, cluster: str, tmp_path: Path) -> None:
    file = SqliteLog(tmp_path / "far.db", cluster, create=True)
    await append(file, "binder", 3, await append_large(file, await append_large(file, 0)))
    async with asyncio.timeout(60):
        assert await copy(file, far) == 3
    assert sequences(await collect(log.read())) == [1, 2, 3]
    await file.close()


async def test_what_nobody_answers_ends_while_the_link_is_busy(log: JetStreamLog, far: JetStreamLog) -> None:
    await append_large(log, 0)
    reading = asyncio.create_task(collect(far.read()))
    await until(lambda: far.connection.client.stats["in_bytes"] > 0)
    await log.connection.client.subscribe("deaf", cb=AsyncMock())
    await log.connection.client.flush()
    async with asyncio.timeout(60):
        with pytest.raises(Unanswered):
            await far.connection.request("deaf", b"")
        assert sequences(await reading) == [1]


async def test_who_waits_for_all_to_be_heard_hears_that_the_connection_broke(
    own_server: EmbeddedServer, cluster: str
) -> None:
    log = await JetStreamLog.open(own_server.url, cluster)
    own_server.pause()
    waiting = asyncio.create_task(log.connection.hear_all())
    async with asyncio.timeout(60):
        await waiting
    assert not log.connection.client.is_connected
    own_server.resume()
    await log.close()


async def test_a_request_that_is_cancelled_while_it_waits_to_be_sent_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: nats-py passes that over, and its time was never over."""
    waits = asyncio.Event()

    async def passes_it_over(self: Any, force_flush: bool = False) -> None:
        waits.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

    monkeypatch.setattr(nats.aio.client.Client, "_flush_pending", passes_it_over)
    asking = asyncio.create_task(Client()._flush_pending())
    await waits.wait()
    asking.cancel()
    await asyncio.wait({asking})
    assert asking.cancelled()


def came(*progress: tuple[int, int]) -> Iterator[tuple[int, int]]:
    yield from progress
    while True:
        yield progress[-1]


@pytest.mark.parametrize(
    ("progress", "pings"),
    [
        ([(0, 0)], 2),
        ([(n * 10, 0) for n in range(30)], 31),
        ([(5, 9_000 - n * 100) for n in range(30)], 31),
        ([(5, 9_000)], 2),
    ],
    ids=["nothing", "it comes", "it goes", "it stands"],
)
async def test_what_comes_or_goes_is_a_sign_of_life(progress: list[tuple[int, int]], pings: int) -> None:
    """As it was: a live connection was dropped, and made anew, while a log was read over it, again and again."""
    client, told = Client(), came(*progress)
    transport = tls.Transport()  # type: ignore[no-untyped-call]
    transport.progress = lambda: next(told)  # type: ignore[method-assign]
    client._transport, client._status = transport, Client.CONNECTED
    client.options = {"ping_interval": 0.001, "max_outstanding_pings": 2}
    sent, dropped = AsyncMock(), AsyncMock()
    client._send_ping, client._process_op_err = sent, dropped  # type: ignore[method-assign]
    async with asyncio.timeout(60):
        await client._ping_interval()
    (error,) = dropped.await_args.args  # type: ignore[union-attr]
    assert isinstance(error, nats.errors.StaleConnectionError)
    assert sent.await_count == pings


async def test_what_is_read_is_counted() -> None:
    reader = asyncio.StreamReader()
    transport = tls.Transport()  # type: ignore[no-untyped-call]
    transport._io_reader = reader
    reader.feed_data(b"PONG\r\n")
    await transport.read(100)
    assert transport.progress() == (6, 0)


def test_a_window_of_an_import_is_bounded_in_commits_and_in_bytes() -> None:
    sizes = [1] * (IMPORT_WINDOW + 1) + [IMPORT_WINDOW_BYTES * 2, IMPORT_WINDOW_BYTES // 2, IMPORT_WINDOW_BYTES // 2, 1]
    commits: list[Any] = [SimpleNamespace(payload=bytes(size)) for size in sizes]
    found = list(_windows(commits))
    assert [one for window in found for one in window] == commits
    assert [len(window) for window in found] == [IMPORT_WINDOW, 1, 1, 2, 1]
    assert list(_windows([])) == []
