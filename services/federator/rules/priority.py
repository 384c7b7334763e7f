"""R6 to R9: the extra time of clusters of higher priority.

    if there is a cluster C_j of higher priority p_j (p_j > p_i), then C_j's job will not be cancelled until
    (p_j-p_i)*timeScale later. If C_j's job is successfully scheduled in this time, the scheduler will choose C_j as the
    execution cluster and cancel the job on lower priority cluster C_i.

Both ends are exact log times, whenever somebody happened to look: the extra time ends so long after the end of C_i's
guard time, and C_j came in time if its own guard time ended by then. So C_j's time may only be called over on an answer
from after it, or while C_j is silent and would not be elected anyway. The holder must have answered by then as well: a
holder that does not answer isn't elected either, nobody is cancelled for its sake, and whoever is scheduled meanwhile
takes over, however late.

Extra times that begin anew after such a switch as the text has it never end later than before: C_k took over in time,
g_k <= g_i + (p_k-p_i)*s, hence g_k + (p_j-p_k)*s <= g_i + (p_j-p_i)*s.
"""

from __future__ import annotations

from services.federator.records import Cluster, Clusters, Job, Place, is_seen
from services.federator.rules import guard


def ends_ns(job: Job, holder: Place, place: Place) -> int:
    """When the extra time of a place of higher priority ends."""
    return job.held_ns + (place.priority_milli - holder.priority_milli) * job.scale_ns // 1_000


def is_in_time(job: Job, holder: Place, place: Place, clusters: Clusters) -> bool:
    """Whether one that is scheduled takes over from the holder."""
    if place.priority_milli <= holder.priority_milli:
        return False
    if not is_seen(holder, clusters[holder.account]):
        return True
    return guard.ended_ns(job, place, clusters[place.account]) <= ends_ns(job, holder, place)


def is_over(job: Job, holder: Place, place: Place, clusters: Clusters, now_ns: int) -> bool:
    """Whether its extra time is over, and everything that could say otherwise was heard."""
    end_ns = ends_ns(job, holder, place)
    return now_ns >= end_ns and _was_heard(holder, clusters, end_ns) and _is_late(place, clusters, end_ns)


def is_due(job: Job, place: Place, cluster: Cluster, asked_ns: int) -> bool:
    """Whether an answer to a question of `asked_ns` would be this cluster's first from after the end of an extra time."""
    holder = job.places.get(job.holder)
    if holder is None or not cluster.answers:
        return False
    about = job.contenders() if place is holder else [place]
    return any(
        other.priority_milli > holder.priority_milli and cluster.seen_ns < ends_ns(job, holder, other) <= asked_ns
        for other in about
    )


def _was_heard(holder: Place, clusters: Clusters, end_ns: int) -> bool:
    cluster = clusters[holder.account]
    return is_seen(holder, cluster) and cluster.seen_ns >= end_ns


def _is_late(place: Place, clusters: Clusters, end_ns: int) -> bool:
    cluster = clusters[place.account]
    return not cluster.answers or cluster.seen_ns >= end_ns
