"""What of a cluster's state is recorded, and its form (`services.state.form`): the tables of records; the table of nodes
and who names whom are derived.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec

import events as ev
from events.envelope import FIRST_VERSION
from events.policy import Policy
from services.state import cohorts, nominations, tallies
from services.state.classes import counted
from services.state.fold import FOLDS, State
from services.state.form import Form
from services.state.naming import named_by
from services.state.records import (
    PROPOSED,
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
from services.state.resources import Resources


class Snapshot(msgspec.Struct):
    """What of a `State` is recorded, by the names of its attributes; everything else is derived from it."""

    sequence: int
    synced: bool
    policy: Policy | None
    epoch: int
    owners: tuple[str, ...]
    holders: dict[str, str]
    shards: dict[str, int]
    nodes: dict[str, Node]
    classes: dict[str, SchedulingClass]
    pods: dict[str, Pod]
    gangs: dict[str, Gang]
    regrouping: dict[str, None]
    groups: dict[str, Group]
    ready: dict[str, None]
    claims: dict[str, Claim]
    proposals: dict[int, Proposal]
    permitted: dict[str, None]
    holding: dict[str, None]
    cohorts: dict[int, Cohort]
    nominations: dict[str, Nomination]
    group_nominations: dict[str, GroupNomination]
    room_requests: dict[str, RoomRequest]
    reservations: dict[str, Reservation]
    lost: dict[str, Lost]
    evictions: dict[str, Eviction]
    marks: dict[str, Mark]
    clocks: dict[str, Clock]
    rejections: dict[str, ev.DeclarationRejected]
    pod_groups: dict[str, ev.PodGroupObserved]
    priority_classes: dict[str, ev.PriorityClassObserved]
    snapshots: dict[int, ev.SnapshotTaken]
    room_sequence: int
    ignored: dict[str, int]
    set_aside: int
    resources: list[str | None]
    kept_sequence: int = 0
    """A snapshot from before has none; nor had anything been kept."""
    rules_version: int = FIRST_VERSION
    state_version: int = FIRST_VERSION
    supports: dict[str, ev.VersionsAnnounced] = {}
    lacked_room: dict[str, int] = {}


_SHARED: dict[str, tuple[str, ...]] = {
    "pods": ("status", "node", "group", "gang", "resource_version", "observed", "observed_node", "observed_version"),
    "claims": ("uid", "node", "scheduling_class", "stage", "group", "resource_version"),
    "groups": ("key", "pod", "phase"),
}
"""Of the many records, the strings that stand in others, too."""
_SHARED_FACT = ("uid", "namespace", "scheduling_class", "status", "node", "resource_version")
_SHARED_SETS = {"nodes": "claims", "gangs": "members"}
_KINDS = {
    "node": ("node", "observed_node"),
    "uid": ("uid", "pod", "pods", "claims", "members"),
    "version": ("resource_version", "observed_version"),
    "group": ("group", "groups", "gang", "key"),
    "word": ("status", "observed", "stage", "phase", "namespace", "scheduling_class"),
}
"""What kind of string each of them is. Those of a kind are in a table of its own: one of all strings would be copied,
when it grows, for longer than a slice."""
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
_set = msgspec.structs.force_setattr


def _shared(attribute: str, portion: dict[Any, Any], known: dict[Any, Any]) -> dict[Any, Any]:
    """A portion of a table with one object for equal strings, and for what pods of a gang say alike: decoded, each has
    its own, which is half of the memory."""
    one_of = {name: known.setdefault(kind, {}).setdefault for name, kind in _KIND_OF.items()}
    if attribute in _SHARED_SETS:
        name = _SHARED_SETS[attribute]
        one = one_of[name]
        for record in portion.values():
            setattr(record, name, {one(member, member): None for member in getattr(record, name)})
    if attribute not in _SHARED:
        return portion
    of_record = [(name, one_of[name]) for name in _SHARED[attribute]]
    of_fact = [(name, one_of[name]) for name in _SHARED_FACT]
    said_of = known.setdefault("said", {}).setdefault
    for record in portion.values():
        for name, one in of_record:
            value = getattr(record, name)
            setattr(record, name, one(value, value))
        if attribute == "pods":
            fact = record.fact
            for name, one in of_fact:
                value = getattr(fact, name)
                _set(fact, name, one(value, value))
            if fact.gang is not None and (said := said_of(fact.gang.gang, fact.gang)) == fact.gang:
                _set(fact, "gang", said)
    one = one_of[attribute]
    return {one(key, key): record for key, record in portion.items()}


SLICE_RECORDS = 2_000
"""Records between two yields: some milliseconds."""


def _derive(state: State, found: dict[str, Any]) -> Generator[None, None, None]:
    """The table of nodes, who names whom, gangs' tallies, and what keeps room for which class, from the records; with a
    yield now and then."""
    state.kept_classes = counted(state)
    yield
    for cohort in state.cohorts.values():
        cohorts.bound(state, cohort)
    yield
    state.tallies = yield from tallies.counted_in_slices(state)
    yield
    state.kept_for = nominations.counted(state)
    for key, gang in state.gangs.items():
        for named in named_by(gang):
            state.named.setdefault(named, {})[key] = None
    table = state.table
    table.resources = Resources(found.pop("resources"))
    for one in state.classes.values():
        table.add_class(one.fact)
    for number, node in enumerate(state.nodes.values(), 1):
        if number % SLICE_RECORDS == 0:
            yield
        if node.fact is not None:
            table.put(node.fact)
    for number, claim in enumerate(state.claims.values(), 1):
        if number % SLICE_RECORDS == 0:
            yield
        row = table.rows.get(claim.node)
        if row is not None:
            table.claim(row, table.classes[claim.scheduling_class], 1, claim.stage == PROPOSED)


LATER = {"rules_version": FIRST_VERSION, "state_version": FIRST_VERSION}
FORM = Form(Snapshot, State, _derive, _shared, folds=FOLDS, later=LATER)
"""A cluster's."""
encode, decode, digest = FORM.encode, FORM.decode, FORM.digest
