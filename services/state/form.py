"""A state as bytes, and back; and its digest, by which two folds of one log are compared.

There are two kinds of logs, a cluster's (`services.state.snapshot`) and a federation's (`services.federator.snapshot`),
each with a fold of its own. Code that keeps, restores, replays or verifies a state knows only `Folded` and its `Form`.

A snapshot is the recorded attributes in the order in which the log made them, one JSON line for a portion of one
attribute; what is derived is built anew. So the digest of a state does not depend on whether it was folded from the
start or from a snapshot, and neither writing nor reading one ever holds the whole text in memory.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar, get_origin

import msgspec

from events import Event, SnapshotTaken
from events.envelope import FIRST_VERSION, Commit, Stored
from events.wire import UNDECODABLE
from services.state.slices import at_once

PORTION = 1_000
"""Entries of a table that share a line: a few milliseconds of work. It is part of what a digest is of, and those stand in
logs: with another one `verify` would take each large state for a different one."""
COMPRESSION = 1
"""gzip's quickest level: a fifth of the bytes; the slower ones save little more (`benchmarks.snapshots`)."""
SNAPSHOTS_KEPT = 2
"""How many snapshots a purge must leave to start from."""


class UnknownCommit(RuntimeError):
    """A commit of a known writer that this version cannot fold: the service must stop before it writes again."""


class UnknownVersion(UnknownCommit):
    """The log goes on by rules, or by a fold, that this code does not have. Names them and those that it has."""


class Damaged(ValueError):
    """Bytes that are no snapshot of this version's state. Names what did not fit."""


class Folded(Protocol):
    """The fold of a log up to `sequence`, whatever it is about."""

    sequence: int
    epoch: int
    rules_version: int
    state_version: int
    """What is in force, of the rules and of the fold."""
    snapshots: dict[int, SnapshotTaken]
    """The last `SNAPSHOTS_KEPT`, by sequence."""
    ignored: dict[str, int]
    """Events that were not current at their own place, by type."""
    set_aside: int
    """Messages in the stream that are nobody's commit."""

    @property
    def holders(self) -> Mapping[str, str]:
        """writer → holder, from the Taken events."""
        ...

    def apply_stored(self, stored: Stored, events: list[Event] | None = None) -> Commit | None:
        """Decode and apply; what is nobody's commit is set aside and None returned. Raises UnknownCommit.

        `events`: the payload, where the caller has decoded it already.
        """
        ...

    def apply_stored_in_slices(self, stored: Stored) -> Generator[None, None, Commit | None]:
        """`apply_stored`, with a yield now and then where one event may be about everything: for a state that nobody
        else reads yet."""
        ...

    def ignore(self, event: Event) -> None:
        """Count an event that was not current at its own place."""
        ...


S = TypeVar("S", bound=Folded)
Shared = Callable[[str, dict[Any, Any], dict[Any, Any]], dict[Any, Any]]
_encode = msgspec.json.Encoder().encode


def snapshot_taken(state: Folded, event: SnapshotTaken) -> None:
    """The transition of either fold. There is no snapshot of what is not folded yet."""
    if event.sequence >= state.sequence:
        state.ignore(event)
        return
    state.snapshots[event.sequence] = event
    for stale in sorted(state.snapshots)[:-SNAPSHOTS_KEPT]:
        del state.snapshots[stale]


