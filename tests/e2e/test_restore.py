"""Etcd is restored from a backup under running services."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.e2e.api import MERGE
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.workload import gang, gangs, nodes, pod_group
from services.state.fold import State
from tests.e2e.cluster import Muster

NODE = "/api/v1/nodes/node-00000"
PATCHES = 300
"""More than an apiserver writes as it starts."""
SLOW = {"MUSTER_BIND_CONCURRENCY": "1"}


@pytest.fixture
def control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Of this test's own, as it goes back in time."""
    with ControlPlane(tmp_path / "plane") as plane:
        yield plane


@contextlib.contextmanager
def stopped(control_plane: ControlPlane) -> Iterator[None]:
    """The apiserver and etcd, while its data are copied."""
    control_plane.processes["kube-apiserver"].kill()
    control_plane.processes["etcd"].stop(timeout_s=30)
    yield
    control_plane.start_etcd()
    control_plane.start_apiserver()


async def back_up(muster: Muster) -> Path:
    """A copy of etcd's data as they are now."""
    backup = muster.directory / "backup"
    with stopped(muster.control_plane):
        shutil.copytree(muster.control_plane.data, backup)
    await muster.bound()  # meanwhile the test's session notices that its connections are gone
    return backup


async def restore(muster: Muster, backup: Path) -> None:
    data = muster.control_plane.data
    with stopped(muster.control_plane):
        shutil.rmtree(data)
        shutil.copytree(backup, data)
    await muster.bound()


async def knows_the_last(state: State) -> bool:
    """Its watch of nodes may have been away until now: what the log does not know cannot be newer than the backup."""
    node = state.nodes["node-00000"].fact
    return node is not None and node.labels.get("a") == str(PATCHES - 1)


async def test_what_came_behind_the_backup_never_was(muster: Muster) -> None:
    """resourceVersions come a second time. As it was: the node's cordon was taken for older than what the log said of
    it, until the versions had caught up."""
    api = muster.api
    ingest = muster.start_all()["ingest"]
    await api.create_all([*nodes(2), pod_group("first", 4), *gang("first", 4)])
    await muster.until_bound(4)
    backup = await back_up(muster)
    await api.create_all([pod_group("lost", 4), *gang("lost", 4)])
    await muster.until_bound(8)
    await api.delete("/api/v1/namespaces/default/pods/first-000")
    for number in range(PATCHES):
        await api.call("PATCH", NODE, {"metadata": {"labels": {"a": str(number)}}}, MERGE)
    await muster.until_folded(knows_the_last, "ingest has seen the last of the patches")
    await muster.check_agreement()
    await restore(muster, backup)
    await api.call("PATCH", NODE, {"spec": {"unschedulable": True}}, MERGE)
    ingest.stop(timeout_s=30)  # as after any restore; else its watches say nothing for five minutes
    again = muster.start("ingest")
    await api.create_all([pod_group("new", 4), *gang("new", 4)])
    bound = await muster.until_bound(8)
    assert sorted({name.rpartition("-")[0] for name in bound}) == ["first", "new"]
    assert {node for name, node in bound.items() if name.startswith("new")} == {"node-00001"}
    assert "etcd was restored from a backup" in again.log.read_text()
    await muster.check()


async def test_in_the_middle_of_binding(muster: Muster) -> None:
    """Bindings that the log knows as done are to be done again, and those under way then are of another time."""
    services = muster.start_all(**SLOW)
    groups, pods = gangs(40, 20)
    await muster.api.create_all([*nodes(120), *groups])
    await muster.api.create_all(pods)
    await muster.until_bound(20)
    services["binder"].kill()
    before = len(await muster.bound())
    backup = await back_up(muster)
    muster.start("binder", environment=SLOW)
    later = len(await muster.until_bound(before + 60))
    await restore(muster, backup)
    assert before <= len(await muster.bound())
    assert later < len(pods), "it was over before it was hurt"
    services["ingest"].stop(timeout_s=30)
    muster.start("ingest")
    await muster.until_bound(len(pods))
    await muster.check()
