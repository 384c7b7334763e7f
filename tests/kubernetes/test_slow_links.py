"""A list over a link that takes longer for one page than a request may be without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.kubernetes.errors import Unreachable
from services.kubernetes.resources import PODS
from services.kubernetes.transport import Transport

PARTS, EVERY_S, TIMEOUT_S = 16, 0.25, 2.5
PAGE = b'{"metadata":{"resourceVersion":"7"},"items":[]' + b" " * 1_000 + b"}"


@pytest.fixture
async def slow() -> AsyncIterator[tuple[str, list[int]]]:
    """The URL of a server that sends a page bit by bit, and how many bits of each."""
    sent: list[int] = []

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        sent.append(0)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PAGE))
        size = len(PAGE) // PARTS + 1
        for start in range(0, len(PAGE), size):
            writer.write(PAGE[start : start + size])
            sent[-1] += 1
            await asyncio.sleep(EVERY_S)
        writer.close()

    server = await asyncio.start_server(heard, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", sent
    server.close()


async def test_a_page_may_take_its_time_as_long_as_something_of_it_comes(slow: tuple[str, list[int]]) -> None:
    """As it was: one of a thousand large objects was cut off after half a minute, asked for anew, and cut off again."""
    url, sent = slow
    async with Client(direct(url), timeout_s=TIMEOUT_S) as client:
        assert [page async for page in client.pages(PODS)] == [PAGE]
    assert sent == [PARTS]


async def test_a_server_that_is_not_trusted_with_memory_is_not_with_time(slow: tuple[str, list[int]]) -> None:
    """A federated cluster that sends a byte now and then would keep its poll for ever."""
    url, sent = slow
    async with Transport(direct(url), timeout_s=TIMEOUT_S, most_bytes=1 << 20) as transport:
        with pytest.raises(Unreachable, match="list jobs"):
            await transport.send("list jobs", "GET", "/apis/batch/v1/jobs")
    assert 0 < sent[0] < PARTS
