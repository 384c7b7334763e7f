"""Workloads (Kubernetes 1.35), which have no facts of their own: what their groups declare is written to their pods."""

from __future__ import annotations

from collections.abc import Iterator

from events import Event, objects
from events.facts import DeclarationRejected
from events.objects import Declaration
from services.ingest import identity, normalise
from services.ingest.books.ledger import Ledger
from services.ingest.books.pods import Declared, Pods
from services.ingest.decoding import WORKLOAD, Malformed
from services.ingest.dialects import native
from services.ingest.identity import Key
from services.ingest.references import Reference
from services.ingest.rejection import Rejection
from services.kubernetes.objects import Workload


class Workloads:
    """What each Workload that was seen declares, in a table of the pods' book, which looks it up there. The log may say
    more: its pods repeat what Workloads declared that went while nobody looked."""

    def __init__(self, pods: Pods, ledger: Ledger) -> None:
        self._ledger = ledger
        self._declared = pods.workloads

    def holder(self, key: Key) -> str:
        workload = self._declared.get("/".join(key))
        return workload.uid if workload is not None else ""

    def known(self) -> Iterator[tuple[str, Key]]:
        there = list(self._declared.items())
        return ((workload.uid, identity.split_key(name)) for name, workload in there)

    def said(self, uid: str, key: Key) -> int | None:
        """Nothing: what it declares stands in the facts about its pods."""
        return None

    def observe(self, seen: Workload | Malformed, listed: bool) -> list[Event]:
        metadata = seen.metadata
        key, declared = (metadata.namespace, metadata.name), _declarations(seen)
        before = self.holder(key)
        if before not in ("", metadata.uid):
            if 0 <= objects.version(metadata.resource_version) < self._ledger.versions.get(before, 0):
                return []
            self._ledger.bury(before)
            self.gone(before, key)
        if isinstance(declared, DeclarationRejected):
            return self.gone(metadata.uid, key) + self._ledger.reject(declared)
        rejection = self._ledger.rejection(WORKLOAD.name, key)
        ended = self._ledger.end(rejection) if rejection is not None else []
        self._declared["/".join(key)] = Declared(metadata.uid, declared)
        self._ledger.changed(Reference(WORKLOAD.name, "/".join(key)))
        return ended

    def gone(self, uid: str, key: Key) -> list[Event]:
        """It declares nothing any more: it is gone, or cannot be read."""
        name = "/".join(key)
        known = self._declared.get(name)
        if known is None or known.uid != uid:
            return []
        del self._declared[name]
        self._ledger.versions.pop(uid, None)
        self._ledger.changed(Reference(WORKLOAD.name, name))
        return []

    def named(self) -> list[Reference]:
        """The Workloads that pods name, there or not."""
        return self._ledger.references.named(WORKLOAD.name)


def _declarations(seen: Workload | Malformed) -> dict[str, Declaration] | DeclarationRejected:
    found = seen.rejected if isinstance(seen, Malformed) else native.declarations(seen)
    return normalise.rejected(WORKLOAD.name, seen.metadata, found) if isinstance(found, Rejection) else found
