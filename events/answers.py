"""What JetStream answers: the names and numbers of its API, and the error that each answer stands for.

An error says whether the question may be asked again. `Unanswered` and its kinds: not now, and nobody knows whether the
request was carried out. `Refused` and its kinds: a definite no. `Denied`: never, before somebody grants it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import msgspec

from events.client import parse_headers
from events.log import LogError, Unavailable
from events.wire import UNDECODABLE

T = TypeVar("T")

MESSAGE_ID = "Nats-Msg-Id"
EXPECTED, EXPECTED_LAST = "Nats-Expected-Last-Subject-Sequence", "Nats-Expected-Last-Sequence"
"""Headers of a message for a stream: what it deduplicates by; whom it must follow on its subject, and in all."""

STREAM_NOT_FOUND = 10059
NOT_NOW = (10005, 10118, 10119)
"""No suitable peers: nothing of several replicas is made while a server is away, or has just come back. Stream or
consumer is offline: all servers that have it are away, be it one that was made for a first request a moment ago."""
NO_ROOM = 10023
"""The server's storage is full. Somebody may make room."""
STREAM_NAME_IN_USE = 10058
NO_MESSAGE_FOUND = 10037
MESSAGE_TOO_LARGE = 10054
ONE_SERVER = 10074
"""Replicas were asked for of a server that is none of a cluster."""
NOT_LAST = (10071, 10164, 10158)
"""Wrong last sequence; with three replicas also: another publish to the subject, or with this id, is in process."""


def api(domain: str = "") -> str:
    """The prefix of JetStream's verbs: in the server's own domain, or in one heard over a leaf node."""
    return f"$JS.{domain}.API" if domain else "$JS.API"


class Unanswered(Unavailable):
    """The request may or may not have been carried out: its answer did not come."""


class NobodyThere(Unanswered):
    """No process that this account reaches listens on the subject: nothing was carried out."""


class NotNow(Unanswered):
    """A leader says that it cannot be done just now."""


class NoRoom(NotNow):
    """The server stores nothing more. It may do so later."""


class Denied(LogError):
    """The server's permissions forbid the subject that is named."""


class Refused(LogError):
    """JetStream answered with an error; `number` is its err_code."""

    def __init__(self, subject: str, code: int, number: int, description: str) -> None:
        self.code, self.number, self.description = code, number, description
        super().__init__(f"{subject}: {description} (JetStream error {number})")


class NotLast(Refused):
    """The expected sequence is not the subject's last: another message is, or is about to be."""


class Message(msgspec.Struct):
    """A message as the leader of its stream holds it."""

    subject: str
    seq: int
    hdrs: bytes = b""
    data: bytes = b""
    time: datetime | None = None

    @property
    def headers(self) -> dict[str, str]:
        return parse_headers(self.hdrs)


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Placement(msgspec.Struct):
    leader: str = ""


class Answer(msgspec.Struct):
    error: _Error | None = None
    cluster: _Placement | None = None
    """Where the stream or consumer is that it tells of. None from a server that is alone."""

    def check(self, subject: str) -> None:
        """Raises Refused for a definite no, Unanswered where nobody leads, NotNow for a leader's 'not now'."""
        if self.cluster is not None and not self.cluster.leader:  # any replica's word then: it may be behind
            raise Unanswered(f"{subject.rpartition('.')[2]} has no leader: most of its servers are away, or full")
        if self.error is None:
            return
        code, number, description = self.error.code, self.error.err_code, self.error.description
        if number in NOT_NOW:
            raise NotNow(f"{subject}: {description}")
        if code == 503:
            raise (NoRoom if number == NO_ROOM else Unanswered)(f"{subject}: {description}")
        raise Refused(subject, code, number, description)


class _MessageAnswer(msgspec.Struct):
    message: Message


class _Published(msgspec.Struct):
    seq: int


class StreamState(msgspec.Struct):
    """Where a stream begins and ends, or would go on where it is empty."""

    first_seq: int
    last_seq: int
    messages: int = 0
    bytes: int = 0


class StreamConfig(msgspec.Struct):
    """What is read of how a stream was made."""

    num_replicas: int = 1


class StreamAnswer(msgspec.Struct):
    """What the server says of a stream."""

    state: StreamState
    config: StreamConfig = msgspec.field(default_factory=StreamConfig)


decode_message = msgspec.json.Decoder(_MessageAnswer).decode
decode_published = msgspec.json.Decoder(_Published).decode
decode_stream = msgspec.json.Decoder(StreamAnswer).decode
decode_answer = msgspec.json.Decoder(Answer).decode


def decoded(decode: Callable[[bytes], T], what: str, answer: bytes) -> T:
    """What JetStream answered. Raises Unanswered for what only somebody else can have sent to the inbox."""
    try:
        return decode(answer)
    except UNDECODABLE as error:
        raise Unanswered(f"{what}: expected JetStream's answer: {error}") from error
