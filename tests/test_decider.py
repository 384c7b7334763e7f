"""How a deciding service reads the log, where that is not a matter of one service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import events as ev
from events import envelope, subjects
from events.envelope import Commit, Header
from events.memory import MemoryLog
from services.decider import Decider, Decision
from services.state.fold import State
from services.writer import SteppedDown, Writer
from tests.waiting import until

SUBJECT = subjects.subject("test", "binder")


def nothing(state: State) -> Decision:
    none: Iterator[None] = iter(())
    yield from none
    return ()


async def test_a_process_that_wakes_up_replaced_does_nothing_of_what_its_successor_intends() -> None:
    """SIGSTOP, and another took over: what it reads now is not its own to carry out (design, rule 5)."""
    log, seen = MemoryLog("test"), list[Commit]()
    decider = Decider(log, Writer(log, "binder"), nothing, applied=seen.append)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="old")))
    await until(lambda: decider.active, "the first to be at work")
    permit = ev.GangPermitted(group="pod/default/a", proposals=(), bindings=(), dropped=())
    for event, cause in ((ev.BinderTaken(holder="new"), "taken"), (permit, "decide")):
        header = Header(writer="binder", epoch=0, basis=1, time_ns=0, cause=cause)
        log.append_now(SUBJECT, header, envelope.encode_events([event]), log._last[SUBJECT])
    with pytest.raises(SteppedDown, match="was taken by another process at 2"):
        await asyncio.wait_for(running, 60)
    assert [commit.sequence for commit in seen] == []
