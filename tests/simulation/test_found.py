"""Bugs that the simulator found, each as the smallest thing that shows it."""

from __future__ import annotations

import asyncio

from events import ClusterSynced, GangPermitted, IngestTaken, PlannerTaken, PriorityClassObserved
from events.envelope import Header
from events.memory import MemoryLog
from services.decider import Decider
from services.ingest.differ import Ingest
from services.planner import core
from services.start import state_at
from services.state import snapshot
from services.state.fold import State
from services.writer import Writer
from tests.waiting import until
from tests.world import World


async def test_asking_for_the_time_does_not_change_the_state() -> None:
    """A decider's live state had a clock that its log's fold had not: another digest, and a snapshot that differs."""
    log = MemoryLog("test")
    ingest = Writer(log, "ingest")
    await ingest.take(IngestTaken(holder="test"))
    await ingest.append([ClusterSynced(nodes=0, pods=0)], basis=0, cause="facts")
    decider = Decider(log, Writer(log, "planner.a"), lambda state: core.decide(state, "a"))  # type: ignore[arg-type]
    running = asyncio.create_task(decider.run(PlannerTaken(shard="a", holder="test")))
    await until(lambda: decider.active)
    folded = State()
    for stored in log.commits:
        folded.apply_stored(stored)
    assert snapshot.digest(decider.state) == snapshot.digest(folded)
    running.cancel()


async def test_a_stranger_on_ingests_subject_does_not_keep_ingest_from_starting() -> None:
    """It was decoded as a commit of ingest's own: no ingest could start any more (design, section 3, Versions)."""
    log = MemoryLog("test")
    before = Writer(log, "ingest")
    await before.take(IngestTaken(holder="before"))
    fact = PriorityClassObserved(name="high", uid="u", resource_version="1", value=10, preempts=True)
    await before.append([fact], basis=0, cause="facts")
    stranger = Header(writer="stranger", epoch=0, basis=0, time_ns=0, cause="facts")
    log.append_now(before.subject, stranger, b"hello?", before.last)
    core = Ingest.of((await state_at(log)).state, ("muster",))
    assert list(core.named["PriorityClass"].values()) == [fact]


def test_a_declaration_that_goes_bad_while_it_is_proposed_counts_afterwards() -> None:
    """Seed 237: the pod left its gang at once, its proposal stood, and the gang was permitted below its minimum."""
    world = World()
    world.node("n0")
    pods = world.gang("g", 3, 3)
    world.plan()
    world.pod(pods[0], candidate=False)
    assert [type(event) for event in world.judge()] == [GangPermitted]
    assert sum(uid in world.state.permitted for uid in world.state.gangs["default/g"].members) == 3
    world.bind()
    assert list(world.state.gangs["default/g"].members) == pods[1:]
