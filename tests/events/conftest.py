"""A NATS server for all tests of the log, and clusters of their own for each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

from events.homes import open_log
from events.jetstream import JetStreamLog
from events.log import EventLog
from events.memory import MemoryLog
from events.server import EmbeddedServer
from tests.nats_server import cluster, own_server, server

__all__ = ["cluster", "own_server", "server"]

settings.register_profile("muster", deadline=None)  # the machine may be busy: no example is timed
settings.load_profile("muster")


@pytest.fixture(params=["memory", "sqlite", "jetstream"])
async def each_home(request: pytest.FixtureRequest, tmp_path: Path, cluster: str) -> AsyncIterator[EventLog]:
    """An empty log in each of the three homes."""
    opened: EventLog
    if request.param == "memory":
        opened = MemoryLog(cluster)
    elif request.param == "sqlite":
        opened = await open_log(str(tmp_path / "log.db"), cluster, create=True)
    else:
        server: EmbeddedServer = request.getfixturevalue("server")
        opened = await open_log(server.url, cluster, create=True)
    yield opened
    await opened.close()


@pytest.fixture
async def log(server: EmbeddedServer, cluster: str) -> AsyncIterator[JetStreamLog]:
    opened = await JetStreamLog.open(server.url, cluster)
    yield opened
    await opened.close()
