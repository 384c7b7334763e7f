"""The planner as a process: one shard's core over the log. It talks to nobody but the log.

`services.decider` is the loop: follow, fold, decide, append. `services.console.launch` starts this as a process, with its
settings, lease, signals and exit codes. The binder's service adds effects on the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from events import PlannerLeft, PlannerTaken, VersionsAnnounced
from events.envelope import Commit
from events.log import EventLog
from services.decider import Decider, LogTime
from services.planner import core
from services.state.fold import FOLDS
from services.writer import SteppedDown, Writer


async def run(
    log: EventLog,
    *,
    shard: str,
    holder: str,
    turn: Callable[[], Awaitable[None]] | None = None,
    stop: asyncio.Event | None = None,
    clock_offset_ms: int = 0,
) -> None:
    """Plan for the shard, once it is this process's `turn`, until told to `stop`: then its last commit says that it left.

    Raises SteppedDown when another process took the shard over, or when the binder found its lease run out.
    """

    def applied(_: Commit) -> None:
        if shard not in decider.state.shards:
            raise SteppedDown(f"shard {shard} was found lost at {decider.state.sequence}")

    async def leave() -> None:
        if stop is not None:
            await stop.wait()
            decider.leave(PlannerLeft(shard=shard))

    decider = Decider(
        log,
        Writer(log, f"planner.{shard}", clock_offset_ms=clock_offset_ms),
        partial(core.decide, shard=shard),
        supports=VersionsAnnounced(rules=tuple(core.RULES), state=tuple(FOLDS)),
        clock=LogTime(clock_offset_ms),
        applied=applied,
    )
    leaving = asyncio.create_task(leave(), name=f"planner.{shard} until it is told to stop")
    try:
        await decider.run(PlannerTaken(shard=shard, holder=holder), turn)
    finally:
        leaving.cancel()
