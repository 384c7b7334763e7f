"""What changed: objects as they are seen, against what this cluster's log already says of them.

Observing an object gives the events that make the log say what the object says, and folds them at once into the last
facts (`facts`): one writer, appending in order, either gets them into the log or is replaced and its `Ingest` thrown
away. A new process takes the facts from the log's state and goes on.

Events of a watch may come late or twice, and around a relist in any order; what decides is the resourceVersion, which
only grows, and that a UID never comes back. Both are so until etcd is restored from a backup. Then a list, which is
consistent, has older versions than the log, and decides (`_set_back`). A pod that nobody needs to know of is not written
at all: finished before it was seen, or unbound and not ours.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from events import Event, objects
from events.dialects import api_group, declared_in
from events.facts import (
    ClusterSynced,
    DeclarationRejected,
    PodAssigned,
    PodDeleted,
    PodFinished,
    PodGroupObserved,
    PodObserved,
    PodTerminating,
    PriorityClassObserved,
    SchedulingClassObserved,
)
from events.objects import Declaration
from services.ingest import identity, normalise, restored
from services.ingest.decoding import NODE, POD, PRIORITY_CLASS, WORKLOAD, Malformed
from services.ingest.dialects import native
from services.ingest.dialects.koordinator import DIALECT as KOORDINATOR
from services.ingest.facts import Facts
from services.ingest.identity import Key, Named
from services.ingest.references import Reference
from services.ingest.rejection import Rejection
from services.ingest.restored import FINISHED, Outcome
from services.kubernetes.objects import Metadata, Node, Pod, PodGroup, PriorityClass, Workload
from services.state.slices import at_once

if TYPE_CHECKING:
    from services.state import State
    from services.state.records import Pod as PodRecord

Observed = Node | Pod | PodGroup | PriorityClass | Workload | Malformed
DELETED_KEPT = 65_536
"""UIDs of deleted objects that are remembered, against events that come after their end."""

SLICE_OBJECTS = 2_000
"""Of a state taken over between two yields, or found gone: a few milliseconds."""
SLICE_LISTED = 20_000
"""Looked up in a list between two yields: some milliseconds."""


class Declared(NamedTuple):
    """A Workload."""

    uid: str
    groups: dict[str, Declaration]


class Ingest(Facts):
    """The last fact of each object, and what an observation adds to them."""

    def __init__(self, scheduler_names: Iterable[str]) -> None:
        """Pods with one of these `spec.schedulerName`s are candidates."""
        super().__init__()
        self.workloads: dict[str, Declared] = {}
        """By namespace/name: what their groups declare is written to the pods."""
        self._marked: frozenset[str] | None = frozenset()
        """Pods that the binder was annotating when this ingest began; None since everything was listed: it may be any."""
        self._outcomes: dict[str, Outcome] = {}
        """By UID, where they were acknowledged before this ingest began, and no fact had said so; until all is listed."""
        self.undone = 0
        """Objects of which a list said that what the log said last never was."""
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._normalise_pod = normalise.PodNormaliser(frozenset(scheduler_names))

    @classmethod
    def of(cls, state: State, scheduler_names: Iterable[str]) -> Ingest:
        """The `Ingest` of a state: the same as the fold of all of ingest's events up to its place."""
        return at_once(cls.of_in_slices(state, scheduler_names))

    @classmethod
    def of_in_slices(cls, state: State, scheduler_names: Iterable[str]) -> Generator[None, None, Ingest]:
        """`of`, with a yield now and then: with a million pods it takes longer than a lease lives."""
        core = cls(scheduler_names)
        core._marked = frozenset(state.marks)
        for number, pod in enumerate(state.pods.values(), 1):
            if number % SLICE_OBJECTS == 0:
                yield
            observed = _as_observed(pod)
            core._remember(observed)
            if outcome := restored.outcome(pod, observed):
                core._outcomes[observed.uid] = outcome
            # Not of a pod that the binder is annotating: its user may have acted between two versions that the log has.
            if observed.uid not in state.marks and observed.status == "pending" and _is_koordinators(observed):
                core._written[observed.uid] = objects.version(pod.resource_version)
        for number, node in enumerate(state.nodes.values(), 1):
            if number % SLICE_OBJECTS == 0:
                yield
            if node.fact is not None:
                core.fold(node.fact)
        of_others: list[Event] = [*state.pod_groups.values(), *state.priority_classes.values()]
        for number, fact in enumerate((*of_others, *state.rejections.values()), 1):
            if number % SLICE_OBJECTS == 0:
                yield
            core.fold(fact)
        return core

    # ------------------------------------------------------------------------------------------------------ observing

    def observe(self, seen: Observed, *, listed: bool = False) -> list[Event]:
        """The events that bring the log up to this object, in order, already folded. Older objects give none.

        `listed`: it is from a list, so that what happened to it since it was seen last is unknown.
        """
        if not seen.metadata.uid and not isinstance(seen, Malformed):
            seen = identity.unidentified(seen)
        before = self._set_back(seen) if listed else []
        if self._stale(seen.metadata):
            return before
        uid, version = seen.metadata.uid, objects.version(seen.metadata.resource_version)
        unwatched = listed and version > max(self._versions.get(uid, 0), self._written.get(uid, 0))
        events = self._brought(seen, unwatched)
        if uid:  # even if its fact is over, which forgets it: the object is there, and its older versions may yet come
            self._versions[uid] = version
        return before + events

    def _set_back(self, seen: Observed) -> list[Event]:
        """That what the log says is over, if a consistent list has an older version of the object, or an older object of
        its name, or a pod whose life went backwards: etcd was restored from a backup, and what came after that never was.

        Versions that no fact has, as of a node's heartbeat, are forgotten, and what the log says stands.
        """
        metadata, events = seen.metadata, list[Event]()
        self._deleted.pop(metadata.uid, None)
        kind = seen.rejected.kind if isinstance(seen, Malformed) else identity.kind_of(seen)
        key, version = (metadata.namespace, metadata.name), objects.version(metadata.resource_version)
        for uid in dict.fromkeys((self._holder(kind, key), metadata.uid)):
            outcome = self._outcomes.get(uid, restored.NONE)
            same = seen if isinstance(seen, Pod) and uid == metadata.uid else None
            again = same is not None and restored.lives_again(self.pods.get(uid), outcome.node, same)
            if again or 0 <= version < max(outcome.version, self._versions.get(uid, 0)):
                self.undone += 1
                if again or uid != metadata.uid or version < max(outcome.version, self._said(kind, uid, key)):
                    events += self._gone(kind, uid, key)
                self._versions.pop(uid, None)
                self._written.pop(uid, None)
                self._outcomes.pop(uid, None)
        return events

    def _said(self, kind: str, uid: str, key: Key) -> int:
        """The version of the last fact about the object, or about another of its name."""
        fact = self.pods.get(uid) if kind == POD.name else self.named[kind].get(key)
        return objects.version(fact.resource_version) if fact is not None else 0

    def _holder(self, kind: str, key: Key) -> str:
        """The UID of the object that has the name, as far as is known; else empty."""
        if kind == POD.name:
            return self._holders.get(key, "")
        if kind == WORKLOAD.name:
            workload = self.workloads.get("/".join(key))
            return workload.uid if workload is not None else ""
        fact = self.named[kind].get(key)
        return fact.uid if fact is not None else ""

    def synced(self) -> ClusterSynced:
        """Everything has been listed: what the log says of an object is from now on what was seen of it last."""
        self._marked = None
        self._outcomes.clear()
        return ClusterSynced(nodes=len(self.named[NODE.name]), pods=len(self.pods))

    def _brought(self, seen: Observed, unwatched: bool) -> list[Event]:
        if isinstance(seen, Pod):
            return self._observe_pod(seen, unwatched)
        if isinstance(seen, Workload):
            return self._observe_workload(seen)
        if isinstance(seen, Malformed):
            if seen.rejected.kind == POD.name:
                return self._reject(seen.rejected)
            if seen.rejected.kind == WORKLOAD.name:
                return self._set_workload(seen.metadata, None) + self._reject(seen.rejected)
        events = self._observe_named(seen.metadata, self._normalised(seen))
        if isinstance(seen, PodGroup):
            known = (seen.metadata.namespace, seen.metadata.name) in self.named[identity.kind_of(seen)]
            self._references.put(identity.reference(seen), identity.class_of(seen) if known else None)
        return events

    def deleted(self, kind: str, metadata: Metadata) -> list[Event]:
        """The object is gone. `kind` is the name of one of `decoding.KINDS`."""
        self._bury(metadata.uid)
        key = (metadata.namespace, metadata.name)
        rejected = self.rejected.get((kind, *key))
        ended: list[Event] = [] if rejected is None or rejected.uid != metadata.uid else [identity.ended(rejected)]
        if kind == POD.name:
            self._release(key, metadata.uid)
        if kind == WORKLOAD.name:
            return self._folded(ended) + self._set_workload(metadata, None)
        return self._folded(ended) + self._gone(kind, metadata.uid, key)

    def missing(self, kind: str, listed: set[str]) -> list[Event]:
        """After a full list of a kind was observed: deletions of whatever is not among the `listed` UIDs."""
        return list(chain.from_iterable(self.missing_in_slices(kind, listed)))

    def missing_in_slices(self, kind: str, listed: set[str]) -> Iterator[list[Event]]:
        """`missing`, so many at a time. Other kinds may be observed in between."""
        gone: list[tuple[str, Key]] = []
        for number, one in enumerate(self._known(kind), 1):
            if one[0] not in listed:
                gone.append(one)
            if number % SLICE_LISTED == 0:
                yield []
        gone.sort(key=_by_key)
        rejected = [one.uid for one in self.rejected.values() if one.kind == kind and one.uid not in listed]
        for uid in [uid for uid, _ in gone] + rejected:
            self._bury(uid)
        yield from self._all_gone(kind, gone, listed)

    def vanished(self, kind: str) -> list[Event]:
        """The kind is not served any more: all of it is gone, and may be there again with the same UIDs one day."""
        return list(chain.from_iterable(self._all_gone(kind, sorted(self._known(kind), key=_by_key), set())))

    def knows(self, kind: str) -> bool:
        """Whether the log says anything of this kind."""
        return bool(self._known(kind) or (kind == WORKLOAD.name and self._references.named(kind)))

    def _known(self, kind: str) -> list[tuple[str, Key]]:
        """(UID, key) of all that is there of a kind."""
        if kind == POD.name:
            return [(uid, key) for key, uid in self._holders.items()]
        if kind == WORKLOAD.name:
            return [(workload.uid, identity.split_key(name)) for name, workload in self.workloads.items()]
        return [(fact.uid, key) for key, fact in self.named[kind].items()]

    def _all_gone(self, kind: str, gone: list[tuple[str, Key]], listed: set[str]) -> Iterator[list[Event]]:
        events: list[Event] = []
        for number, (uid, key) in enumerate(gone, 1):
            events += self._gone(kind, uid, key)
            self._release(key, uid)
            if number % SLICE_OBJECTS == 0:
                yield events
                events = []
        if kind == WORKLOAD.name:
            for one in self._references.named(WORKLOAD.name):
                events += self._redeclared(one.name)  # what the log says, of Workloads that went while nobody looked
        over = [one for _, one in sorted(self.rejected.items()) if one.kind == kind and one.uid not in listed]
        for rejected in over:
            self._versions.pop(rejected.uid, None)
        ended: list[Event] = [identity.ended(rejected) for rejected in over]
        yield events + self._folded(ended)

    def _stale(self, metadata: Metadata) -> bool:
        """Whether a newer version of this object is known, or its deletion."""
        if not metadata.uid:
            return False
        version = objects.version(metadata.resource_version)
        return metadata.uid in self._deleted or 0 <= version < self._versions.get(metadata.uid, 0)

    def _bury(self, uid: str) -> None:
        self._versions.pop(uid, None)
        self._deleted[uid] = None
        if len(self._deleted) > DELETED_KEPT:
            self._deleted.popitem(last=False)  # of a plain dict the first takes ever longer to find

    def _gone(self, kind: str, uid: str, key: Key) -> list[Event]:
        """The fact that says so, if the log knows the object."""
        if kind == POD.name:
            known = uid in self.pods
            return self._folded([PodDeleted(uid=uid, namespace=key[0], name=key[1])] if known else [])
        if kind == WORKLOAD.name:
            return self._set_workload(Metadata(namespace=key[0], name=key[1], uid=uid), None)
        fact = self.named[kind].get(key)
        if fact is None or fact.uid != uid:
            return []
        return self._folded([identity.deletion(fact)]) + self._repriced(kind, key)

    # --------------------------------------------------------------------------------------------------------- kinds

    def _observe_named(self, metadata: Metadata, new: Named | DeclarationRejected) -> list[Event]:
        kind, key = identity.identity(new)
        old = self.named[kind].get(key)
        events: list[Event] = []
        if old is not None and old.uid != metadata.uid:
            if 0 <= objects.version(metadata.resource_version) < objects.version(old.resource_version):
                return []
            self._bury(old.uid)
            events += self._gone(kind, old.uid, key)
            old = None
        if isinstance(new, DeclarationRejected):
            if old is not None:
                events += self._gone(kind, old.uid, key)
            return events + self._reject(new)
        if old is None or not identity.same(old, new):
            events += self._folded([new]) + self._repriced(kind, key)
        return events

    def _reject(self, rejected: DeclarationRejected) -> list[Event]:
        before = self.rejected.get((rejected.kind, rejected.namespace, rejected.name))
        return self._folded([] if before is not None and identity.same(before, rejected) else [rejected])

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

    def _value(self, name: str) -> int | None:
        """Of a PriorityClass; None where the log knows none of the name."""
        found = self.named[PRIORITY_CLASS.name].get(("", name))
        return found.value if isinstance(found, PriorityClassObserved) else None

    def _repriced(self, kind: str, key: Key) -> list[Event]:
        """A PriorityClass came, changed or went: PodGroups that name it have another priority."""
        if kind != PRIORITY_CLASS.name:
            return []
        priority = self._value(key[1])
        events: list[Event] = []
        for name in self._references.naming(Reference(kind, key[1])):
            groups, _, group = name.partition(" ")
            fact = self.named[groups].get(identity.split_key(group))
            if isinstance(fact, PodGroupObserved) and fact.declaration.priority != priority:
                declaration = msgspec.structs.replace(fact.declaration, priority=priority)
                events += self._folded([msgspec.structs.replace(fact, declaration=declaration)])
        return events

    # ------------------------------------------------------------------------------------------------------ workloads

    def _observe_workload(self, seen: Workload) -> list[Event]:
        found = native.declarations(seen)
        if isinstance(found, Rejection):
            rejected = normalise.rejected(WORKLOAD.name, seen.metadata, found)
            return self._set_workload(seen.metadata, None) + self._reject(rejected)
        before = self.rejected.get((WORKLOAD.name, seen.metadata.namespace, seen.metadata.name))
        ended = [] if before is None else self._folded([identity.ended(before)])
        return ended + self._set_workload(seen.metadata, found)

    def _set_workload(self, metadata: Metadata, groups: dict[str, Declaration] | None) -> list[Event]:
        """The Workload declares these groups from now on; None: it is gone, or cannot be read."""
        name = f"{metadata.namespace}/{metadata.name}"
        known = self.workloads.get(name)
        if groups is not None:
            self.workloads[name] = Declared(metadata.uid, groups)
        elif known is None or known.uid != metadata.uid:
            return []
        else:
            del self.workloads[name]
            self._versions.pop(metadata.uid, None)
        return self._redeclared(name)

    def _redeclared(self, workload: str) -> list[Event]:
        """What the Workload says now, to its pods."""
        events: list[Event] = []
        for uid in self._references.naming(Reference(WORKLOAD.name, workload)):
            pod = self.pods[uid]
            new = self._declared(pod)
            if new != pod and pod.status not in FINISHED:
                events += self._folded([new])
        return events

    def _declared(self, pod: PodObserved) -> PodObserved:
        """The pod with what its Workload declares of its gang, if it has one."""
        gang = pod.gang
        if gang is None or gang.dialect != native.OF_WORKLOADS:
            return pod
        workload, group = native.workload_group(gang.gang)
        known = self.workloads.get(workload)
        declared = known.groups.get(group) if known is not None else None
        return msgspec.structs.replace(pod, gang=msgspec.structs.replace(gang, declared=declared))

    # ----------------------------------------------------------------------------------------------------------- pods

    def _observe_pod(self, seen: Pod, unwatched: bool) -> list[Event]:
        metadata = seen.metadata
        key = (metadata.namespace, metadata.name)
        holder = self._holders.get(key, metadata.uid)
        events: list[Event] = []
        if holder != metadata.uid:
            if 0 <= objects.version(metadata.resource_version) < self._versions.get(holder, 0):
                return []
            self._bury(holder)
            events += self._gone("Pod", holder, key)
        self._holders[key] = metadata.uid
        old = self.pods.get(metadata.uid)
        if old is None and not self._matters(seen):
            return events
        observed, scheduling_class, rejected = self._normalise_pod(seen)
        new = self._declared(observed)
        if old is None:
            wanted = new.candidate or bool(new.node)
            events += self._folded(self._in_full(new, scheduling_class) if wanted else [])
        else:
            found = self._difference(old, new, scheduling_class, seen.status.reason)
            if not found and unwatched and self._may_be_settled(new):
                found = self._in_full(new, scheduling_class)
            events += self._folded(found)
            if metadata.uid not in self.pods:  # it is over; its object is there, and has its name
                self._holders[key] = metadata.uid
        return events + (self._reject(rejected) if rejected is not None else [])

    def _may_be_settled(self, pod: PodObserved) -> bool:
        """Whether a timeout's annotation may have come and gone on this pod while nobody watched, so that the binder may
        wait for a fact without it.

        That may be any pod of Koordinator's that is pending or runs. Of the first list, those that run are left out
        unless the binder was annotating them (`_marked`): most have changed since the log's last word about them, and all
        of those would be written again.
        """
        if pod.status == "bound" and self._marked is not None:
            return pod.uid in self._marked
        return pod.status in ("pending", "bound") and _is_koordinators(pod)

    def _matters(self, seen: Pod) -> bool:
        """Whether a pod that the log does not know has to be in it."""
        status = normalise.status(seen)
        if status in FINISHED:
            return False
        if seen.spec.node_name:
            return True
        return status == "pending" and seen.spec.scheduler_name in self._normalise_pod.scheduler_names

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


def _is_koordinators(pod: PodObserved) -> bool:
    """Whether the binder may annotate it with Koordinator's timeout. A PodGroup may make its gang Koordinator's, too.

    Its user may have taken the annotation away before anybody saw it (`services.state.timeouts`). Only a fact that is
    newer than the annotation, and without it, says so.
    """
    gang = pod.gang
    return gang is not None and api_group(KOORDINATOR) in declared_in(gang.gang, gang.dialect)


def _as_observed(pod: PodRecord) -> PodObserved:
    """The pod's facts as one: observed now."""
    fact, status, node, version = pod.fact, pod.observed, pod.observed_node, pod.observed_version
    if (fact.status, fact.node, fact.resource_version) == (status, node, version):
        return fact
    return msgspec.structs.replace(fact, status=status, node=node, resource_version=version)


def _by_key(known: tuple[str, Key]) -> Key:
    return known[1]
