"""The planner as a process: how a shard joins, stands by, leaves, and learns that it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

import events as ev
from events.envelope import decode
from events.log import EventLog
from events.policy import DEFAULT_POLICY
from services.binder import core as binder
from services.planner import service as planner
from services.state.fold import State
from services.writer import SteppedDown, Writer
from tests.waiting import until
from tests.world import World


class Process:
    """One planner process over the world's log."""

    def __init__(self, log: EventLog, shard: str = "a", *, standby: bool = False) -> None:
        self.stop, self.free = asyncio.Event(), asyncio.Event()
        self.waits = False
        turn = self._turn if standby else None
        self.task = asyncio.create_task(planner.run(log, shard=shard, holder="me", turn=turn, stop=self.stop))

    async def _turn(self) -> None:
        self.waits = True
        try:
            await self.free.wait()
        finally:
            self.waits = False


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(shards=())
    yield made
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


def said(world: World, kind: type) -> list[Any]:
    return [event for stored in world.log.commits for event in decode(stored).events if isinstance(event, kind)]


async def judge(world: World, *, lost: tuple[str, ...] = ()) -> None:
    """The binder's turn, over everything that the log holds now."""
    writer = Writer(world.log, "binder")
    before = await world.log.last(writer.subject)
    writer.last = before.sequence if before is not None else 0
    state = State()
    for stored in world.log.commits:
        state.apply_stored(stored)
    events: list[ev.Event] = [ev.ShardLost(shard=shard, taken=state.shards[shard]) for shard in lost]
    cause = "outcome" if events else "decide"
    writer.epoch = state.epoch
    await writer.append(events or binder.decide_now(state), basis=state.sequence, cause=cause)


async def test_a_shard_that_is_told_to_stop_says_so_with_its_last_commit(world: World) -> None:
    process = Process(world.log)
    await until(lambda: said(world, ev.PlannerTaken), "the shard to join")
    process.stop.set()
    await process.task
    last = decode(world.log.commits[-1])
    assert last.events == [ev.PlannerLeft(shard="a")]
    assert (last.header.writer, last.header.cause) == ("planner.a", "left")


async def test_it_plans_until_then(world: World) -> None:
    world.node("n0")
    world.pod("p")
    process = Process(world.log)
    await until(lambda: said(world, ev.PlannerTaken), "the shard to join")
    await judge(world)
    await until(lambda: said(world, ev.GangPlaced), "a proposal")
    process.stop.set()
    await process.task
    assert isinstance(decode(world.log.commits[-1]).events[0], ev.PlannerLeft)


async def test_it_ticks_when_a_deadline_is_due_though_nothing_else_happens() -> None:
    world = World(replace(DEFAULT_POLICY, backoff_initial_ms=150), shards=())
    world.node("n0", cpu=1)
    world.pod("p", cpu=2)
    process = Process(world.log)
    await until(lambda: said(world, ev.PlannerTaken), "the shard to join")
    await judge(world)
    await until(lambda: said(world, ev.GroupsRefused), "a refusal")
    await until(lambda: len(said(world, ev.Ticked)) == 2, "the backoff to begin and to end")
    process.stop.set()
    await process.task


async def test_one_that_is_killed_says_nothing(world: World) -> None:
    process = Process(world.log)
    await until(lambda: said(world, ev.PlannerTaken), "the shard to join")
    process.task.cancel()
    await asyncio.wait({process.task})
    assert not said(world, ev.PlannerLeft)


async def test_a_standby_follows_the_log_and_writes_nothing_before_its_turn(world: World) -> None:
    world.node("n0")
    process = Process(world.log, standby=True)
    for i in range(5):
        await asyncio.sleep(0)
        world.pod(f"p{i}")
    assert not said(world, ev.PlannerTaken)
    process.free.set()
    await until(lambda: said(world, ev.PlannerTaken), "the standby to take its turn")
    await judge(world)
    await until(lambda: len(said(world, ev.GangPlaced)) == 5, "proposals")
    process.stop.set()
    await process.task


async def test_a_standby_that_is_told_to_stop_was_never_there(world: World) -> None:
    process = Process(world.log, standby=True)
    await until(lambda: process.waits, "it to wait for its turn")
    process.stop.set()
    await process.task
    await until(lambda: not process.waits, "its claim to be withdrawn")
    assert not said(world, ev.PlannerTaken)
    assert not said(world, ev.PlannerLeft)


async def test_a_turn_that_cannot_come_ends_the_standby(world: World) -> None:
    async def turn() -> None:
        raise OSError("the leases are out of reach")

    with pytest.raises(OSError, match="out of reach"):
        await planner.run(world.log, shard="a", holder="me", turn=turn)


async def test_a_shard_that_reads_that_it_is_lost_steps_down(world: World) -> None:
    process = Process(world.log)
    await until(lambda: said(world, ev.PlannerTaken), "the shard to join")
    await judge(world)
    await judge(world, lost=("a",))
    with pytest.raises(SteppedDown, match="shard a was found lost at"):
        await process.task
    assert not said(world, ev.PlannerLeft)


async def test_the_loss_of_another_shard_is_its_own_affair(world: World) -> None:
    first, second = Process(world.log, "a"), Process(world.log, "b")
    await until(lambda: len(said(world, ev.PlannerTaken)) == 2, "both shards to join")
    await judge(world)
    await judge(world, lost=("b",))
    with pytest.raises(SteppedDown):
        await second.task
    assert not first.task.done()
    await judge(world)
    world_owners = said(world, ev.PartitionsAssigned)[-1].owners
    assert set(world_owners) == {"a"}
    first.stop.set()
    await first.task
