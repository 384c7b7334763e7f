"""What the log costs: appending, replaying with decoding, and the way from a writer to a reader when nothing is going on.

    python -m benchmarks.log [--json] [--commits N]

Commits carry 100 `PodObserved`. The server is the embedded one: every acknowledged commit is on the disk. Readers and
writers share one process, so the replay of JetStream competes with nobody but the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.arguments import some
from events import PodObserved, envelope, subjects
from events.envelope import Header, Stored
from events.homes import copy, open_log
from events.jetstream import JetStreamLog
from events.log import EventLog
from events.objects import Membership
from events.server import EmbeddedServer
from tests import facts

CLUSTER = "bench"
EVENTS_PER_COMMIT = 100
HEADER = Header(writer="ingest", epoch=0, basis=0, time_ns=1_700_000_000_000_000_000, cause="facts")
SMALL_COMMITS = 20_000
IDLE_COMMITS = 200
IDLE_S = (0.001, 0.02)


def pods(commit: int) -> bytes:
    """A payload of 100 pods in gangs of 20."""
    return envelope.encode_events([pod(commit * EVENTS_PER_COMMIT + index) for index in range(EVENTS_PER_COMMIT)])


def pod(number: int) -> PodObserved:
    return facts.pod(
        f"resnet-{number // 20:06d}-worker-{number % 20}",
        "5f0d3a9c1b2e4d67",
        uid=f"0b7c6f0e-7d1a-4c6e-9d57-{number:012x}",
        version=str(1_000_000 + number),
        namespace="training",
        gang=Membership(gang=f"training/resnet-{number // 20:06d}", dialect="coscheduling/v1alpha1", declared=None),
        created_ns=1_700_000_000_000_000_000 + number,
    )


async def append(log: EventLog, payloads: list[bytes]) -> float:
    """Commits a second, one in flight, as a writer appends."""
    subject, sequence = subjects.subject(CLUSTER, "ingest"), 0
    start = time.perf_counter()
    for payload in payloads:
        sequence = await log.append(subject, HEADER, payload, sequence)
    return len(payloads) / (time.perf_counter() - start)


async def replay(batches: AsyncIterator[list[Stored]], *, decode: bool) -> float:
    """Commits a second."""
    commits, events = 0, 0
    start = time.perf_counter()
    async for batch in batches:
        commits += len(batch)
        if decode:
            for stored in batch:
                events += len(envelope.decode(stored).events)
    took = time.perf_counter() - start
    assert not decode or events == commits * EVENTS_PER_COMMIT
    return commits / took


async def idle_latencies_us(
    writer: JetStreamLog, reader: JetStreamLog, directory: Path, pause_s: float
) -> dict[str, list[float]]:
    """What a hop through the log takes when nothing else goes on, beside what it cannot do without.

    *hop*: from the call of append to the arrival at a follower on another connection. *delivery*: the same for a plain
    message of core NATS, which nobody stores. *ping*: there and back. *fsync*: of as many bytes, on the same disk.
    Between two measurements lies `pause_s`: the longer it is, the more of what follows is the machine waking up.
    """
    subject, sequence = subjects.subject(CLUSTER, "binder"), 0
    last = await writer.last(subject)
    sequence = last.sequence if last is not None else 0
    took: dict[str, list[float]] = {"hop": [], "delivery": [], "ping": [], "fsync": []}
    plain = await reader.connection.client.subscribe("benchmark.plain")
    await reader.connection.client.flush()
    with (directory / "synced").open("wb", buffering=0) as file:
        async with aclosing(reader.follow(await reader.end())) as batches:  # type: ignore[type-var]
            for number in range(IDLE_COMMITS):
                arriving = asyncio.ensure_future(anext(batches))
                await asyncio.sleep(pause_s)
                start = time.perf_counter()
                appending = asyncio.ensure_future(writer.append(subject, HEADER, b"[%d]" % number, sequence))
                await arriving
                took["hop"].append(time.perf_counter() - start)
                sequence = await appending
                receiving = asyncio.ensure_future(plain.next_msg())
                await asyncio.sleep(pause_s)
                start = time.perf_counter()
                await writer.connection.client.publish("benchmark.plain", b"[%d]" % number)
                await receiving
                took["delivery"].append(time.perf_counter() - start)
                await asyncio.sleep(pause_s)
                start = time.perf_counter()
                await writer.connection.client.flush()
                took["ping"].append(time.perf_counter() - start)
                await asyncio.sleep(pause_s)
                file.write(_header)
                start = time.perf_counter()
                os.fsync(file.fileno())
                took["fsync"].append(time.perf_counter() - start)
    await plain.unsubscribe()
    return {name: sorted(each * 1e6 for each in times[20:]) for name, times in took.items()}


async def measure(commits: int) -> dict[str, float]:
    payloads = [pods(commit) for commit in range(commits)]
    figures: dict[str, float] = {"commits": commits, "bytes_per_event": len(payloads[0]) / EVENTS_PER_COMMIT}
    with tempfile.TemporaryDirectory() as directory, EmbeddedServer(Path(directory) / "nats") as server:
        log = await JetStreamLog.open(server.url, CLUSTER)
        figures["jetstream append, events/s"] = await append(log, payloads) * EVENTS_PER_COMMIT
        figures["jetstream replay, events/s"] = await replay(log.read(), decode=False) * EVENTS_PER_COMMIT
        figures["jetstream replay decoded, events/s"] = await replay(log.read(), decode=True) * EVENTS_PER_COMMIT
        file = await open_log(str(Path(directory) / "log.db"), CLUSTER, create=True)
        start = time.perf_counter()
        await copy(log, file)
        figures["export to a file, events/s"] = commits * EVENTS_PER_COMMIT / (time.perf_counter() - start)
        figures["file replay decoded, events/s"] = await replay(file.read(), decode=True) * EVENTS_PER_COMMIT
        await file.close()
        start = time.perf_counter()
        for payload in payloads:
            envelope.decode(Stored(sequence=1, subject="", message_id="", header=_header, payload=payload))
        figures["decoding alone, events/s"] = commits * EVENTS_PER_COMMIT / (time.perf_counter() - start)
        other = await JetStreamLog.open(server.url, CLUSTER)
        for pause_s in IDLE_S:
            idle = await idle_latencies_us(log, other, Path(directory), pause_s)
            for name, took in idle.items():
                figures[f"idle {pause_s * 1000:g} ms, {name} p50, us"] = statistics.median(took)
                figures[f"idle {pause_s * 1000:g} ms, {name} p99, us"] = took[int(len(took) * 0.99)]
        figures["small commits appended one by one, commits/s"] = await append_small(log)
        end = await log.end()
        figures["small commits imported, commits/s"] = await import_small(log, end)
        figures["small commits replayed, commits/s"] = await replay(log.read(end), decode=False)
        await log.close()
        await other.close()
    return figures


async def append_small(log: EventLog) -> float:
    subject, sequence = subjects.subject(CLUSTER, "admin"), 0
    start = time.perf_counter()
    for number in range(1000):
        sequence = await log.append(subject, HEADER, b"[%d]" % number, sequence)
    return 1000 / (time.perf_counter() - start)


async def import_small(log: JetStreamLog, end: int) -> float:
    commits = [
        Stored(
            sequence=end + number,
            subject=subjects.subject(CLUSTER, "planner.0"),
            message_id=f"{number:024x}",
            header=_header,
            payload=b"[%d]" % number,
        )
        for number in range(1, SMALL_COMMITS + 1)
    ]
    start = time.perf_counter()
    await log.append_stored(commits)
    return SMALL_COMMITS / (time.perf_counter() - start)


_header = envelope.encode_header(HEADER)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.log")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--commits", type=some, default=3000)
    arguments = parser.parse_args()
    import uvloop

    figures = uvloop.run(measure(arguments.commits))
    if arguments.json:
        print(json.dumps(figures))
        return
    table = Table("the log", "figure", title=f"{EVENTS_PER_COMMIT} events a commit")
    for name, figure in figures.items():
        table.add_row(name, f"{figure:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
