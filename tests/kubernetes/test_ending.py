"""A task that is cancelled just when its request's time is over is cancelled all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from services.federator.backends.credentials import Secret
from services.federator.backends.openpai import OpenPai
from services.federator.clusters import Limits
from services.kubernetes.access import direct
from services.kubernetes.errors import Unreachable
from services.kubernetes.transport import Transport

TIMEOUT_S = 0.2
TASKS = 16
UNLIMITED = Limits(requests_per_minute=0, lists_per_minute=0, submissions_per_hour=0)


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The URL of a server that hears everything and says nothing."""
    over = asyncio.Event()

    async def heard(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(heard, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    over.set()
    server.close()


async def cancelled_as_time_runs_out(ask: Callable[[], Awaitable[object]]) -> list[bool]:
    """Of tasks that were cancelled in the turn of the loop in which their requests' time was over, who has ended so."""
    loop = asyncio.get_running_loop()

    async def for_ever() -> None:
        while True:
            try:
                await ask()
            except Unreachable:
                continue

    tasks = []
    for _ in range(TASKS):
        task = asyncio.create_task(for_ever())
        loop.call_later(TIMEOUT_S, task.cancel)
        tasks.append(task)
    await asyncio.sleep(TIMEOUT_S / 2)
    goes_on_s = loop.time() + 2 * TIMEOUT_S
    while loop.time() < goes_on_s:
        pass  # the loop is held up: when it goes on, both are overdue
    await asyncio.wait(tasks, timeout=60)
    ended = [task.cancelled() for task in tasks]
    for task in tasks:
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
    return ended


async def test_a_request_to_an_api_server(silent: str) -> None:
    async with Transport(direct(silent), timeout_s=TIMEOUT_S) as transport:
        ended = await cancelled_as_time_runs_out(lambda: transport.send("list pods", "GET", "/api/v1/pods"))
    assert all(ended), ended


async def test_a_request_to_openpai(silent: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    backend = OpenPai(silent, "alice", Secret(file=str(token)), limits=UNLIMITED, timeout_s=TIMEOUT_S)
    try:
        ended = await cancelled_as_time_runs_out(backend.observe)
    finally:
        await backend.close()
    assert all(ended), ended
