"""The state as bytes, and back; and its digest, by which two folds of one log are compared.

A snapshot is the encoding of the recorded attributes, in the order in which the log made them; what is derived (the
table of nodes) is built anew. So the digest of a state does not depend on whether it was folded from the start or from a
snapshot.
"""

from __future__ import annotations

import hashlib

import msgspec

import events as ev
from events.policy import Policy
from services.state.fold import State
from services.state.records import (
    PROPOSED,
    Claim,
    Clock,
    Cohort,
    Eviction,
    Gang,
    Group,
    Lost,
    Node,
    Nomination,
    Pod,
    Proposal,
    SchedulingClass,
)


class Snapshot(msgspec.Struct):
    """What of a `State` is recorded, by the names of its attributes; everything else is derived from it."""

    sequence: int
    synced: bool
    policy: Policy | None
    epoch: int
    owners: tuple[str, ...]
    holders: dict[str, str]
    nodes: dict[str, Node]
    classes: dict[str, SchedulingClass]
    pods: dict[str, Pod]
    gangs: dict[str, Gang]
    groups: dict[str, Group]
    ready: dict[str, None]
    claims: dict[str, Claim]
    proposals: dict[int, Proposal]
    permitted: dict[str, None]
    holding: dict[str, None]
    cohorts: dict[int, Cohort]
    nominations: dict[str, Nomination]
    lost: dict[str, Lost]
    evictions: dict[str, Eviction]
    clocks: dict[str, Clock]
    rejections: dict[str, ev.DeclarationRejected]
    priority_classes: dict[str, ev.PriorityClassObserved]
    room_sequence: int
    ignored: dict[str, int]
    set_aside: int
    resources: list[str]


RECORDED = Snapshot.__struct_fields__
_decoder = msgspec.json.Decoder(Snapshot)


def encode(state: State) -> bytes:
    """The snapshot as JSON."""
    return msgspec.json.encode(Snapshot(**{name: getattr(state, name) for name in RECORDED}))


def decode(data: bytes) -> State:
    """The state of a snapshot. Raises msgspec.ValidationError, which names the field."""
    snapshot = _decoder.decode(data)
    state = State()
    for name in RECORDED:
        if name != "resources":
            setattr(state, name, getattr(snapshot, name))
    table = state.table
    for name in snapshot.resources:
        table.column(name)
    for found in state.classes.values():
        table.add_class(found.fact)
    for node in state.nodes.values():
        if node.fact is not None:
            table.put(node.fact)
    for claim in state.claims.values():
        row = table.rows.get(claim.node)
        if row is not None:
            table.claim([row], table.classes[claim.scheduling_class], 1, claim.stage == PROPOSED)
    return state


def digest(state: State) -> str:
    """SHA-256 of the snapshot, in hex: equal digests mean equal states."""
    return hashlib.sha256(encode(state)).hexdigest()
