"""Waiting for a condition, with a bound that only a hang can reach."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], what: str = "the condition", timeout_s: float = 60.0) -> None:
    """Returns when `condition` holds. Raises AssertionError, which names `what`, if it never does."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not condition():
        assert loop.time() < deadline, f"waited {timeout_s:.0f} s for {what}"
        await asyncio.sleep(0.005)
