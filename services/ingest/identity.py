"""What an object or a fact is about: its kind, its key, what else it names; and the event that says that it is gone."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from events.dialects import pod_group_kind
from events.facts import (
    DeclarationRejected,
    NodeDeleted,
    NodeObserved,
    PodGroupDeleted,
    PodGroupObserved,
    PodObserved,
    PriorityClassDeleted,
    PriorityClassObserved,
    RejectionEnded,
)
from services.ingest import normalise
from services.ingest.decoding import PRIORITY_CLASS, WORKLOAD, Malformed
from services.ingest.dialects import native, of_pod_group, priority_class_of
from services.ingest.references import Reference
from services.ingest.rejection import Rejection
from services.kubernetes.objects import Node, Pod, PodGroup, PriorityClass, Workload

Key = tuple[str, str]
"""(namespace, name)."""
Named = NodeObserved | PodGroupObserved | PriorityClassObserved
NamedEvent = Named | NodeDeleted | PodGroupDeleted | PriorityClassDeleted
T = TypeVar("T")


def split_key(name: str) -> Key:
    namespace, _, rest = name.partition("/")
    return namespace, rest


def workload_of(pod: PodObserved) -> Reference | None:
    if pod.gang is None or pod.gang.dialect != native.OF_WORKLOADS:
        return None
    return Reference(WORKLOAD.name, native.workload_group(pod.gang.gang)[0])


def reference(seen: PodGroup) -> Reference:
    """A PodGroup as one that names a PriorityClass."""
    return Reference("PodGroup", f"{kind_of(seen)} {seen.metadata.namespace}/{seen.metadata.name}")


def class_of(seen: PodGroup) -> Reference | None:
    """The PriorityClass whose value is the PodGroup's priority."""
    name = priority_class_of(seen)
    return Reference(PRIORITY_CLASS.name, name) if isinstance(name, str) and name else None


def kind_of(seen: Pod | Node | PodGroup | PriorityClass | Workload | Malformed) -> str:
    """The name of its kind."""
    if isinstance(seen, Malformed):
        return seen.rejected.kind
    if isinstance(seen, PodGroup):
        return pod_group_kind(of_pod_group(seen))
    return WORKLOAD.name if isinstance(seen, Workload) else type(seen).__name__


def unidentified(seen: Pod | Node | PodGroup | PriorityClass | Workload) -> Malformed:
    """Facts are kept by UID: two objects without one would be the same."""
    missing = Rejection("metadata.uid", "", "a UID")
    return Malformed(seen.metadata, normalise.rejected(kind_of(seen), seen.metadata, missing))


def identity(event: NamedEvent | DeclarationRejected) -> tuple[str, Key]:
    """Kind and key of the object that it is about, which is not a pod."""
    match event:
        case DeclarationRejected():
            return event.kind, (event.namespace, event.name)
        case NodeObserved() | NodeDeleted():
            return "Node", ("", event.name)
        case PodGroupObserved() | PodGroupDeleted():
            return pod_group_kind(event.dialect), (event.namespace, event.name)
        case PriorityClassObserved() | PriorityClassDeleted():
            return "PriorityClass", ("", event.name)


def deletion(fact: Named) -> NamedEvent:
    match fact:
        case NodeObserved():
            return NodeDeleted(name=fact.name, uid=fact.uid)
        case PodGroupObserved():
            return PodGroupDeleted(namespace=fact.namespace, name=fact.name, uid=fact.uid, dialect=fact.dialect)
        case PriorityClassObserved():
            return PriorityClassDeleted(name=fact.name, uid=fact.uid)


def ended(rejected: DeclarationRejected) -> RejectionEnded:
    return RejectionEnded(kind=rejected.kind, namespace=rejected.namespace, name=rejected.name, uid=rejected.uid)


def same(old: T, new: T) -> bool:
    """Whether two facts say the same but for the resourceVersion at which they say it."""
    replaced: T = msgspec.structs.replace(old, resource_version=new.resource_version)  # type: ignore
    return replaced == new
