"""The federator keeps its subject without breaking the order of what it says."""

from __future__ import annotations

import asyncio
from typing import Any

import events as ev
from events import envelope
from events.federation import Contender
from events.memory import MemoryLog
from events.subjects import FEDERATION
from services.console.verify import verify
from services.federator.service.decider import Decider
from tests.waiting import until


class Held(MemoryLog):
    """A log that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(FEDERATION)
        self.going_on, self.asked = asyncio.Event(), 0
        self.going_on.set()

    async def append(self, *arguments: Any, **more: Any) -> int:
        self.asked += 1
        await self.going_on.wait()
        return await super().append(*arguments, **more)

    @property
    def causes(self) -> list[str]:
        return [envelope.decode_header(stored).cause for stored in self.commits]


async def test_a_decision_stands_on_a_renewal_that_fell_due_while_a_request_was_on_its_way() -> None:
    """Small federated histories found it: the renewal came between a request and the decision upon it, which had not
    read it; `verify` said so for good (`python -m tests.simulation sweep cancelled`)."""
    log = Held()
    decider = Decider(log, lambda said: None)
    await decider.take("test")
    place = Contender(cluster="a", uri="a", user="ann", gpu_type="", priority_milli=0, name="")
    job = ev.JobFederated(job="uid", name="job", digest="", guard_ms=0, scale_ms=0, clusters=(place,))
    await decider.say(lambda: [job], "request")
    deciding = asyncio.create_task(decider.run())
    await until(lambda: decider._saying.locked() is False, "nothing to be under way")
    log.going_on.clear()
    before = log.asked
    cancelling = asyncio.create_task(decider.say(lambda: [ev.JobCancelled(job="uid")], "request"))
    await until(lambda: log.asked > before, "the request to be on its way")
    decider.writer.renew_at_s = 0.0
    renewing = asyncio.create_task(decider.renew())
    for _ in range(10):
        await asyncio.sleep(0)
    log.going_on.set()
    await cancelling
    await until(lambda: log.causes[-1] == "decide", "the decision")
    report = await verify(log)
    assert report.verified, report.difference
    for task in (deciding, renewing):
        task.cancel()


async def test_a_subject_of_which_nothing_is_said_is_kept() -> None:
    log = Held()
    decider = Decider(log, lambda said: None)
    await decider.take("test")
    decider.writer.renew_at_s = 0.0
    renewing = asyncio.create_task(decider.renew())
    await until(lambda: log.causes[-1] == "renew", "the renewal")
    assert decider.state.sequence == log.commits[-1].sequence
    renewing.cancel()
