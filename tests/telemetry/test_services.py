"""The services with telemetry on: each gang is one trace over all of them, and what they do is counted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import events as ev
from events.envelope import Header, decode
from events.memory import MemoryLog
from services import decider as deciding
from services.binder import service as binder
from services.ingest import service as ingest
from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.planner import core
from services.planner import service as planner
from services.simulator.cluster import SimulatedCluster
from services.writer import SteppedDown, Writer
from tests.manifests import node, pod, pod_group
from tests.telemetry.views import by_group, totals
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("on")
PARTS = ["bind", "gang", "ingest", "permit", "plan"]


@asynccontextmanager
async def running(log: MemoryLog, url: str) -> AsyncIterator[None]:
    """Ingest, planner and binder of a cluster."""
    async with Client(direct(url)) as reading, Client(direct(url)) as binding:
        tasks = [
            asyncio.create_task(ingest.run(log, reading, holder="test", discovery_s=0.02)),
            asyncio.create_task(planner.run(log, shard="0", holder="test")),
            asyncio.create_task(binder.run(log, binding, holder="test")),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_gang_is_one_trace_over_all_services(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> None:
    log = MemoryLog("test")

    def over() -> bool:
        """A fact may end a trace before the outcomes are in the log."""
        gangs = sum(span.name == "gang" for span in spans.get_finished_spans())
        return gangs == 2 and totals(metrics)["muster.pods", "bound"] == 5

    async with SimulatedCluster() as cluster:
        cluster.create(node("n0", cpu="8"))
        cluster.create(pod_group("train", 4))
        for number in range(4):
            cluster.create(pod(f"train-{number}", "train"))
        cluster.create(pod("alone"))
        async with running(log, cluster.url):
            await until(over, "two gangs, five pods")

    of = by_group(spans)
    assert set(of) == {"default/train", "pod/default/alone"}
    carried = {stored.traceparent[3:52] for stored in log.commits}
    assert "" not in carried
    for parts in of.values():
        assert sorted(parts) == PARTS
        assert len({part.context.trace_id for part in parts.values()}) == 1
        root = parts["gang"]
        assert root.parent is None
        assert {part.parent.span_id for part in parts.values() if part.parent} == {root.context.span_id}
        assert parts["permit"].end_time == parts["bind"].start_time
        assert root.end_time == parts["bind"].end_time
        for name in ("ingest", "plan", "permit"):
            (link,) = parts[name].links
            assert f"{link.context.trace_id:032x}-{link.context.span_id:016x}" in carried
    assert of["default/train"]["bind"].attributes == {"muster.group": "default/train", "pods": 4}

    found = totals(metrics)
    assert found["muster.pods", "placed"] == found["muster.pods", "bound"] == 5
    assert found["muster.log.commits",] == len(log.commits)
    assert found["muster.log.events",] == sum(len(decode(stored).events) for stored in log.commits)
    assert found["muster.bind.duration",] == found["muster.pod.bound.duration",] == 5
    assert found["muster.kubernetes.requests", "POST", "201"] >= 5
    assert found["muster.kubernetes.requests", "WATCH", "200"] >= 3
    assert found["muster.cycle.duration",] >= 3
    assert ("muster.log.lag",) in found


async def test_what_is_no_commit_is_counted_and_a_conflict_too(metrics: InMemoryMetricReader) -> None:
    log = MemoryLog("test")
    header = Header(writer="stranger", epoch=0, basis=0, time_ns=0, cause="facts")
    await log.append("muster.test.stranger", header, b"[]", 0)
    planning = asyncio.create_task(planner.run(log, shard="0", holder="first"))
    await until(lambda: len(log.commits) == 2, "the planner")
    replaced = Writer(log, "planner.0")
    replaced.last = 1
    with pytest.raises(SteppedDown):
        await replaced.append([ev.PlannerTaken(shard="0", holder="second")], basis=0, cause="taken")
    planning.cancel()
    await asyncio.gather(planning, return_exceptions=True)
    found = totals(metrics)
    assert found["muster.log.set_aside",] == 1
    assert found["muster.log.conflicts",] == 1


async def test_nobody_is_ahead_of_the_log(metrics: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: what was folded while the log was asked for its end made a lag of less than nothing, under load in each
    twentieth answer."""
    header = Header(writer="stranger", epoch=0, basis=0, time_ns=0, cause="facts")
    asked = 0

    class Late(MemoryLog):
        async def end(self) -> int:
            nonlocal asked
            found = await super().end()
            if decider.active:
                await self.append("muster.test.stranger", header, b"[]", self._last.get("muster.test.stranger", 0))
                await until(lambda: decider.state.sequence > found, "what came meanwhile is folded")
                asked += 1
            return found

    monkeypatch.setattr(deciding, "LAG_EVERY_S", 0.001)
    log = Late("test")
    decider = deciding.Decider(log, Writer(log, "planner.0"), partial(core.decide, shard="0"))
    planning = asyncio.create_task(decider.run(ev.PlannerTaken(shard="0", holder="test")))
    await until(lambda: asked > 1, "the lag is told of an end that is behind")
    planning.cancel()
    await asyncio.gather(planning, return_exceptions=True)
    assert totals(metrics)["muster.log.lag",] == 0


def test_off_the_services_load_nothing_of_it() -> None:
    program = """
import asyncio, sys
from events.memory import MemoryLog
from services import telemetry
from services import decider as deciding
from services.binder import service as binder
from services.ingest import service as ingest
from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.kubernetes.errors import Unreachable
from services.planner import core
from services.planner import service as planner

async def main():
    log = MemoryLog("test")
    async with Client(direct("http://127.0.0.1:1")) as client:  # nobody is there
        services = [
            asyncio.create_task(ingest.run(log, client, holder="test")),
            asyncio.create_task(planner.run(log, shard="0", holder="test")),
            asyncio.create_task(binder.run(log, client, holder="test")),
        ]
        while len(log.commits) < 3:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        for service in services:
            service.cancel()
        print([stored.traceparent for stored in log.commits[:3]])

telemetry.configure("planner", cluster="test", environment={})
asyncio.run(main())
print([name for name in sys.modules if name.startswith(("opentelemetry", "services.tracing", "services.telemetry.sdk"))])
"""
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert answer.stdout == "['', '', '']\n[]\n"
