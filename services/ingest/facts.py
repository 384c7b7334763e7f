"""What a cluster's log says of it: the last fact of each object, folded from ingest's own events."""

from __future__ import annotations

from collections import Counter

import msgspec

from events import Event, objects
from events.dialects import pod_group_kind
from events.facts import (
    DeclarationRejected,
    NodeDeleted,
    NodeObserved,
    PodAssigned,
    PodDeleted,
    PodFinished,
    PodGroupDeleted,
    PodGroupObserved,
    PodObserved,
    PodTerminating,
    PriorityClassDeleted,
    PriorityClassObserved,
    RejectionEnded,
)
from services.ingest import identity
from services.ingest.decoding import KINDS, POD
from services.ingest.identity import Key, Named
from services.ingest.references import Reference, References


class Facts:
    """The last fact of each object."""

    def __init__(self) -> None:
        self.pods: dict[str, PodObserved] = {}
        """By UID, as if observed now: later facts are folded into the first."""
        self.named: dict[str, dict[Key, Named]] = {kind.name: {} for kind in KINDS if kind is not POD}
        """By the name of the kind; PodGroups of different API groups are different kinds."""
        self.rejected: dict[tuple[str, str, str], DeclarationRejected] = {}
        self._holders: dict[Key, str] = {}
        """Which UID last had a pod's name, written or not."""
        self._classes: Counter[str] = Counter()
        """Scheduling class → its pods: with the last of them the log forgets it."""
        self._versions: dict[str, int] = {}
        self._written: dict[str, int] = {}
        """UID → the resourceVersion up to which the log knew the pod when this ingest began, be it from a fact or from a
        write of the binder's own. Only pending pods of Koordinator's that the binder is not annotating."""
        self._references = References()
        """PodGroups → PriorityClasses, pods → Workloads."""

    def fold(self, event: Event) -> None:
        """Apply an event of ingest's; others change nothing here."""
        match event:
            case PodObserved():
                self._remember(event)
            case PodAssigned(uid=uid, node=node):
                known = self.pods.get(uid)
                going = known is not None and known.status == "terminating"
                self._change(uid, event.resource_version, status="terminating" if going else "bound", node=node)
            case PodTerminating(uid=uid):
                self._change(uid, event.resource_version, status="terminating")
            case PodFinished(uid=uid, succeeded=succeeded):
                self._change(uid, event.resource_version, status="succeeded" if succeeded else "failed")
            case PodDeleted(uid=uid):
                self._forget(uid)
            case NodeObserved() | PodGroupObserved() | PriorityClassObserved():
                kind, key = identity.identity(event)
                self.named[kind][key] = event
                self.rejected.pop((kind, *key), None)
                self._versions[event.uid] = objects.version(event.resource_version)
            case NodeDeleted(name=name):
                self._forget_named("Node", ("", name))
            case PodGroupDeleted(namespace=namespace, name=name, dialect=dialect):
                self._forget_named(pod_group_kind(dialect), (namespace, name))
            case PriorityClassDeleted(name=name):
                self._forget_named("PriorityClass", ("", name))
            case DeclarationRejected(kind=kind, namespace=namespace, name=name):
                self.rejected[kind, namespace, name] = event
            case RejectionEnded(kind=kind, namespace=namespace, name=name):
                self.rejected.pop((kind, namespace, name), None)

    def _remember(self, pod: PodObserved) -> None:
        self._count_class(pod, 1)
        if before := self.pods.get(pod.uid):
            self._count_class(before, -1)
        self.pods[pod.uid] = pod
        self._holders[pod.namespace, pod.name] = pod.uid
        self._references.put(Reference(POD.name, pod.uid), identity.workload_of(pod))
        self._versions[pod.uid] = objects.version(pod.resource_version)
        self.rejected.pop(("Pod", pod.namespace, pod.name), None)

    def _change(self, uid: str, resource_version: str, **changes: str) -> None:
        if pod := self.pods.get(uid):
            self.pods[uid] = msgspec.structs.replace(pod, resource_version=resource_version, **changes)
            self._versions[uid] = objects.version(resource_version)

    def _forget(self, uid: str) -> None:
        if pod := self.pods.pop(uid, None):
            self._count_class(pod, -1)
            self._references.put(Reference(POD.name, uid), None)
            self._versions.pop(uid, None)
            self._written.pop(uid, None)
            self.rejected.pop(("Pod", pod.namespace, pod.name), None)
            self._release((pod.namespace, pod.name), uid)

    def _forget_named(self, kind: str, key: Key) -> None:
        if fact := self.named[kind].pop(key, None):
            self._references.put(Reference("PodGroup", f"{kind} {'/'.join(key)}"), None)
            self._versions.pop(fact.uid, None)

    def _count_class(self, pod: PodObserved, sign: int) -> None:
        self._classes[pod.scheduling_class] += sign
        if not self._classes[pod.scheduling_class]:
            del self._classes[pod.scheduling_class]

    def _release(self, key: Key, uid: str) -> None:
        if self._holders.get(key) == uid:
            del self._holders[key]

    def _folded(self, events: list[Event]) -> list[Event]:
        for event in events:
            self.fold(event)
        return events
