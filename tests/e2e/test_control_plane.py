"""The harness itself: what the other tests lean on, and what the design takes for granted of Kubernetes."""

from __future__ import annotations

import pytest

from deploy.e2e.api import Api, ApiError
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.processes import Process
from deploy.e2e.workload import gangs, node, nodes, pod
from tests.e2e.cluster import check_gangs, check_room, documents, until
from tests.shared import SHARED


async def test_a_bound_pod_runs_on_a_node_that_kwok_keeps(api: Api, kubelets: Process) -> None:
    await api.create(node("alive", kubelet=True))
    one = await api.create(pod("one"))
    await api.bind(one, "alive")

    async def running() -> bool:
        return bool((await api.get("/api/v1/namespaces/default/pods/one"))["status"]["phase"] == "Running")

    await until(running, "the pod runs")
    assert kubelets.alive


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not there")
async def test_controllers_make_the_pods_of_a_replica_set(api: Api, controllers: Process) -> None:
    for document in documents(SHARED / "manifests" / "coscheduling" / "nginx-podgroup-replicaset.yaml"):
        await api.apply(document | {"metadata": document["metadata"] | {"namespace": "default"}})

    async def six() -> bool:
        return len(await api.items("/api/v1/namespaces/default/pods")) == 6

    await until(six, "six pods")
    assert controllers.alive


async def test_a_restarted_apiserver_knows_its_objects_and_tokens(api: Api, control_plane: ControlPlane) -> None:
    await api.create_all(nodes(3))
    control_plane.processes["kube-apiserver"].kill()
    control_plane.start_apiserver()
    assert len(await api.items("/api/v1/nodes")) == 3


async def test_a_binding_is_fenced_by_uid_and_resource_version(api: Api) -> None:
    await api.create(node("alive"))
    one = await api.create(pod("one"))
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "one", "uid": one["metadata"]["uid"], "resourceVersion": "1"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "alive"},
    }
    path = "/api/v1/namespaces/default/pods/one/binding"
    with pytest.raises(ApiError, match="409"):
        await api.call("POST", path, body)
    body["metadata"] |= {"resourceVersion": one["metadata"]["resourceVersion"]}  # type: ignore[operator]
    await api.call("POST", path, body)
    with pytest.raises(ApiError, match="already assigned"):
        await api.bind(one, "alive")


async def test_the_checks_notice_a_full_node_and_half_a_gang(api: Api) -> None:
    await api.create(node("small", cpu="1"))
    groups, pods = gangs(1, 3)
    await api.create_all(groups)
    for one in await api.create_all(pods):
        if not one["metadata"]["name"].endswith("002"):
            await api.bind(one, "small")
    with pytest.raises(AssertionError, match="small: cpu 2000 of 1"):
        await check_room(api)
    with pytest.raises(AssertionError, match=r"gang-000.*2 of 3"):
        await check_gangs(api)
