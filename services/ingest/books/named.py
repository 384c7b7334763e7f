"""Nodes, PodGroups and PriorityClasses: one book for each kind, in which the last fact about a name stands."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from events import Event, objects
from events.facts import (
    DeclarationRejected,
    NodeDeleted,
    NodeObserved,
    PodGroupDeleted,
    PodGroupObserved,
    PriorityClassDeleted,
    PriorityClassObserved,
)
from services.ingest import identity, normalise
from services.ingest.books.ledger import Ledger
from services.ingest.decoding import PRIORITY_CLASS, Malformed
from services.ingest.identity import Key, Named, NamedEvent
from services.ingest.references import Reference
from services.kubernetes.objects import Metadata, Node, PodGroup, PriorityClass


class NamedObjects:
    """The last fact about each name of one kind: another object of the name takes the place of the one before.

    A PodGroup's fact says the value of the PriorityClass that it names. When that comes, changes or goes, its book has
    the PodGroup's write the fact again.
    """

    def __init__(self, kind: str, books: dict[str, NamedObjects], ledger: Ledger) -> None:
        """`books`: those of all such kinds, by the kind's name; PodGroups of different API groups are different kinds."""
        self.kind = kind
        self.facts: dict[Key, Named] = {}
        self._books, self._ledger = books, ledger

    def holder(self, key: Key) -> str:
        fact = self.facts.get(key)
        return fact.uid if fact is not None else ""

    def known(self) -> Iterator[tuple[str, Key]]:
        return ((fact.uid, key) for key, fact in zip(list(self.facts), list(self.facts.values()), strict=True))

    def said(self, uid: str, key: Key) -> int | None:
        fact = self.facts.get(key)
        return None if fact is None else objects.version(fact.resource_version)

    def gone(self, uid: str, key: Key) -> list[Event]:
        fact = self.facts.get(key)
        if fact is None or fact.uid != uid:
            return []
        self._changed(key)
        return self._folded(identity.deletion(fact))

    # ------------------------------------------------------------------------------------------------------ observing

    def observe(self, seen: Node | PodGroup | PriorityClass | Malformed, listed: bool) -> list[Event]:
        events = self._brought(seen.metadata, self._normalised(seen))
        if isinstance(seen, PodGroup):
            uid = self.holder((seen.metadata.namespace, seen.metadata.name))
            if uid in ("", seen.metadata.uid):  # else it is an older one of the name, of which nothing counts
                self._ledger.references.put(identity.reference(seen), identity.class_of(seen) if uid else None)
        return events

    def _normalised(self, seen: Node | PodGroup | PriorityClass | Malformed) -> Named | DeclarationRejected:
        match seen:
            case Node():
                return normalise.node(seen)
            case PodGroup():
                named = identity.class_of(seen)
                return normalise.pod_group(seen, None if named is None else self._value(named.name))
            case PriorityClass():
                return normalise.priority_class(seen)
            case Malformed():
                return seen.rejected

    def _brought(self, metadata: Metadata, new: Named | DeclarationRejected) -> list[Event]:
        """From the last fact of the name to this one, or to that there is none."""
        _, key = identity.identity(new)
        old = self.facts.get(key)
        events: list[Event] = []
        if old is not None and old.uid != metadata.uid:
            if 0 <= objects.version(metadata.resource_version) < objects.version(old.resource_version):
                return []
            self._ledger.bury(old.uid)
            events += self.gone(old.uid, key)
            old = None
        if isinstance(new, DeclarationRejected):
            if old is not None:
                events += self.gone(old.uid, key)
            return events + self._ledger.reject(new)
        if old is None or not identity.same(old, new):
            events += self._folded(new)
            self._changed(key)
        return events

    # ------------------------------------------------------------------------------------------------------ priorities

    def _value(self, name: str) -> int | None:
        """Of a PriorityClass; None where the log knows none of the name."""
        found = self._books[PRIORITY_CLASS.name].facts.get(("", name))
        return found.value if isinstance(found, PriorityClassObserved) else None

    def _changed(self, key: Key) -> None:
        """If this is a PriorityClass, it came, changed or went: PodGroups that name it have another priority."""
        if self.kind == PRIORITY_CLASS.name:
            self._ledger.changed(Reference(self.kind, key[1]))

    def repriced(self, key: Key, priority_class: str) -> list[Event]:
        """What the PriorityClass that it names says now, to a PodGroup."""
        fact, priority = self.facts.get(key), self._value(priority_class)
        if not isinstance(fact, PodGroupObserved) or fact.declaration.priority == priority:
            return []
        declaration = msgspec.structs.replace(fact.declaration, priority=priority)
        return self._folded(msgspec.structs.replace(fact, declaration=declaration))

    # ------------------------------------------------------------------------------------------------ what the log says

    def fold(self, event: NamedEvent) -> None:
        """Apply an event about an object of this kind."""
        _, key = identity.identity(event)
        match event:
            case NodeObserved() | PodGroupObserved() | PriorityClassObserved():
                self.facts[key] = event
                self._ledger.rejected.pop((self.kind, *key), None)
                self._ledger.versions[event.uid] = objects.version(event.resource_version)
            case NodeDeleted() | PodGroupDeleted() | PriorityClassDeleted():
                if fact := self.facts.pop(key, None):
                    self._ledger.references.put(Reference("PodGroup", f"{self.kind} {'/'.join(key)}"), None)
                    self._ledger.versions.pop(fact.uid, None)

    def _folded(self, event: NamedEvent) -> list[Event]:
        self.fold(event)
        return [event]
