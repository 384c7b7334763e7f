"""Bugs that the simulator found, each as the smallest thing that shows it."""

from __future__ import annotations

import asyncio

from events import ClusterSynced, IngestTaken, PlannerTaken
from events.memory import MemoryLog
from services.decider import Decider
from services.planner import core
from services.state import snapshot
from services.state.fold import State
from services.writer import Writer
from tests.waiting import until


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
