"""A simulated cluster, and patience with what moves in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from services.simulator.cluster import SimulatedCluster
from tests.contract.client import Client, Endpoint

Object = dict[str, Any]


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster(seed=1) as cluster:
        yield cluster


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def client(cluster: SimulatedCluster, session: aiohttp.ClientSession) -> Client:
    """Requests in the namespace ``default``."""
    client = Client(Endpoint(cluster.url), session)
    client.namespace = "default"
    return client
