"""A simulated cluster of two nodes and two pods; the log in memory and over a real nats-server."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from events.jetstream import JetStreamLog
from events.log import EventLog
from events.memory import MemoryLog
from events.server import EmbeddedServer
from services.simulator.cluster import SimulatedCluster
from tests.manifests import node, pod


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster(kubelet=False) as running:
        running.load([node("n1"), node("n2"), pod("a"), pod("b")])
        yield running


@pytest.fixture(params=["memory", "jetstream"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    if request.param == "memory":
        yield MemoryLog("test")
        return
    with EmbeddedServer(tmp_path / "nats") as server:
        opened = await JetStreamLog.open(server.url, f"test-{secrets.token_hex(4)}", create=True)
        yield opened
        await opened.close()
