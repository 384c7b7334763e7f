"""From a commit to the messages of the feed: pure, a function of the commit's bytes and nothing else.

Every event of a known writer becomes one message, except `GroupsRefused`: it says one reason for many groups, and
becomes one message for each of them, with that group alone in `groups`, so that whoever watches one namespace sees its
own. Their number is bounded by the policy's `cycle_pods`.

The same log always gives the same messages in the same order. So the feed can go on, after any failure, behind the last
message that its stream holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, get_args

import msgspec
from msgspec import UNSET

from events import Event, GroupsRefused, envelope, subjects
from events.cloudevents import TYPE_PREFIX, CloudEvent, FeedMessage, schema_id, source, subject
from events.envelope import Stored

Place = tuple[int, int, int]
"""(sequence, index in the commit, part of the event)."""
BEGINNING: Place = (0, 0, 0)
Named = tuple[str, str]
"""(namespace, name); empty where there is none."""

_encode = msgspec.json.Encoder().encode
_IDENTITY = re.compile(r"([0-9]{1,100})\.([0-9]{1,100})(?:\.([0-9]{1,100}))?")


def messages(stored: Stored, cluster: str, after: Place = BEGINNING) -> list[FeedMessage]:
    """The messages of one commit (not a foreign one) whose places are behind `after`.

    An event that its writer may not append has none. Raises MalformedCommit for events that this version cannot read:
    the feed must not pass over them in silence.
    """
    role = subjects.role_of(subjects.writer_of(stored.subject))
    commit = envelope.decode(stored)
    writer, time = commit.header.writer, timestamp(commit.header.time_ns)
    found: list[FeedMessage] = []
    for index, event in enumerate(commit.events):
        if not subjects.may_write(role, event):
            continue
        for part, (namespace, name), data in _parts(event):
            place = (stored.sequence, index, part)
            if place <= after:
                continue
            event_type = type(event).__name__
            body = CloudEvent(
                specversion="1.0",
                id=identity(place),
                source=source(cluster),
                type=TYPE_PREFIX + event_type,
                subject=f"{namespace}/{name}" if namespace else name or UNSET,
                time=time,
                datacontenttype="application/json",
                dataschema=schema_id(event_type),
                writer=writer,
                traceparent=stored.traceparent or UNSET,
                data=data,
            )
            found.append(
                FeedMessage(id=body.id, subject=subject(cluster, event_type, namespace, name), body=_encode(body))
            )
    return found


def is_foreign(stored: Stored) -> bool:
    """Whether this is no commit of a known writer: set aside, as the fold does."""
    return envelope.header_of(stored) is None


def appended_ns(stored: Stored) -> int:
    """Wall clock of the service that appended it."""
    return envelope.decode_header(stored).time_ns


def identity(place: Place) -> str:
    """``sequence.index``, and ``.part`` from the second part on."""
    sequence, index, part = place
    return f"{sequence}.{index}.{part}" if part else f"{sequence}.{index}"


def place_of(identity: str) -> Place:
    """The inverse of `identity`. Raises ValueError for what is not one."""
    found = _IDENTITY.fullmatch(identity)
    if found is None:
        raise ValueError(f"{identity[:100]!r}: expected sequence.index or sequence.index.part")
    return int(found[1]), int(found[2]), int(found[3] or 0)


def timestamp(time_ns: int) -> str:
    """RFC 3339 in UTC, to the nanosecond."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def about(event: Event) -> Named:
    """Namespace and name of what the event is about: a pod, a gang, or something without a namespace."""
    return _ADDRESS[type(event)](event)


def _parts(event: Event) -> Iterator[tuple[int, Named, Event]]:
    if isinstance(event, GroupsRefused):
        for part, group in enumerate(event.groups):
            yield part, _group(group), msgspec.structs.replace(event, groups=(group,))
    else:
        yield 0, about(event), event


def _group(key: str) -> Named:
    """A group's key is ``namespace/gang``, with ``@`` and its dialect's name space behind it where that has one of its
    own, or ``pod/namespace/name`` for a pod without a gang."""
    *_, namespace, name = ("", *key.split("/"))
    return namespace, name.partition("@")[0]


def _address(kind: type) -> Callable[[Any], Named]:
    """How events of this kind say what they are about; decided once, from the names of their fields."""
    fields = set(kind.__struct_fields__)  # type: ignore[attr-defined]
    if {"namespace", "name"} <= fields:
        return attrgetter("namespace", "name")
    for field in ("group", "gang"):
        if field in fields:
            return lambda event: _group(getattr(event, field))
    for field in ("name", "shard", "digest"):
        if field in fields:
            return lambda event: ("", getattr(event, field))
    return lambda event: ("", "")


_ADDRESS = {kind: _address(kind) for kind in get_args(Event)}
