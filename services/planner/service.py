"""The planner as a process: one shard's core over the log. It talks to nobody but the log."""

from __future__ import annotations

from collections.abc import Sequence

from events import Event, PlannerTaken
from events.log import EventLog
from services.decider import Decider, Decision, LogTime
from services.planner import core
from services.state.fold import State
from services.writer import Writer


async def run(
    log: EventLog,
    *,
    shard: str,
    holder: str,
    clock_offset_ms: int = 0,
) -> None:
    """Plan for the shard until another process takes it over (SteppedDown) or this task is cancelled."""

    def decide(state: State) -> Decision:
        decided: Sequence[Event] = yield from core.decide(state, shard)
        return decided

    decider = Decider(log, Writer(log, f"planner.{shard}"), decide, clock=LogTime(clock_offset_ms))
    await decider.run(PlannerTaken(shard=shard, holder=holder))
