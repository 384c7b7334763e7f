"""A planner that folds 100,000 pods still answers pings and renews its lease (design, section 5)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import events as ev
from events import Event, envelope
from events.envelope import Header, Stored
from events.jetstream import JetStreamLog
from events.lease import Lease
from events.server import EmbeddedServer
from events.subjects import subject
from services.decider import Decider, Deciding
from services.planner import core
from services.start import FOLD_BYTES
from services.state.fold import State
from services.writer import Writer
from tests import facts
from tests.nats_server import connected
from tests.waiting import until

CLUSTER, ROLE = "busy", "planner.a"
PODS, OF_COMMIT, TTL_S = 100_000, 500, 12
"""Pods, how many of them share a commit, and a lease's life: six times the default, as a busy machine keeps the whole
process from its turn. How long the fold keeps the others is asserted of its turns."""
PINGS = 'ping_interval: "6s"\nping_max: 2\n'
"""Who answers none of two of them is cut off."""


def flood(first: int) -> list[Stored]:
    """Commits of ingest's with so many pods, from this sequence on."""
    header = envelope.encode_header(Header(writer="ingest", epoch=0, basis=0, time_ns=1, cause="facts"))
    classes: list[Event] = [facts.scheduling_class("c", {"cpu_milli": 100, "pods": 1})]
    pods: list[Event] = [facts.pod(f"pod-{number:06}", "c") for number in range(PODS)]
    parts = [classes, *(pods[start : start + OF_COMMIT] for start in range(0, PODS, OF_COMMIT))]
    return [
        Stored(
            sequence=first + number,
            subject=subject(CLUSTER, "ingest"),
            message_id=f"flood-{number}",
            header=header,
            payload=envelope.encode_events(part),
        )
        for number, part in enumerate(parts)
    ]


def append(url: str, commits: list[Stored]) -> None:
    """In a thread of its own, much faster than anybody folds it."""

    async def appended() -> None:
        log = await JetStreamLog.open(url, CLUSTER)
        await log.append_stored(commits)
        await log.close()

    asyncio.run(appended())


def usurp(url: str, over: asyncio.Event) -> bool:
    """In a thread, too: whether somebody who waits for the lease is given it before this is over."""

    async def given() -> bool:
        async with connected(url) as connection:
            waiting = asyncio.create_task(Lease(connection, CLUSTER, ROLE, "rival", TTL_S).acquire())
            while not (over.is_set() or waiting.done()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            won = waiting.done()
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
            return won

    return asyncio.run(given())


class Turns:
    """How many pods were folded at each turn of somebody else's in the same loop."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider
        self._seen = [0]

    async def take(self) -> None:
        while True:
            self._seen.append(len(self._decider.state.pods))
            await asyncio.sleep(0)

    def longest(self) -> int:
        return max(after - before for before, after in pairwise(self._seen))


async def test_a_planner_that_folds_100_000_pods_answers_pings_and_keeps_its_lease(tmp_path: Path) -> None:
    last = 0

    def decide(state: State) -> Deciding:
        """A cycle that is so long that all pods were read meanwhile: they are folded in one go behind it."""
        while planner._read_to < last:
            yield
        decided: Sequence[Event] = yield from core.decide(state, "a")
        return decided

    with EmbeddedServer(tmp_path, extra=PINGS) as server:
        log = await JetStreamLog.open(server.url, CLUSTER)
        planner, over = Decider(log, Writer(log, ROLE), decide), asyncio.Event()
        async with Lease(log.connection, CLUSTER, ROLE, "busy", TTL_S) as held:
            rival = asyncio.create_task(asyncio.to_thread(usurp, server.url, over))
            running = asyncio.create_task(planner.run(ev.PlannerTaken(shard="a", holder="busy")))
            await until(lambda: planner.active, "the planner")
            commits, turns = flood(await log.end() + 1), Turns(planner)
            last = commits[-1].sequence
            watching = asyncio.create_task(turns.take())
            await asyncio.to_thread(append, server.url, commits)
            await until(lambda: len(planner.state.pods) == PODS or running.done(), "all pods")
            watching.cancel()
            least = min(len(stored.payload) for stored in commits[1:])
            assert turns.longest() <= FOLD_BYTES // least * OF_COMMIT + OF_COMMIT, "nobody else had a turn meanwhile"
            assert not held.lost.is_set()
            assert log.connection.client.stats["reconnects"] == 0, "it did not answer pings"
            over.set()
            assert not await rival, "somebody else was given the lease"
            running.cancel()
        await log.close()
