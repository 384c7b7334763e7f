"""A job on one cluster: submissions and stops, intended and answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from services.federator.records import (
    ABANDONED,
    ENDED,
    PLACED,
    SETTLED,
    STOPPING,
    SUBMITTED,
    SUBMITTING,
    UNPLACED,
    Job,
    Place,
)
from services.federator.rules import returned

if TYPE_CHECKING:
    from services.federator.state import State

NOT_RELEASED = "NotReleased"
"""Why what is held is to be stopped, other than by a rule's `StopIntended`."""
RETURNED = "Returned"
"""Why what had ended is to be stopped, where nobody had meant to stop it before."""
Step = (
    ev.SubmissionIntended | ev.SubmissionAccepted | ev.SubmissionHeld | ev.NameTaken | ev.StopIntended | ev.RunGivenUp
)


def _moved(state: State, event: Step, what: str) -> Place | None:
    """The place that the event is about, one step further in its life; else the event is ignored."""
    place = state.place(event.job, event.cluster)
    if place is not None and state.move(event.job, place, what):
        return place
    state.ignore(event)
    return None


def intended(state: State, event: ev.SubmissionIntended) -> None:
    place = _moved(state, event, "submit")
    if place is None:
        return
    place.name, place.number, place.doubtful = event.name, event.number, False


def submitted(state: State, event: ev.SubmissionAccepted) -> None:
    job = state.jobs.get(event.job)
    place = state.place(event.job, event.cluster)
    if job is not None and place is not None and place.phase == ENDED:
        came_back(state, job, place, event)
    else:
        accepted(state, event)


def came_back(state: State, job: Job, place: Place, event: ev.SubmissionAccepted) -> None:
    """R18: what had ended is there again, as its cluster was restored. It is to be stopped, and the job settles anew."""
    if place.uid != event.uid or not returned.is_unwanted(job, place):
        state.ignore(event)
        return
    state.move(job.uid, place, "back")
    place.run, place.attempt, place.stopped_for = "", 0, place.stopped_for or RETURNED
    if job.phase == SETTLED:
        job.phase = PLACED if job.kept else UNPLACED


def accepted(state: State, event: ev.SubmissionAccepted | ev.SubmissionHeld) -> None:
    place = _moved(state, event, "accepted")
    if place is None:
        return
    place.held = isinstance(event, ev.SubmissionHeld)
    place.sole = place.held or not (place.doubtful or event.adopted)
    place.uid, place.doubtful, place.refusal = event.uid, False, ""
    state.index(event.job, place)


def held(state: State, event: ev.SubmissionHeld) -> None:
    """Of a run that was released: its cluster holds it again, as it was restored to before that."""
    place = state.place(event.job, event.cluster)
    if place is None or place.phase != SUBMITTED or place.uid != event.uid or place.held:
        accepted(state, event)
        return
    place.held = True
    state.index(event.job, place)


def released(state: State, event: ev.RunReleased) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or not place.held:
        state.ignore(event)
        return
    place.held = False
    state.index(event.job, place)


def doubted(state: State, event: ev.SubmissionDoubted) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or place.phase not in (SUBMITTING, ABANDONED):
        state.ignore(event)
        return
    place.doubtful = True


def refused(state: State, event: ev.SubmissionRefused) -> None:
    """R16: a refusal says nothing of an earlier attempt in doubt, unless that must have been refused as well. What is
    held already, and will not be let go, is stopped."""
    place = state.place(event.job, event.cluster)
    if place is not None and place.held and state.move(event.job, place, "stop"):
        place.refusal, place.stopped_for = event.code, NOT_RELEASED
        return
    if place is None or place.phase not in (SUBMITTING, ABANDONED):
        state.ignore(event)
        return
    place.refusal = event.code
    if event.of_content or not place.doubtful:
        state.move(event.job, place, "refused")


def name_taken(state: State, event: ev.NameTaken) -> None:
    place = _moved(state, event, "name taken")
    if place is None:
        return
    place.doubtful = False


def withdrawn(state: State, event: ev.SubmissionWithdrawn) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or place.doubtful or not state.move(event.job, place, "withdrawn"):
        state.ignore(event)


def stop_intended(state: State, event: ev.StopIntended) -> None:
    place = _moved(state, event, "stop")
    if place is None:
        return
    place.stopped_for = event.reason


def stop_refused(state: State, event: ev.StopRefused) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or place.phase != STOPPING:
        state.ignore(event)
        return
    place.refusal = event.code


def given_up(state: State, event: ev.RunGivenUp) -> None:
    place = _moved(state, event, "given up")
    if place is None:
        return
    place.given_up, place.doubtful = event.by, False
    loses_hold(state.jobs[event.job], place)


def loses_hold(job: Job, place: Place) -> None:
    """R12."""
    if job.holder == place.cluster:
        job.holder, job.held_ns = "", 0
