"""What the federator says next: a function of its state alone.

`decide` gives the rules' verdict (`services.federator.rules`) on each job with a decision due, and forgets jobs that
are over. The functions after it give the events that an effect's outcome adds to the log; `federated`, `cancelled` and
`given_up` give those of a request.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from events import (
    Event,
    JobCancelled,
    JobFederated,
    NameTaken,
    RunGivenUp,
    StopRefused,
    SubmissionAccepted,
    SubmissionDoubted,
    SubmissionHeld,
    SubmissionRefused,
    SubmissionWithdrawn,
)
from events.federation import Contender
from services.federator.backends import (
    Absent,
    Accepted,
    Described,
    InDoubt,
    Limited,
    NotSent,
    Owner,
    Refused,
    Stopped,
    Submitted,
)
from services.federator.mcc import InvalidJob, MultiClusterJob
from services.federator.records import ABANDONED, ENDED, RACING, SETTLED, STOPPING, SUBMITTED, Job, Place
from services.federator.rules import forgotten, gone, returned, verdict
from services.federator.specialize import name_on
from services.federator.state import State

JOBS = 200
"""Jobs of one commit."""
MOST_ALIAS_BYTES = 255
"""Of an alias as the log writes it: so many jobs of a hundred clusters must fit into one commit, whatever is said."""


class KeptUp(Exception):
    """What cannot be given up, and why."""


def decide(state: State) -> list[Event]:
    """The events to append now, of at most `JOBS` jobs."""
    said: list[Event] = []
    for uid in islice(state.actionable, JOBS):
        said += verdict(state.jobs[uid], state.clusters, state.now_ns)
    return [*said, *forgotten.forgotten(state.over)]


# ---------------------------------------------------------------------------------------------------------- requests


def uid_of(state: State, drawn: str) -> str:
    """The UID of a new job: ``<origin>.<random>``. `drawn`: 32 random digits, new for each request; the log's first job
    makes its first 16 the origin of all."""
    return f"{state.origin or drawn[:16]}.{drawn[16:]}"


def problems(state: State, job: MultiClusterJob) -> list[str]:
    """Why a job that can be read is not accepted."""
    found = job.token_problems()
    found += [
        f"clusters.{choice.alias}: expected an alias of at most {MOST_ALIAS_BYTES} bytes, as JSON has it"
        for choice in job.clusters
        if len(msgspec.json.encode(choice.alias)) - 2 > MOST_ALIAS_BYTES
    ]
    found += [
        f"clusters.{choice.alias!a}: expected an alias and a GPU type without control characters: people read them"
        for choice in job.clusters
        if not (choice.alias + choice.gpu_type).isprintable()
    ]
    if job.name in state.names:
        found.append(f"name: there was a job {job.name!r} already, and it is not forgotten (R22)")
    return found


def federated(state: State, job: MultiClusterJob, uid: str, digest: str) -> JobFederated:
    """The event that accepts a job. `uid` is new (`uid_of`); `digest` names its body. Raises InvalidJob."""
    if wrong := problems(state, job):
        raise InvalidJob(wrong)
    contenders = [
        Contender(
            cluster=choice.alias,
            uri=choice.uri,
            user=choice.user,
            gpu_type=choice.gpu_type,
            priority_milli=choice.priority_milli,
            name=name_on(job.name, choice.alias),
        )
        for choice in job.clusters
    ]
    return JobFederated(
        job=uid,
        name=job.name,
        digest=digest,
        guard_ms=job.guard_ms,
        scale_ms=job.scale_ms,
        clusters=tuple(contenders),
    )


def cancelled(job: Job) -> JobCancelled | None:
    """None when there is nothing left to cancel."""
    over = job.cancelled or all(place.phase == ENDED for place in job.places.values())
    return None if over else JobCancelled(job=job.uid)


def given_up(state: State, job: Job, place: Place, by: str, reason: str) -> RunGivenUp:
    """R21. Raises KeptUp."""
    if why := gone.kept_up(place, state.clusters[place.account]):
        raise KeptUp(why)
    return RunGivenUp(job=job.uid, cluster=place.cluster, by=by, reason=reason)


# ---------------------------------------------------------------------------------------------------------- outcomes


def submission_answered(job: Job, place: Place, answer: Submitted, tried: bool) -> Event | None:
    """What an attempt to submit adds to the log; None when it is to be repeated, or (`Taken`) described first.

    `tried`: whether any attempt of this process may have come to something.
    """
    at = {"job": job.uid, "cluster": place.cluster}
    match answer:
        case Accepted():
            return _accepted(answer.held)(**at, uid=answer.uid, adopted=False)
        case Refused() if answer.of_content or not place.doubtful or answer.code != place.refusal:
            return SubmissionRefused(**at, code=answer.code, message=answer.message, of_content=answer.of_content)
        case InDoubt() if not place.doubtful:
            return SubmissionDoubted(**at, reason=answer.reason)
        case NotSent() | Limited() if is_withdrawn(place, tried):
            return SubmissionWithdrawn(**at)
    return None


def name_described(job: Job, place: Place, owner: Owner, described: Described, holds: bool = False) -> Event:
    """R16, R17: whether a job that has our name on the cluster is our own earlier submission or somebody else's. `holds`:
    whether the cluster holds submissions. There one that runs was released by what the log has lost: it is let go once
    more, and no other attempt runs (R20)."""
    if described.owner == owner:
        run = described.run
        return _accepted(run.held or holds)(job=job.uid, cluster=place.cluster, uid=run.uid, adopted=True)
    return NameTaken(job=job.uid, cluster=place.cluster)


def came_back(job: Job, place: Place, owner: Owner, described: Described) -> SubmissionAccepted | None:
    """R18: a run that had ended runs again, as its cluster was restored, and is ours. None when it is not, or is meant to
    run."""
    if described.owner != owner or not (returned.is_unwanted(job, place) and returned.runs_again(place, described.run)):
        return None
    return SubmissionAccepted(job=job.uid, cluster=place.cluster, uid=place.uid, adopted=True)


def released_without_body(place: Place, described: Described | Absent) -> Accepted | None:
    """A held run whose body is gone may have been let go before that, by what the log has lost: then it is not held any
    more. None when nothing says so."""
    if isinstance(described, Absent) or described.run.held or described.run.uid != place.uid:
        return None
    return Accepted(uid=place.uid)


def needs_body(job: Job) -> bool:
    """Whether anything may still be submitted or released of it: once it is settled, its winner alone, until that has
    ended. Where a cluster is restored to before a release, what it holds again is released again."""
    return job.phase != SETTLED or (job.kept != "" and job.places[job.kept].phase != ENDED)


def release_refused(job: Job, place: Place, answer: Refused) -> SubmissionRefused | None:
    """The cluster refuses to release a held run: the run is out of the race, and what exists of it is to be stopped. None
    when it is to be stopped already, and when an earlier release took effect all the same: it runs, or has won (R15)."""
    if place.phase != SUBMITTED or place.runs or job.phase != RACING:
        return None
    at = {"job": job.uid, "cluster": place.cluster}
    return SubmissionRefused(**at, code=answer.code, message=answer.message, of_content=answer.of_content)


def _accepted(held: bool) -> type[SubmissionAccepted | SubmissionHeld]:
    return SubmissionHeld if held else SubmissionAccepted


def is_withdrawn(place: Place, tried: bool) -> bool:
    """Whether an unwanted submission is over without asking the cluster: no attempt can have reached it."""
    return place.phase == ABANDONED and not place.may_be_ours and not tried


def stop_answered(job: Job, place: Place, answer: Stopped) -> Event | None:
    """What an attempt to stop adds to the log: a new refusal, unless the run was seen to have ended meanwhile. That it
    succeeded shows in the next list."""
    if isinstance(answer, Refused) and answer.code != place.refusal and place.phase == STOPPING:
        return StopRefused(job=job.uid, cluster=place.cluster, code=answer.code, message=answer.message)
    return None
