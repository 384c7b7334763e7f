"""The binder's watch on the planners' leases."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest

import events as ev
from events.lease import Watch
from services.binder.service import watch_shards
from services.decider import Decider
from tests.waiting import until
from tests.world import World


class Leases:
    """What a `Watch` would know."""

    def __init__(self) -> None:
        self.given_back = asyncio.Event()
        self.free: set[str] = set()
        self.asked: list[str] = []

    async def is_free(self, role: str) -> bool:
        self.asked.append(role)
        return role in self.free

    def give_back(self, role: str) -> None:
        self.free.add(role)
        self.given_back.set()


class Watched:
    def __init__(self, world: World, *, active: bool = True) -> None:
        self.leases = Leases()
        self.reported: list[ev.Event] = []
        self.decider: Any = SimpleNamespace(
            active=active, state=world.state, log=world.log, report=self.reported.append
        )
        watching = watch_shards(cast(Decider, self.decider), cast(Watch, self.leases))
        self.task = asyncio.create_task(watching)


@pytest.fixture
async def world() -> Any:
    yield World(shards=("a", "b"))
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_a_shard_whose_lease_is_given_back_is_lost_at_once_and_once(world: World) -> None:
    watched = Watched(world)
    watched.leases.give_back("planner.b")
    await until(lambda: watched.reported, "the loss to be reported")
    for _ in range(3):
        watched.leases.give_back("planner.b")
        asked = len(watched.leases.asked)
        await until(lambda asked=asked: len(watched.leases.asked) > asked, "another look")  # type: ignore[misc]
    assert watched.reported == [ev.ShardLost(shard="b", taken=world.state.shards["b"])]


async def test_a_lease_that_runs_out_is_found_by_looking(world: World) -> None:
    watched = Watched(world)
    await until(lambda: "planner.a" in watched.leases.asked, "a look")
    assert not watched.reported
    watched.leases.free.add("planner.a")
    await until(lambda: watched.reported, "the loss to be reported")
    assert watched.reported == [ev.ShardLost(shard="a", taken=world.state.shards["a"])]


async def test_the_next_process_of_the_shard_may_be_lost_as_well(world: World) -> None:
    watched = Watched(world)
    watched.leases.give_back("planner.a")
    await until(lambda: watched.reported, "the loss to be reported")
    world.lose("a")
    world.join("a")
    watched.leases.given_back.set()
    await until(lambda: len(watched.reported) == 2, "the second loss to be reported")
    assert watched.reported[1] == ev.ShardLost(shard="a", taken=world.state.shards["a"])


async def test_a_standby_looks_at_nothing(world: World) -> None:
    watched = Watched(world, active=False)
    watched.leases.give_back("planner.a")
    await until(lambda: not watched.leases.given_back.is_set(), "the word to be heard")
    assert watched.leases.asked == []
    assert watched.reported == []


async def test_who_left_before_its_lease_was_free_is_not_lost(world: World) -> None:
    """Its last word stands in the log by then, not before, and the binder has not read so far yet."""
    watched = Watched(world)
    behind = world.state.sequence

    async def end() -> int:
        return behind + ("planner.b" in watched.leases.asked)

    watched.decider.log = SimpleNamespace(end=end)
    for _ in range(3):
        asked = len(watched.leases.asked)
        watched.leases.give_back("planner.b")
        await until(lambda asked=asked: len(watched.leases.asked) > asked, "another look")  # type: ignore[misc]
    world.leave("b")
    watched.leases.give_back("planner.a")
    await until(lambda: watched.reported, "the loss of another to be reported")
    assert watched.reported == [ev.ShardLost(shard="a", taken=world.state.shards["a"])]


async def test_a_lease_that_was_taken_again_is_read_up_to_again(world: World) -> None:
    """What the log held when it was free before says nothing of what its holder wrote since."""
    watched = Watched(world)
    ends = [world.state.sequence + 1]

    async def end() -> int:
        return ends[-1]

    async def look() -> None:
        asked = watched.leases.asked.count("planner.a")
        watched.leases.given_back.set()
        await until(lambda: watched.leases.asked.count("planner.a") > asked + 1, "another look")

    watched.decider.log = SimpleNamespace(end=end)
    watched.leases.give_back("planner.b")
    await look()
    watched.leases.free.clear()
    await look()
    ends.append(world.state.sequence + 2)
    world.join("c")
    watched.leases.give_back("planner.b")
    await look()
    assert watched.reported == []
    world.leave("b")
    watched.leases.give_back("planner.a")
    await until(lambda: watched.reported, "the loss of another to be reported")
    assert watched.reported == [ev.ShardLost(shard="a", taken=world.state.shards["a"])]


async def test_a_log_that_goes_on_does_not_put_it_off(world: World) -> None:
    """Read first is what the log held when the lease was seen free, not what others write since."""
    watched = Watched(world)
    ends = itertools.count(world.state.sequence + 1)

    async def end() -> int:
        return next(ends)

    watched.decider.log = SimpleNamespace(end=end)
    watched.leases.give_back("planner.b")
    await until(lambda: watched.leases.asked.count("planner.a") > 1, "another look")
    assert watched.reported == []
    world.join("c")
    watched.leases.given_back.set()
    await until(lambda: watched.reported, "the loss to be reported")
    assert watched.reported == [ev.ShardLost(shard="b", taken=world.state.shards["b"])]
