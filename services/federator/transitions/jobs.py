"""A job: accepted, cancelled, decided, settled, forgotten; and what is left of it on clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from services.federator.records import (
    NOTHING,
    NS_PER_MS,
    PLACED,
    RACING,
    SETTLED,
    UNPLACED,
    Cluster,
    Job,
    Place,
    account_of,
    origin_of,
)

if TYPE_CHECKING:
    from services.federator.state import State


def federated(state: State, event: ev.JobFederated) -> None:
    """A job, and its place on each cluster. One whose UID or name is known already is ignored."""
    if event.job in state.jobs or event.name in state.names:
        state.ignore(event)
        return
    places = {
        contender.cluster: Place(
            cluster=contender.cluster,
            account=account_of(contender.user, contender.uri),
            gpu_type=contender.gpu_type,
            priority_milli=contender.priority_milli,
            name=contender.name,
        )
        for contender in event.clusters
    }
    state.jobs[event.job] = Job(
        uid=event.job,
        name=event.name,
        digest=event.digest,
        guard_ns=event.guard_ms * NS_PER_MS,
        scale_ns=event.scale_ms * NS_PER_MS,
        places=places,
    )
    state.names[event.name] = event.job
    state.origin = state.origin or origin_of(event.job)
    for place in places.values():
        state.clusters.setdefault(place.account, Cluster(place.account))
        state.index(event.job, place)
    state.touch(event.job)


def cancelled(state: State, event: ev.JobCancelled) -> None:
    job = state.jobs.get(event.job)
    if job is None or job.cancelled:
        state.ignore(event)
        return
    job.cancelled = True
    job.phase = UNPLACED
    job.holder = ""
    state.touch(job.uid)


def _racing(state: State, event: ev.JobScheduled | ev.JobPlaced | ev.JobUnplaced) -> Job | None:
    """The job that the event is about, while it races; else the event is ignored."""
    job = state.jobs.get(event.job)
    if job is not None and job.phase == RACING:
        return job
    state.ignore(event)
    return None


def scheduled(state: State, event: ev.JobScheduled) -> None:
    job = _racing(state, event)
    if job is None:
        return
    job.holder = event.cluster
    job.held_ns = event.guard_ended_ns
    state.touch(job.uid)


def placed(state: State, event: ev.JobPlaced) -> None:
    job = _racing(state, event)
    if job is None:
        return
    job.phase, job.winner, job.holder = PLACED, event.cluster, ""
    state.touch(job.uid)


def unplaced(state: State, event: ev.JobUnplaced) -> None:
    job = _racing(state, event)
    if job is None:
        return
    job.phase = UNPLACED
    state.touch(job.uid)


def settled(state: State, event: ev.JobSettled) -> None:
    job = state.jobs.get(event.job)
    if job is None:
        state.ignore(event)
        return
    job.phase = SETTLED
    for alias, place in job.places.items():
        if place.uid and alias != job.kept and not place.given_up:
            _leave(state, job.uid, place, (place.name, place.uid))
    state.touch(job.uid)


def forgotten(state: State, event: ev.JobForgotten) -> None:
    """It is nowhere but among the jobs: nothing of it is open, intended, or to be said."""
    if event.job not in state.over:
        state.ignore(event)
        return
    del state.over[event.job], state.names[state.jobs.pop(event.job).name]


def remains_found(state: State, event: ev.RemainsFound) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or place.remains != NOTHING:
        state.ignore(event)
        return
    _leave(state, event.job, place, (event.name, event.uid))


def remains_cleared(state: State, event: ev.RemainsCleared) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or place.remains[1] != event.uid or not event.uid:
        state.ignore(event)
        return
    _leave(state, event.job, place, NOTHING)


def _leave(state: State, uid: str, place: Place, remains: tuple[str, str]) -> None:
    place.remains = remains
    state.index(uid, place)
    state.reckon(state.jobs[uid])
