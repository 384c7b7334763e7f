"""A NATS server for all tests of the log, and clusters of their own for each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from events.jetstream import JetStreamLog
from events.server import EmbeddedServer
from tests.homes import each_home
from tests.nats_server import cluster, own_server, server

__all__ = ["cluster", "each_home", "own_server", "server"]


@pytest.fixture
async def log(server: EmbeddedServer, cluster: str) -> AsyncIterator[JetStreamLog]:
    opened = await JetStreamLog.open(server.url, cluster)
    yield opened
    await opened.close()
