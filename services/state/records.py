"""The nouns of the state. Mutable, but only the fold changes them; they refer to each other by key, never by reference,
so that a snapshot is nothing but their encoding, and so that the garbage collector has no cycles to look for.
"""

from __future__ import annotations

import msgspec

from events.facts import NodeObserved, PodObserved, SchedulingClassObserved
from events.objects import ClassRoom, Declaration, NodeAssignment

# A pod's status: pending, bound, terminating, succeeded, failed (as in `PodObserved`).
PENDING, BOUND, TERMINATING, SUCCEEDED, FAILED = "pending", "bound", "terminating", "succeeded", "failed"
FINISHED = (SUCCEEDED, FAILED)

# A claim's stage. `proposed` counts for planners only; the binder counts all the others.
PROPOSED, HELD, PERMITTED, BOUND_CLAIM, NOMINATED = "proposed", "held", "permitted", "bound", "nominated"

# Why a group is not tried now.
IDLE, READY, AWAITING, PARKED = "idle", "ready", "awaiting", "parked"

INDEX_BITS = 20
"""A place in the log as one integer is ``sequence << INDEX_BITS | index``, ordered like the log: the index of an event in
its commit has so many bits, which is more than a commit of 8 MB can hold."""


class Pod(msgspec.Struct, gc=False):
    """A pod that the log knows. `fact` is the last full observation; the other fields are newer where they differ."""

    fact: PodObserved
    status: str
    node: str
    resource_version: str
    group: str
    """Key of its group; empty for pods that are not ours to schedule."""
    gang: str = ""
    """The gang it counts for: frozen from proposal to settlement."""
    reported: str = ""
    """The reason last written to its PodScheduled condition."""
    observed: str = PENDING
    """Status, node and resourceVersion as ingest's facts alone say it, whatever the binder knows: ingest compares with
    them."""
    observed_node: str = ""
    observed_version: str = ""


class Node(msgspec.Struct, gc=False):
    """A node, or only its name when claims came before its fact."""

    name: str
    fact: NodeObserved | None = None
    claims: dict[str, None] = {}
    touched: int = 0
    """The sequence of the last commit that changed the node or a claim that the binder counts."""


class Claim(msgspec.Struct, gc=False):
    """Room on a node, held under a pod's UID."""

    uid: str
    node: str
    scheduling_class: str
    stage: str
    group: str
    proposal: int = 0
    resource_version: str = ""
    """The precondition of the intent, from the permit."""


class Gang(msgspec.Struct, gc=False):
    """One gang: its declaration and its members (UIDs, in the order in which they were first seen)."""

    key: str
    dialect: str = ""
    group: str = ""
    """Key of its group. The group exists only while it has pods."""
    declaration: Declaration | None = None
    source: str = ""
    """The UID of the PodGroup or pod that declared it."""
    pod_group: str = ""
    """The key in `State.pod_groups` of the PodGroup that declares it, if one does."""
    declarer: str = ""
    """The UID of the oldest member that declares something, whether it is heard or not."""
    members: dict[str, None] = {}
    satisfied: bool = False
    """Whether it ever reached its minimum."""
    started: bool = False
    """Whether a pod of it was ever permitted or bound, by whomever, since it last had none."""
    timed_out: dict[str, None] = {}
    """UIDs of members that say, or are to say, that it ran out of waiting time (Koordinator)."""


class Mark(msgspec.Struct, gc=False):
    """The intent to annotate a pod whose gang timed out. It stands until a fact shows the annotation."""

    resource_version: str
    """The precondition of the intent."""
    written: str = ""
    """The pod's resourceVersion when it was written; empty: not settled."""


