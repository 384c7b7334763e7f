"""R10, R13, R18, R19: how a job ends.

The text says nothing of it. A run that succeeds before its guard time ends has done what the job was for. *Settled* is
what the text's "cancel all other jobs" comes to: a cancellation is only a wish until its end was seen. `returned` has
what runs again behind that.
"""

from __future__ import annotations

from collections.abc import Iterator

from events import Event, JobSettled, StopIntended
from services.federator.backends import SUCCEEDED
from services.federator.records import ENDED, RACING, Job, Place

CANCELLED = "Cancelled"


def succeeded(job: Job) -> Place | None:
    """One that succeeded, be it while it was being cancelled; of several the highest priority's, then by alias."""
    done = [place for place in job.places.values() if place.phase == ENDED and place.run == SUCCEEDED]
    return min(done, key=lambda place: (-place.priority_milli, place.cluster), default=None)


def unwanted(job: Job) -> Iterator[Event]:
    """What is still wanted of a job that its user cancelled."""
    if job.cancelled:
        for place in job.contenders():
            yield StopIntended(job=job.uid, cluster=place.cluster, reason=CANCELLED)


def settled(job: Job) -> Iterator[Event]:
    """Once decided, when each loser was seen to have ended."""
    if job.phase != RACING and all(p.phase == ENDED for p in job.places.values() if p.cluster != job.kept):
        yield JobSettled(job=job.uid)
