"""What clusters answered, and that they did not: guard time goes on, a run is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from events.federation import RunSeen
from services.federator import records
from services.federator.backends import RUNNING, TERMINAL, UNKNOWN
from services.federator.records import Cluster
from services.federator.transitions import places

if TYPE_CHECKING:
    from services.federator.state import State


def observed(state: State, event: ev.ClusterObserved) -> None:
    cluster = state.clusters.get(event.account)
    if cluster is None:
        state.ignore(event)
        return
    asked_ns = min(event.asked_ns, state.now_ns)
    _answered(cluster, asked_ns)
    cluster.seen_ns, cluster.silent = max(cluster.seen_ns, asked_ns), ""
    for run in event.runs:
        if (run.job, run.cluster) in state.open[cluster.account]:
            _run_seen(state, cluster, run)
    _time_passed(state, cluster)


def silent(state: State, event: ev.ClusterSilent) -> None:
    cluster = state.clusters.get(event.account)
    if cluster is None:
        state.ignore(event)
        return
    _answered(cluster, min(event.asked_ns, state.now_ns))
    cluster.silent = event.reason
    _time_passed(state, cluster)


def _time_passed(state: State, cluster: Cluster) -> None:
    """For those of which an answer without news may decide something."""
    for uid, _ in sorted(state.timed[cluster.account]):
        state.touch(uid)


def _answered(cluster: Cluster, asked_ns: int) -> None:
    """R2: it answered all the time up to then."""
    if cluster.answers:
        cluster.covered_ns += max(0, asked_ns - cluster.seen_ns)


def _run_seen(state: State, cluster: Cluster, seen: RunSeen) -> None:
    place = state.jobs[seen.job].places[seen.cluster]
    if not place.is_there:
        return
    same_attempt = place.started_ns >= 0 and place.attempt == seen.attempt
    if seen.state == UNKNOWN:  # like silence
        place.earned_ns, place.since_ns = records.guard_ns(place, cluster), -1
    elif seen.state == RUNNING and same_attempt:
        if place.since_ns < 0:
            place.earned_ns += cluster.seen_ns - state.now_ns
            place.since_ns = cluster.covered_ns
    else:
        place.earned_ns, place.since_ns, place.started_ns = 0, -1, -1
        if seen.state == RUNNING:  # from the answer on, not from the question
            place.earned_ns = cluster.seen_ns - state.now_ns
            place.since_ns, place.started_ns = cluster.covered_ns, seen.started_ns
        places.loses_hold(state.jobs[seen.job], place)
    place.run = seen.state
    if seen.state != UNKNOWN:
        place.attempt = seen.attempt
    if seen.state in TERMINAL:
        state.move(seen.job, place, "end seen")
    state.touch(seen.job)
