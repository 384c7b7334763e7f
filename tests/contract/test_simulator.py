"""The contract on the simulated cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.kubernetes.access import Access
from services.simulator.cluster import SimulatedCluster
from tests.contract.client import Accounts, Endpoint, Forget, Guard
from tests.contract.suite import *  # noqa: F403  the tests that hold on every API
from tests.contract.workloads import *  # noqa: F403  and where controllers run

WHO = ("admin", "stranger")


@pytest.fixture
async def simulated() -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster(podgroups=False) as cluster:
        yield cluster


@pytest.fixture
def api(simulated: SimulatedCluster) -> Endpoint:
    return Endpoint(simulated.url)


@pytest.fixture
def accounts(simulated: SimulatedCluster) -> Accounts:
    """It knows no rights: its answers to the stranger are planned."""
    simulated.faults.plan(token="stranger", status=403, times=0)
    return Accounts(*(Access(simulated.url, authorization=lambda who=who: f"Bearer {who}") for who in WHO))


@pytest.fixture
def forget(simulated: SimulatedCluster) -> Forget:
    async def forget() -> None:
        simulated.drop_history()

    return forget


@pytest.fixture
def guard(simulated: SimulatedCluster) -> Guard:
    """It knows no budgets."""

    async def guard(_: str) -> None:
        simulated.faults.plan(verb="evict", status=429, retry_after_s=10, times=0)

    return guard
