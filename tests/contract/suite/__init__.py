"""The contract: what Muster relies on in a Kubernetes API. Holds on a real kube-apiserver v1.36 and on the simulator.

One file for each verb or kind, of raw requests; and, ``own_…``, for what Muster's own client makes of the answers. A
module that collects them all provides the fixtures `api`, an `Endpoint`, `accounts`, `forget` and `guard` (see
`tests.contract.client`), and imports everything from here:

    from tests.contract.suite import *

A conftest.py beside it, or the module itself before that line, says

    pytest.register_assert_rewrite("tests.contract.suite")

Each test has a namespace of its own; nothing here needs a kubelet or a controller, and nothing minds one.
"""

# ruff: noqa: F403  (whoever imports everything from here collects every file's tests)

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from services.kubernetes.access import Access
from services.kubernetes.client import Client as Own
from services.kubernetes.transport import retrying
from services.simulator.resources import PODGROUPS_CRD
from tests.contract.client import Accounts, Client, Endpoint, eventually
from tests.contract.suite.binding import *
from tests.contract.suite.create import *
from tests.contract.suite.deletion import *
from tests.contract.suite.discovery import *
from tests.contract.suite.kinds import *
from tests.contract.suite.limit_ranges import *
from tests.contract.suite.lists import *
from tests.contract.suite.own_jobs import *
from tests.contract.suite.own_reads import *
from tests.contract.suite.own_watches import *
from tests.contract.suite.own_writes import *
from tests.contract.suite.podgroups import *
from tests.contract.suite.runtime_classes import *
from tests.contract.suite.updates import *
from tests.contract.suite.watches import *


@pytest.fixture
async def client(api: Endpoint) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(headers=api.headers) as session:
        client = Client(api, session)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": client.namespace}}
        (await client.post("/api/v1/namespaces", namespace)).ok(201)
        yield client
        await client.request("DELETE", client.pods, {"gracePeriodSeconds": 0})


@asynccontextmanager
async def opened(access: Access) -> AsyncIterator[Own]:
    """Muster's own client, which asks twice at most: what is repeated is tested elsewhere."""
    async with Own(access) as own:
        own._reading = own._writing = retrying(1)
        yield own


@pytest.fixture
async def own(accounts: Accounts) -> AsyncIterator[Own]:
    async with opened(accounts.admin) as own:
        yield own


@pytest.fixture
async def unprivileged(accounts: Accounts) -> AsyncIterator[Own]:
    async with opened(accounts.stranger) as own:
        yield own


@pytest.fixture
async def crd(client: Client) -> Client:
    """A client of a cluster that has the PodGroup CRD."""
    created = await client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", PODGROUPS_CRD)
    assert created.code in (201, 409), created
    await eventually(lambda: client.get(client.podgroups), lambda answer: answer.code == 200)
    return client
