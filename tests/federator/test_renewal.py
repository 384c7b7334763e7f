"""A federator that has nothing to say renews its subject; what it decides then stands on that, too."""

from __future__ import annotations

import asyncio

import pytest

import events as ev
from events.envelope import Header
from events.federation import Contender
from events.memory import MemoryLog
from services import writer
from services.console.verify import verify
from services.federator.service.decider import Decider
from tests.waiting import until

JOB = ev.JobFederated(
    job="1",
    name="train",
    digest="",
    guard_ms=0,
    scale_ms=0,
    clusters=(Contender(cluster="a", uri="a", user="ann", gpu_type="", priority_milli=0, name=""),),
)


class SlowLog(MemoryLog):
    """A cancellation takes its time to get there."""

    def __init__(self) -> None:
        super().__init__("fed")
        self.goes_on = asyncio.Event()

    async def append(
        self, subject: str, header: Header, payload: bytes, expected: int, *, traceparent: str = ""
    ) -> int:
        if b"JobCancelled" in payload:
            await self.goes_on.wait()
        return await super().append(subject, header, payload, expected, traceparent=traceparent)


async def test_what_is_decided_beside_a_renewal_stands_on_it() -> None:
    """One fell due while a cancellation was on its way to the log, and stood between that and what was decided of it:
    `verify` took that for the decision of somebody who had not read what he wrote himself."""
    log = SlowLog()
    decider = Decider(log, lambda said: None)
    await decider.take("test")
    await decider.say(lambda: [JOB], "request")
    decider.writer.renew_at_s = 0.0
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(decider.say(lambda: [ev.JobCancelled(job="1")], "request"))
        running = [tasks.create_task(one) for one in (decider.run(), decider.renew())]
        await asyncio.sleep(0)
        log.goes_on.set()
        await asked
        await until(lambda: b'"decide"' in log.commits[-1].header, "a decision")
        for task in running:
            task.cancel()
    assert (await verify(log)).verified


async def test_a_renewal_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RENEW_AFTER_S", 0.01)
    log = MemoryLog("fed")
    decider = Decider(log, lambda said: None)
    await decider.take("test")
    renewing = asyncio.create_task(decider.renew())
    await until(lambda: len(log.commits) > 2, "renewals")
    renewing.cancel()
    assert decider.state.sequence == len(log.commits)
