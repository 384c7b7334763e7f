"""Decisions and outcomes: what planner, binder and admin append, and what writers say of themselves.

A planner proposes (`GangPlaced`) or says why not (`GroupsRefused`); the binder disposes. A group is named by its key:
``namespace/gang`` for a gang group (the smallest of its gangs), ``pod/namespace/name`` for a pod without a gang.
"""

from __future__ import annotations

from events.objects import ClassRoom, NodeAssignment, NodeBindings, Place, Value
from events.policy import Policy


class Decision(Value, frozen=True, tag_field="type", tag=True):
    """Written by a planner shard, the binder or the admin; what writers say of themselves also by the others."""


# ------------------------------------------------------------------------------------------------------ several writers


class Ticked(Decision, frozen=True):
    """Time enters the log. `time_ns`: the writer's clock, monotone; deadlines of this writer are judged by it alone.

    `jumped_ns` is not zero when the clock leapt by more than 30 s, or when no binder was active since the tick before
    while something waited: it took over, stood still, or did not hear the log. Logged, and no deadline moves.
    """

    time_ns: int
    jumped_ns: int


class Renewed(Decision, frozen=True):
    """A writer that appended nothing for hours renews its subject, so that no purge takes its last commit."""


class VersionsAnnounced(Decision, frozen=True):
    """The versions for which the process that has just become the writer has the code; it follows its Taken event.

    A process that announces nothing is older than this event, and has version 1 alone.
    """

    rules: tuple[int, ...]
    """Empty for a process that decides nothing."""
    state: tuple[int, ...]


# ------------------------------------------------------------------------------------------------------------- planner


class PlannerTaken(Decision, frozen=True):
    """A process became the writer of this shard: the shard has joined."""

    shard: str
    holder: str


class PlannerLeft(Decision, frozen=True):
    """The shard's process ends and is not replaced: its partitions go to the other shards. Its last commit."""

    shard: str


class GangPlaced(Decision, frozen=True):
    """A proposal: the whole group's assignments in one event.

    `required` reach the minimum together and are judged as one; each assignment of `optional` is judged alone.
    """

    group: str
    partition: int
    required: tuple[NodeAssignment, ...]
    optional: tuple[NodeAssignment, ...]


class GroupsRefused(Decision, frozen=True):
    """Groups that cannot be placed now, for one shared reason with the numbers behind it.

    `reason` is a code: InsufficientRoom (autoscalers may act), BehindOthers (the same, where the shard left room for
    another shard's groups, which go before), TooFewPods, WaitingForGang, GangNotDeclared, GangTimedOut, PodsGated,
    UnsupportedConstraint, GangTooLarge.
    """

    reason: str
    detail: str
    """What is missing, in words: the constraint, the gang that is not declared."""
    attempt: int
    """Which refusal in a row this is for each of these groups; it sets their backoff."""
    needed: int
    """Pods that had to be placed together."""
    placeable: int
    """Of these, how many found a node."""
    nodes: int
    """Nodes that were looked at."""
    node_reasons: dict[str, int]
    """Why nodes were turned down, in the kube-scheduler's words, with how many nodes each."""
    groups: tuple[str, ...]


class RoomRequested(Decision, frozen=True):
    """A gang starves, and its planner asks for this room to be kept for it, on the nodes that will be free first.

    Part of it may be taken still. The binder answers with `RoomReserved` or `RoomDeclined`.
    """

    group: str
    room: tuple[ClassRoom, ...]


# -------------------------------------------------------------------------------------------------------------- binder


class BinderTaken(Decision, frozen=True):
    """A process became the binder of this cluster."""

    holder: str


class PolicyAdopted(Decision, frozen=True):
    """The log had no policy; the binder wrote this version's defaults into it."""

    policy: Policy


class PartitionsAssigned(Decision, frozen=True):
    """Which shard owns which of the 64 partitions from here on."""

    epoch: int
    owners: tuple[str, ...]
    """64 shard names."""


class ShardLost(Decision, frozen=True):
    """Outcome: the lease of the shard's process has run out; its partitions go to the other shards."""

    shard: str
    taken: int
    """The sequence of the `PlannerTaken` that it ends: a process that took the shard since is not meant."""


class GangHeld(Decision, frozen=True):
    """Permit said wait: the proposal is good, the quorum is not there. Its room stays reserved for the waiting time."""

    group: str
    proposal: Place
    waiting_ms: int


class GangPermitted(Decision, frozen=True):
    """Quorum: every pod named here is to be bound. Permit and intent in one event.

    `proposals` are those that this settles; an optional pod that failed its judgement is in `dropped`.
    """

    group: str
    proposals: tuple[Place, ...]
    bindings: tuple[NodeBindings, ...]
    dropped: tuple[str, ...]


class ProposalRefused(Decision, frozen=True):
    """The proposal was judged and refused as a whole; the group is planned again."""

    group: str
    proposal: Place
    reason: str
    """NodeGone, NodeUnfit, NoRoom, RoomKept (for a starving gang), PodGone, PodGated, PodClaimed, GangTimedOut,
    TooLarge (no commit takes the verdict)."""
    node: str
    pod: str


class DeadlockFound(Decision, frozen=True):
    """Groups hold room and block each other (seed 002, NonStrict): `group`, the last of them by priority and age, gives
    its room back for the others by the `GangReleased` that follows.
    """

    group: str
    blocked: tuple[str, ...]
    """The others, first in line first."""


class GangReleased(Decision, frozen=True):
    """Held assignments were given back (seed 000, Unreserve): Timeout, LeftQueue, MemberDeleted, HoldBroken, Deadlock.

    NotTaken: pods of a proposal that could not be accepted, while its other pods were (seed 002, NonStrict).
    """

    group: str
    reason: str
    pods: tuple[str, ...]


