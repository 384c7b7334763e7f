"""The contract on the simulated cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.simulator.cluster import SimulatedCluster
from tests.contract.client import Endpoint
from tests.contract.suite import *  # noqa: F403  the tests that hold on every API
from tests.contract.workloads import *  # noqa: F403  and where controllers run


@pytest.fixture
async def api() -> AsyncIterator[Endpoint]:
    async with SimulatedCluster(podgroups=False) as cluster:
        yield Endpoint(cluster.url)
