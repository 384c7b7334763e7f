"""Logs with the commits of a random walk, in each of the three homes."""

from __future__ import annotations

import pytest

from events.envelope import Stored
from events.log import EventLog
from services.console import retention
from tests.homes import each_home
from tests.nats_server import cluster, own_server, server
from tests.walk.walk import Walk

__all__ = ["cluster", "each_home", "own_server", "server"]


COMMITS = 250


@pytest.fixture
def log(each_home: EventLog) -> EventLog:
    return each_home


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "LOOKS_AGAIN_S", 0.0)


@pytest.fixture(scope="session")
def commits() -> list[Stored]:
    walk = Walk(11)
    while walk.state.sequence < COMMITS:
        walk.walk(50)
    return walk.world.log.commits
