"""Links on which megabytes take seconds, and what is said meanwhile waits behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import nats.aio.client
import nats.errors
import pytest

from events import tls
from events.client import Client
from events.jetstream import IMPORT_WINDOW, IMPORT_WINDOW_BYTES, _windows


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
