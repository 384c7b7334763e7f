"""Each service alone, as `deploy/` runs it: its own account, its own NATS user, its probes, and SIGTERM."""

from __future__ import annotations

import asyncio

import pytest

from deploy.e2e.api import Api
from deploy.e2e.processes import answers, free_port
from deploy.e2e.workload import gang, nodes, pod, pod_group
from tests.e2e.cluster import Muster, until


@pytest.mark.parametrize("service", ["ingest", "planner", "binder", "feed"])
async def test_a_service_becomes_ready_and_ends_cleanly(api: Api, muster: Muster, service: str) -> None:
    """Nobody else is there yet: it waits, alive, and says so."""
    port = free_port()
    process = muster.start(service, environment={"MUSTER_HEALTH_PORT": str(port), "MUSTER_HEALTH_HOST": "127.0.0.1"})

    async def ready() -> bool:
        muster.check_alive()
        return await asyncio.to_thread(answers, f"http://127.0.0.1:{port}/readyz")

    await until(ready, f"{service} is ready")
    assert await asyncio.to_thread(answers, f"http://127.0.0.1:{port}/healthz")
    assert process.stop() == 0, process.tail()


@pytest.mark.parametrize("service", ["ingest", "binder"])
async def test_without_its_rights_a_service_says_what_it_lacks_and_harms_nothing(
    api: Api, muster: Muster, service: str
) -> None:
    """Under the account of the feed, which may do nothing."""
    token = await api.token_for("muster-system", "feed")
    muster.kubeconfigs[service] = muster.control_plane.kubeconfig("system:serviceaccount:muster-system:feed", token)
    services = muster.start_all()
    muster.forgiven.append(services[service])
    await api.create_all(nodes(2))
    await api.create(pod_group("four", 4))
    await api.create_all(gang("four", 4))
    await api.create(pod("one"))

    async def told() -> bool:
        return "forbidden" in services[service].tail().lower()

    await until(told, f"{service} names what it lacks")
    assert await muster.bound() == {}
    assert (await muster.verify())["verified"]


async def test_services_may_start_in_any_order(api: Api, muster: Muster) -> None:
    await api.create_all(nodes(2))
    await api.create(pod_group("four", 4))
    await api.create_all(gang("four", 4))
    for service in ("binder", "feed", "planner", "ingest"):
        muster.start(service)
    await muster.until_bound(4)
    await muster.check()
