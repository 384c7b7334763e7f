"""A NATS server for all tests of the log, and clusters of their own for each."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from events.homes import open_log
from events.jetstream import JetStreamLog
from events.log import EventLog
from events.memory import MemoryLog
from events.server import EmbeddedServer

settings.register_profile("muster", deadline=None)  # the machine may be busy: no example is timed
settings.load_profile("muster")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """Shared, and left alone: a test that stops its server takes `own_server`."""
    with EmbeddedServer(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path / "nats") as running:
        yield running


@pytest.fixture
def cluster() -> str:
    return f"test-{secrets.token_hex(4)}"


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
