"""The only fold: one commit after another, each event by its row in one table of transitions.

`APPLY` has a row for every event of the language, `FOLDS` a table for every version of the state. The transitions
themselves stand in the modules that it names: `cluster` (nodes, rejected objects), `pods` (a pod, its claim), `classes`,
`groups`, `cohorts`, `verdicts` (proposals, and what the binder said of them), `nominations`, `reservations`, `timeouts`,
`shards`, `deadlines`; here stand those that say which policy, rules and fold are in force. At the end of a commit
`gang_groups` forms groups anew where a gang names other gangs than before.

An event that does not fit the state at its own place — an outcome for a pod that is gone, a proposal of a shard that lost
the partition — is inert, and counted where somebody should know.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, get_args

import events as ev
from events import subjects
from events.envelope import FIRST_VERSION, Commit, Header, MalformedCommit, Stored, commit_of, decode_events, header_of
from events.policy import Policy
from services.state import (
    classes,
    cluster,
    cohorts,
    deadlines,
    gang_groups,
    groups,
    nominations,
    pods,
    reservations,
    shards,
    timeouts,
    verdicts,
    versions,
)
from services.state.form import UnknownCommit, UnknownVersion, listed, snapshot_taken
from services.state.nodes import NodeTable
from services.state.partitions import PARTITIONS
from services.state.records import (
    INDEX_BITS,
    PARKED,
    READY,
    Claim,
    Clock,
    Cohort,
    Eviction,
    Gang,
    Group,
    GroupNomination,
    Lost,
    Mark,
    Node,
    Nomination,
    Pod,
    Proposal,
    Reservation,
    RoomRequest,
    SchedulingClass,
)
from services.state.tallies import Tally


@dataclass(slots=True, eq=False, repr=False)
class State:
    """The fold of a cluster's log up to `sequence`. Read by everybody, changed by `apply` alone."""

    # How far the log is folded, by which versions of what, and for whom (`form`, `versions`).
    sequence: int = 0
    set_aside: int = 0
    """Messages in the stream that are nobody's commit."""
    ignored: dict[str, int] = field(default_factory=dict)
    """Events that were not current at their own place, by type."""
    snapshots: dict[int, ev.SnapshotTaken] = field(default_factory=dict)
    """The last `SNAPSHOTS_KEPT`, by sequence."""
    rules_version: int = FIRST_VERSION
    """The version of the rules that is in force."""
    state_version: int = FIRST_VERSION
    """The version of the fold that is in force."""
    policy: Policy | None = None
    holders: dict[str, str] = field(default_factory=dict)
    """writer → holder, from the Taken events."""
    supports: dict[str, ev.VersionsAnnounced] = field(default_factory=dict)
    """writer → what its holder has the code for, if it said so."""
    clocks: dict[str, Clock] = field(default_factory=dict)
    """By writer."""

    # What there is in the cluster, as ingest says (`classes`, `pods`, `groups`, `declarations`).
    synced: bool = False
    """False between `IngestTaken` and `ClusterSynced`: nobody decides."""
    nodes: dict[str, Node] = field(default_factory=dict)
    classes: dict[str, SchedulingClass] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    gangs: dict[str, Gang] = field(default_factory=dict)
    regrouping: dict[str, None] = field(default_factory=dict)
    """Gangs that name other gangs than before: their groups are formed anew when nothing of them is under way."""
    pod_groups: dict[str, ev.PodGroupObserved] = field(default_factory=dict)
    """By API group/namespace/name: what ingest compares with; what they mean stands in `gangs`."""
    priority_classes: dict[str, ev.PriorityClassObserved] = field(default_factory=dict)
    rejections: dict[str, ev.DeclarationRejected] = field(default_factory=dict)

    # Who plans for which groups (`shards`, `partitions`).
    epoch: int = 0
    owners: tuple[str, ...] = ("",) * PARTITIONS
    shards: dict[str, int] = field(default_factory=dict)
    """The planner shards that live → the sequence of the `PlannerTaken` by which each joined."""

    # What is to be placed, and what it waits for (`groups`, `cohorts`).
    groups: dict[str, Group] = field(default_factory=dict)
    ready: dict[str, None] = field(default_factory=dict)
    """Groups that may be tried now, besides those of the cohorts that woke."""
    cohorts: dict[int, Cohort] = field(default_factory=dict)
    room_sequence: int = 0
    """The last commit that gave room back or changed a node: what wakes groups refused for room."""
    lacked_room: dict[str, int] = field(default_factory=dict)
    """Ready groups of gangs that were last refused for room → the basis of that refusal. While a group is parked its
    cohort has it."""
    kept_sequence: int = 0
    """The last commit that ended a reservation, or had a proposal that takes less room than it names. It wakes groups
    refused for room, too."""

    # What is placed, and on its way to its node or off it (`verdicts`, `pods`, `timeouts`).
    claims: dict[str, Claim] = field(default_factory=dict)
    proposals: dict[int, Proposal] = field(default_factory=dict)
    """By place, in log order: what the binder has to judge."""
    holding: dict[str, None] = field(default_factory=dict)
    """Groups with assignments that wait at permit."""
    permitted: dict[str, None] = field(default_factory=dict)
    """UIDs of pods whose binding is intended and has no outcome yet."""
    lost: dict[str, Lost] = field(default_factory=dict)
    evictions: dict[str, Eviction] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    """By UID: what pods are to say of their gang's timeout."""

    # Room that is kept for somebody (`nominations`, `reservations`).
    nominations: dict[str, Nomination] = field(default_factory=dict)
    group_nominations: dict[str, GroupNomination] = field(default_factory=dict)
    """By group."""
    room_requests: dict[str, RoomRequest] = field(default_factory=dict)
    """By group, in log order: what the binder has to answer."""
    reservations: dict[str, Reservation] = field(default_factory=dict)
    """By group, in log order."""

    # Derived of the above.
    table: NodeTable = field(default_factory=NodeTable)
    kept_classes: dict[str, int] = field(default_factory=dict)
    """Class → how many records keep room for pods of it (`classes`)."""
    named: dict[str, dict[str, None]] = field(default_factory=dict)
    """Gang → the gangs that name it as one of their group, in no particular order."""
    kept_for: dict[str, dict[str, None]] = field(default_factory=dict)
    """Gang → UIDs of its failed members whose room is nominated, in the order of `nominations`."""
    highest: dict[int, int] = field(default_factory=dict)
    """Cohort with pods that have no gang → an upper bound of their priorities (`cohorts.passed_over`)."""
    tallies: dict[str, Tally] = field(default_factory=dict)
    """Gang → how many of its members run, are alive and leave (`tallies`)."""

    # The place of the event that is being applied.
    index: int = 0
    basis: int = 0
    commit_epoch: int = 0
    writer: str = ""
    regrouped: tuple[str, ...] = ()
    """Gangs whose groups were formed anew at the end of the last commit, which may not name them."""
    moved: list[str] = field(default_factory=list)
    """Pods that changed their gang in the last commit as it settled their claims: the edits of their labels are older."""

    @property
    def resources(self) -> list[str | None]:
        """Which resources there are, each at its place; None: it is free. Do not write to it."""
        return self.table.resources.names

    @property
    def place(self) -> int:
        """The current event's place as one integer, ordered like the log."""
        return self.sequence << INDEX_BITS | self.index

    # ----------------------------------------------------------------------------------------------------------- apply

    def apply_stored(self, stored: Stored, events: list[ev.Event] | None = None) -> Commit | None:
        """Decode and apply; what is nobody's commit is set aside and None returned. Raises UnknownCommit.

        `events`: the payload, where the caller has decoded it already.
        """
        header = header_of(stored)
        if header is None:
            self.sequence = stored.sequence
            self.set_aside += 1
            return None
        try:
            commit = commit_of(stored, header, decode_events(stored) if events is None else events)
        except MalformedCommit as error:
            raise UnknownCommit(f"{error} (rules {header.rules}, state {header.state})") from error
        try:
            self.apply(commit.sequence, header, commit.events)
        except UnknownVersion:
            raise
        except Exception as error:
            # Half applied: whatever it was, what would follow stood on a wrong state.
            kind = type(commit.events[self.index]).__name__
            where = f"commit {stored.sequence} on {stored.subject}: event {self.index}, {kind}"
            raise UnknownCommit(f"{where}: {error!r} (rules {header.rules}, state {header.state})") from error
        return commit

    def apply_stored_in_slices(self, stored: Stored) -> Generator[None, None, Commit | None]:
        """`apply_stored`, in one piece, for whoever folds either kind of log: a federation's fold has slices."""
        yield from ()
        return self.apply_stored(stored)

    def apply(self, sequence: int, header: Header, commit_events: list[ev.Event]) -> None:
        """Fold one commit."""
        self.sequence = sequence
        self.writer = header.writer
        self.basis = header.basis
        self.commit_epoch = header.epoch
        allowed = subjects.WRITES[subjects.role_of(header.writer)]
        table = FOLDS[self.state_version]
        if self.moved:
            self.moved = []
        for index, event in enumerate(commit_events):
            kind = type(event)
            if kind in allowed:
                self.index = index
                table[kind](self, event)
            else:
                self.ignore(event)
        self.regrouped = gang_groups.regroup(self) if self.regrouping else ()

    def ignore(self, event: ev.Event) -> None:
        """Count an event that was not current at its own place."""
        name = type(event).__name__
        self.ignored[name] = self.ignored.get(name, 0) + 1

    # --------------------------------------------------------------------------------------------------------- queries

    def clock(self, writer: str) -> Clock:
        """The writer's clock, made at the first use. For transitions alone: who only asks reads `clocks`."""
        clock = self.clocks.get(writer)
        if clock is None:
            clock = self.clocks[writer] = Clock()
        return clock

    def owner(self, group: Group) -> str:
        """The shard that plans for the group; empty before the first assignment."""
        return self.owners[group.partition]


