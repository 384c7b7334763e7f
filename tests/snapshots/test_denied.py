"""A service begins from a snapshot that the log denies behind the end that it was told of (seed 702236): a server that is
cut off from the others answers as if it led, and what it lacks the service reads later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import events as ev
from events import envelope, subjects
from events.envelope import FIRST_VERSION, Header
from events.log import Bounds
from events.memory import MemoryLog
from events.snapshots import Kept
from services.decider import Decider, Deciding
from services.federator.service.decider import Decider as Federator
from services.federator.snapshot import FORM as FEDERATIONS
from services.federator.state import State as FederationState
from services.ingest import service as ingest
from services.start import SnapshotDenied, state_at
from services.state import snapshot
from services.state.fold import State
from services.writer import Writer
from tests.homes import folded, put_snapshot
from tests.waiting import until
from tests.walk.walk import Walk


def told_too_little(log: MemoryLog, monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    async def bounds() -> Bounds:
        return Bounds(first=1, end=end)

    monkeypatch.setattr(log, "bounds", bounds)


def deny(log: MemoryLog, writer: str, kept: Kept) -> None:
    said = ev.SnapshotTaken(sequence=kept.sequence, digest="of the true one", bytes=1, state=FIRST_VERSION)
    subject = subjects.subject(log.cluster, writer)
    header = Header(writer=writer, epoch=0, basis=kept.sequence, time_ns=0, cause="outcome")
    log.append_now(subject, header, envelope.encode_events([said]), log._last.get(subject, 0))


def nothing(state: State) -> Deciding:
    none: Iterator[None] = iter(())
    yield from none
    return ()


def binder(log: MemoryLog) -> Decider:
    return Decider(log, Writer(log, "binder"), nothing)


async def a_binder(log: MemoryLog) -> None:
    await binder(log).run(ev.BinderTaken(holder="test"))


async def an_ingest(log: MemoryLog) -> None:
    await ingest.run(log, None, holder="test")  # type: ignore[arg-type]


@pytest.mark.parametrize("service", [a_binder, an_ingest])
async def test_a_service_ends_by_it_and_the_next_start_finds_it_said(
    service: Callable[[MemoryLog], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = Walk(11)
    walk.walk(60)
    log, place = walk.world.log, walk.world.state.sequence
    kept = await put_snapshot(log, folded(log.commits, place))
    with monkeypatch.context() as patched:
        told_too_little(log, patched, place)
        deny(log, "binder", kept)
        assert (await state_at(log)).base == kept
        with pytest.raises(SnapshotDenied, match=f"what follows snapshot {place} denies it: .* of the true one"):
            await asyncio.wait_for(service(log), 60)
    assert (await state_at(log)).base is None


async def test_it_may_be_denied_while_the_service_is_at_work() -> None:
    walk = Walk(11)
    walk.walk(60)
    log, place = walk.world.log, walk.world.state.sequence
    kept = await put_snapshot(log, folded(log.commits, place))
    planner = Decider(log, Writer(log, "planner.b"), nothing)
    running = asyncio.create_task(planner.run(ev.PlannerTaken(shard="b", holder="test")))
    await until(lambda: planner.active, "it to be at work")
    deny(log, "binder", kept)
    with pytest.raises(SnapshotDenied):
        await asyncio.wait_for(running, 60)


async def test_what_the_log_confirms_stands() -> None:
    walk = Walk(11)
    walk.walk(60)
    log, place = walk.world.log, walk.world.state.sequence
    kept = await put_snapshot(log, folded(log.commits, place))
    begun = binder(log)
    await begun.catch_up()
    said = ev.SnapshotTaken(sequence=place, digest=kept.digest, bytes=kept.bytes, state=FIRST_VERSION)
    walk.world.append("binder", [said], cause="outcome")
    running = asyncio.create_task(begun.run(ev.BinderTaken(holder="test")))
    await until(lambda: begun.active, "it to be at work")
    assert snapshot.digest(begun.state) == snapshot.digest(folded(log.commits, log.commits[-1].sequence))
    running.cancel()


async def test_a_federator_ends_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log, state = MemoryLog(subjects.FEDERATION), FederationState()
    first = Federator(log, lambda _: None)
    await first.take("before")
    state.apply_stored(log.commits[0])
    data, digest = FEDERATIONS.pack(state)
    kept = Kept(sequence=1, digest=digest, state=FIRST_VERSION, bytes=len(data))
    await log.snapshots.put(kept, data)
    told_too_little(log, monkeypatch, 1)
    deny(log, "federator", kept)
    with pytest.raises(SnapshotDenied):
        await Federator(log, lambda _: None).take("test")
