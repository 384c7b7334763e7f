"""R2 and R4: who is scheduled, and who of several.

    When one of the jobs is successfully scheduled (to RUNNING state for a guard time), …
    If more than one jobs are scheduled, the scheduler will keep only the one entering RUNNING state earliest, and cancel
    others.

Guard time runs on a clock of the cluster's own: `Cluster.covered_ns`, the log time during which it answered. The text
does not say what the guard measures; this leaves out both its silence and ours. Times of different clusters are compared
as log times: a cluster's own clock is only asked for how long ago the attempt began, so that its skew cancels out, and
the answer lies between the last look that did not show it running and the first that did (`observing`).
"""

from __future__ import annotations

from collections.abc import Iterable

from services.federator.records import Cluster, Clusters, Job, Place, guard_ns


def is_scheduled(job: Job, place: Place, cluster: Cluster) -> bool:
    """In RUNNING state for a guard time, and its cluster answers."""
    return place.runs and cluster.answers and guard_ns(place, cluster) >= job.guard_ns


def ended_ns(job: Job, place: Place, cluster: Cluster) -> int:
    """When the guard time was over, of one that is scheduled."""
    return cluster.seen_ns - (guard_ns(place, cluster) - job.guard_ns)


def is_due(job: Job, place: Place, cluster: Cluster, asked_ns: int) -> bool:
    """Whether an answer to a question of `asked_ns` would end its guard time, though nothing changed."""
    if not (place.runs and cluster.answers):
        return False
    earned_ns = guard_ns(place, cluster)
    return earned_ns < job.guard_ns <= earned_ns + asked_ns - cluster.seen_ns


def first(scheduled: Iterable[Place]) -> Place | None:
    """The one to keep, of several that are scheduled at once."""
    return min(scheduled, key=lambda place: (-place.priority_milli, place.started_ns, place.cluster), default=None)


def scheduled(job: Job, clusters: Clusters) -> list[Place]:
    return [place for place in job.places.values() if is_scheduled(job, place, clusters[place.account])]
