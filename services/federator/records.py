"""The nouns of the federation: a job, its place on each of its clusters, and what is known of a cluster.

Mutable, but only the fold changes them (`services.federator.state`). Times are log time in nanoseconds, without jumps.
"""

from __future__ import annotations

import msgspec

from services.federator.backends import RUNNING, UNKNOWN

NS_PER_MS = 1_000_000

# What is known of a job's submission to one cluster, and meant with it.
SUBMITTING = "submitting"
"""Intended; there is no definite answer yet."""
NAMELESS = "nameless"
"""The name was somebody else's."""
SUBMITTED = "submitted"
"""The cluster has it, and it did not end."""
ABANDONED = "abandoned"
"""Not wanted any more, and there is no definite answer: it may still come to be."""
STOPPING = "stopping"
"""Not wanted any more, and the cluster has it."""
ENDED = "ended"
"""Seen to have ended, or it can never come to be."""

CONTENDING = frozenset((SUBMITTING, NAMELESS, SUBMITTED))
"""In the race, or its winner."""

TRANSITIONS: dict[tuple[str, str], str] = {
    (SUBMITTING, "accepted"): SUBMITTED,
    (SUBMITTING, "refused"): ENDED,
    (SUBMITTING, "name taken"): NAMELESS,
    (SUBMITTING, "stop"): ABANDONED,
    (NAMELESS, "submit"): SUBMITTING,
    (NAMELESS, "stop"): ENDED,
    (SUBMITTED, "stop"): STOPPING,
    (SUBMITTED, "end seen"): ENDED,
    (ABANDONED, "accepted"): STOPPING,
    (ABANDONED, "refused"): ENDED,
    (ABANDONED, "name taken"): ENDED,
    (ABANDONED, "withdrawn"): ENDED,
    (STOPPING, "end seen"): ENDED,
    (ENDED, "back"): STOPPING,
    **{(phase, "given up"): ENDED for phase in (SUBMITTING, NAMELESS, SUBMITTED, ABANDONED, STOPPING)},
}
"""The life of a place: (phase, what happened) → phase. What is not here does not happen, or changes nothing."""

# The life of a job.
RACING, PLACED, UNPLACED, SETTLED = "racing", "placed", "unplaced", "settled"


NOTHING = ("", "")
Key = tuple[str, str]
"""A place: a job's UID and an alias."""


class Place(msgspec.Struct, gc=False):
    """A job on one of its clusters."""

    cluster: str
    """The alias."""
    account: str
    gpu_type: str
    priority_milli: int
    name: str
    number: int = 1
    """Which of its names."""
    phase: str = SUBMITTING
    doubtful: bool = False
    """Whether an attempt to submit may have succeeded, or may still, for all that is known."""
    uid: str = ""
    held: bool = False
    """Whether nothing of it runs before it is released."""
    remains: tuple[str, str] = NOTHING
    """Name and UID of what is to be cleared there; empty: nothing."""
    sole: bool = False
    """Whether nothing can ever run there but what was accepted: no other attempt may land, or what lands is held."""
    run: str = ""
    """The run's state as it was last seen; empty while it was not."""
    attempt: int = 0
    started_ns: int = -1
    """When this attempt began to run, for all that is known; -1 while it does not."""
    earned_ns: int = 0
    """Guard time of this attempt up to `since_ns`."""
    since_ns: int = -1
    """The cluster's `covered_ns` from which on it earns; -1 while it does not."""
    stopped_for: str = ""
    """Why it is to be stopped."""
    given_up: str = ""
    """Who declared that nothing of it is there."""
    refusal: str = ""
    """The code with which the cluster last refused something."""

    @property
    def contends(self) -> bool:
        return self.phase in CONTENDING

    @property
    def is_there(self) -> bool:
        """Whether the cluster has it, for all that is known."""
        return self.phase in (SUBMITTED, STOPPING)

    @property
    def may_be_ours(self) -> bool:
        """Whether what has its name on the cluster may be of an earlier attempt, for all that is known. Each takeover
        makes doubtful what was tried; not a further name, of which a log that was set back has lost that it was."""
        return self.doubtful or self.number > 1

    @property
    def runs(self) -> bool:
        return self.phase == SUBMITTED and self.run == RUNNING


class Cluster(msgspec.Struct, gc=False):
    """What the federator knows of a cluster, as one user sees it."""

    account: str
    """``user@uri``; an alias is a job's own word."""
    seen_ns: int = -1
    """When it was asked for its last answer that is written down; -1 while this federator had none."""
    silent: str = ""
    """Why it does not answer."""
    covered_ns: int = 0
    """For how long it answered, altogether: the clock of all guard times on it."""

    @property
    def answers(self) -> bool:
        return self.seen_ns >= 0 and not self.silent


class Job(msgspec.Struct, gc=False):
    """A federated job. Its places are in the order in which its user wrote the clusters down."""

    uid: str
    name: str
    digest: str
    guard_ns: int
    scale_ns: int
    """Extra time for each point of priority."""
    places: dict[str, Place]
    phase: str = RACING
    holder: str = ""
    """The cluster that was scheduled, while the race goes on."""
    held_ns: int = 0
    """When the holder's guard time was over."""
    winner: str = ""
    cancelled: bool = False

    @property
    def kept(self) -> str:
        """The cluster on which it is kept: the winner, unless its user cancelled the job (R15, R19); empty: none."""
        return "" if self.cancelled else self.winner

    def contenders(self) -> list[Place]:
        return [place for place in self.places.values() if place.contends]


class Stray(msgspec.Struct, frozen=True, gc=False):
    """A late submission of a job that is forgotten: held, and to be cleared."""

    job: str
    cluster: str
    """The alias that the job had for it."""
    name: str


Clusters = dict[str, Cluster]
"""By account."""


def guard_ns(place: Place, cluster: Cluster) -> int:
    """The guard time that its run has earned."""
    return place.earned_ns + (cluster.covered_ns - place.since_ns if place.since_ns >= 0 else 0)


def origin_of(uid: str) -> str:
    """The part of a job's UID that all jobs of one log share, and no other log's; empty in UIDs of older logs."""
    return uid.rpartition(".")[0]


def account_of(user: str, uri: str) -> str:
    return f"{user}@{uri.rstrip('/')}"


def is_seen(place: Place, cluster: Cluster) -> bool:
    """Whether the place's cluster answers, and told the state of the run."""
    return cluster.answers and place.run not in ("", UNKNOWN)
