"""Standbys and shards as processes over a real NATS server: who takes over when one is killed.

The cluster is simulated, in this process. No test measures a time: a takeover that never comes fails.
"""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

import events as ev
from services.console.processes import Child
from tests.console.muster import Muster
from tests.waiting import until


def kill(child: Child) -> None:
    os.kill(child.pid, signal.SIGKILL)
    child.wait()


@pytest.mark.parametrize(
    ("role", "taken"), [("ingest", ev.IngestTaken), ("binder", ev.BinderTaken), ("planner", ev.PlannerTaken)]
)
async def test_a_second_process_waits_and_takes_over_when_the_first_is_killed(
    muster: Muster, role: str, taken: type
) -> None:
    children = {name: muster.start(name) for name in ("ingest", "planner", "binder")}
    await muster.bind_one_more()
    first = await muster.taken(taken, 1)
    standby = muster.start(role)
    await muster.bind_one_more()
    assert len(muster.said(taken)) == 1, "the standby wrote something"
    kill(children[role])
    assert await muster.taken(taken, 2) != first
    await muster.bind_one_more()
    standby.check()


async def test_shards_take_free_names_and_share_and_one_that_is_killed_leaves_its_partitions(muster: Muster) -> None:
    for role in ("ingest", "binder"):
        muster.start(role)
    planners = [muster.start("planner", "--shard", "auto") for _ in range(3)]
    await until(lambda: set(owners(muster)) == {"0", "1", "2"}, "three shards to share the partitions")
    await muster.bind_one_more()
    kill(planners[1])
    await until(lambda: muster.said(ev.ShardLost), "the loss to be noticed")
    (lost,) = muster.said(ev.ShardLost)
    await until(lambda: set(owners(muster)) == {"0", "1", "2"} - {lost.shard}, "its partitions to change hands")
    for _ in range(3):
        await muster.bind_one_more()
    muster.start("planner", "--shard", "auto")
    await until(lambda: set(owners(muster)) == {"0", "1", "2"}, "the free name to be taken again")
    await muster.bind_one_more()


async def test_a_shard_that_is_told_to_end_leaves_at_once(muster: Muster) -> None:
    muster.lease_s = 60  # nothing here runs out, however slow the machine is
    for role in ("ingest", "binder"):
        muster.start(role)
    planners = [muster.start("planner", "--shard", "auto") for _ in range(2)]
    await until(lambda: set(owners(muster)) == {"0", "1"}, "two shards to share the partitions")
    planners[0].terminate()
    assert planners[0].wait() == 0
    await until(lambda: muster.said(ev.PlannerLeft), "the shard to say that it leaves")
    (left,) = muster.said(ev.PlannerLeft)
    await until(lambda: set(owners(muster)) == {"0", "1"} - {left.shard}, "its partitions to change hands")
    assert not muster.said(ev.ShardLost)
    await muster.bind_one_more()


async def test_a_shard_that_was_stopped_and_lost_steps_down_when_it_wakes(muster: Muster) -> None:
    for role in ("ingest", "binder"):
        muster.start(role)
    planners = [muster.start("planner", "--shard", "auto") for _ in range(2)]
    await until(lambda: set(owners(muster)) == {"0", "1"}, "two shards to share the partitions")
    os.kill(planners[0].pid, signal.SIGSTOP)
    await until(lambda: muster.said(ev.ShardLost), "the loss to be noticed")
    await muster.bind_one_more()
    os.kill(planners[0].pid, signal.SIGCONT)
    assert await asyncio.to_thread(planners[0].wait) == 3
    assert "stepped down" in planners[0].tail()
    await muster.bind_one_more()


def owners(muster: Muster) -> tuple[str, ...]:
    assigned = muster.said(ev.PartitionsAssigned)
    return assigned[-1].owners if assigned else ()
