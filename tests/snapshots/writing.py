"""Logs with commits of any age, and snapshots that they confirm."""

from __future__ import annotations

import events as ev
from events import envelope
from events.envelope import Header, Stored
from events.log import EventLog
from events.subjects import subject
from services.console.retention import DAY_NS
from services.snapshots import take

NOW_NS = 1_000 * DAY_NS


async def append(log: EventLog, writer: str, events: list[ev.Event], cause: str, time_ns: int = 0) -> int:
    last = await log.last(subject(log.cluster, writer))
    header = Header(writer=writer, epoch=0, basis=await log.end(), time_ns=time_ns, cause=cause)
    payload = envelope.encode_events(events)
    return await log.append(subject(log.cluster, writer), header, payload, last.sequence if last is not None else 0)


async def tell_snapshot(log: EventLog, time_ns: int = 0) -> int:
    """Taken, and confirmed by the log; of which place."""
    kept = await take(log)
    taken = ev.SnapshotTaken(sequence=kept.sequence, digest=kept.digest, bytes=kept.bytes, state=kept.state)
    await append(log, "binder", [taken], "outcome", time_ns)
    return kept.sequence


async def write(log: EventLog, commits: int, time_ns: int = 0) -> None:
    for number in range(commits):
        fact = ev.PriorityClassObserved(
            name=f"class-{number % 7}", uid="u", resource_version=str(number), value=number, preempts=True
        )
        await append(log, "ingest", [fact], "facts", time_ns)


async def grow(log: EventLog, commits: list[Stored], by: int) -> None:
    """The next commits of the walk, behind those that are there."""
    end = await log.end()
    for one in commits[end : end + by]:
        writer = one.subject.split(".", 2)[2]
        onto = subject(log.cluster, writer)
        last = await log.last(onto)
        await log.append(onto, envelope.decode_header(one), one.payload, last.sequence if last else 0)
