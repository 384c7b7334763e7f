"""Kinds of PodGroups come and go, are not granted, or are not named: what becomes of their gangs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tenacity import wait_fixed

from events import (
    ClusterSynced,
    PodGroupDeleted,
    PodGroupObserved,
)
from events.dialects import POD_GROUPS
from events.log import EventLog
from events.memory import MemoryLog
from services.ingest import service
from services.kubernetes import discovery
from services.kubernetes.client import Client
from services.kubernetes.errors import ApiError
from services.kubernetes.resources import Resource
from services.simulator.cluster import SimulatedCluster
from services.simulator.resources import pod_groups_crd
from tests.ingest.running import ingesting
from tests.manifests import pod, pod_group
from tests.waiting import until


async def test_pod_groups_that_come_and_go(log: EventLog) -> None:
    async with SimulatedCluster(podgroups=False) as cluster, ingesting(log, cluster) as running:
        assert running.seen(PodGroupObserved) == []
        cluster.install()
        cluster.create(pod_group("g", 2))
        await running.says(lambda: running.seen(PodGroupObserved), "the PodGroup")
        cluster.uninstall()
        await running.says(lambda: running.seen(PodGroupDeleted), "its end")
        cluster.install()
        cluster.create(pod_group("h", 2))
        await running.says(lambda: len(running.seen(PodGroupObserved)) == 2, "another one")


async def test_a_kind_in_other_versions_than_are_read_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """As when a definition is replaced by a later one. As it was: its gangs waited for their PodGroups, and ingest said
    that the kind was gone, or at a start nothing."""
    later = pod_groups_crd("scheduling.x-k8s.io/v1beta1")
    told = "podgroups.scheduling.x-k8s.io are served as scheduling.x-k8s.io/v1beta1, and read as "
    async with SimulatedCluster(podgroups=False) as cluster, ingesting(MemoryLog("test"), cluster) as running:
        before = cluster.server.requests
        await until(lambda: cluster.server.requests >= before + 3, "rounds of discovery")
        assert "are served as" not in caplog.text
        for times in (1, 2):
            cluster.install(later)
            await until(lambda times=times: caplog.text.count(told) == times, "it is told")
            before = cluster.server.requests
            await until(lambda before=before: cluster.server.requests >= before + 3, "rounds of discovery")
            assert caplog.text.count(told) == times
            cluster.uninstall(later["metadata"]["name"])
            before = cluster.server.requests
            await until(lambda before=before: cluster.server.requests >= before + 3, "rounds of discovery")
        cluster.install()
        cluster.create(pod_group("g", 2))
        await running.says(lambda: running.seen(PodGroupObserved), "the PodGroup, in a version that is read")


VERSIONS = sorted({version for version in POD_GROUPS.values() if not version.startswith("scheduling.k8s.io/")})


@pytest.mark.parametrize("api_version", VERSIONS)
async def test_every_kind_of_pod_groups_may_come_and_go(api_version: str) -> None:
    crd, group = pod_groups_crd(api_version), pod_group("g", 2) | {"apiVersion": api_version}
    async with SimulatedCluster(podgroups=False) as cluster, ingesting(MemoryLog("test"), cluster) as running:
        for times in (1, 2):
            cluster.install(crd)
            cluster.create(group)
            await running.says(lambda times=times: len(running.seen(PodGroupObserved)) == times, "the PodGroup")
            cluster.uninstall(crd["metadata"]["name"])
            await running.says(lambda times=times: len(running.seen(PodGroupDeleted)) == times, "its end")
        assert {POD_GROUPS[event.dialect] for event in running.seen(PodGroupObserved)} == {api_version}


async def test_kinds_that_are_absent_cost_one_request_together(cluster: SimulatedCluster) -> None:
    async with ingesting(MemoryLog("test"), cluster) as running:
        lists = [cluster.faults.plan(verb=verb, resource="podgroups", times=0) for verb in ("list", "get")]
        before = cluster.server.requests
        await until(lambda: cluster.server.requests >= before + 5, "five rounds of discovery")
        assert [fault.hits for fault in lists] == [0, 0]
        cluster.create(pod_group("g", 2))
        await running.says(lambda: running.seen(PodGroupObserved), "the PodGroup")


@pytest.mark.parametrize("status", [403, 500, 503])
async def test_a_kind_that_is_not_granted_or_that_the_server_fails_at_costs_its_own_gangs_only(
    cluster: SimulatedCluster, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was, who started waited for a 500 to end, for ever: what was left of Kubernetes 1.36's PodGroups 1.37 cannot
    read, so that nothing was scheduled."""
    monkeypatch.setattr(service, "_growing", wait_fixed(0.01))
    cluster.install(pod_groups_crd("scheduling.volcano.sh/v1beta1"))
    cluster.create(pod_group("v", 2) | {"apiVersion": "scheduling.volcano.sh/v1beta1"})
    forbidding = cluster.faults.plan(verb="list", resource="podgroups", status=status, times=0)
    async with ingesting(MemoryLog("test"), cluster) as running:
        assert running.agrees_with(cluster)
        assert running.seen(PodGroupObserved) == []
        await until(lambda: forbidding.hits > 2, "another try")
        cluster.faults.lift()
        await running.says(lambda: running.seen(PodGroupObserved), "the PodGroup, once it is there")


