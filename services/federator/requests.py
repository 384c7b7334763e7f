"""What users ask of the federator, and what it answers: the same for the command line and for programs.

    submit   {"document": "<YAML>"}      {"job": UID, "name": …}; 400 with all that is wrong. `MOST_DOCUMENT` at most
    status   {"name": NAME}              a job, as `shown`; 404
    list     {"offset": 0}               jobs in the order of their acceptance, as `listed`; `PAGE` at most. What is
                                         forgotten meanwhile moves all behind it up
    cancel   {"name": NAME}              {"cancelled": whether there was something left to cancel}; 404
    explain  {"name": NAME, "offset": 0} its story from the log, lines as `explain.Line` has them; `PAGE` at most; 404.
                                         Pages behind the first go on with what was told then
    give-up  {"name": NAME, "cluster": ALIAS, "by": WHO, "reason": WHY}
                                         {"given_up": true}; 404; 409 with why it cannot be (R21). Operators' alone

A token is accepted in none of them.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import msgspec

from services.federator.records import ENDED, Job, Place
from services.federator.state import State

PAGE = 1_000
"""Jobs of one answer, or lines of a story: far below what a message may be."""


MOST_DOCUMENT = 256 * 1024
"""Characters of a job: more than any cluster takes, and no more than is read in a moment, as everybody waits for it."""


class Submit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    document: Annotated[str, msgspec.Meta(max_length=MOST_DOCUMENT)]


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    offset: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] = 0
    """How many were listed before."""


class Explained(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    offset: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] = 0
    """How many lines were told before."""


Word = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class GiveUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    cluster: str
    """The alias."""
    by: Word
    reason: Word


def by_name(state: State, name: str) -> Job | None:
    uid = state.names.get(name)
    return None if uid is None else state.jobs[uid]


def listed(state: State, offset: int) -> list[dict[str, Any]]:
    """Jobs, each with the number of its clusters; fewer than `PAGE`: there are no more."""
    return [_head(job) | {"clusters": len(job.places)} for job in islice(state.jobs.values(), offset, offset + PAGE)]


def shown(state: State, job: Job) -> dict[str, Any]:
    """A job as users see it."""
    return _head(job) | {"clusters": [_place(state, place) for place in job.places.values()]}


def _head(job: Job) -> dict[str, Any]:
    return {
        "name": job.name,
        "job": job.uid,
        "phase": job.phase,
        "cancelled": job.cancelled,
        "cluster": job.winner or job.holder,
    }


def _place(state: State, place: Place) -> dict[str, Any]:
    return {
        "cluster": place.cluster,
        "priority": place.priority_milli / 1000,
        "name": place.name,
        "phase": place.phase,
        "run": place.run,
        "in_doubt": place.doubtful and place.phase != ENDED,
        "stopped_for": place.stopped_for,
        "given_up": place.given_up,
        "refusal": place.refusal,
        "silent": "" if place.phase == ENDED else state.clusters[place.account].silent,
    }