# ------------------------------------------------------------------------------------------------- what is in force


def _versions_switched(state: State, event: ev.VersionsSwitched) -> None:
    """The commits behind it are folded by the version that it names. A proposal by the rules before, which those in force
    refuse, is no disagreement between planner and binder."""
    if not versions.may_follow(state, event):
        state.ignore(event)
        return
    if event.state not in FOLDS:
        later = f"from {state.sequence} on the log is folded by state version {event.state}"
        raise UnknownVersion(f"{later}, and this code has {listed(FOLDS)}")
    state.rules_version, state.state_version = event.rules, event.state
    _other_rules(state)
    for proposal in state.proposals.values():
        if (group := state.groups.get(proposal.group)) is not None:
            group.changed = state.sequence


def _policy(state: State, event: ev.PolicyAdopted | ev.PolicyChanged) -> None:
    if state.policy is not None:
        if type(event) is ev.PolicyAdopted:  # it was written for want of one, and an admin was faster
            state.ignore(event)
            return
        _other_rules(state)
    state.policy = event.policy


def _other_rules(state: State) -> None:
    """Who waits is tried again, also whose refusal under the rules before is on its way just now."""
    for group in state.groups.values():
        if group.phase in (READY, PARKED):
            group.changed = state.sequence
    for cohort in state.cohorts.values():
        cohort.woken = True