async def test_what_the_server_failed_at_is_listed_once_more_before_others_decide(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have failed at everything for that long, as while its etcd was away."""
    monkeypatch.setattr(service, "_growing", wait_fixed(0.01))
    cluster.create(pod_group("g", 2))
    pages, asked = Client.pages, 0

    async def failing(client: Client, resource: Resource) -> AsyncIterator[bytes]:
        nonlocal asked
        asked += resource.plural == "podgroups"
        if resource.plural == "podgroups" and asked <= service.TRIES:
            raise ApiError(f"list {resource.name}", 500, "InternalError", "etcdserver: no leader")
        async for page in pages(client, resource):
            yield page

    monkeypatch.setattr(Client, "pages", failing)
    async with ingesting(MemoryLog("test"), cluster) as running:
        await running.synced()
        kinds = [type(event) for event in running.events]
        assert kinds.index(PodGroupObserved) < kinds.index(ClusterSynced)


@pytest.mark.parametrize("status", [401, 407])
async def test_whatever_is_answered_about_a_kind_that_is_new_ends_no_ingest_that_runs(status: int) -> None:
    """A token that was just exchanged, a gateway: as it was, ingest ended, though all else was granted before."""
    async with SimulatedCluster(podgroups=False) as cluster, ingesting(MemoryLog("test"), cluster) as running:
        refusing = cluster.faults.plan(verb="list", resource="podgroups", status=status, times=0)
        cluster.install()
        await running.says(lambda: refusing.hits > 2, "another try")
        cluster.create(pod_group("g", 2))
        cluster.create(pod("c"))
        await running.says(lambda: "c" in {p.name for p in running.state.pods.values()}, "what else is watched")
        cluster.faults.lift()
        await running.says(lambda: running.seen(PodGroupObserved), "the PodGroup")


async def test_what_the_log_knows_is_asked_for_even_if_the_server_does_not_name_it_yet(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server that starts may not know its kinds yet: nobody's PodGroup is gone for that."""
    cluster.create(pod_group("g", 2))
    log = MemoryLog("test")
    async with ingesting(log, cluster) as before:
        await before.end()
    monkeypatch.setattr(discovery, "served", lambda body: discovery.Served({}))
    async with ingesting(log, cluster) as running:
        await running.synced(2)
        assert running.seen(PodGroupDeleted) == []
        assert len(running.seen(PodGroupObserved)) == 1


async def test_kubernetes_own_gangs(log: EventLog) -> None:
    async with SimulatedCluster(native_gangs=True) as cluster, ingesting(log, cluster) as running:
        policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        group = pod_group("g", 2) | {"apiVersion": "scheduling.k8s.io/v1alpha2", "spec": policy}
        cluster.create(group)
        member = pod("c")
        member["spec"]["schedulingGroup"] = {"podGroupName": "g"}
        cluster.create(member)
        await running.says(
            lambda: running.seen(PodGroupObserved) and "c" in {p.name for p in running.state.pods.values()}
        )
        [declared] = running.seen(PodGroupObserved)
        assert (declared.dialect, declared.declaration.min_member) == ("kubernetes/v1alpha2", 2)
        [seen] = [p for p in running.state.pods.values() if p.name == "c"]
        assert seen.gang is not None
        assert seen.gang.gang == "default/g@kubernetes"
