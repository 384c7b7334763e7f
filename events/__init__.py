"""The language of Muster: every event that can stand in a cluster's log.

A cluster's log is one stream of *commits*. A commit is what one writer appended together: a `Header` that its service
stamped and a tuple of events. An event's place is (stream sequence, index in its commit), and the state of the cluster
at a place is the fold of everything up to it (`services.state`).

A gang's life, in events:

    PodObserved ×4, PodGroupObserved       ingest saw a gang of four and its declaration
    GangPlaced                             a planner shard proposes nodes for all of it
    GangPermitted                          the binder judged the proposal: quorum, and the intent to bind
    PodBound ×4                            the API server said yes
    PodAssigned ×4                         ingest saw it

or, when there is no room,

    GroupsRefused                          with the numbers: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu

`facts` are ingest's, `federation` the federator's in a log of its own, `decisions` everybody else's, `objects` what they
share, `policy` the bounds that decisions obey.
`dialects` has the names of the ways in which gangs are declared. `envelope` is the commit and its bytes, `subjects` who
may write what, `log` the interface to the log's three homes: `memory`, `sqlite`, `jetstream`; `homes` finds and copies
them, `snapshots` are kept beside each. `schema` writes the JSON Schemas.

The rest is the one door to NATS: `connection` and `client`, `server` to start one, `permissions`, `tls` and
`credentials`, `consumer` (reading), `lease` (who tries to be active), `object_store` (snapshots and bodies), `micro`
(requests), `cloudevents`, `feed` and `subscription` (for outsiders).

Where to read on: `tests/planner/test_scenarios.py`, this very life as a test; then `services.state`, what events mean.
"""

from __future__ import annotations

from events.decisions import (
    BinderTaken,
    BindingFailed,
    BindingRenewed,
    ConditionsReported,
    DeadlockFound,
    Decision,
    DisagreementDetected,
    EvictionFailed,
    EvictionIntended,
    GangHeld,
    GangPermitted,
    GangPlaced,
    GangReleased,
    GangTimedOut,
    GroupNominated,
    GroupNominationEnded,
    GroupsRefused,
    NominationEnded,
    PartitionsAssigned,
    PlannerLeft,
    PlannerTaken,
    PodBound,
    PodEvicted,
    PolicyAdopted,
    PolicyChanged,
    ProposalRefused,
    Renewed,
    ReservationEnded,
    RoomDeclined,
    RoomNominated,
    RoomRequested,
    RoomReserved,
    ShardLost,
    SnapshotTaken,
    Ticked,
    TimeoutMarked,
    TimeoutMarkFailed,
    TimeoutMarkRenewed,
    VersionsAnnounced,
    VersionsSwitched,
)
from events.facts import (
    ClusterSynced,
    DeclarationRejected,
    Fact,
    IngestTaken,
    NodeDeleted,
    NodeObserved,
    PodAssigned,
    PodDeleted,
    PodFinished,
    PodGroupDeleted,
    PodGroupObserved,
    PodObserved,
    PodTerminating,
    PriorityClassDeleted,
    PriorityClassObserved,
    RejectionEnded,
    SchedulingClassObserved,
)
from events.federation import (
    ClusterObserved,
    ClusterSilent,
    FederatorTaken,
    JobCancelled,
    JobFederated,
    JobForgotten,
    JobPlaced,
    JobScheduled,
    JobSettled,
    JobUnplaced,
    NameTaken,
    RemainsCleared,
    RemainsFound,
    RunGivenUp,
    RunReleased,
    StopIntended,
    StopRefused,
    StrayCleared,
    StrayFound,
    SubmissionAccepted,
    SubmissionDoubted,
    SubmissionHeld,
    SubmissionIntended,
    SubmissionRefused,
    SubmissionWithdrawn,
)

