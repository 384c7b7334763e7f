"""A simulated Kubernetes cluster, and a federator's connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.federator.backends.kubernetes import Kubernetes
from services.kubernetes.access import direct
from services.simulator.cluster import SimulatedCluster
from tests.federator.backends.sites import KubernetesSite


@pytest.fixture
async def site() -> AsyncIterator[KubernetesSite]:
    async with SimulatedCluster() as cluster:
        yield KubernetesSite(cluster)


@pytest.fixture
async def backend(site: KubernetesSite) -> AsyncIterator[Kubernetes]:
    opened = Kubernetes(direct(site.cluster.url), "default")
    yield opened
    await opened.close()
