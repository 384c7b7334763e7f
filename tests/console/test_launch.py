"""What a service's process does around its service."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from services import settings
from services.console import launch
from services.health import Health
from tests.waiting import until


@pytest.fixture
def collector() -> Iterator[None]:
    """Leaves it as it was."""
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)
    gc.enable()


@pytest.mark.usefixtures("collector")
async def test_a_service_collects_its_garbage(tmp_path: Path) -> None:
    """`muster` turns the collector off while it imports: off for good, whatever is in a circle would never go."""
    chosen = settings.read({"nats_url": str(tmp_path / "log.db"), "cluster": "test"})
    gc.disable()
    running = asyncio.create_task(launch._hold_and_run("planner", chosen, asyncio.Event(), Health()))
    await until(gc.isenabled, "the collector to be on")
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})
