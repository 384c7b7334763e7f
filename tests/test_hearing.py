"""What is heard before something is written over that others may have written: all that the log holds by then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import events as ev
from events import envelope, subjects
from events.envelope import Header, Stored
from events.memory import MemoryLog
from services.decider import Decider, Deciding
from services.state.fold import State
from services.writer import SteppedDown, Writer
from tests.waiting import until

SUBJECT = subjects.subject("test", "binder")


def nothing(state: State) -> Deciding:
    none: Iterator[None] = iter(())
    yield from none
    return ()


async def test_who_hears_all_of_a_log_that_went_on_has_folded_it() -> None:
    log = MemoryLog("test")
    decider = Decider(log, Writer(log, "binder"), nothing)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    await until(lambda: decider.active, "it to be at work")
    for number in range(3):
        header = Header(writer="ingest", epoch=0, basis=0, time_ns=0, cause="facts")
        fact = ev.IngestTaken(holder=f"ingest-{number}")
        last = log._last.get(subjects.subject("test", "ingest"), 0)
        log.append_now(subjects.subject("test", "ingest"), header, envelope.encode_events([fact]), last)
    assert decider.state.sequence < (end := await log.end())
    await asyncio.gather(*(asyncio.wait_for(decider.hear_all(), 60) for _ in range(3)))
    assert decider.state.sequence == end + 1, "and what this process said for all that asked at once"
    assert envelope.decode(log.commits[-1]).events == [ev.Renewed()]
    running.cancel()


class CutOff(MemoryLog):
    """As from a server that is cut off: what others append is not read any more, and the end is told as it was."""

    async def end(self) -> int:
        return 1

    async def follow(self, after: int) -> AsyncIterator[list[Stored]]:
        yield [stored for stored in self.commits if after < stored.sequence <= 1]
        await asyncio.Event().wait()


@pytest.mark.parametrize("home", [MemoryLog, CutOff])
async def test_who_was_replaced_does_not_hear_all_of_it(home: type[MemoryLog]) -> None:
    """Nor where the server is believed that is cut off: the simulator of faults found it, seed 727798, as a pod gave its
    former reason for waiting."""
    log = home("test")
    decider = Decider(log, Writer(log, "binder"), nothing)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="old")))
    await until(lambda: decider.active, "it to be at work")
    header = Header(writer="binder", epoch=0, basis=1, time_ns=0, cause="taken")
    log.append_now(SUBJECT, header, envelope.encode_events([ev.BinderTaken(holder="new")]), log._last[SUBJECT])
    hearing = asyncio.create_task(decider.hear_all())
    with pytest.raises(SteppedDown):
        await asyncio.wait_for(running, 60)
    assert not hearing.done()
    hearing.cancel()


class Awaited(MemoryLog):
    """What is appended behind the first commit is acknowledged one by one."""

    def __init__(self, cluster: str) -> None:
        super().__init__(cluster)
        self.sent, self.answers = 0, asyncio.Semaphore(1)

    async def append(self, *commit: Any, **about: Any) -> int:
        self.sent += 1
        await self.answers.acquire()
        return await super().append(*commit, **about)


async def test_what_was_sent_before_says_nothing_of_what_has_happened_by_then() -> None:
    """Its acknowledgement may be late. The outcome behind it does: nothing is appended for the sake of it alone."""
    log = Awaited("test")
    decider = Decider(log, Writer(log, "binder"), nothing)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    await until(lambda: decider.active, "it to be at work")
    outcome = ev.ConditionsReported(reason="Unschedulable", pods=())
    decider.report(outcome)
    await until(lambda: log.sent == 2, "the outcome to be on its way")
    hearing = asyncio.create_task(decider.hear_all())
    await asyncio.sleep(0)
    decider.report(outcome)
    log.answers.release()
    await until(lambda: log.sent == 3, "the second to be on its way")
    assert decider.state.sequence == 2
    assert not hearing.done()
    log.answers.release()
    await asyncio.wait_for(hearing, 60)
    said = [envelope.decode(stored).events for stored in log.commits]
    assert said[1:] == [[outcome], [outcome]]
    running.cancel()
