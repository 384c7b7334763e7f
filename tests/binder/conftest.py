"""A world in which there is something to tell, and a clock on which pauses are over at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.binder.service import effects
from tests.binder.bindings import Binding
from tests.world import World


@pytest.fixture
def world() -> World:
    world = World()
    world.node("n0", cpu=100, memory_gi=1000)
    for i in range(80):
        world.pod(f"bound-{i}")
    world.pod("waits", cpu=200)
    world.settle()
    return world


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited between attempts: it is over at once."""
    waited: list[float] = []
    sleep = asyncio.sleep

    async def over(delay_s: float) -> None:
        if delay_s >= effects.FIRST_RETRY_S:
            waited.append(round(delay_s, 3))
        await sleep(0 if delay_s >= effects.FIRST_RETRY_S else delay_s)

    monkeypatch.setattr(asyncio, "sleep", over)
    return waited


@pytest.fixture
async def binding() -> AsyncIterator[Binding]:
    binding = Binding()
    running = asyncio.create_task(binding.effects.run())
    yield binding
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
