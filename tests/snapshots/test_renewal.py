"""Idle writers keep their subjects, and readers whose place was purged end instead of going on with a hole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import events as ev
from events import envelope
from events.envelope import Header, decode_header
from events.log import EventLog, Purged
from events.memory import MemoryLog
from services import writer as writing
from services.console import retention
from services.console.verify import verify
from services.decider import Decider
from services.ingest import service as ingest
from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.planner import core
from services.simulator.cluster import SimulatedCluster
from services.writer import SteppedDown, Writer
from tests.federator.processes import Processes
from tests.homes import put_snapshot
from tests.waiting import until
from tests.world import World


def renewals(log: MemoryLog, writer: str) -> int:
    return sum(
        decode_header(stored).cause == "renew" and stored.subject.endswith(f".{writer}") for stored in log.commits
    )


def decider(log: EventLog) -> Decider:
    def decide(state: Any) -> Any:
        return (yield from core.decide(state, "a"))

    return Decider(log, Writer(log, "planner.a"), decide)


async def ended(task: Awaitable[None]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await task


def test_writers_renew_inside_the_shortest_retention() -> None:
    """Two renewals may be missed, or late, and the subject is still young."""
    assert writing.RENEW_AFTER_S * 3 < retention.DAY_NS / 1e9


async def test_an_idle_writer_renews_its_subject_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "RENEW_AFTER_S", 0.005)
    log = MemoryLog("test")
    writer = Writer(log, "ingest")
    await writer.take(ev.IngestTaken(holder="test"))
    renewing = asyncio.create_task(writer.renew())
    await until(lambda: renewals(log, "ingest") >= 3, "renewals")
    renewing.cancel()
    await ended(renewing)
    assert [type(event) for event in envelope.decode(log.commits[-1]).events] == [ev.Renewed]
    assert writer.last == log.commits[-1].sequence


async def test_a_writer_that_is_not_idle_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog("test")
    writer = Writer(log, "ingest")
    assert writer.renew_at_s == float("inf"), "before it is taken nothing is to be kept"
    monkeypatch.setattr(writing.time, "monotonic", lambda: 1_000.0)
    await writer.take(ev.IngestTaken(holder="test"))
    assert writer.renew_at_s == 1_000.0 + writing.RENEW_AFTER_S
    monkeypatch.setattr(writing.time, "monotonic", lambda: 5_000.0)
    await writer.append([ev.ClusterSynced(nodes=0, pods=0)], basis=0, cause="facts")
    assert writer.renew_at_s == 5_000.0 + writing.RENEW_AFTER_S


async def test_a_renewal_is_due_behind_the_last_commit_not_behind_the_last_look() -> None:
    """Else a writer whose last word came soon after a look renewed almost twice as late."""
    log = MemoryLog("test")
    writer = Writer(log, "ingest")
    await writer.take(ev.IngestTaken(holder="test"))
    writer.renew_at_s = time.monotonic() + 0.005
    renewing = asyncio.create_task(writer.renew())
    await until(lambda: renewals(log, "ingest"), "a renewal")
    assert writer.renew_at_s > time.monotonic() + writing.RENEW_AFTER_S / 2
    renewing.cancel()
    await ended(renewing)


async def test_a_replaced_writer_finds_out_when_it_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "RENEW_AFTER_S", 0.005)
    log = MemoryLog("test")
    old, new = Writer(log, "ingest"), Writer(log, "ingest")
    await old.take(ev.IngestTaken(holder="old"))
    await new.take(ev.IngestTaken(holder="new"))
    with pytest.raises(SteppedDown):
        await old.renew()


async def test_an_idle_planner_renews_and_its_log_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "RENEW_AFTER_S", 0.005)
    world = World()
    log = world.log
    one = decider(log)
    running = asyncio.create_task(one.run(ev.PlannerTaken(shard="a", holder="test")))
    await until(lambda: renewals(log, "planner.a") >= 3, "renewals")
    world.state = one.state
    running.cancel()
    await ended(running)
    assert (await verify(log)).verified


async def test_an_idle_ingest_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a loop that decides: it may hear nothing from its cluster for longer than the retention."""
    monkeypatch.setattr(writing, "RENEW_AFTER_S", 0.005)
    log = MemoryLog("test")
    async with SimulatedCluster(kubelet=False) as cluster, Client(direct(cluster.url)) as client:
        running = asyncio.create_task(ingest.run(log, client, holder="test"))
        await until(lambda: running.done() or renewals(log, "ingest") >= 3, "renewals")
        running.cancel()
        await ended(running)


async def test_an_idle_federator_renews_and_its_log_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "RENEW_AFTER_S", 0.005)
    field = Processes()
    await field.begin({})
    await field.until(lambda: renewals(field.log, "federator") >= 3, "renewals")
    await field.kill()
    assert (await verify(field.log)).verified


async def test_a_reader_whose_place_was_purged_ends(log: EventLog) -> None:
    """It was stopped while its log went on and was purged: what it would decide on had a hole."""
    header = Header(writer="ingest", epoch=0, basis=0, time_ns=0, cause="facts")
    subject = f"muster.{log.cluster}.ingest"
    payload = envelope.encode_events([ev.IngestTaken(holder="x")])
    last = await log.append(subject, header, payload, 0)
    one = decider(log)
    await one.catch_up()
    asleep = one.state
    for _ in range(8):
        last = await log.append(subject, header, payload, last)
    await log.purge(5)
    reading = asyncio.create_task(one._read())
    with pytest.raises(Purged, match=f"begins at 5: what follows {asleep.sequence} was purged"):
        await reading


async def never() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("turn", [None, never], ids=["active", "standby"])
async def test_that_ends_the_service_although_nothing_else_wakes_it(
    turn: Callable[[], Awaitable[None]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MemoryLog("test")
    one = decider(log)
    read, gone = asyncio.Event(), asyncio.Event()

    async def follow(after: int = 0) -> Any:
        read.set()
        await gone.wait()
        raise Purged("what follows 1 was purged")
        yield []

    monkeypatch.setattr(log, "follow", follow)
    running = asyncio.create_task(one.run(ev.PlannerTaken(shard="a", holder="test"), turn))
    await until(lambda: read.is_set() and (one.writer.last or turn), "the planner")
    await asyncio.sleep(0)
    gone.set()
    with pytest.raises(Purged):
        await running


async def test_started_again_it_goes_on_from_the_snapshot() -> None:
    world = World()
    world.node("n0", cpu=64)
    world.gang("train", 3, 3)
    world.settle()
    await put_snapshot(world.log, world.state)
    world.gang("more", 3, 3)
    await world.log.purge(world.state.sequence - 3)
    one = decider(world.log)
    running = asyncio.create_task(one.run(ev.PlannerTaken(shard="a", holder="again")))
    await until(lambda: any(group.phase == "awaiting" for group in one.state.groups.values()), "its proposal")
    running.cancel()
    await ended(running)
