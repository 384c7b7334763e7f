"""A connection, where no server is needed to see it."""

from __future__ import annotations

import asyncio

import pytest

from events.connection import Connection


async def test_a_cancellation_that_meets_the_answer_to_a_flush_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: a service that was told to end in this moment ran on."""
    connection = Connection("nats://127.0.0.1:1")
    answer, asked = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def flush() -> None:
        asked.set()
        await asyncio.wait_for(answer, 60)

    monkeypatch.setattr(connection.client, "flush", flush)
    flushing = asyncio.create_task(connection.flush())
    await asked.wait()
    answer.set_result(None)
    flushing.cancel()
    await asyncio.wait({flushing})
    assert flushing.cancelled()