class GangTimedOut(Decision, frozen=True):
    """A Koordinator gang ran out of waiting time: it is not tried again until its user acts (seed 002, Un-reserve).

    It is also the intent to write the annotation ``gang.scheduling.koordinator.sh/timeout`` to each pod named here.
    """

    group: str
    pods: tuple[tuple[str, str], ...]
    """(uid, resourceVersion): of every live pod of the group that does not have the annotation yet."""


class TimeoutMarked(Decision, frozen=True):
    """Outcome: these pods have the annotation that their gang timed out; with their new resourceVersions."""

    pods: tuple[tuple[str, str], ...]
    """(uid, resourceVersion)."""


class TimeoutMarkRenewed(Decision, frozen=True):
    """These pods had changed since the intent (409 on their resourceVersion), in no way that matters: it is renewed."""

    pods: tuple[tuple[str, str], ...]
    """(uid, resourceVersion)."""


class TimeoutMarkFailed(Decision, frozen=True):
    """Outcome: the pod is not annotated: the API server refused for good, or its gang may be tried again by now."""

    uid: str
    namespace: str
    name: str
    message: str


class PodBound(Decision, frozen=True):
    """Outcome: the Binding was accepted, or the pod was found on the intended node."""

    uid: str
    namespace: str
    name: str
    node: str


class BindingFailed(Decision, frozen=True):
    """Outcome: a definite no. `assigned_node` is where somebody else had bound the pod, if that was the reason."""

    uid: str
    namespace: str
    name: str
    node: str
    reason: str
    """AlreadyAssigned, PodGone, Forbidden, Rejected."""
    message: str
    assigned_node: str


class BindingRenewed(Decision, frozen=True):
    """The pod had changed since the intent (409 on its resourceVersion), in no way that matters: the intent, renewed."""

    uid: str
    namespace: str
    name: str
    node: str
    resource_version: str


class ConditionsReported(Decision, frozen=True):
    """Outcome: PodScheduled conditions were written for one reason; the pods' new resourceVersions."""

    reason: str
    """The refusal's reason and the resources behind it: written again only when this changes."""
    pods: tuple[tuple[str, str], ...]
    """(uid, resourceVersion)."""


class RoomNominated(Decision, frozen=True):
    """A member of a running gang failed for good; its room is kept for its replacement (design, section 4)."""

    gang: str
    pod: str
    """The UID of the member that failed; the nominated claim is held under it."""
    node: str
    """Empty: its room is gone, as when its node is, and a replacement has only the time to find another."""
    waiting_ms: int


class NominationEnded(Decision, frozen=True):
    """The room is free again: Taken by the replacement, Expired, GangGone. Held: it waits at permit there, and may not
    stay; the time runs on, without room."""

    gang: str
    pod: str
    reason: str


class GroupNominated(Decision, frozen=True):
    """A gang lost its room to other shards several times in a row: what still stands of its last proposal is kept for it.

    It replaces what was nominated for the group before, and keeps that one's time.
    """

    group: str
    assignments: tuple[NodeAssignment, ...]
    waiting_ms: int


class GroupNominationEnded(Decision, frozen=True):
    """The group's nominated room is free again.

    `reason`: Taken by its proposal, Refused (it waits for something else, or has nothing to place), Expired, GroupGone.
    """

    group: str
    reason: str


class RoomReserved(Decision, frozen=True):
    """What is free there, and whatever becomes free, is kept for a starving gang until it fits or the time is over.

    Groups of a higher priority are not kept off.
    """

    group: str
    priority: int
    """Of the group at this place."""
    room: tuple[ClassRoom, ...]
    waiting_ms: int


class RoomDeclined(Decision, frozen=True):
    """The request is over, and nothing is kept.

    `reason`: GroupGone, Changed (the gang's facts, or the policy), NodeGone, Overlap (kept for another), Full (as many
    reservations stand as the policy allows), TurnedOff by the policy.
    """

    group: str
    reason: str


class ReservationEnded(Decision, frozen=True):
    """What was kept for a starving gang is for everybody again.

    `reason`: Taken by its proposal, Refused (it waits for something else, or has nothing to place), Changed (its pods,
    its minimum or its priority), GroupGone, Expired, Outranked by a gang of a higher priority, TurnedOff by the policy.
    """

    group: str
    reason: str


class EvictionIntended(Decision, frozen=True):
    """The pod is to be evicted: its gang stayed below its minimum and the policy says evict."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    reason: str


class PodEvicted(Decision, frozen=True):
    """Outcome: the eviction was accepted, or the pod was already gone."""

    uid: str
    namespace: str
    name: str


class EvictionFailed(Decision, frozen=True):
    """Outcome: the pod has ended, its gang has its minimum again, or the policy is keep by then. In older logs also a
    definite no to an eviction."""

    uid: str
    namespace: str
    name: str
    message: str


class SnapshotTaken(Decision, frozen=True):
    """Outcome: the state after the commit `sequence` is kept beside the log, and was read back."""

    sequence: int
    digest: str
    """Of that state; who folds the log up to there finds the same."""
    bytes: int
    """As it is kept."""
    state: int
    """The version of the fold that made it."""


class DisagreementDetected(Decision, frozen=True):
    """A proposal was refused although nothing since its basis touched those nodes: a bug. The group is set aside."""

    group: str
    proposal: Place
    node: str


# --------------------------------------------------------------------------------------------------------------- admin


class PolicyChanged(Decision, frozen=True):
    """The admin set the policy."""

    policy: Policy


class VersionsSwitched(Decision, frozen=True):
    """From here on the log is decided by these rules and folded by this version of the state.

    It changes nothing unless every process that writes at this place has the code for both. The state goes one version
    forward at a time, and never back.
    """

    rules: int
    state: int
