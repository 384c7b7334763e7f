"""Pods: their facts are kept by UID, and the log is told the least that says what changed.

A pod that nobody needs to know of is not written at all: finished before it was seen, or unbound and not ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from events import Event, objects
from events.facts import (
    PodAssigned,
    PodDeleted,
    PodFinished,
    PodObserved,
    PodTerminating,
    SchedulingClassObserved,
)
from events.objects import Declaration
from services.ingest import identity, normalise
from services.ingest.books.ledger import Ledger
from services.ingest.books.writes import Writes
from services.ingest.decoding import POD, Malformed
from services.ingest.dialects import native
from services.ingest.identity import Key
from services.ingest.references import Reference
from services.ingest.requests import SUMS_SINCE
from services.kubernetes.objects import Pod
from services.state.records import FINISHED

if TYPE_CHECKING:
    from services.state.records import Pod as PodRecord


class Declared(NamedTuple):
    """A Workload, and what its groups declare."""

    uid: str
    groups: dict[str, Declaration]


class Pods:
    """The last fact of each pod; who has a name, written or not, as the next pod of the name ends it; how many pods are
    of a scheduling class, as the log forgets that with the last; what Workloads declare, as only pods' facts say it."""

    def __init__(self, ledger: Ledger, writes: Writes, scheduler_names: Iterable[str]) -> None:
        """Pods with one of these `spec.schedulerName`s are candidates."""
        self.facts: dict[str, PodObserved] = {}
        """By UID, as if observed now: later facts are folded into the first."""
        self.workloads: dict[str, Declared] = {}
        """By namespace/name, as `Workloads` enters them: what their groups declare is written to the pods."""
        self._holders: dict[Key, str] = {}
        """Which UID last had a pod's name."""
        self._classes: Counter[str] = Counter()
        """Scheduling class → its pods."""
        self._ledger, self._writes = ledger, writes
        self._normalise = normalise.PodNormaliser(frozenset(scheduler_names))

    def holder(self, key: Key) -> str:
        return self._holders.get(key, "")

    def known(self) -> Iterator[tuple[str, Key]]:
        return zip(list(self._holders.values()), list(self._holders), strict=True)

    def said(self, uid: str, key: Key) -> int | None:
        fact = self.facts.get(uid)
        return None if fact is None else objects.version(fact.resource_version)

    def gone(self, uid: str, key: Key) -> list[Event]:
        self._release(key, uid)
        known = uid in self.facts
        return self._folded([PodDeleted(uid=uid, namespace=key[0], name=key[1])] if known else [])

    @property
    def minor(self) -> int:
        return self._normalise.minor

    def count_by(self, minor: int) -> bool:
        """`Ingest.count_by`. While an API server is upgraded one of several may be the older one: the newest counts."""
        before = self._normalise.minor
        self._normalise.minor = max(before, minor)
        return before < SUMS_SINCE <= minor

    # ------------------------------------------------------------------------------------------------------ observing

    def observe(self, seen: Pod | Malformed, listed: bool) -> list[Event]:
        if isinstance(seen, Malformed):
            return self._ledger.reject(seen.rejected)
        metadata = seen.metadata
        key = (metadata.namespace, metadata.name)
        holder = self._holders.get(key, metadata.uid)
        events: list[Event] = []
        if holder != metadata.uid:
            if 0 <= objects.version(metadata.resource_version) < self._ledger.versions.get(holder, 0):
                return []
            self._ledger.bury(holder)
            events += self.gone(holder, key)
        self._holders[key] = metadata.uid
        old = self.facts.get(metadata.uid)
        if old is None and not self.matters(seen):
            return events
        observed, scheduling_class, rejected = self._normalise(seen)
        new = self._declared(observed)
        if old is None:
            found = self._in_full(new, scheduling_class) if new.candidate or new.node else []
        else:
            found = self._difference(old, new, scheduling_class, seen.status.reason)
            if not found and listed and self._writes.may_be_settled(new, self._ledger.versions.get(new.uid, 0)):
                found = self._in_full(new, scheduling_class)
        events += self._folded(found)
        self._holders[key] = metadata.uid  # even if it is over, which frees the name: its object is there, and has it
        return events + (self._ledger.reject(rejected) if rejected is not None else [])

    def matters(self, seen: Pod) -> bool:
        """Whether a pod that the log does not know has to be in it."""
        status = normalise.status(seen)
        if status in FINISHED:
            return False
        if seen.spec.node_name:
            return True
        return status == "pending" and seen.spec.scheduler_name in self._normalise.scheduler_names

    def _in_full(self, pod: PodObserved, scheduling_class: SchedulingClassObserved) -> list[Event]:
        return [pod] if scheduling_class.digest in self._classes else [scheduling_class, pod]

    def _difference(
        self, old: PodObserved, new: PodObserved, scheduling_class: SchedulingClassObserved, reason: str
    ) -> list[Event]:
        """From the pod that the log knows to the one that was seen: the least that says it."""
        about = {"uid": new.uid, "namespace": new.namespace, "name": new.name, "resource_version": new.resource_version}
        if old.status in FINISHED:
            return []
        if new.status in FINISHED:
            if old.status == "terminating":  # all of it is over, whatever finalizers keep the object
                return [PodDeleted(uid=new.uid, namespace=new.namespace, name=new.name)]
            return [PodFinished(**about, succeeded=new.status == "succeeded", reason=reason)]
        if not identity.same(old, msgspec.structs.replace(new, status=old.status, node=old.node)):
            return self._in_full(new, scheduling_class)
        events: list[Event] = []
        if new.node and not old.node:
            events.append(PodAssigned(**about, node=new.node))
        if new.status == "terminating" and old.status != "terminating":
            events.append(PodTerminating(**about))
        return events

    # ------------------------------------------------------------------------------------------- what Workloads declare

    def redeclared(self, uid: str) -> list[Event]:
        """What its Workload says now, to a pod."""
        pod = self.facts[uid]
        new = self._declared(pod)
        return self._folded([new]) if new != pod and pod.status not in FINISHED else []

    def _declared(self, pod: PodObserved) -> PodObserved:
        """The pod with what its Workload declares of its gang, if it has one."""
        gang = pod.gang
        if gang is None or gang.dialect != native.OF_WORKLOADS:
            return pod
        workload, group = native.workload_group(gang.gang)
        known = self.workloads.get(workload)
        declared = known.groups.get(group) if known is not None else None
        return msgspec.structs.replace(pod, gang=msgspec.structs.replace(gang, declared=declared))

    # ------------------------------------------------------------------------------------------------ what the log says

    def take_over(self, pod: PodRecord) -> None:
        """A pod of the state from which this ingest begins."""
        observed = _as_observed(pod)
        self._remember(observed)
        self._writes.take_over(pod, observed)

    def fold(self, event: Event) -> None:
        """Apply a pod's event; others change nothing here."""
        match event:
            case PodObserved():
                self._remember(event)
            case PodAssigned(uid=uid, node=node):
                known = self.facts.get(uid)
                going = known is not None and known.status == "terminating"
                self._change(uid, event.resource_version, status="terminating" if going else "bound", node=node)
            case PodTerminating(uid=uid):
                self._change(uid, event.resource_version, status="terminating")
            case PodFinished(uid=uid, succeeded=succeeded):
                self._change(uid, event.resource_version, status="succeeded" if succeeded else "failed")
            case PodDeleted(uid=uid):
                self._forget(uid)

    def _folded(self, events: list[Event]) -> list[Event]:
        for event in events:
            self.fold(event)
        return events

    def _remember(self, pod: PodObserved) -> None:
        ledger = self._ledger
        self._count_class(pod, 1)
        if before := self.facts.get(pod.uid):
            self._count_class(before, -1)
        self.facts[pod.uid] = pod
        self._holders[pod.namespace, pod.name] = pod.uid
        ledger.references.put(Reference(POD.name, pod.uid), identity.workload_of(pod))
        ledger.versions[pod.uid] = objects.version(pod.resource_version)
        ledger.rejected.pop((POD.name, pod.namespace, pod.name), None)

    def _change(self, uid: str, resource_version: str, **changes: str) -> None:
        if pod := self.facts.get(uid):
            self.facts[uid] = msgspec.structs.replace(pod, resource_version=resource_version, **changes)
            self._ledger.versions[uid] = objects.version(resource_version)

    def _forget(self, uid: str) -> None:
        if pod := self.facts.pop(uid, None):
            ledger = self._ledger
            self._count_class(pod, -1)
            ledger.references.put(Reference(POD.name, uid), None)
            ledger.versions.pop(uid, None)
            ledger.rejected.pop((POD.name, pod.namespace, pod.name), None)
            self._writes.written.pop(uid, None)
            self._release((pod.namespace, pod.name), uid)

    def _count_class(self, pod: PodObserved, sign: int) -> None:
        self._classes[pod.scheduling_class] += sign
        if not self._classes[pod.scheduling_class]:
            del self._classes[pod.scheduling_class]

    def _release(self, key: Key, uid: str) -> None:
        if self._holders.get(key) == uid:
            del self._holders[key]


def _as_observed(pod: PodRecord) -> PodObserved:
    """The pod's facts as one: observed now."""
    fact, status, node, version = pod.fact, pod.observed, pod.observed_node, pod.observed_version
    if (fact.status, fact.node, fact.resource_version) == (status, node, version):
        return fact
    return msgspec.structs.replace(fact, status=status, node=node, resource_version=version)
