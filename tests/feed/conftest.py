"""A NATS server for all tests of the feed, and a cluster of its own for each."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from events.server import EmbeddedServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """One that a test may stop."""
    with EmbeddedServer(tmp_path / "nats") as running:
        yield running


@pytest.fixture
def cluster() -> str:
    return f"test-{secrets.token_hex(4)}"
