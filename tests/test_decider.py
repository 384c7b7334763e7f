"""How a deciding service reads the log, where that is not a matter of one service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import events as ev
from events import envelope, subjects
from events.envelope import Commit, Header
from events.memory import MemoryLog
from services.decider import GATHERED_OUTCOMES, Decider, Deciding
from services.state.fold import State
from services.writer import GATHERED_BYTES, SteppedDown, Writer
from tests.waiting import until

SUBJECT = subjects.subject("test", "binder")


def nothing(state: State) -> Deciding:
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


async def test_outcomes_share_commits_that_are_bounded_whatever_the_api_server_says() -> None:
    """Thousands of bindings that one webhook refuses with a long message."""
    log = MemoryLog("test")
    decider = Decider(log, Writer(log, "binder"), nothing)
    texts = ["x" * 20_000] * 500 + [""] * (GATHERED_OUTCOMES + 1)
    for number, text in enumerate(texts):
        about = {"uid": str(number), "namespace": "default", "name": "p", "node": "n", "assigned_node": ""}
        decider.report(ev.BindingFailed(reason="Forbidden", message=text, **about))
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    try:
        await until(lambda: not decider.outcomes, "all outcomes to be in the log")
        await until(lambda: decider.state.sequence == decider.writer.last, "them to be folded")
    finally:
        running.cancel()
    gathered = [envelope.decode(stored) for stored in log.commits if b'"cause":"outcome"' in stored.header]
    assert [event.uid for commit in gathered for event in commit.events] == [str(n) for n in range(len(texts))]
    assert max(len(commit.events) for commit in gathered) == GATHERED_OUTCOMES
    assert max(len(stored.payload) for stored in log.commits) <= GATHERED_BYTES
    assert len(gathered) < 20
