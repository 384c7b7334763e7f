"""Kubernetes is upgraded under a Muster that runs: the same etcd, the same address, a newer kube-apiserver.

Needs another version beside that of ``.build/bin``: ``python -m deploy.e2e.release 1.37.2`` builds one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from deploy.e2e.api import Api
from deploy.e2e.build import BUILD
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.native_gangs import BY_MINOR
from deploy.e2e.release import installed_minor, minor
from deploy.e2e.workload import gangs, nodes, pod
from services.ingest.requests import SUMS_SINCE
from tests.e2e.cluster import Muster, install, until
from tests.e2e.test_pod_requests import run_with_more

PREFIX = "kubernetes-"


@pytest.fixture
def newer() -> Path:
    """Programs of a version that counts otherwise what pods request."""
    built = [one for one in BUILD.glob(f"{PREFIX}*") if of(one) in BY_MINOR and of(one) >= SUMS_SINCE]
    if not built or installed_minor() not in range(min(BY_MINOR), SUMS_SINCE):
        pytest.skip("no version from 1.37 on is built beside an older one: `python -m deploy.e2e.release 1.37.2`")
    return max(built, key=of)


@pytest.fixture
def control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """One of this test's own: there is no way back."""
    with ControlPlane(tmp_path / "control-plane", BY_MINOR[installed_minor()].apiserver_flags) as plane:
        yield plane


@pytest.fixture
async def api(newer: Path, control_plane: ControlPlane) -> AsyncIterator[Api]:
    async with Api(control_plane.url, control_plane.admin_token, control_plane.certificate) as api:
        await install(api)
        yield api


def of(built: Path) -> int:
    """37 of those of 1.37.2."""
    return minor(built.name.removeprefix(PREFIX))[1]


def upgrade(control_plane: ControlPlane, newer: Path) -> None:
    control_plane.processes["kube-apiserver"].stop()
    control_plane.programs = newer
    control_plane.apiserver_flags = BY_MINOR[of(newer)].apiserver_flags
    control_plane.start_apiserver()


async def test_what_runs_is_counted_as_the_newer_server_counts(
    newer: Path, control_plane: ControlPlane, api: Api, muster: Muster
) -> None:
    """A container that has more allocated than it asks for: since 1.37 that counts, used or not. No service is started
    again, and gangs that wait while the server is away start behind that."""
    await run_with_more(api)
    muster.start_all()
    await api.create(pod("before", cpu="1500m"))
    assert (await muster.until_bound(2))["before"] == "only"
    await api.delete("/api/v1/namespaces/default/pods/before")
    assert await muster.bound() == {"running": "only"}

    upgrade(control_plane, newer)
    assert (await api.get("/version"))["minor"] == str(of(newer))
    await api.create(pod("behind", cpu="1500m"))

    async def refused() -> bool:
        return "Insufficient cpu" in (await muster.condition("behind")).get("message", "")

    await until(refused, "there is no room for it")
    groups, pods = gangs(5, 4)
    await api.create_all(nodes(20))
    await api.create_all(groups)
    await api.create_all(pods)
    await muster.until_bound(len(pods) + 2)
    await muster.check()


async def test_gangs_of_a_version_that_is_not_read_any_more_cost_nothing_but_themselves(
    newer: Path, control_plane: ControlPlane, api: Api, muster: Muster
) -> None:
    """1.36 keeps PodGroups of Kubernetes' own in a version that 1.37 does not know: it is not ready then, says 500 of all
    PodGroups there, and goes on otherwise. So does who is started behind that: as it was, ingest waited for them."""
    version = BY_MINOR[installed_minor()].api_version
    group = {"metadata": {"name": "left"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    await api.call("POST", f"/apis/{version}/namespaces/default/podgroups", group)
    await api.create_all(nodes(20))
    await api.create(pod("alone", cpu="1", schedulingGroup={"podGroupName": "left"}))
    services = muster.start_all()

    async def waits() -> bool:
        return bool(await muster.condition("alone"))

    await until(waits, "it waits for the other")
    control_plane.health = "/version"  # all that it says yes to
    upgrade(control_plane, newer)
    services["ingest"].stop()
    muster.start("ingest")
    groups, pods = gangs(5, 4)
    await api.create_all(groups)
    await api.create_all(pods)
    await muster.until_bound(len(pods))
    await muster.check()
