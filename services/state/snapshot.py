"""The state as bytes, and back; and its digest, by which two folds of one log are compared.

A snapshot is the recorded attributes in the order in which the log made them, one JSON line for a portion of one
attribute; what is derived (the table of nodes) is built anew. So the digest of a state does not depend on whether it was
folded from the start or from a snapshot, and neither writing nor reading one ever holds the whole text in memory.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Any, get_origin

import msgspec

import events as ev
from events.policy import Policy
from events.wire import UNDECODABLE
from services.state.fold import State
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

PORTION = 1_000
"""Entries of a table that share a line: a few milliseconds of work."""
COMPRESSION = 1
"""gzip's quickest level: a fifth of the bytes; the slower ones save little more (`benchmarks.snapshots`)."""


class Damaged(ValueError):
    """Bytes that are no snapshot of this version's state. Names what did not fit."""


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
    resources: list[str]
    kept_sequence: int = 0
    """A snapshot from before has none; nor had anything been kept."""


_FIELDS = msgspec.structs.fields(Snapshot)
RECORDED = tuple(field.name for field in _FIELDS)
_TABLES = frozenset(field.name for field in _FIELDS if get_origin(field.type) is dict)
"""Attributes that are written in portions."""
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {field.name: msgspec.json.Decoder(field.type) for field in _FIELDS}
_SHARED: dict[str, tuple[str, ...]] = {
    "pods": ("status", "node", "group", "gang", "resource_version", "observed", "observed_node", "observed_version"),
    "claims": ("uid", "node", "scheduling_class", "stage", "group", "resource_version"),
    "groups": ("key", "pod", "phase"),
}
"""Of the many records, the strings that stand in others, too."""
_SHARED_FACT = ("uid", "namespace", "scheduling_class", "status", "node", "resource_version")
_SHARED_SETS = {"nodes": "claims", "gangs": "members"}
_encode = msgspec.json.Encoder().encode
_set = msgspec.structs.force_setattr


def lines(state: State) -> Iterator[bytes]:
    """The snapshot, line by line: an attribute's name, a space, the attribute or a portion of it as JSON."""
    for name in RECORDED:
        value = getattr(state, name)
        for portion in _portions(value) if name in _TABLES else (value,):
            yield b"%b %b\n" % (name.encode(), _encode(portion))


def _portions(table: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    entries = iter(table.items())
    while portion := dict(islice(entries, PORTION)):
        yield portion


def restore(snapshot: Iterable[bytes]) -> Generator[None, None, State]:
    """The state of a snapshot's lines, in slices. Raises Damaged."""
    state = State()
    found: dict[str, Any] = {}
    strings: dict[str, str] = {}
    for line in snapshot:
        name, _, text = line.partition(b" ")
        attribute = name.decode("ascii", "replace")
        try:
            value = _DECODERS[attribute].decode(text)
        except KeyError:
            raise Damaged(f"a snapshot with {attribute[:40]!r}, which this version does not record") from None
        except UNDECODABLE as error:
            raise Damaged(f"{attribute}: {error}") from error
        if attribute in _TABLES:
            getattr(state, attribute).update(_shared(attribute, value, strings))
        else:
            found[attribute] = value
        yield
    missing = [one.name for one in _FIELDS if one.required and one.name not in _TABLES and one.name not in found]
    if missing:
        raise Damaged(f"a snapshot without {', '.join(missing)}")
    resources = found.pop("resources")
    for attribute, value in found.items():
        setattr(state, attribute, value)
    try:
        _derive(state, resources)
    except (ArithmeticError, LookupError) as error:  # a number beyond 64 bits, a claim of a class that is not there
        raise Damaged(f"its records do not fit each other: {error!r}") from error
    return state


def _shared(attribute: str, portion: dict[Any, Any], strings: dict[str, str]) -> dict[Any, Any]:
    """A portion of a table with one object for equal strings: decoded, each has its own, which is half of the memory."""
    one = strings.setdefault
    if attribute in _SHARED_SETS:
        name = _SHARED_SETS[attribute]
        for record in portion.values():
            setattr(record, name, {one(member, member): None for member in getattr(record, name)})
    if attribute not in _SHARED:
        return portion
    for record in portion.values():
        for name in _SHARED[attribute]:
            value = getattr(record, name)
            setattr(record, name, one(value, value))
        if attribute == "pods":
            fact = record.fact
            for name in _SHARED_FACT:
                value = getattr(fact, name)
                _set(fact, name, one(value, value))
    return {one(key, key): record for key, record in portion.items()}


def _derive(state: State, resources: list[str]) -> None:
    """The table of nodes, and who names whom, from the records."""
    for key, gang in state.gangs.items():
        for named in named_by(gang):
            state.named.setdefault(named, {})[key] = None
    table = state.table
    for name in resources:
        table.column(name)
    for found in state.classes.values():
        table.add_class(found.fact)
    for node in state.nodes.values():
        if node.fact is not None:
            table.put(node.fact)
    for claim in state.claims.values():
        row = table.rows.get(claim.node)
        if row is not None:
            table.claim(row, table.classes[claim.scheduling_class], 1, claim.stage == PROPOSED)


def encode(state: State) -> bytes:
    """The whole snapshot."""
    return b"".join(lines(state))


def decode(data: bytes) -> State:
    """The state of a whole snapshot. Raises Damaged."""
    return at_once(restore(data.splitlines()))


def digest(state: State) -> str:
    """SHA-256 of the snapshot, in hex: equal digests mean equal states."""
    found = hashlib.sha256()
    for line in lines(state):
        found.update(line)
    return found.hexdigest()


# ------------------------------------------------------------------------------------------------------- as it is kept


def pack(state: State) -> tuple[bytes, str]:
    """The snapshot as gzip, and its digest. Equal states give equal bytes."""
    packed, found = io.BytesIO(), hashlib.sha256()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=COMPRESSION, mtime=0, filename="") as file:
        for line in lines(state):
            found.update(line)
            file.write(line)
    return packed.getvalue(), found.hexdigest()


def unpack(packed: bytes, digest: str) -> Generator[None, None, State]:
    """The state of what `pack` made, in slices. Raises Damaged when it is not what has this digest."""
    found = hashlib.sha256()

    def checked() -> Iterator[bytes]:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            for line in file:
                found.update(line)
                yield line

    try:
        state = yield from restore(checked())
    except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
        raise Damaged(f"not gzip: {error}") from error
    if found.hexdigest() != digest:
        raise Damaged(f"its digest is {found.hexdigest()}, not {digest}")
    return state


def at_once(slices: Generator[None, None, State]) -> State:
    """All slices at once."""
    while True:
        try:
            next(slices)
        except StopIteration as done:
            state: State = done.value
            return state
