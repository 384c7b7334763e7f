"""A federation's log, as a simulated history wrote it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import events as ev
from events import Event, SnapshotTaken, envelope
from events.envelope import Header
from events.log import EventLog
from events.memory import MemoryLog
from events.subjects import FEDERATION, subject
from services.federator.snapshot import FORM
from services.federator.state import WRITER
from services.snapshots import take
from tests.federator import simulation
from tests.federator.audit import DECIDED

CAUSES = {ev.FederatorTaken: "taken", ev.JobFederated: "request", ev.JobCancelled: "request", ev.RunGivenUp: "request"}
"""By a commit's first event; else a decision, or an outcome."""


def history(seed: int, of: type[simulation.World] = simulation.World) -> list[tuple[Event, ...]]:
    """The commits of one history."""
    world = of(seed)
    world.run()
    return world.log


async def append(log: EventLog, commit: Sequence[Event]) -> int:
    """As the federator does: behind everything that it said before."""
    last = await log.last(subject(log.cluster, WRITER))
    before = last.sequence if last is not None else 0
    first = type(commit[0])
    cause = "decide" if issubclass(first, DECIDED) else CAUSES.get(first, "outcome")
    header = Header(writer=WRITER, epoch=0, basis=before, time_ns=before, cause=cause)
    return await log.append(subject(log.cluster, WRITER), header, envelope.encode_events(commit), before)


async def written(commits: Iterable[Sequence[Event]], snapshots: Container[int] = ()) -> MemoryLog:
    """A log of these commits, with snapshots behind those of these numbers, each confirmed by the log."""
    log = MemoryLog(FEDERATION)
    for number, commit in enumerate(commits, 1):
        await append(log, commit)
        if number in snapshots:
            await tell_snapshot(log)
    return log


async def tell_snapshot(log: EventLog) -> int:
    """Taken, and confirmed by the log; of which place."""
    kept = await take(log, FORM)
    await append(log, [SnapshotTaken(sequence=kept.sequence, digest=kept.digest, bytes=kept.bytes, state=kept.state)])
    return kept.sequence