def _renewed(state: State, event: ev.Renewed) -> None:
    """Nothing to fold: it is there so that the last commit on its writer's subject is young."""


def _deadlock_found(state: State, event: ev.DeadlockFound) -> None:
    """Nothing to fold: it explains the `GangReleased` behind it, which is what changes the state."""


APPLY: dict[type, Callable[[State, Any], None]] = {
    **dict.fromkeys(get_args(ev.FederatorEvents), State.ignore),  # a federation has its own log and fold
    ev.IngestTaken: cluster.ingest_taken,
    ev.ClusterSynced: cluster.cluster_synced,
    ev.NodeObserved: cluster.node_observed,
    ev.NodeDeleted: cluster.node_deleted,
    ev.SchedulingClassObserved: classes.observed,
    ev.PodObserved: pods.observed,
    ev.PodAssigned: pods.assigned,
    ev.PodTerminating: pods.terminating,
    ev.PodFinished: pods.finished,
    ev.PodDeleted: pods.deleted,
    ev.PodGroupObserved: groups.pod_group_observed,
    ev.PodGroupDeleted: groups.pod_group_deleted,
    ev.PriorityClassObserved: cluster.priority_class_observed,
    ev.PriorityClassDeleted: cluster.priority_class_deleted,
    ev.DeclarationRejected: cluster.rejected,
    ev.RejectionEnded: cluster.rejection_ended,
    ev.PlannerTaken: shards.taken,
    ev.PlannerLeft: shards.left,
    ev.GangPlaced: verdicts.placed,
    ev.GroupsRefused: cohorts.refused,
    ev.RoomRequested: reservations.requested,
    ev.Ticked: deadlines.ticked,
    ev.Renewed: _renewed,
    ev.VersionsAnnounced: versions.announced,
    ev.BinderTaken: versions.taken,
    ev.PolicyAdopted: _policy,
    ev.PartitionsAssigned: shards.assigned,
    ev.ShardLost: shards.lost,
    ev.GangHeld: verdicts.held,
    ev.GangPermitted: verdicts.permitted,
    ev.ProposalRefused: verdicts.refused,
    ev.DeadlockFound: _deadlock_found,
    ev.GangReleased: verdicts.released,
    ev.GangTimedOut: timeouts.timed_out,
    ev.TimeoutMarked: pods.timeout_marked,
    ev.TimeoutMarkRenewed: timeouts.renewed,
    ev.TimeoutMarkFailed: timeouts.failed,
    ev.PodBound: pods.bound,
    ev.BindingFailed: pods.binding_failed,
    ev.BindingRenewed: pods.binding_renewed,
    ev.ConditionsReported: pods.conditions_reported,
    ev.RoomNominated: nominations.nominated,
    ev.NominationEnded: nominations.ended,
    ev.GroupNominated: nominations.group_nominated,
    ev.GroupNominationEnded: nominations.group_ended,
    ev.RoomReserved: reservations.reserved,
    ev.RoomDeclined: reservations.declined,
    ev.ReservationEnded: reservations.ended,
    ev.EvictionIntended: pods.eviction_intended,
    ev.PodEvicted: pods.eviction_settled,
    ev.EvictionFailed: pods.eviction_settled,
    ev.SnapshotTaken: snapshot_taken,
    ev.DisagreementDetected: cohorts.disagreement,
    ev.PolicyChanged: _policy,
    ev.VersionsSwitched: _versions_switched,
}
"""event → transition: the whole fold."""
FOLDS: dict[int, dict[type, Callable[[State, Any], None]]] = {FIRST_VERSION: APPLY}
"""Version of the state → its fold. The next one is a line here: a table with other rows for some events."""
