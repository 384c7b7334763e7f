"""The federation's log, ``muster-federation``: what the federator decided, intended and saw.

A job's life, when all goes well:

    JobFederated                     accepted, and the intent to submit it to every cluster
    SubmissionAccepted ×n            each cluster took it (or SubmissionHeld, RunReleased: it did, and lets it run)
    ClusterObserved …                one of them runs it
    JobScheduled, StopIntended ×n    it ran for its guard time: those of lower priority are to be stopped
    JobPlaced, StopIntended ×n       nobody of higher priority came in time: decided, and all others are to be stopped
    ClusterObserved …                they were seen stopped
    JobSettled
    JobForgotten                     much later: it is over, and so are many others since

Log time is the federator's own, moved by its `Ticked` events; an observation stands behind the tick of its moment. A job
is named by its UID, and a cluster by the alias that it has in the job. No event has a token or a job's body; `digest`
says which body it was.
"""

from __future__ import annotations

from events.objects import Value


class FederationEvent(Value, frozen=True, tag_field="type", tag=True):
    """Written by the federator."""


class FederatorTaken(FederationEvent, frozen=True):
    """A process became the federator. What was intended and not settled may have been tried by the one before."""

    holder: str


class Contender(Value, frozen=True):
    """A cluster that a job may run on."""

    cluster: str
    """The alias."""
    uri: str
    user: str
    gpu_type: str
    priority_milli: int
    """0 to 100,000."""
    name: str
    """The job's name there."""


class JobFederated(FederationEvent, frozen=True):
    """A multi-cluster job was accepted. It is the intent to submit it to each of its clusters."""

    job: str
    """Its UID: made when it was accepted, and part of the marker in each of its submissions. ``<origin>.<random>``: the
    origin is the same in all UIDs of a log, and of no other; before there were origins it had no dot."""
    name: str
    digest: str
    """Names the body of the multi-cluster job, which lies encrypted elsewhere (docs/federation.md)."""
    guard_ms: int
    scale_ms: int
    """Extra time for each point of priority."""
    clusters: tuple[Contender, ...]


class JobCancelled(FederationEvent, frozen=True):
    """Its user wants none of its runs any more, not even the one that it was placed on."""

    job: str


class SubmissionIntended(FederationEvent, frozen=True):
    """The name before was somebody else's: it is to be submitted under this one."""

    job: str
    cluster: str
    name: str
    number: int
    """Which name this is, from 2."""


class SubmissionAccepted(FederationEvent, frozen=True):
    """Outcome: the cluster has it under this name. Of what had ended: it runs again, as the cluster was restored to
    before its end, and is to be stopped."""

    job: str
    cluster: str
    uid: str
    """What identifies it there besides its name; empty where the name does."""
    adopted: bool
    """Whether it was found there, with our marker: after an attempt whose answer was lost, or as it runs again."""


class SubmissionHeld(FederationEvent, frozen=True):
    """Outcome: the cluster has it under this name, and nothing of it runs before it is released. It is the intent to
    release it, unless it is not wanted any more. Of what was released already: the cluster was restored to before."""

    job: str
    cluster: str
    uid: str
    """What identifies it there."""
    adopted: bool
    """As in `SubmissionAccepted`."""


class RunReleased(FederationEvent, frozen=True):
    """Outcome: what was held may run, or is not there any more; an answer said so, or a list."""

    job: str
    cluster: str


class SubmissionDoubted(FederationEvent, frozen=True):
    """Outcome: an attempt ended without an answer. It may have succeeded, or still will."""

    job: str
    cluster: str
    reason: str


class SubmissionRefused(FederationEvent, frozen=True):
    """Outcome: the cluster said no. That settles it, unless an earlier attempt is in doubt and it is not about the
    content. Of what is held: it will not be released, and is to be stopped."""

    job: str
    cluster: str
    code: str
    message: str
    of_content: bool


class NameTaken(FederationEvent, frozen=True):
    """Outcome: a job of this name is there, and it is not ours."""

    job: str
    cluster: str


class SubmissionWithdrawn(FederationEvent, frozen=True):
    """Outcome: it is not wanted any more, and no attempt of this process can have reached the cluster."""

    job: str
    cluster: str


class RunSeen(Value, frozen=True):
    """A run in another state, or attempt, than before."""

    job: str
    cluster: str
    state: str
    """waiting, running, stopping, succeeded, failed, stopped, gone, unknown."""
    attempt: int
    started_ns: int
    """Log time at which the attempt began to run, as near as it is known; 0 where it does not run."""


class ClusterObserved(FederationEvent, frozen=True):
    """Outcome: a cluster answered. Written when something changed, or when a guard or extra time is over by then: between
    two of these without `ClusterSilent` every answer was the same."""

    account: str
    """``user@uri``: jobs may call one cluster by different aliases."""
    asked_ns: int
    """Log time at which it was asked: the answer is from then or later."""
    runs: tuple[RunSeen, ...]


class ClusterSilent(FederationEvent, frozen=True):
    """Outcome: a cluster that answered so far does not answer."""

    account: str
    reason: str
    asked_ns: int
    """Log time at which it was asked what it answered last."""


class JobScheduled(FederationEvent, frozen=True):
    """A cluster ran the job for its guard time: it holds it. Those of higher priority have their extra time from here."""

    job: str
    cluster: str
    guard_ended_ns: int
    """Log time at which the guard time was over."""


class JobPlaced(FederationEvent, frozen=True):
    """Decided: the job is this cluster's, for good."""

    job: str
    cluster: str
    reason: str
    """FirstAvailable, Succeeded."""


class JobUnplaced(FederationEvent, frozen=True):
    """Decided: no cluster is left that could run it."""

    job: str


class StopIntended(FederationEvent, frozen=True):
    """What the job has on this cluster, or may still come to have there, is to be stopped."""

    job: str
    cluster: str
    reason: str
    """LowerPriority, NotEarliest, ExtraTimeOver, OtherSucceeded, NoName, Cancelled."""


class StopRefused(FederationEvent, frozen=True):
    """Outcome: the cluster refused to stop it. It is asked again; told once for each code."""

    job: str
    cluster: str
    code: str
    message: str


class RunGivenUp(FederationEvent, frozen=True):
    """An operator declared that nothing of the job runs on this cluster, or ever will: on their word, nobody saw it."""

    job: str
    cluster: str
    by: str
    """Who, in their own words."""
    reason: str


class JobSettled(FederationEvent, frozen=True):
    """Everything the job had on other clusters was seen to have ended; nothing of it can come up there again.

    It is the intent to clear what is left of it there, where a cluster gives names away again.
    """

    job: str


class JobForgotten(FederationEvent, frozen=True):
    """Decided: it is over on every cluster, its winner's too, and nothing of it is left to be cleared. From here on only
    the log knows it, and its name may be another job's."""

    job: str


class RemainsFound(FederationEvent, frozen=True):
    """A submission that nobody waits for came late: it is held, and is to be cleared."""

    job: str
    cluster: str
    name: str
    uid: str


class RemainsCleared(FederationEvent, frozen=True):
    """Outcome: nothing is left of the run of this UID."""

    job: str
    cluster: str
    uid: str


class StrayFound(FederationEvent, frozen=True):
    """A submission of a job that is forgotten came late: it is held, nobody will release it, and it is to be cleared."""

    account: str
    job: str
    cluster: str
    """The alias that the job had for it."""
    name: str
    uid: str


class StrayCleared(FederationEvent, frozen=True):
    """Outcome: nothing is left of that run."""

    account: str
    job: str
    cluster: str
    uid: str
