"""A service that is told to end ends, whatever its work makes of being cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from services.console import launch


async def test_a_cancellation_that_was_swallowed_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """As wait_for of Python 3.11 does, where a cancellation meets its result."""
    monkeypatch.setattr(launch, "CANCELLED_AGAIN_S", 0.01)
    swallowed = 0

    async def work() -> None:
        nonlocal swallowed
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        swallowed += 1
        await asyncio.Event().wait()

    stop = asyncio.Event()
    stop.set()
    await launch._until(stop, work(), 0.0)
    assert swallowed == 1
