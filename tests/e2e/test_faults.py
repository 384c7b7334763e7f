"""What must survive: services killed, stopped and replaced in the middle, and a cluster that others change meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from deploy.e2e.api import Api
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.workload import gang, gangs, nodes, pod, pod_group
from tests.e2e.cluster import Muster, until

SLOW = {"MUSTER_BIND_CONCURRENCY": "1"}
"""One binding at a time, so that there is a middle to hurt it in."""
STEPPED_DOWN = 3


async def begin(api: Api, muster: Muster, count: int = 40) -> int:
    """Creates gangs of 20 on nodes with room for them and waits for the first bindings; returns how many pods."""
    groups, pods = gangs(count, 20)
    await api.create_all(nodes(count * 3))
    await api.create_all(groups)
    await api.create_all(pods)
    await muster.until_bound(20)
    return len(pods)


@pytest.mark.parametrize("service", ["ingest", "planner", "binder"])
async def test_a_service_killed_in_the_middle_of_binding(api: Api, muster: Muster, service: str) -> None:
    services = muster.start_all(**SLOW)
    pods = await begin(api, muster)
    services[service].kill()
    assert len(await muster.bound()) < pods, "it was over before it was hurt"
    muster.start(service, environment=SLOW)
    await muster.until_bound(pods)
    await muster.check()


async def test_all_services_and_nats_killed_at_once(api: Api, muster: Muster) -> None:
    services = muster.start_all(**SLOW)
    pods = await begin(api, muster)
    for process in services.values():
        process.kill()
    muster.nats.kill()
    muster.nats.start()
    muster.start_all(**SLOW)
    await muster.until_bound(pods)
    await muster.check()


async def test_a_binder_stopped_before_its_posts_and_woken_after_another_took_over(api: Api, muster: Muster) -> None:
    """The zombie's bindings carry UID and resourceVersion, its appends the last sequence: none takes hold."""
    zombie = muster.start_all(**SLOW)["binder"]
    pods = await begin(api, muster)
    zombie.pause()
    assert len(await muster.bound()) < pods
    muster.start("binder")
    await muster.until_bound(pods)
    await api.delete("/api/v1/namespaces/default/pods")
    again = [one for number in range(40) for one in gang(f"gang-{number:03d}", 20, scheduler="nobody")]
    await api.create_all(again)
    muster.forgiven.append(zombie)
    zombie.resume()

    async def gone() -> bool:
        return not zombie.alive

    await until(gone, "the replaced binder steps down")
    assert zombie.popen.returncode == STEPPED_DOWN
    assert await muster.bound() == {}, "pods of the same names, and of other UIDs, were bound by a zombie"
    await muster.check()


async def test_a_standby_takes_over_from_an_ingest_that_hangs(api: Api, muster: Muster) -> None:
    hung = muster.start_all()["ingest"]
    await api.create_all(nodes(10))
    await api.create(pod("before"))
    await muster.until_bound(1)
    muster.start("ingest")
    hung.pause()
    await api.delete("/api/v1/namespaces/default/pods/before")
    groups, pods = gangs(3, 20)
    await api.create_all(groups)
    await api.create_all(pods)
    await muster.until_bound(60)
    muster.forgiven.append(hung)
    hung.resume()

    async def gone() -> bool:
        return not hung.alive

    await until(gone, "the replaced ingest steps down")
    await api.create(pod("after"))
    await muster.until_bound(61)
    await muster.check()


async def test_the_apiserver_killed_and_restarted_in_the_middle(
    api: Api, muster: Muster, control_plane: ControlPlane
) -> None:
    muster.start_all(**SLOW)
    pods = await begin(api, muster)
    control_plane.processes["kube-apiserver"].kill()
    control_plane.start_apiserver()  # in this thread: a child dies with the thread that started it
    assert len(await muster.bound()) < pods
    await muster.until_bound(pods)
    await muster.check()


async def test_pods_deleted_between_permit_and_bind(api: Api, muster: Muster) -> None:
    """One member of each gang goes while its binding waits its turn; its replacement takes the room held for it."""
    muster.start_all(**SLOW)
    pods = await begin(api, muster, count=20)
    await asyncio.gather(
        *(api.delete(f"/api/v1/namespaces/default/pods/gang-{number:03d}-019") for number in range(20))
    )
    labels = [{"scheduling.x-k8s.io/pod-group": f"gang-{number:03d}"} for number in range(20)]
    await api.create_all([pod(f"replacement-{number}", labels=labels[number]) for number in range(20)])
    await muster.until_bound(pods)
    await muster.check()


async def test_a_foreign_scheduler_binds_to_the_same_nodes(api: Api, muster: Muster) -> None:
    muster.start_all()
    await api.create_all(nodes(4))
    foreign = await api.create_all([pod(f"foreign-{number}", scheduler="other") for number in range(16)])
    await asyncio.gather(*(api.bind(one, f"node-{number % 2:05d}") for number, one in enumerate(foreign)))
    await api.create(pod_group("ours", 16))
    await api.create_all(gang("ours", 16))
    bound = await muster.until_bound(32)
    assert {bound[name] for name in bound if name.startswith("ours")} == {"node-00002", "node-00003"}
    await muster.check()


async def test_a_foreign_scheduler_binds_our_own_pods(api: Api, muster: Muster) -> None:
    """Whoever is first binds; what Muster had intended for such a pod is settled, and its room is free again."""
    muster.start_all(**SLOW)
    groups, pods = gangs(10, 20)
    await api.create_all(nodes(40))
    await api.create_all(groups)
    created = await api.create_all(pods)
    theirs = [one for one in created if one["metadata"]["name"].endswith("019")]
    answers = await asyncio.gather(*(api.bind(one, "node-00039") for one in theirs[:8]), return_exceptions=True)
    assert len(answers) == 8
    await muster.until_bound(200)
    groups, more = [pod_group("last", 40)], gang("last", 40)
    await api.create_all(groups)
    await api.create_all(more)
    await muster.until_bound(240)
    assert (await muster.verify())["verified"]


@pytest.mark.parametrize("service", ["ingest", "planner", "binder"])
@pytest.mark.parametrize("minutes", [10, -10])
async def test_the_clock_of_one_service_is_wrong(api: Api, muster: Muster, service: str, minutes: int) -> None:
    wrong = {"MUSTER_CLOCK_OFFSET_MS": str(minutes * 60_000)}
    for name in ("ingest", "planner", "binder"):
        muster.start(name, environment=wrong if name == service else {})
    await api.create_all(nodes(3))
    await api.create(pod_group("large", 40, timeout_s=2))
    await api.create_all(gang("large", 40))
    await api.create(pod_group("small", 10))
    await api.create_all(gang("small", 10))
    await muster.until_bound(10)
    await api.delete("/api/v1/namespaces/default/pods/large-039")
    await api.create_all(nodes(7)[3:])
    await api.create(pod("large-039", labels={"scheduling.x-k8s.io/pod-group": "large"}))
    await muster.until_bound(50, timeout_s=60)
    await muster.check()
