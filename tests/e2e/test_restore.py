"""Etcd is restored from a backup under running services."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from deploy.e2e.api import MERGE, Api
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.workload import gang, nodes, pod_group
from tests.e2e.cluster import Muster, install

NODE = "/api/v1/nodes/node-00000"


@contextlib.contextmanager
def stopped(control_plane: ControlPlane) -> Iterator[None]:
    """The apiserver and etcd, while its data are copied."""
    for name in ("kube-apiserver", "etcd"):
        control_plane.processes[name].stop(timeout_s=30)
    yield
    control_plane.start_etcd()
    control_plane.start_apiserver()


async def test_etcd_is_restored_from_a_backup(tmp_path: Path) -> None:
    """What the log knows of the time behind the backup never was, and resourceVersions come a second time. As it was:
    the node's new taint was taken for older than what the log said, until the versions had caught up."""
    backup = tmp_path / "backup"
    with ControlPlane(tmp_path / "plane") as plane:
        async with Api(plane.url, plane.admin_token, plane.certificate) as api:
            await install(api)
            muster = Muster(plane, api, tmp_path)
            await muster.prepare()
            try:
                ingest = muster.start_all()["ingest"]
                await api.create_all([*nodes(2), pod_group("first", 4), *gang("first", 4)])
                await muster.until_bound(4)
                with stopped(plane):
                    shutil.copytree(plane.data, backup)
                await api.create_all([pod_group("lost", 4), *gang("lost", 4)])
                await muster.until_bound(8)
                await api.delete("/api/v1/namespaces/default/pods/first-000")
                for number in range(20):
                    await api.call("PATCH", NODE, {"metadata": {"labels": {"a": str(number)}}}, MERGE)
                await muster.check_agreement()
                with stopped(plane):
                    shutil.rmtree(plane.data)
                    shutil.copytree(backup, plane.data)
                await api.call("PATCH", NODE, {"spec": {"unschedulable": True}}, MERGE)
                ingest.stop(timeout_s=30)  # as after any restore; else its watches say nothing for five minutes
                again = muster.start("ingest")
                await api.create_all([pod_group("new", 4), *gang("new", 4)])
                bound = await muster.until_bound(8)
                assert sorted({name.rpartition("-")[0] for name in bound}) == ["first", "new"]
                assert {node for name, node in bound.items() if name.startswith("new")} == {"node-00001"}
                assert "etcd was restored from a backup" in again.log.read_text()
                await muster.check()
            finally:
                muster.stop()
