"""The binder as a process: its core over the log, and its effects on the cluster.

Bindings come first (`effects`); everything that users read is written behind them (`write_behind`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress

import events as ev
from events.envelope import Commit
from events.lease import Watch
from events.log import EventLog, LogError
from services.binder import core
from services.binder.service.effects import Effects
from services.binder.service.rounds import UNANSWERED_WRITES
from services.binder.service.write_behind import DEFAULT_RATES, Rates, WriteBehind
from services.decider import Decider, LogTime
from services.kubernetes.client import Client
from services.snapshots import SnapshotKeeper, Taking
from services.state.fold import FOLDS
from services.writer import Writer

WATCH_S = 0.25
"""How often the shards' leases are looked at."""

__all__ = ["Rates", "connections", "run", "watch_shards"]


def connections(concurrency: int) -> int:
    """As many requests as may be on their way at a time: those of all workers, and what is written behind. With fewer,
    what waits for one namespace's webhook would keep everything else in line behind it, whoever's turn it is."""
    return Effects.workers(concurrency) + len(Rates._fields) * UNANSWERED_WRITES


async def watch_shards(decider: Decider, leases: Watch) -> None:
    """A shard whose lease is free is lost: reports that, once for each process that took the shard.

    A shard that leaves gives its lease back after its last commit: so what the log held by then is read first.
    """
    said: set[int] = set()
    ends: dict[int, int] = {}
    """Where a shard was taken → the log's end when its lease was seen free, while it stays so."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(WATCH_S):
                await leases.given_back.wait()
        leases.given_back.clear()
        standing = dict(decider.state.shards) if decider.active else {}
        said.intersection_update(standing.values())
        ends = {taken: end for taken, end in ends.items() if taken in standing.values()}
        for shard, taken in standing.items():
            if taken in said:
                continue
            if not await leases.is_free(f"planner.{shard}"):
                ends.pop(taken, None)
                continue
            with suppress(LogError):
                ends[taken] = ends.get(taken) or await decider.log.end()
            there = decider.state.shards.get(shard) == taken
            if there and taken in ends and decider.state.sequence >= ends[taken]:
                said.add(taken)
                decider.report(ev.ShardLost(shard=shard, taken=taken))


async def run(
    log: EventLog,
    client: Client,
    *,
    holder: str,
    turn: Callable[[], Awaitable[None]] | None = None,
    leases: Watch | None = None,
    concurrency: int = 64,
    rates: Rates = DEFAULT_RATES,
    snapshots: Taking | None = None,
    clock_offset_ms: int = 0,
) -> None:
    """Judge and bind, once it is this process's `turn`, until another takes over (SteppedDown) or this task is cancelled.

    `leases` are the planners': without them no shard is ever found lost. Without `snapshots` none are taken.
    """

    def applied(commit: Commit) -> None:
        effects.intend(commit)
        behind.notice(commit)

    def started() -> Generator[None, None, None]:
        yield from effects.resume()
        yield from behind.resume()

    decider = Decider(
        log,
        Writer(log, "binder", clock_offset_ms=clock_offset_ms),
        core.decide,
        supports=ev.VersionsAnnounced(rules=tuple(core.RULES), state=tuple(FOLDS)),
        clock=LogTime(clock_offset_ms),
        applied=applied,
        started=started,
        absence_counts=False,
    )
    behind = WriteBehind(decider, client, holder=holder, busy=lambda: effects.busy, rates=rates)
    effects = Effects(decider, client, concurrency, overwrites=behind.conditions.doubt, tells=behind.tell)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(decider.run(ev.BinderTaken(holder=holder), turn))
        if leases is not None:
            tasks.create_task(watch_shards(decider, leases))
        if snapshots is not None:
            tasks.create_task(SnapshotKeeper(decider, lambda: effects.busy, snapshots).run())
        tasks.create_task(effects.run())
        tasks.create_task(behind.run())
