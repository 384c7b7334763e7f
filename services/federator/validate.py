"""What must hold of any state of a federation, after every commit.

Raises `Violated` with the first sentence that does not hold.
"""

from __future__ import annotations

from services.federator.records import (
    ABANDONED,
    ENDED,
    NOTHING,
    PLACED,
    RACING,
    SETTLED,
    STOPPING,
    SUBMITTED,
    SUBMITTING,
    Job,
)
from services.federator.rules import verdict
from services.federator.rules.forgotten import is_over
from services.federator.state import State, is_timed
from services.state.form import SNAPSHOTS_KEPT
from services.state.validate import require


def validate_state(state: State) -> None:
    """Check the derived tables against the jobs, and the jobs against themselves."""
    for uid, job in state.jobs.items():
        require(state.names.get(job.name) == uid, f"the name {job.name} is not its job's")
        _job(job)
        said = bool(verdict(job, state.clusters, state.now_ns))
        require((uid in state.actionable) == said, f"something is to be said of {job.name}, or not, otherwise")
    require(len(state.names) == len(state.jobs), "a name is nobody's")
    over = {uid for uid, job in state.jobs.items() if is_over(job, state.origin)}
    require(state.over.keys() == over, "other jobs are thought to be over than are")
    _places_are_listed(state)
    forgotten = all(state.is_forgotten(stray.job) for there in state.strays.values() for stray in there.values())
    require(forgotten, "what came late is of a job that is known")
    require(all(state.strays.values()), "a cluster is listed with nothing that came late")
    require(len(state.snapshots) <= SNAPSHOTS_KEPT, "more snapshots are remembered than a purge asks for")
    require(all(sequence < state.sequence for sequence in state.snapshots), "a snapshot is of what is not there yet")


def _job(job: Job) -> None:
    for one in (job.winner, job.holder):
        require(not one or one in job.places, f"{job.name} is on {one}, which is none of its clusters")
    require(not job.holder or job.phase == RACING, f"{job.name} is held, and decided")
    require(job.phase != PLACED or bool(job.winner), f"{job.name} is placed, and on no cluster")
    for place in job.places.values():
        unwanted = place.phase in (ABANDONED, STOPPING)
        require(not unwanted or bool(place.stopped_for), f"{job.name} on {place.cluster}: {place.phase} for no reason")
        left = job.phase == SETTLED and place.cluster != job.kept and place.phase != ENDED
        require(not left, f"{job.name} is settled, and {place.phase} on {place.cluster}")


def _places_are_listed(state: State) -> None:
    placed = [(job.uid, place) for job in state.jobs.values() for place in job.places.values()]
    for listed, phases in ((state.submitting, (SUBMITTING, ABANDONED)), (state.stopping, (STOPPING,))):
        found = {(uid, place.cluster) for uid, place in placed if place.phase in phases}
        require(listed.keys() == found, f"other places are listed than are {' or '.join(phases)}")
    releasing = {(uid, place.cluster) for uid, place in placed if place.phase == SUBMITTED and place.held}
    require(state.releasing.keys() == releasing, "other places are to be released than are held")
    clearing = {(uid, place.cluster) for uid, place in placed if place.remains != NOTHING}
    require(state.clearing.keys() == clearing, "other places are to be cleared than have something left")
    for account in state.clusters:
        keys = {(uid, place.cluster) for uid, place in placed if place.account == account and place.phase != ENDED}
        require(state.open.get(account, {}).keys() == keys, f"other places are open on {account}")
        timed = {key for key in keys if is_timed(state.jobs[key[0]], state.jobs[key[0]].places[key[1]])}
        require(state.timed.get(account, {}).keys() == timed, f"answers of {account} are thought to matter to others")
    require(state.open.keys() == state.clusters.keys(), "a cluster is not known")
