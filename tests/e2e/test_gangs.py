"""Gangs on a real cluster: published manifests, many at once, and what does not fit."""

from __future__ import annotations

import pytest

from deploy.e2e.api import Api, Object, path_of
from deploy.e2e.processes import Process
from deploy.e2e.workload import gang, gangs, node, nodes, pod, pod_group
from tests.e2e.cluster import Muster, documents, until
from tests.shared import SHARED

COSCHEDULING = SHARED / "manifests" / "coscheduling"
AS_THEY_ARE = {"MUSTER_SCHEDULER_NAMES": "muster,default-scheduler"}
"""Published manifests name no scheduler, which means the default one: Muster takes its name."""


async def apply(api: Api, name: str) -> list[Object]:
    """Applies a file's objects into the default namespace, nothing else changed."""
    found = documents(COSCHEDULING / name)
    return [await api.apply(one | {"metadata": one["metadata"] | {"namespace": "default"}}) for one in found]


@pytest.mark.skipif(not COSCHEDULING.is_dir(), reason="../shared is not there")
async def test_the_replica_set_of_the_coscheduling_readme_runs(
    api: Api, muster: Muster, controllers: Process, kubelets: Process
) -> None:
    muster.start_all(**AS_THEY_ARE)
    await api.create_all(nodes(3, cpu="8", kubelet=True))
    await apply(api, "nginx-podgroup-replicaset.yaml")
    bound = await muster.until_bound(6)
    assert sorted(list(bound.values()).count(name) for name in set(bound.values())) == [2, 2, 2]

    async def running() -> bool:
        return await muster.count("status.phase=Running") == 6

    await until(running, "six pods run")
    await muster.check()


@pytest.mark.skipif(not COSCHEDULING.is_dir(), reason="../shared is not there")
async def test_the_deployment_of_the_install_guide_waits_for_its_third_pod(
    api: Api, muster: Muster, controllers: Process
) -> None:
    """PodGroup pg1 wants three and the Deployment makes two: both wait, until it is scaled."""
    muster.start_all(**AS_THEY_ARE)
    await api.create_all(nodes(2))
    await apply(api, "pg1-podgroup.yaml")
    (deployment,) = await apply(api, "pause-deployment.yaml")

    async def told() -> bool:
        names = await api.names("/api/v1/namespaces/default/pods")
        return len(names) == 2 and all([(await muster.condition(name)).get("status") == "False" for name in names])

    await until(told, "both pods are told that they wait")
    assert await muster.bound() == {}
    for name in await api.names("/api/v1/namespaces/default/pods"):
        told_ = await muster.condition(name)
        assert told_["reason"] != "Unschedulable", "autoscalers add nodes for that, and none are missing"
    await api.call("PATCH", path_of(deployment), {"spec": {"replicas": 3}}, "application/merge-patch+json")
    await muster.until_bound(3)
    await muster.check()


async def test_a_hundred_gangs_of_twenty_on_a_thousand_nodes(api: Api, muster: Muster) -> None:
    await api.create_all(nodes(1000))
    muster.start_all()
    groups, pods = gangs(100, 20)
    await api.create_all(groups)
    await api.create_all(pods)
    await muster.until_bound(2000)
    await muster.check()


async def test_a_gang_that_does_not_fit_waits_whole_and_holds_no_room(api: Api, muster: Muster) -> None:
    muster.start_all()
    await api.create_all(nodes(2))
    await api.create(pod_group("large", 20))
    await api.create_all(gang("large", 20))

    async def told() -> bool:
        return (await muster.condition("large-000")).get("reason") == "Unschedulable"

    await until(told, "the gang is told that it does not fit")
    assert "0/2 nodes are available" in (await muster.condition("large-000"))["message"]
    await api.create(pod_group("small", 16))
    await api.create_all(gang("small", 16))
    await muster.until_bound(16)
    assert not [name for name in await muster.bound() if name.startswith("large")]
    await muster.check()
    await api.create_all([node("more-1"), node("more-2"), node("more-3")])
    await muster.until_bound(36)
    await muster.check()


async def test_pods_before_their_pod_group_and_pods_without_one(api: Api, muster: Muster) -> None:
    muster.start_all()
    await api.create_all(nodes(2))
    await api.create_all(gang("late", 4))
    await api.create(pod("alone"))
    await muster.until_bound(1)
    assert list(await muster.bound()) == ["alone"]
    await api.create(pod_group("late", 4))
    await muster.until_bound(5)
    await muster.check()
