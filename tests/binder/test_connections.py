"""How much a binder asks of the API server at a time: whoever has his turn is asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services import settings
from services.binder import service
from services.binder.service.rounds import UNANSWERED_WRITES
from services.binder.service.write_behind import Rates
from services.console import roles
from tests.binder.bindings import Binding
from tests.binder.test_service import running
from tests.manifests import pod
from tests.waiting import until


async def test_bindings_do_not_wait_behind_a_webhook_that_takes_its_time_before_it_answers_a_status(
    tmp_path: Path,
) -> None:
    """As it was: as many requests as bindings may be in flight, for all that a binder asks; and as statuses had them all,
    workers with something to bind stood in line behind these."""
    async with running() as muster:
        kubeconfig = tmp_path / "kubeconfig"
        muster.cluster.write_kubeconfig(kubeconfig)
        chosen = settings.read({"kubeconfig": str(kubeconfig), "bind_concurrency": 4, "snapshot_after_bytes": 0}, {})
        statuses = muster.cluster.faults.plan(verb="patch", resource="pods", subresource="status", delay_s=600, times=0)
        for number in range(5):
            muster.cluster.create(pod(f"waits-{number}", cpu="100"))
        muster.start("ingest", "planner")
        binder = asyncio.create_task(roles.run("binder", chosen, muster.log, roles.Seat("binder", asyncio.Event())))
        await until(lambda: statuses.hits >= 4, "their conditions to be written")
        muster.cluster.create(pod("free"))
        await until(lambda: muster.node_of("free"), "the other to be bound", timeout_s=25)
        binder.cancel()
        await asyncio.gather(binder, return_exceptions=True)


@pytest.mark.parametrize("concurrency", [1, 4, 64])
async def test_each_worker_has_a_connection_and_what_is_written_behind_has_its_own(concurrency: int) -> None:
    binding = Binding(concurrency)
    running = asyncio.create_task(binding.effects.run())
    await asyncio.sleep(0)
    workers = len(asyncio.all_tasks()) - len({running, asyncio.current_task()})
    behind = UNANSWERED_WRITES * len(Rates._fields)
    assert service.connections(concurrency) == workers + behind
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
