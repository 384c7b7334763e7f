"""The contract that the simulated cluster is held to, on the real kube-apiserver: so the simulator can't drift."""

# ruff: noqa: E402, F403  (asserts are rewritten in what is imported after it was registered)

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.contract.suite", "tests.contract.client")

from deploy.e2e.control_plane import ControlPlane
from tests.contract.client import Endpoint
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
