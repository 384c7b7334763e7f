"""Services of a version that lacks what is switched on: they stop before they write again, whatever they were doing."""

from __future__ import annotations

import asyncio

import pytest

import events as ev
from events.envelope import decode, decode_header
from events.log import EventLog
from services.ingest import service as ingest
from services.planner import service as planner
from services.state.fold import State
from services.state.form import UnknownVersion
from services.writer import SteppedDown, Writer
from tests.second import BOTH, second
from tests.waiting import until
from tests.world import World


async def admin(log: EventLog, rules: int, state: int) -> int:
    writer = Writer(log, "admin")
    last = await log.last(writer.subject)
    writer.last = last.sequence if last is not None else 0
    return await writer.append([ev.VersionsSwitched(rules=rules, state=state)], basis=await log.end(), cause="admin")


def running(log: EventLog, *, standby: bool = False) -> asyncio.Task[None]:
    turn = asyncio.Event().wait if standby else None
    return asyncio.create_task(planner.run(log, shard="a", holder="me", turn=turn))  # type: ignore[arg-type]


def written(world: World, kind: type) -> list[int]:
    return [one.sequence for one in world.log.commits if any(type(event) is kind for event in decode(one).events)]


def switch_before_a_taken(monkeypatch: pytest.MonkeyPatch, world: World, rules: int, state: int) -> None:
    """The next process has read everything; then the admin is faster than its Taken."""
    taking = Writer.take

    async def later(writer: Writer, *events: ev.Event, basis: int = 0) -> int:
        await admin(world.log, rules, state)
        return await taking(writer, *events, basis=basis)

    monkeypatch.setattr(Writer, "take", later)


@pytest.mark.parametrize(("rules", "state"), [(2, 1), (1, 2)])
async def test_one_that_joins_without_having_read_the_switch_says_nothing_more(
    monkeypatch: pytest.MonkeyPatch, rules: int, state: int
) -> None:
    world = World(shards=(), supports=BOTH)
    world.node("n")
    world.pod("p")
    switch_before_a_taken(monkeypatch, world, rules, state)
    with pytest.raises(UnknownVersion, match=f"version {max(rules, state)}"):
        await asyncio.wait_for(running(world.log), 30)
    assert written(world, ev.PlannerTaken) == [len(world.log.commits)]
    assert written(world, ev.VersionsSwitched) == [len(world.log.commits) - 1]


async def test_a_standby_stops_before_its_turn() -> None:
    world = World(supports=BOTH)
    process = running(world.log, standby=True)
    place = await admin(world.log, 2, 1)
    with pytest.raises(UnknownVersion, match=f"at {place} it is decided by rules version 2, which this code lacks"):
        await asyncio.wait_for(process, 30)
    assert len(world.log.commits) == place


async def test_one_that_starts_later_takes_nothing() -> None:
    world = World(supports=BOTH)
    place = await admin(world.log, 2, 1)
    with pytest.raises(UnknownVersion):
        await asyncio.wait_for(running(world.log), 30)
    assert len(world.log.commits) == place


async def test_who_has_it_goes_on_and_names_it_in_its_headers() -> None:
    with second():
        world = World(shards=(), supports=BOTH)
        process = running(world.log)
        await until(lambda: written(world, ev.PlannerTaken), "the shard to join")
        assert decode(world.log.commits[-1]).events == [ev.PlannerTaken(shard="a", holder="me"), BOTH]
        await admin(world.log, 2, 2)
        state = State()
        for stored in world.log.commits:
            state.apply_stored(stored)
        world.state = state
        world.node("n")
        world.pod("p")
        world.judge()
        await until(lambda: written(world, ev.GangPlaced), "a proposal")
        header = decode_header(world.log.commits[written(world, ev.GangPlaced)[0] - 1])
        assert (header.rules, header.state) == (2, 2)
        process.cancel()


async def test_an_ingest_that_lacks_the_fold_says_nothing() -> None:
    """Behind its Taken nobody would decide, before another ingest had read the whole cluster."""
    world = World(supports=BOTH)
    place = await admin(world.log, 2, 2)
    with pytest.raises(UnknownVersion, match="folded by state version 2"):
        await ingest.run(world.log, None, holder="old")  # type: ignore[arg-type]
    assert len(world.log.commits) == place


async def test_an_ingest_that_had_not_read_the_switch_stops_before_its_first_fact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(supports=BOTH)
    switch_before_a_taken(monkeypatch, world, 2, 2)
    with pytest.raises(UnknownVersion, match="folded by state version 2"):
        await ingest.run(world.log, None, holder="old")  # type: ignore[arg-type]
    assert written(world, ev.IngestTaken)[1:] == [len(world.log.commits)]


async def test_an_ingest_needs_the_fold_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it decides nothing."""
    world = World(supports=BOTH)
    await admin(world.log, 2, 1)

    async def end(_: ingest.Reader) -> None:
        raise SteppedDown

    monkeypatch.setattr(ingest.Reader, "run", end)
    with pytest.raises(SteppedDown):
        await ingest.run(world.log, None, holder="old")  # type: ignore[arg-type]
    header = decode_header(world.log.commits[-1])
    assert (header.cause, header.rules, header.state) == ("taken", 2, 1)
