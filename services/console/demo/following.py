"""Following a log beside something else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def following(reading: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Runs until the block ends."""
    task = asyncio.create_task(reading)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