Facts = (
    IngestTaken
    | ClusterSynced
    | NodeObserved
    | NodeDeleted
    | SchedulingClassObserved
    | PodObserved
    | PodAssigned
    | PodTerminating
    | PodFinished
    | PodDeleted
    | PodGroupObserved
    | PodGroupDeleted
    | PriorityClassObserved
    | PriorityClassDeleted
    | DeclarationRejected
    | RejectionEnded
    | VersionsAnnounced
    | Renewed
)
PlannerEvents = (
    PlannerTaken | PlannerLeft | GangPlaced | GroupsRefused | RoomRequested | VersionsAnnounced | Ticked | Renewed
)
BinderEvents = (
    BinderTaken
    | PolicyAdopted
    | PartitionsAssigned
    | ShardLost
    | GangHeld
    | GangPermitted
    | ProposalRefused
    | DeadlockFound
    | GangReleased
    | GangTimedOut
    | TimeoutMarked
    | TimeoutMarkRenewed
    | TimeoutMarkFailed
    | PodBound
    | BindingFailed
    | BindingRenewed
    | ConditionsReported
    | RoomNominated
    | NominationEnded
    | GroupNominated
    | GroupNominationEnded
    | RoomReserved
    | RoomDeclined
    | ReservationEnded
    | EvictionIntended
    | PodEvicted
    | EvictionFailed
    | SnapshotTaken
    | DisagreementDetected
    | VersionsAnnounced
    | Ticked
    | Renewed
)
AdminEvents = PolicyChanged | VersionsSwitched
FederatorEvents = (
    FederatorTaken
    | JobFederated
    | JobCancelled
    | SubmissionIntended
    | SubmissionAccepted
    | SubmissionHeld
    | RunReleased
    | SubmissionDoubted
    | SubmissionRefused
    | NameTaken
    | SubmissionWithdrawn
    | ClusterObserved
    | ClusterSilent
    | JobScheduled
    | JobPlaced
    | JobUnplaced
    | StopIntended
    | StopRefused
    | RunGivenUp
    | JobSettled
    | JobForgotten
    | RemainsFound
    | RemainsCleared
    | StrayFound
    | StrayCleared
    | SnapshotTaken
    | Ticked
    | Renewed
)
Event = Facts | PlannerEvents | BinderEvents | AdminEvents | FederatorEvents

__all__ = [
    "AdminEvents",
    "BinderEvents",
    "BinderTaken",
    "BindingFailed",
    "BindingRenewed",
    "ClusterObserved",
    "ClusterSilent",
    "ClusterSynced",
    "ConditionsReported",
    "DeadlockFound",
    "Decision",
    "DeclarationRejected",
    "DisagreementDetected",
    "Event",
    "EvictionFailed",
    "EvictionIntended",
    "Fact",
    "Facts",
    "FederatorEvents",
    "FederatorTaken",
    "GangHeld",
    "GangPermitted",
    "GangPlaced",
    "GangReleased",
    "GangTimedOut",
    "GroupNominated",
    "GroupNominationEnded",
    "GroupsRefused",
    "IngestTaken",
    "JobCancelled",
    "JobFederated",
    "JobForgotten",
    "JobPlaced",
    "JobScheduled",
    "JobSettled",
    "JobUnplaced",
    "NameTaken",
    "NodeDeleted",
    "NodeObserved",
    "NominationEnded",
    "PartitionsAssigned",
    "PlannerEvents",
    "PlannerLeft",
    "PlannerTaken",
    "PodAssigned",
    "PodBound",
    "PodDeleted",
    "PodEvicted",
    "PodFinished",
    "PodGroupDeleted",
    "PodGroupObserved",
    "PodObserved",
    "PodTerminating",
    "PolicyAdopted",
    "PolicyChanged",
    "PriorityClassDeleted",
    "PriorityClassObserved",
    "ProposalRefused",
    "RejectionEnded",
    "RemainsCleared",
    "RemainsFound",
    "Renewed",
    "ReservationEnded",
    "RoomDeclined",
    "RoomNominated",
    "RoomRequested",
    "RoomReserved",
    "RunGivenUp",
    "RunReleased",
    "SchedulingClassObserved",
    "ShardLost",
    "SnapshotTaken",
    "StopIntended",
    "StopRefused",
    "StrayCleared",
    "StrayFound",
    "SubmissionAccepted",
    "SubmissionDoubted",
    "SubmissionHeld",
    "SubmissionIntended",
    "SubmissionRefused",
    "SubmissionWithdrawn",
    "Ticked",
    "TimeoutMarkFailed",
    "TimeoutMarkRenewed",
    "TimeoutMarked",
    "VersionsAnnounced",
    "VersionsSwitched",
]
