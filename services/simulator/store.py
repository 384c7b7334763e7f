"""The simulated cluster's etcd: objects, one global revision, and each resource's history.

Every write raises the one revision, stamps it on the object as its resourceVersion, encodes the object once and appends
a `Change` to its collection's history. Watchers are cursors into that history: a write costs the same for none and for
a hundred of them, and what they send is joined from bytes that are there already. The history is bounded; a cursor that
it has left behind gets 410 Gone.

Stored objects are never changed in place: a write stores a new dict, so that old states in the history stay true.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from services.simulator import errors
from services.simulator.resources import Resource

Object = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name); the namespace of cluster-scoped objects is empty."""

MOST_BYTES = 1_572_864
"""Of one object. Etcd counts its own encoding of it, which is shorter than JSON."""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


class Entry:
    """One version of one object."""

    __slots__ = ("key", "object", "revision", "tail")

    def __init__(self, key: Key, obj: Object, revision: int) -> None:
        self.key, self.object, self.revision = key, obj, revision
        self.tail: bytes = encode(obj)[1:]
        """The object's JSON behind its opening brace, without kind and apiVersion: lists leave these out."""

    def under(self, revision: int) -> Entry:
        """The same under another revision: how an object is told of that is gone."""
        metadata = self.object["metadata"] | {"resourceVersion": str(revision)}
        return Entry(self.key, self.object | {"metadata": metadata}, revision)


@dataclass(slots=True)
class Change:
    """One write. `old` is None for a creation; a deletion's `new` is the last state under the deletion's revision."""

    revision: int
    type: str
    """ADDED, MODIFIED, DELETED."""
    new: Entry
    old: Entry | None


@dataclass(slots=True)
class Collection:
    """All objects of one resource and the history of their changes."""

    resource: Resource
    since: int
    """The revision at which the history begins: changes after it are known."""
    limit: int
    entries: dict[Key, Entry] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    trimmed: int = 0
    """Changes that were dropped from the front; `trimmed + len(changes)` numbers the next one."""
    withdrawn: bool = False
    """The resource is not served any more: watches end."""
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def end(self) -> int:
        """The number of the next change."""
        return self.trimmed + len(self.changes)

    def cursor(self, revision: int) -> int | None:
        """The number of the first change after `revision`; None when the history does not reach back so far."""
        if revision < self.since:
            return None
        return self.trimmed + bisect_right(self.changes, revision, key=lambda change: change.revision)

    def after(self, cursor: int, limit: int | None = None) -> list[Change] | None:
        """Changes from number `cursor` on; None when some of them are gone from the history."""
        start = cursor - self.trimmed
        if start < 0:
            return None
        return self.changes[start:] if limit is None else self.changes[start : start + limit]

    def in_order(self, namespace: str) -> Iterator[Entry]:
        """Entries by key, as etcd lists them; of one namespace unless that is empty."""
        for key in sorted(self.entries):
            if not namespace or key[0] == namespace:
                yield self.entries[key]

    def drop_history(self, revision: int) -> None:
        """Forget all changes: watches from before `revision` are too old from now on."""
        self.trimmed += len(self.changes)
        self.changes.clear()
        self.since = revision
        self.grown.set()


class Store:
    """Collections under one revision. Not thread-safe: one event loop owns it."""

    def __init__(self, history: int) -> None:
        self.revision = 1
        self.history = history
        self.collections: dict[Resource, Collection] = {}
        self.grown = asyncio.Event()
        """Set by every write, for kubelets and controllers; who waits clears it."""

    def serve(self, resource: Resource) -> Collection:
        """Begin to keep `resource`; its history begins here."""
        if resource not in self.collections:
            self.collections[resource] = Collection(resource, self.revision, self.history)
        return self.collections[resource]

    def withdraw(self, resource: Resource) -> None:
        """Forget `resource` with all its objects; its watches end."""
        if gone := self.collections.pop(resource, None):
            gone.withdrawn = True
            gone.drop_history(self.revision)

    def put(self, collection: Collection, key: Key, obj: Object) -> Entry:
        """Store `obj`, whose metadata dict must be its own, as the next revision of `key`. Raises ApiError 500."""
        obj["metadata"]["resourceVersion"] = str(self.revision + 1)
        entry = Entry(key, obj, self.revision + 1)
        if len(entry.tail) > MOST_BYTES:
            raise errors.too_large_object()
        self.revision += 1
        old = collection.entries.get(key)
        collection.entries[key] = entry
        self._record(collection, Change(self.revision, "MODIFIED" if old else "ADDED", entry, old))
        return entry

    def remove(self, collection: Collection, key: Key) -> Entry:
        """Delete `key`, which must be there; returns its last state."""
        self.revision += 1
        old = collection.entries.pop(key)
        entry = old.under(self.revision)
        self._record(collection, Change(self.revision, "DELETED", entry, old))
        return entry

    def _record(self, collection: Collection, change: Change) -> None:
        changes = collection.changes
        changes.append(change)
        if len(changes) >= 2 * collection.limit:
            dropped = len(changes) - collection.limit
            collection.since = changes[dropped - 1].revision
            collection.trimmed += dropped
            del changes[:dropped]
        collection.grown.set()
        self.grown.set()
