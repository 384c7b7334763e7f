"""A NATS server for tests: fixtures, of which a conftest.py imports those that its directory uses, and a connection."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from events.connection import Connection
from events.server import EmbeddedServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """Shared, and left alone: a test that stops its server takes `own_server`. It promises more than the disk has: each
    feed asks for a GiB, and all of these tests for fifty."""
    with EmbeddedServer(tmp_path_factory.mktemp("nats"), jetstream="max_file_store: 1TB") as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """One that a test may stop."""
    with EmbeddedServer(tmp_path / "nats") as running:
        yield running


@pytest.fixture
def cluster() -> str:
    """The name of a cluster whose log is empty."""
    return f"test-{secrets.token_hex(4)}"


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    connection = await Connection(url).connect()
    yield connection
    await connection.close()
