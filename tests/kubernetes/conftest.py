"""A simulated cluster with one node, and a client of it; an API server that asks for a token."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.simulator.cluster import SimulatedCluster
from tests.kubernetes.tokens import server
from tests.manifests import node

__all__ = ["server"]


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster(kubelet=False) as running:
        running.create(node("n1"))
        yield running


@pytest.fixture
async def client(cluster: SimulatedCluster) -> AsyncIterator[Client]:
    async with Client(direct(cluster.url)) as opened:
        yield opened
