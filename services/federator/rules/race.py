"""R3, R5, R8, R11 to R13: who holds the job, and when that is decided.

    the scheduler will cancel (kill) all other jobs and return the scheduled job and corresponding cluster to user.

    When a job is successfully scheduled in cluster C_i with priority p_i, then all jobs submitted to clusters whose
    priority is smaller than p_i will be cancelled intermediately, but the jobs submitted to higher priority clusters
    will have an extra surviving time.

One cluster *holds* the job from the end of its guard time. The others of its priority or less are cancelled. Whoever
takes over in its extra time holds it from then on, and the rule applies anew. When nobody of higher priority is left in
the race the holder is the winner, and that is final. A holder that ends, or begins another attempt, is lost: it holds
nothing any more (the fold), and whoever is left runs on.
"""

from __future__ import annotations

from collections.abc import Iterator

from events import Event, JobPlaced, JobScheduled, JobUnplaced, StopIntended
from services.federator.records import Clusters, Job, Place, is_seen
from services.federator.rules import ending, guard, priority

FIRST_AVAILABLE, SUCCEEDED = "FirstAvailable", "Succeeded"
LOWER_PRIORITY, NOT_EARLIEST = "LowerPriority", "NotEarliest"
EXTRA_TIME_OVER, OTHER_SUCCEEDED = "ExtraTimeOver", "OtherSucceeded"


def decided(job: Job, clusters: Clusters, now_ns: int) -> list[Event]:
    """What the race comes to, as of the last answers."""
    done = ending.succeeded(job)
    if done is not None:
        return [JobPlaced(job=job.uid, cluster=done.cluster, reason=SUCCEEDED), *_all_others(job)]
    if not job.contenders():
        return [JobUnplaced(job=job.uid)]
    holder = job.places.get(job.holder)
    first = guard.first(
        place
        for place in guard.scheduled(job, clusters)
        if holder is None or priority.is_in_time(job, holder, place, clusters)
    )
    if first is not None:
        return [*_held_by(first, job, clusters)]
    return [] if holder is None else [*_ended_extra_times(holder, job, clusters, now_ns)]


def _held_by(first: Place, job: Job, clusters: Clusters) -> Iterator[Event]:
    guard_ended_ns = guard.ended_ns(job, first, clusters[first.account])
    yield JobScheduled(job=job.uid, cluster=first.cluster, guard_ended_ns=guard_ended_ns)
    others = [place for place in job.contenders() if place is not first]
    if all(place.priority_milli <= first.priority_milli for place in others):
        yield JobPlaced(job=job.uid, cluster=first.cluster, reason=FIRST_AVAILABLE)
    for place in others:
        if place.priority_milli <= first.priority_milli:
            equal = place.priority_milli == first.priority_milli
            yield StopIntended(job=job.uid, cluster=place.cluster, reason=NOT_EARLIEST if equal else LOWER_PRIORITY)


def _ended_extra_times(holder: Place, job: Job, clusters: Clusters, now_ns: int) -> Iterator[Event]:
    higher = [place for place in job.contenders() if place is not holder]
    over = [place for place in higher if priority.is_over(job, holder, place, clusters, now_ns)]
    if len(over) == len(higher) and is_seen(holder, clusters[holder.account]):
        yield JobPlaced(job=job.uid, cluster=holder.cluster, reason=FIRST_AVAILABLE)
    for place in over:
        yield StopIntended(job=job.uid, cluster=place.cluster, reason=EXTRA_TIME_OVER)


def _all_others(job: Job) -> Iterator[Event]:
    for place in job.contenders():  # whoever succeeded is none any more
        yield StopIntended(job=job.uid, cluster=place.cluster, reason=OTHER_SUCCEEDED)