class Group(msgspec.Struct, gc=False):
    """What is planned as one: a gang group, or a pod without a gang (`pod` is its UID)."""

    key: str
    partition: int
    since: int
    """The sequence at which it appeared: older decisions do not mean it."""
    created_ns: int
    """Creation of the first of its pods that the log saw."""
    pod: str = ""
    gangs: tuple[str, ...] = ()
    priority: int = 0
    phase: str = IDLE
    attempts: int = 0
    failed_ns: int = 0
    """When its last failure began to back off, by its shard's log time; 0: none did since its last permit."""
    cohort: int = 0
    changed: int = 0
    """The sequence of the last fact about its members or declaration that could change a verdict."""
    woken: bool = False
    """A member's fact woke it while it backs off."""
    held: dict[str, None] = {}
    """UIDs whose assignment waits at permit."""
    held_since: int = 0
    """The place of the first proposal of this hold; 0: nothing is held."""
    permit_due: bool = False
    conflicts: int = 0
    """Its proposals that were refused for room, in a row."""


class Proposal(msgspec.Struct, gc=False):
    """A `GangPlaced` that awaits its verdict."""

    place: int
    sequence: int
    index: int
    group: str
    shard: str
    basis: int
    required: tuple[NodeAssignment, ...]
    optional: tuple[NodeAssignment, ...]


class Cohort(msgspec.Struct, gc=False):
    """Groups that one `GroupsRefused` refused together: they back off, wake and are tried again together."""

    place: int
    reason: str
    condition: str
    message: str
    needed: int
    basis: int
    attempt: int
    shard: str
    groups: dict[str, None]
    backing_off: bool = False
    woken: bool = False


class Nomination(msgspec.Struct, gc=False):
    """Room kept for the replacement of a failed member; claimed under `nominations.replacement_key` of its UID."""

    uid: str
    gang: str
    node: str
    """Empty: there is no room to keep, only the time."""
    scheduling_class: str
    due: bool = False
    task: str = ""
    """Of the failed pod (Volcano); empty for none."""


class GroupNomination(msgspec.Struct, gc=False):
    """Room kept for a gang that lost its proposals to others; claimed under `nominations.claim_key` of each pod."""

    group: str
    since: int
    """The place of the first event of these: its time runs from there."""
    assignments: tuple[NodeAssignment, ...]
    due: bool = False


class RoomRequest(msgspec.Struct, gc=False):
    """A `RoomRequested` that the binder has not answered."""

    group: str
    basis: int
    room: tuple[ClassRoom, ...]


class Reservation(msgspec.Struct, gc=False):
    """Room that is kept for a starving gang, whether it is there yet or not."""

    group: str
    sequence: int
    """Of the commit that reserved it."""
    priority: int
    """Groups of a higher one are not kept off."""
    room: tuple[ClassRoom, ...]
    due: bool = False
    doubted: dict[str, None] = {}
    """Nodes of it that changed since, or where somebody came who stays: they may never have that room any more."""


class Lost(msgspec.Struct, gc=False):
    """A member of a running gang that failed for good: the binder decides whether its room is kept."""

    uid: str
    gang: str
    node: str
    scheduling_class: str
    task: str = ""


class Eviction(msgspec.Struct, gc=False):
    """An eviction that is intended and not settled."""

    uid: str
    namespace: str
    name: str
    resource_version: str
    reason: str


class Deadline(msgspec.Struct, array_like=True, order=True, gc=False):
    """Something that falls due on its owner's clock (`due_ns`); `serial` keeps equal ones in order."""

    due_ns: int
    serial: int
    kind: str
    key: str


class Clock(msgspec.Struct, gc=False):
    """A writer's log time. `counted_ns` leaves jumps out, so that no jump moves a deadline.

    A deadline starts to run at its owner's first tick after it was set (`unarmed` until then, with its length).
    """

    time_ns: int = 0
    counted_ns: int = 0
    serial: int = 0
    unarmed: list[tuple[int, str, str]] = []
    armed: list[Deadline] = []


class SchedulingClass(msgspec.Struct, gc=False):
    """A scheduling class and how many pods are of it."""

    fact: SchedulingClassObserved
    pods: int = 0
