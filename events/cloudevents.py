"""The feed's language: what outsiders read, one CloudEvent 1.0 a message, in structured JSON mode.

The body of a message is the whole event, attributes and data, so that a subscriber needs a NATS client and a JSON
parser and nothing else. Its subject is ``muster-feed.<cluster>.<EventType>.<namespace>.<name>``, each part one token;
what has no namespace, or no name, has ``-`` there. The event's `id` is its place in the cluster's log.

Tokens are percent-encoded, dots as well, because names of pods and groups may hold them: ``model.v2`` is ``model%2Ev2``.
Any percent-decoder turns them back.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from typing import Any, get_args
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, UnsetType

from events import Event
from events.subjects import EXPECTED_CLUSTER, FEDERATION_ROLES, WRITES, valid_cluster
from events.wire import UNDECODABLE

CONTENT_TYPE = "application/cloudevents+json"
TYPE_PREFIX = "dev.muster."
_OF_A_CLUSTER = frozenset[type]().union(*(kinds for role, kinds in WRITES.items() if role not in FEDERATION_ROLES))
EVENT_TYPES = tuple(kind.__name__ for kind in get_args(Event) if kind in _OF_A_CLUSTER)
"""A federation has no feed."""
NOTHING = "-"
"""The token of an empty name; a name that is a single hyphen is ``%2D``."""
MAX_TOKEN = 253 * 3
"""Kubernetes' longest name with every character escaped. A longer token is cut and ends in a digest."""


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the log, in the envelope of CloudEvents 1.0. Attributes without a value are absent."""

    specversion: str
    """Always 1.0."""
    id: str
    """Place in the log: ``sequence.index``; behind it ``.part`` where one event of the log tells of several groups."""
    source: str
    """``muster/<cluster>``. Source and id together name the event for as long as the cluster has this log: a repeated
    pair is a duplicate."""
    type: str
    """``dev.muster.<EventType>``."""
    subject: str | UnsetType = UNSET
    """``namespace/name`` of the pod or gang it is about, or the name alone of what has no namespace."""
    time: str
    """Wall clock of the service that appended it, RFC 3339 in UTC with nanoseconds."""
    datacontenttype: str
    """Always application/json."""
    dataschema: str
    """``urn:muster:event:<EventType>``, the `$id` of the JSON Schema of `data`."""
    writer: str
    """Extension: the service that appended it: ingest, planner.<shard>, binder, admin."""
    traceparent: str | UnsetType = UNSET
    """Extension (Distributed Tracing): W3C trace context of the commit."""
    data: Any
    """The event as it stands in the log."""


class NoCloudEvent(ValueError):
    """A message that somebody else put into the feed's stream. Names it and what was expected."""


class FeedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What is published, and what a subscriber gets."""

    id: str
    subject: str
    body: bytes

    def event(self) -> CloudEvent:
        """The body, decoded; `data` is plain dicts and lists. Raises NoCloudEvent."""
        try:
            return _decode(self.body)
        except UNDECODABLE as error:
            raise NoCloudEvent(f"message {self.id!r} on {self.subject}: expected a CloudEvent: {error}") from error


_decode = msgspec.json.Decoder(CloudEvent).decode


def schema_id(event_type: str) -> str:
    return f"urn:muster:event:{event_type}"


def source(cluster: str) -> str:
    return f"muster/{cluster}"


def stream(cluster: str) -> str:
    """The name of the feed's own stream."""
    return f"muster-feed-{cluster}"


def subject(cluster: str, event_type: str, namespace: str, name: str) -> str:
    return f"muster-feed.{cluster}.{event_type}.{token(namespace)}.{token(name)}"


def token(text: str) -> str:
    """`text` as one token of a NATS subject; any percent-decoder turns it back, but for `NOTHING`."""
    if not text:
        return NOTHING
    if text == NOTHING:
        return "%2D"
    escaped = quote(text, safe="", errors="surrogateescape").replace(".", "%2E")
    if len(escaped) <= MAX_TOKEN:
        return escaped
    digest = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=12).hexdigest()
    return re.sub("%.?$", "", escaped[: MAX_TOKEN - 25]) + "~" + digest


class PatternError(ValueError):
    """A pattern of events that cannot be subscribed to; says what was expected."""


def pattern_subject(cluster: str, pattern: str) -> str:
    """The NATS subject filter of ``EventType.namespace.name``, each part a token, ``*``, or left out from the right.

    ``GangPermitted``, ``GangPermitted.default``, ``GangPermitted.default.*``, ``*.team-a.>``, ``>``.
    Raises PatternError.
    """
    if not valid_cluster(cluster):
        raise PatternError(f"cluster {cluster!r}: expected {EXPECTED_CLUSTER}")
    tokens = pattern.split(".")
    if len(tokens) > 3:
        raise PatternError(
            f"pattern {pattern!r}: expected EventType.namespace.name, not {len(tokens)} parts; "
            "a dot within a name is written %2E"
        )
    for position, part in enumerate(tokens):
        if len(part) > MAX_TOKEN:  # the server ends the connection of whoever asks for it
            raise PatternError(f"pattern {pattern[:60]!r}…: no part is longer than {MAX_TOKEN} characters")
        if part == ">" and position != len(tokens) - 1:
            raise PatternError(f"pattern {pattern!r}: '>' stands for all that follows and must be last")
        if part not in ("*", ">") and not re.fullmatch(r"(?:[A-Za-z0-9_~-]|%[0-9A-F]{2})+", part):
            likely = "*" if re.search("[*>]", part) else token(unquote(part))  # no name has either: it would never come
            raise PatternError(
                f"pattern {pattern!r}: {part!r} is neither '*' nor '>' nor an escaped name; try {likely!r}"
            )
    if tokens[0] not in ("*", ">", *EVENT_TYPES):
        near = difflib.get_close_matches(tokens[0], EVENT_TYPES, n=1)
        raise PatternError(
            f"pattern {pattern!r}: no event type {tokens[0]!r}" + (f"; did you mean {near[0]}?" if near else "")
        )
    if len(tokens) < 3 and tokens[-1] != ">":
        tokens.append(">")
    return f"muster-feed.{cluster}." + ".".join(tokens)
