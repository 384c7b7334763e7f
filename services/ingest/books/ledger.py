"""What is kept of objects of every kind alike: the newest version of each, what is over, what cannot be taken as it is,
and who names whom."""

from __future__ import annotations

from collections import OrderedDict, deque

from events import Event
from events.facts import DeclarationRejected, RejectionEnded
from services.ingest import identity
from services.ingest.identity import Key
from services.ingest.references import Reference, References

DELETED_KEPT = 65_536
"""UIDs of deleted objects that are remembered, against events that come after their end."""


class Ledger:
    """Tables that all books share, by UID; rejections by kind and name, as what cannot be read may be without a UID."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        """UID → the newest resourceVersion that was seen or written."""
        self.deleted: OrderedDict[str, None] = OrderedDict()
        """UIDs that do not come back, the latest last."""
        self.rejected: dict[tuple[str, str, str], DeclarationRejected] = {}
        """By kind, namespace and name; a fact about the object, or that it is gone, says that this is over, too."""
        self.references = References()
        """PodGroups → PriorityClasses, pods → Workloads."""
        self._changed: OrderedDict[Reference, None] = OrderedDict()
        """What others name, and came, changed or went."""
        self._due: deque[Reference] = deque()
        """Who named such a thing: a fact may have to be written again."""

    @property
    def any_due(self) -> bool:
        return bool(self._changed or self._due)

    def changed(self, whom: Reference) -> None:
        """It came, changed or went: of who names it a fact may have to be written again."""
        self._changed[whom] = None

    def due(self, most: int) -> list[Reference]:
        """Who is next, so many at most."""
        while self._changed and len(self._due) < most:
            whom, _ = self._changed.popitem(last=False)
            self._due.extend(self.references.naming(whom))
        return [self._due.popleft() for _ in range(min(most, len(self._due)))]

    def stale(self, uid: str, version: int) -> bool:
        """Whether a newer version of this object is known, or its deletion. Of one without a UID nothing is."""
        return bool(uid) and (uid in self.deleted or 0 <= version < self.versions.get(uid, 0))

    def bury(self, uid: str) -> None:
        """The object is over: whatever is seen of it yet comes late."""
        self.versions.pop(uid, None)
        self.deleted[uid] = None
        if len(self.deleted) > DELETED_KEPT:
            self.deleted.popitem(last=False)  # of a plain dict the first takes ever longer to find

    # ------------------------------------------------------------------------------------------------------ rejections

    def rejection(self, kind: str, key: Key) -> DeclarationRejected | None:
        return self.rejected.get((kind, *key))

    def reject(self, rejected: DeclarationRejected) -> list[Event]:
        """The object cannot be taken as it is: said once, and again when something else is wrong with it."""
        before = self.rejected.get((rejected.kind, rejected.namespace, rejected.name))
        if before is not None and identity.same(before, rejected):
            return []
        self.fold(rejected)
        return [rejected]

    def bury_unread(self, kind: str, key: Key, uid: str, version: int) -> None:
        """This one has the name: an older object that could not be taken is over, though nobody saw its end."""
        rejected = self.rejection(kind, key)
        if rejected is not None and rejected.uid not in ("", uid) and self.versions.get(rejected.uid, 0) < version:
            self.bury(rejected.uid)

    def end(self, rejected: DeclarationRejected) -> list[Event]:
        """The object is gone, or can be taken, and no fact says so."""
        ended = identity.ended(rejected)
        self.fold(ended)
        return [ended]

    def fold(self, event: DeclarationRejected | RejectionEnded) -> None:
        if isinstance(event, DeclarationRejected):
            self.rejected[event.kind, event.namespace, event.name] = event
        else:
            self.rejected.pop((event.kind, event.namespace, event.name), None)
