"""The contract that the simulated cluster is held to, on the real kube-apiserver: so the simulator can't drift."""

# ruff: noqa: E402, F403  (asserts are rewritten in what is imported after it was registered)

from __future__ import annotations

import ssl
from collections.abc import Iterator

import aiohttp
import pytest

pytest.register_assert_rewrite("tests.contract.suite", "tests.contract.client")

from deploy.e2e.api import Api
from deploy.e2e.control_plane import ControlPlane
from services.kubernetes.access import Access, from_kubeconfig
from tests.contract.client import Accounts, Endpoint, Forget, Guard
from tests.contract.suite import *


@pytest.fixture(scope="module")
def fresh_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that knows no PodGroups yet."""
    with ControlPlane(tmp_path_factory.mktemp("contract")) as plane:
        yield plane


@pytest.fixture
async def api(fresh_plane: ControlPlane) -> Endpoint:
    context = ssl.create_default_context(cafile=fresh_plane.certificate)
    return Endpoint(fresh_plane.url, {"Authorization": f"Bearer {fresh_plane.admin_token}"}, context)


def access(plane: ControlPlane, user: str, token: str) -> Access:
    return from_kubeconfig(str(plane.kubeconfig(user, token)))


@pytest.fixture
async def accounts(fresh_plane: ControlPlane) -> Accounts:
    """The stranger is a service account that nobody granted anything."""
    async with Api(fresh_plane.url, fresh_plane.admin_token, fresh_plane.certificate) as api:
        await api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "stranger"}})
        token = await api.token_for("default", "stranger")
    return Accounts(access(fresh_plane, "admin", fresh_plane.admin_token), access(fresh_plane, "stranger", token))


@pytest.fixture
def forget(fresh_plane: ControlPlane) -> Forget:
    """Etcd's history is compacted, and the apiserver's own cache goes with its process."""

    async def forget() -> None:
        etcd = f"http://127.0.0.1:{fresh_plane.etcd_port}/v3/kv"
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            async with session.post(f"{etcd}/range", json={"key": "AA=="}) as answer:
                revision = (await answer.json())["header"]["revision"]
            await session.post(f"{etcd}/compaction", json={"revision": revision, "physical": True})
        fresh_plane.processes["kube-apiserver"].stop()
        fresh_plane.start_apiserver()

    return forget


@pytest.fixture
def guard(fresh_plane: ControlPlane) -> Guard:
    """A budget that no controller has looked at."""

    async def guard(namespace: str) -> None:
        metadata = {"name": "all", "namespace": namespace}
        spec = {"minAvailable": 1, "selector": {}}
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
        async with Api(fresh_plane.url, fresh_plane.admin_token, fresh_plane.certificate) as api:
            await api.create(budget)

    return guard