class Form(Generic[S]):
    """How the states of one kind of log are written down and read back."""

    def __init__(
        self,
        record: type[msgspec.Struct],
        empty: Callable[[], S],
        derive: Callable[[S, dict[str, Any]], Generator[None, None, None]],
        shared: Shared = lambda attribute, portion, known: portion,
        *,
        folds: Collection[int] = (FIRST_VERSION,),
        later: Mapping[str, object] | None = None,
    ) -> None:
        """`record` has what is recorded, by the names of the state's attributes; those that are dicts are written in
        portions. `empty` makes the state of an empty log.

        `derive` builds everything else of a restored state, whose tables are there, in slices; it takes out of the other
        attributes what is not to be set as it stands. `shared` makes one object of what is equal in a portion.

        `folds`: the state versions that there are. `later`: attributes that are left out as long as they have these
        values, so that a state of before has the digest that it had before there were these.
        """
        self.folds = folds
        self._later = later or {}
        self.empty = empty
        self._derive, self._shared = derive, shared
        fields = msgspec.structs.fields(record)
        self.recorded = tuple(field.name for field in fields)
        self._tables = frozenset(field.name for field in fields if get_origin(field.type) is dict)
        self._needed = [field.name for field in fields if field.required and field.name not in self._tables]
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {
            field.name: msgspec.json.Decoder(field.type) for field in fields
        }

    def lines(self, state: S) -> Iterator[bytes]:
        """The snapshot, line by line: an attribute's name, a space, the attribute or a portion of it as JSON."""
        for name in self.recorded:
            value = getattr(state, name)
            if name in self._later and value == self._later[name]:
                continue
            for portion in _portions(value) if name in self._tables else (value,):
                yield b"%b %b\n" % (name.encode(), _encode(portion))

    def restore(self, snapshot: Iterable[bytes]) -> Generator[None, None, S]:
        """The state of a snapshot's lines, in slices. Raises Damaged."""
        state = self.empty()
        found: dict[str, Any] = {}
        known: dict[Any, Any] = {}
        for line in snapshot:
            name, _, text = line.partition(b" ")
            attribute = name.decode("ascii", "replace")
            try:
                value = self._decoders[attribute].decode(text)
            except KeyError:
                raise Damaged(f"a snapshot with {attribute[:40]!r}, which this version does not record") from None
            except UNDECODABLE as error:
                raise Damaged(f"{attribute}: {error}") from error
            if attribute in self._tables:
                getattr(state, attribute).update(self._shared(attribute, value, known))
            else:
                found[attribute] = value
            yield
        if missing := [name for name in self._needed if name not in found]:
            raise Damaged(f"a snapshot without {', '.join(missing)}")
        version = found.get("state_version", FIRST_VERSION)
        if version not in self.folds:
            raise Damaged(f"it is of state version {version}, and this code has {listed(self.folds)}")
        try:
            yield from self._derive(state, found)
        except (ArithmeticError, LookupError) as error:  # a number beyond 64 bits, a claim of a class that is not there
            raise Damaged(f"its records do not fit each other: {error!r}") from error
        for attribute, value in found.items():
            setattr(state, attribute, value)
        return state

    def encode(self, state: S) -> bytes:
        """The whole snapshot."""
        return b"".join(self.lines(state))

    def decode(self, data: bytes) -> S:
        """The state of a whole snapshot. Raises Damaged."""
        return at_once(self.restore(data.splitlines()))

    def digest(self, state: S) -> str:
        """SHA-256 of the snapshot, in hex: equal digests mean equal states."""
        return at_once(self.digest_in_slices(state))

    def digest_in_slices(self, state: S) -> Generator[None, None, str]:
        """`digest`, with a yield behind each portion."""
        found = hashlib.sha256()
        for line in self.lines(state):
            found.update(line)
            yield
        return found.hexdigest()

    # --------------------------------------------------------------------------------------------------- as it is kept

    def pack(self, state: S) -> tuple[bytes, str]:
        """The snapshot as gzip, and its digest. Equal states give equal bytes."""
        packed, found = io.BytesIO(), hashlib.sha256()
        with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=COMPRESSION, mtime=0, filename="") as file:
            for line in self.lines(state):
                found.update(line)
                file.write(line)
        return packed.getvalue(), found.hexdigest()

    def unpack(self, packed: bytes, digest: str) -> Generator[None, None, S]:
        """The state of what `pack` made, in slices. Raises Damaged when it is not what has this digest."""
        found = hashlib.sha256()

        def checked() -> Iterator[bytes]:
            with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
                for line in file:
                    found.update(line)
                    yield line

        try:
            state = yield from self.restore(checked())
        except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
            raise Damaged(f"not gzip: {error}") from error
        if found.hexdigest() != digest:
            raise Damaged(f"its digest is {found.hexdigest()}, not {digest}")
        return state


def listed(versions: Iterable[int]) -> str:
    """`1, 2, 3`, for messages."""
    return ", ".join(map(str, versions))


def _portions(table: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    entries = iter(table.items())
    while portion := dict(islice(entries, PORTION)):
        yield portion
