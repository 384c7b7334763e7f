"""Bytes of lists and watches to objects. One object that does not fit its type costs that object only.

A page or a line is decoded whole, at the speed of msgspec; only when that fails are its objects looked at one by one.
What is nested too deeply for a decoder is cut off first.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from events.dialects import POD_GROUPS, pod_group_kind
from events.dialects import WORKLOAD as WORKLOAD_KIND
from events.facts import DeclarationRejected
from events.wire import UNDECODABLE
from services import misfits
from services.ingest import dialects
from services.ingest.normalise import rejected
from services.ingest.rejection import Rejection
from services.kubernetes import nesting
from services.kubernetes.objects import (
    Identified,
    Listed,
    Metadata,
    Node,
    Pod,
    PodGroup,
    PriorityClass,
    Status,
    Watched,
    Workload,
)
from services.kubernetes.resources import NODES, PODS, PRIORITY_CLASSES, WORKLOADS, Resource

T = TypeVar("T", bound=Node | Pod | PodGroup | PriorityClass | Workload)
_raw_list = msgspec.json.Decoder(Listed[msgspec.Raw])
_raw_line = msgspec.json.Decoder(Watched[msgspec.Raw])
_identified = msgspec.json.Decoder(Identified)
_status = msgspec.json.Decoder(Status)


class WatchEnded(Exception):
    """The server sent an ERROR event. `expired`: the resourceVersion is too old, list again."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self.expired = status.code == 410 or status.reason in ("Expired", "Gone")
        super().__init__(f"{status.code} {status.reason}: {status.message}")


class Unreadable(ValueError):
    """A line or page that is not what the API sends."""


class Malformed(NamedTuple):
    """An object that does not fit its type. Its metadata are empty where even they cannot be read."""

    metadata: Metadata
    rejected: DeclarationRejected


class Kind(Generic[T]):
    """A kind of object that ingest reads, in one version. `name` is the same in all versions of it."""

    def __init__(self, name: str, resource: Resource, type_: type[T]) -> None:
        self.name, self.resource, self.type = name, resource, type_
        self._list: msgspec.json.Decoder[Listed[T]] = msgspec.json.Decoder(Listed[type_])  # type: ignore[valid-type]
        self._line: msgspec.json.Decoder[Watched[T]] = msgspec.json.Decoder(Watched[type_])  # type: ignore[valid-type]
        self._object: msgspec.json.Decoder[T] = msgspec.json.Decoder(type_)

    def page(self, page: bytes) -> tuple[str, list[T | Malformed]]:
        """A list's resourceVersion and objects. Raises Unreadable."""
        try:
            listed = self._list.decode(page)
            return self._dated(listed), list(map(self._versioned, listed.items or ()))
        except UNDECODABLE:
            pass
        try:
            raw = nesting.decode(_raw_list, page)
        except UNDECODABLE as error:
            raise Unreadable(f"list {self.resource.name}: expected a list of objects: {error}") from error
        return self._dated(raw), list(map(self._alone, raw.items or ()))

    def _dated(self, listed: Listed[Any]) -> str:
        """Its resourceVersion. A list has one; a Status that is answered as if all were well looks like an empty list."""
        if not listed.metadata.resource_version:
            raise Unreadable(f"list {self.resource.name}: expected a list of objects, with a resourceVersion")
        return listed.metadata.resource_version

    def line(self, line: bytes) -> tuple[str, T | Malformed]:
        """What happened (ADDED, MODIFIED, DELETED, BOOKMARK) and to which object. Raises WatchEnded, Unreadable."""
        try:
            seen = self._line.decode(line)
        except UNDECODABLE:
            return self._odd(line)
        if seen.type == "ERROR":
            return self._odd(line)
        return seen.type, self._versioned(seen.object)

    def _versioned(self, seen: T) -> T:
        """With its apiVersion, where one type is that of several kinds."""
        if isinstance(seen, PodGroup):
            seen.api_version = self.resource.api_version
        return seen

    def _odd(self, line: bytes) -> tuple[str, T | Malformed]:
        try:
            raw = nesting.decode(_raw_line, line)
            if raw.type == "ERROR":
                raise WatchEnded(_status.decode(raw.object))
        except UNDECODABLE as error:
            raise Unreadable(f"watch {self.resource.name}: expected a watch event: {error}") from error
        return raw.type, self._alone(raw.object)

    def _alone(self, raw: msgspec.Raw) -> T | Malformed:
        try:
            return self._versioned(self._object.decode(raw))
        except UNDECODABLE as error:
            metadata = _metadata(bytes(raw))
            return Malformed(metadata, rejected(self.name, metadata, _rejection(error, raw)))


def _metadata(raw: bytes) -> Metadata:
    """As far as they can be read."""
    try:
        return _identified.decode(raw.decode(errors="replace")).metadata
    except UNDECODABLE:
        return Metadata()


def _rejection(error: Exception, raw: msgspec.Raw) -> Rejection:
    if not isinstance(error, msgspec.ValidationError):
        return Rejection("", "", f"JSON in UTF-8: {error}")
    path, said = misfits.told(error)
    try:
        path = misfits.with_key(path, said, msgspec.json.decode(raw))
    except UNDECODABLE:
        pass  # behind the misfit it is not even JSON
    return Rejection(path, "", said.removeprefix("Expected "))


def _pod_groups(api_version: str) -> Kind[PodGroup]:
    dialect = next(name for name, version in POD_GROUPS.items() if version == api_version)
    return Kind(pod_group_kind(dialect), Resource.custom(api_version, "podgroups"), PodGroup)


NODE = Kind("Node", NODES, Node)
POD = Kind("Pod", PODS, Pod)
PRIORITY_CLASS = Kind("PriorityClass", PRIORITY_CLASSES, PriorityClass)
WORKLOAD = Kind(WORKLOAD_KIND, WORKLOADS, Workload)
OFFERED: tuple[tuple[Kind[Any], ...], ...] = (
    (WORKLOAD,),
    *(tuple(map(_pod_groups, versions)) for versions in dialects.pod_group_versions()),
)
"""Kinds that a cluster may lack, each in the versions that are read, the best first."""
KINDS: tuple[Kind[Any], ...] = (
    *(NODE, PRIORITY_CLASS),
    *(kind for versions in OFFERED for kind in versions),
    POD,
)
"""All, in an order in which what is named comes before what names it."""
