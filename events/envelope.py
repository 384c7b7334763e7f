"""A commit and its bytes: a header that the service stamps, a payload that is the events as one JSON array.

The payload of a deciding writer is ``decide(fold(basis), writer, epoch)`` and nothing else, so that deciding again gives
the same bytes; whatever depends on the process, the clock or the trace stands in the header.

`encode_events` and `decode` turn events to payloads and back. Old versions stay readable: an event of an older form
will be decoded by its own struct or upcast, never edited in the log. None exists yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated

import msgspec

from events import Event, subjects
from events.wire import UNDECODABLE

FIRST_VERSION = 1
"""Of the rules (what is decided) and of the state (the fold): in force in every log until a `VersionsSwitched`."""

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A header is read before its writer is known: with numbers that no clock or log has, it is nobody's."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What the service says of its commit."""

    writer: str
    """The token(s) of the subject behind the cluster: ingest, planner.<shard>, binder, admin, federator."""
    epoch: Int64
    """The epoch of `PartitionsAssigned` under which the writer decided; 0 where none."""
    basis: Int64
    """The sequence up to which the log was folded when this was decided; 0 for facts."""
    time_ns: Int64
    """Wall clock of the service, for people; no decision reads it."""
    cause: str
    """taken, left, renew, facts, decide, outcome, request, tick, admin: `verify` decides again those of cause ``decide``
    alone."""
    rules: Int64 = FIRST_VERSION
    """The version of the rules that was in force at the basis."""
    state: Int64 = FIRST_VERSION
    """And of the fold."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A commit as the log holds it: bytes at a sequence. Decoding is the reader's affair."""

    sequence: int
    """From 1, contiguous in a cluster's stream."""
    subject: str
    message_id: str
    header: bytes
    payload: bytes
    traceparent: str = ""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded commit."""

    sequence: int
    subject: str
    header: Header
    events: list[Event]
    traceparent: str = ""


class MalformedCommit(ValueError):
    """Bytes in the stream that are not a commit of this version's language. Names the sequence and what was expected."""


_encoder = msgspec.json.Encoder()
_payload_decoder = msgspec.json.Decoder(list[Event])
_header_decoder = msgspec.json.Decoder(Header)


def encode_events(events: Sequence[Event]) -> bytes:
    """The payload: one JSON array. The same events give the same bytes on every machine."""
    return _encoder.encode(events)


def encode_header(header: Header) -> bytes:
    return _encoder.encode(header)


def decode_header(stored: Stored) -> Header:
    """Raises MalformedCommit."""
    try:
        return _header_decoder.decode(stored.header)
    except UNDECODABLE as error:
        raise MalformedCommit(f"commit {stored.sequence} on {stored.subject}: header: {error}") from error


def header_of(stored: Stored) -> Header | None:
    """The header of a writer's commit; None for what is nobody's: without one, or with one that fits another subject."""
    try:
        header = _header_decoder.decode(stored.header)
    except UNDECODABLE:
        return None
    writer = subjects.writer_of(stored.subject)
    return header if header.writer == writer and subjects.role_of(writer) in subjects.WRITES else None


def decode(stored: Stored) -> Commit:
    """Raises MalformedCommit, which names the sequence, the subject and what did not fit."""
    return commit_of(stored, decode_header(stored), decode_events(stored))


def decode_events(stored: Stored) -> list[Event]:
    """Raises MalformedCommit."""
    try:
        return _payload_decoder.decode(stored.payload)
    except UNDECODABLE as error:
        raise MalformedCommit(f"commit {stored.sequence} on {stored.subject}: {error}") from error


def commit_of(stored: Stored, header: Header, events: list[Event]) -> Commit:
    """The commit, from what was decoded of it."""
    return Commit(
        sequence=stored.sequence,
        subject=stored.subject,
        header=header,
        events=events,
        traceparent=stored.traceparent,
    )


def message_id(subject: str, expected: int, payload: bytes) -> str:
    """The id under which a commit is deduplicated: what is appended, where, behind what.

    The same commit retried has the same id; another commit at that place, by whomever, has another.
    """
    digest = hashlib.blake2b(f"{subject}:{expected}:".encode(), digest_size=12)
    digest.update(payload)
    return digest.hexdigest()
