"""What changed: objects as they are seen, against what this cluster's log already says of them.

Observing an object gives the events that make the log say what the object says, and folds them at once into the last
facts: one writer, appending in order, either gets them into the log or is replaced and its `Ingest` thrown away. A new
process takes the facts from the log's state and goes on. Each kind of object has a book of its own (`books`); what
stands here is asked of all of them alike.

Events of a watch may come late or twice, and around a relist in any order; what decides is the resourceVersion, which
only grows, and that a UID never comes back. Both are so until etcd is restored from a backup. Then a list, which is
consistent, has older versions than the log, and decides (`_set_back`); or, where versions have caught up, a watch says of
a pod what no later version can.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from events import Event, objects
from events.facts import ClusterSynced, DeclarationRejected, RejectionEnded
from services.ingest import identity, restored
from services.ingest.books import Book
from services.ingest.books.ledger import Ledger
from services.ingest.books.named import NamedObjects
from services.ingest.books.pods import Pods
from services.ingest.books.workloads import Workloads
from services.ingest.books.writes import Writes
from services.ingest.decoding import KINDS, NODE, POD, WORKLOAD, Malformed
from services.ingest.identity import Key, NamedEvent
from services.kubernetes.objects import Metadata, Node, Pod, PodGroup, PriorityClass, Workload
from services.state.slices import at_once

if TYPE_CHECKING:
    from services.state import State

Observed = Node | Pod | PodGroup | PriorityClass | Workload | Malformed

SLICE_OBJECTS = 2_000
"""Of a state taken over between two yields, or found gone: a few milliseconds."""
FEW = 10
"""So many that name an object are told at once what it says. Thousands may, and so does each of a slice's objects."""
SLICE_LISTED = 20_000
"""Looked up in a list between two yields: some milliseconds."""


