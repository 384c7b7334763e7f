"""How a simulated cluster begins and ends, what it has then, and what a user of it in the process may ask for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from services.simulator.cluster import SimulatedCluster
from services.simulator.controllers import Controllers
from services.simulator.errors import ApiError
from services.simulator.kubelet import Kubelet
from tests.contract.client import Client
from tests.simulator.objects import pod


def namespace(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


async def test_what_was_started_is_gone_when_it_has_stopped_and_its_objects_are_readable(
    session: aiohttp.ClientSession,
) -> None:
    before = asyncio.all_tasks()
    async with SimulatedCluster() as cluster:
        cluster.create(pod("a"))
        async with session.get(f"{cluster.url}/api/v1/pods") as answer:
            assert answer.status == 200
    assert asyncio.all_tasks() == before
    with pytest.raises(aiohttp.ClientConnectorError):
        await session.get(f"{cluster.url}/api/v1/pods")
    await cluster.stop()
    assert cluster.get("Pod", "a")["metadata"]["name"] == "a"


async def test_one_that_never_started_can_be_stopped() -> None:
    await SimulatedCluster().stop()


@pytest.mark.parametrize("mover", [Kubelet, Controllers])
async def test_a_bug_of_what_moves_in_it_is_raised_where_it_is_served_and_where_it_stops(
    mover: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(mover, "run", run)
    cluster, before = SimulatedCluster(), asyncio.all_tasks()
    await cluster.start()
    with pytest.raises(KeyError, match="a bug"):
        await cluster.serve(asyncio.Event())
    with pytest.raises(KeyError, match="a bug"):
        await cluster.stop()
    assert asyncio.all_tasks() == before


async def test_it_is_served_until_that_is_enough(cluster: SimulatedCluster) -> None:
    enough = asyncio.Event()
    serving = asyncio.create_task(cluster.serve(enough))
    before = asyncio.all_tasks() - {serving}
    await asyncio.sleep(0)
    assert not serving.done()
    enough.set()
    await serving
    await asyncio.sleep(0)  # what waited for it has ended
    assert asyncio.all_tasks() == before


async def test_a_cluster_has_by_itself_the_podgroups_of_the_crd_alone() -> None:
    for options, found in (
        ({}, "scheduling.x-k8s.io"),
        ({"native_gangs": True}, "scheduling.x-k8s.io scheduling.k8s.io"),
        ({"podgroups": False}, ""),
    ):
        cluster = SimulatedCluster(**options)
        groups = [
            one.resource.group for one in cluster.api.store.collections.values() if one.resource.kind == "PodGroup"
        ]
        assert sorted(groups) == sorted(found.split())
    with pytest.raises(ApiError, match='of kind "PodGroup"'):
        cluster.exists("PodGroup", "a")


def test_what_is_created_has_its_namespace_and_what_is_loaded_makes_it() -> None:
    cluster = SimulatedCluster()
    elsewhere = pod("default")
    elsewhere["metadata"]["namespace"] = "team"
    with pytest.raises(ApiError, match='namespaces "team" not found'):
        cluster.create(elsewhere)
    assert cluster.load([namespace("default"), namespace("other"), namespace("other"), elsewhere, pod("default")]) == 3
    assert (cluster.exists("Pod", "default", "team"), cluster.exists("Pod", "default")) == (True, True)


async def test_only_the_history_that_is_named_is_dropped(cluster: SimulatedCluster, client: Client) -> None:
    first = cluster.create(pod("a"))["metadata"]["resourceVersion"]
    cluster.create(pod("b"))
    cluster.drop_history("nodes")
    async with client.watch(client.pods, resourceVersion=first) as watch:
        assert await watch.seen(1) == [("ADDED", "b")]
    cluster.drop_history()
    async with client.watch(client.pods, resourceVersion=first) as watch:
        ((kind, _),) = await watch.rest()
    assert kind == "ERROR"


@pytest.mark.parametrize("token", ["", "secret"])
def test_a_kubeconfig_has_what_its_cluster_asks_for(tmp_path: Path, token: str) -> None:
    cluster = SimulatedCluster(token=token)
    cluster.url = "http://127.0.0.1:1"
    cluster.write_kubeconfig(tmp_path / "config")
    assert json.loads((tmp_path / "config").read_bytes()) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "simulated", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "simulated", "user": {"token": "secret"} if token else {}}],
        "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "simulated"}}],
        "current-context": "simulated",
    }
