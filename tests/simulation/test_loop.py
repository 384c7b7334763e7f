"""The virtual loop's own timeouts do what asyncio's do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.loop import Timeout, VirtualLoop

Kind = Callable[[float], Any]


async def _in_time(limit: Kind) -> str:
    async with limit(2.0):
        await asyncio.sleep(1.0)
    await asyncio.sleep(5.0)
    return "in time"


async def _too_late(limit: Kind) -> str:
    try:
        async with limit(1.0):
            await asyncio.sleep(2.0)
    except TimeoutError:
        return f"too late, cancelled {asyncio.current_task().cancelling()} times"  # type: ignore[union-attr]
    return "?"


async def _at_once(limit: Kind) -> str:
    try:
        async with limit(0.0):
            await asyncio.Event().wait()
    except TimeoutError:
        return "at once"
    return "?"


async def _inner_of_two(limit: Kind) -> str:
    try:
        async with limit(3.0):
            try:
                async with limit(1.0):
                    await asyncio.sleep(9.0)
            except TimeoutError:
                await asyncio.sleep(9.0)
    except TimeoutError:
        return "both"
    return "?"


async def _failing(limit: Kind) -> str:
    try:
        async with limit(1.0):
            raise ValueError
    except ValueError:
        return "its own error"


async def _cancelled(limit: Kind) -> str:
    async def long() -> None:
        async with limit(5.0):
            await asyncio.sleep(9.0)

    task = asyncio.ensure_future(long())
    await asyncio.sleep(1.0)
    task.cancel()
    await asyncio.wait({task})
    return f"cancelled {task.cancelled()}"


@pytest.mark.parametrize("case", [_in_time, _too_late, _at_once, _inner_of_two, _failing, _cancelled])
def test_timeouts_are_asyncios(case: Callable[[Kind], Coroutine[Any, Any, str]]) -> None:
    found = []
    for limit in (asyncio.timeout, Timeout):
        loop = VirtualLoop()
        said = loop.run_until_complete(case(limit))
        found.append((said, loop.now_s))
        loop.close()
    assert found[0] == found[1]
    assert found[0][0] != "?"