class Ingest:
    """The last fact of each object, and what an observation adds to them."""

    def __init__(self, scheduler_names: Iterable[str]) -> None:
        """Pods with one of these `spec.schedulerName`s are candidates."""
        self._ledger, self._writes = Ledger(), Writes()
        self._pods = Pods(self._ledger, self._writes, scheduler_names)
        self._workloads = Workloads(self._pods, self._ledger)
        self._named: dict[str, NamedObjects] = {}
        for kind in KINDS:
            if kind not in (POD, WORKLOAD):
                self._named[kind.name] = NamedObjects(kind.name, self._named, self._ledger)
        self._books: dict[str, Book] = {POD.name: self._pods, WORKLOAD.name: self._workloads, **self._named}
        self.pods, self.workloads, self.rejected = self._pods.facts, self._pods.workloads, self._ledger.rejected
        self.named = {kind: book.facts for kind, book in self._named.items()}
        self.undone = 0
        """Objects of which a list said that what the log said last never was."""

    @classmethod
    def of(cls, state: State, scheduler_names: Iterable[str]) -> Ingest:
        """The `Ingest` of a state: the same as the fold of all of ingest's events up to its place."""
        return at_once(cls.of_in_slices(state, scheduler_names))

    @classmethod
    def of_in_slices(cls, state: State, scheduler_names: Iterable[str]) -> Generator[None, None, Ingest]:
        """`of`, with a yield now and then: with a million pods it takes longer than a lease lives."""
        core = cls(scheduler_names)
        core._writes.marked = frozenset(state.marks)
        for number, pod in enumerate(state.pods.values(), 1):
            if number % SLICE_OBJECTS == 0:
                yield
            core._pods.take_over(pod)
        for number, node in enumerate(state.nodes.values(), 1):
            if number % SLICE_OBJECTS == 0:
                yield
            if node.fact is not None:
                core._named[NODE.name].fold(node.fact)
        of_others: list[Event] = [*state.pod_groups.values(), *state.priority_classes.values()]
        for number, fact in enumerate((*of_others, *state.rejections.values()), 1):
            if number % SLICE_OBJECTS == 0:
                yield
            core.fold(fact)
        return core

    def fold(self, event: Event) -> None:
        """Apply an event of ingest's; others change nothing here."""
        if isinstance(event, NamedEvent):
            kind, _ = identity.identity(event)
            self._named[kind].fold(event)
        elif isinstance(event, DeclarationRejected | RejectionEnded):
            self._ledger.fold(event)
        else:
            self._pods.fold(event)

    @property
    def minor(self) -> int:
        """What pods request is counted as Kubernetes 1.`minor` does."""
        return self._pods.minor

    def count_by(self, minor: int) -> bool:
        """Count what pods request as Kubernetes 1.`minor` does, if that is newer. Whether pods that were observed may
        count otherwise now: they are to be listed."""
        return self._pods.count_by(minor)

    # ------------------------------------------------------------------------------------------------------ observing

    def observe(self, seen: Observed, *, listed: bool = False) -> list[Event]:
        """The events that bring the log up to this object, in order, already folded. Older objects give none.

        `listed`: it is from a list, so that what happened to it since it was seen last is unknown.
        """
        if not seen.metadata.uid and not isinstance(seen, Malformed):
            seen = identity.unidentified(seen)
        book = self._books[identity.kind_of(seen)]
        uid, version = seen.metadata.uid, objects.version(seen.metadata.resource_version)
        before = self._set_back(book, seen, version) if listed or self._lives_again(seen, version) else []
        if self._ledger.stale(uid, version):
            return before
        if self.rejected:
            self._ledger.bury_unread(
                identity.kind_of(seen), (seen.metadata.namespace, seen.metadata.name), uid, version
            )
        events = book.observe(seen, listed)
        if uid:  # even if its fact is over, which forgets it: the object is there, and its older versions may yet come
            self._ledger.versions[uid] = version
        return before + events + self._said_again(FEW)

    def _lives_again(self, seen: Observed, version: int) -> bool:
        """Whether a pod's life went backwards by what a watch says: versions may have caught up, as after a backup of a
        few minutes ago. Only facts count, which are older than it: what the binder wrote may be newer."""
        if not isinstance(seen, Pod) or self._ledger.stale(seen.metadata.uid, version):
            return False
        return restored.lives_again(self.pods.get(seen.metadata.uid), "", seen)

    def _set_back(self, book: Book, seen: Observed, version: int) -> list[Event]:
        """That what the log says is over, if a consistent list has an older version of the object, or an older object of
        its name, or a pod whose life went backwards: etcd was restored from a backup, and what came after that never was.

        Versions that no fact has, as of a node's heartbeat, are forgotten, and what the log says stands.
        """
        metadata, versions, events = seen.metadata, self._ledger.versions, list[Event]()
        self._ledger.deleted.pop(metadata.uid, None)
        key = (metadata.namespace, metadata.name)
        for uid in dict.fromkeys((book.holder(key), metadata.uid)):
            outcome = self._writes.outcomes.get(uid, restored.NONE)
            same = seen if isinstance(seen, Pod) and uid == metadata.uid else None
            again = same is not None and restored.lives_again(self.pods.get(uid), outcome.node, same)
            if again or 0 <= version < max(outcome.version, versions.get(uid, 0)):
                self.undone += 1
                said = book.said(uid, key)
                if said is not None and (again or uid != metadata.uid or version < max(outcome.version, said)):
                    events += book.gone(uid, key)
                versions.pop(uid, None)
                self._writes.undo(uid)
        return events

    def synced(self) -> ClusterSynced:
        """Everything has been listed: what the log says of an object is from now on what was seen of it last."""
        self._writes.synced()
        return ClusterSynced(nodes=len(self.named[NODE.name]), pods=len(self.pods))

    # ----------------------------------------------------------------------------------------------------------- gone

    def deleted(self, kind: str, metadata: Metadata) -> list[Event]:
        """The object is gone. `kind` is the name of one of `decoding.KINDS`."""
        self._ledger.bury(metadata.uid)
        key = (metadata.namespace, metadata.name)
        rejection = self._ledger.rejection(kind, key)
        ended = [] if rejection is None or rejection.uid != metadata.uid else self._ledger.end(rejection)
        return ended + self._books[kind].gone(metadata.uid, key) + self._said_again(FEW)

    def rest_in_slices(self) -> Iterator[list[Event]]:
        """What else objects that were observed, or are gone, say of those that name them. Others may be observed in
        between."""
        while self._ledger.any_due:
            yield self._said_again(SLICE_OBJECTS)

    def _said_again(self, most: int) -> list[Event]:
        references, events = self._ledger.references, list[Event]()
        for who in self._ledger.due(most):
            if (whom := references.named_by(who)) is None:
                continue  # gone meanwhile
            if whom.kind == WORKLOAD.name:
                events += self._pods.redeclared(who.name)
            else:
                kind, _, name = who.name.partition(" ")
                events += self._named[kind].repriced(identity.split_key(name), whom.name)
        return events

    def missing(self, kind: str, listed: set[str]) -> list[Event]:
        """After a full list of a kind was observed: deletions of whatever is not among the `listed` UIDs."""
        return list(chain.from_iterable(self.missing_in_slices(kind, listed)))

    def missing_in_slices(self, kind: str, listed: set[str]) -> Iterator[list[Event]]:
        """`missing`, so many at a time. Other kinds may be observed in between."""
        gone = yield from _unlisted(self._books[kind].known(), listed)
        rejected = yield from _unlisted(self._rejected(kind), listed)
        yield from self._all_gone(kind, map(self._buried, gone), map(self._buried, rejected))

    def _rejected(self, kind: str) -> Iterator[tuple[str, Key]]:
        """As `Book.known`."""
        there = list(self.rejected.values())
        return ((one.uid, (one.namespace, one.name)) for one in there if one.kind == kind)

    def _buried(self, gone: tuple[str, Key]) -> tuple[str, Key]:
        """One of those that are gone, as they are gone through."""
        self._ledger.bury(gone[0])
        return gone

    def vanished(self, kind: str) -> list[Event]:
        """The kind is not served any more: all of it is gone, and may be there again with the same UIDs one day."""
        return list(chain.from_iterable(self.vanished_in_slices(kind)))

    def vanished_in_slices(self, kind: str) -> Iterator[list[Event]]:
        """`vanished`, so many at a time. Other kinds may be observed in between."""
        known = yield from _unlisted(self._books[kind].known(), set())
        rejected = yield from _unlisted(self._rejected(kind), set())
        yield from self._all_gone(kind, known, rejected)

    def knows(self, kind: str) -> bool:
        """Whether the log says anything of this kind."""
        rejected = any(one.kind == kind for one in self.rejected.values())
        there = rejected or any(True for _ in self._books[kind].known())
        return there or (kind == WORKLOAD.name and bool(self._workloads.named()))

    def _all_gone(
        self, kind: str, gone: Iterable[tuple[str, Key]], rejected: Iterable[tuple[str, Key]]
    ) -> Iterator[list[Event]]:
        yield from _told_in_slices(self._books[kind].gone, gone)
        if kind == WORKLOAD.name:
            for number, workload in enumerate(self._workloads.named(), 1):  # of some pods say what nobody saw
                self._ledger.changed(workload)
                if number % SLICE_LISTED == 0:
                    yield []

        def ended(uid: str, key: Key) -> list[Event]:
            rejection = self._ledger.rejection(kind, key)  # that an object is gone ends it, too
            self._ledger.versions.pop(uid, None)
            return [] if rejection is None else self._ledger.end(rejection)

        yield from _told_in_slices(ended, rejected)
        yield from self.rest_in_slices()


def _told_in_slices(tell: Callable[[str, Key], list[Event]], gone: Iterable[tuple[str, Key]]) -> Iterator[list[Event]]:
    events = list[Event]()
    for number, (uid, key) in enumerate(gone, 1):
        events += tell(uid, key)
        if number % SLICE_OBJECTS == 0:
            yield events
            events = []
    yield events


def _unlisted(
    known: Iterable[tuple[str, Key]], listed: set[str]
) -> Generator[list[Event], None, Iterable[tuple[str, Key]]]:
    """Those that are not in the list, by key. They are looked up, and parts are sorted, with a yield in between; and
    merged as somebody goes through them."""
    parts, part = [], list[tuple[str, Key]]()
    for number, one in enumerate(known, 1):
        if one[0] not in listed:
            part.append(one)
        if number % SLICE_LISTED == 0:
            parts.append(sorted(part, key=_by_key))
            part = []
            yield []
    return heapq.merge(*parts, sorted(part, key=_by_key), key=_by_key)


def _by_key(known: tuple[str, Key]) -> Key:
    return known[1]
