"""Waiting for a condition, with a bound that only a hang can reach."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(condition: Callable[[], object], what: str = "the condition", timeout_s: float = 60.0) -> None:
    """Returns when `condition` holds. Raises AssertionError, which names `what`, if it never does."""

    async def asked() -> object:
        return condition()

    await answered(asked, what, timeout_s)


async def answered(ask: Callable[[], Awaitable[T | None]], what: str = "an answer", timeout_s: float = 60.0) -> T:
    """What `ask` gives, asked until that is true. Raises AssertionError, which names `what`, if it never is."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not (found := await ask()):
        assert loop.time() < deadline, f"waited {timeout_s:.0f} s for {what}, found {found!r}"
        await asyncio.sleep(0.005)
    return found
