"""The feed, against what the log makes of it.

Its stream has every message once, in order. A subscriber that is killed and goes on under its name gets every message of
its pattern in order, and again at most the one that it had in its hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from events import cloudevents
from events.connection import Connection
from events.consumer import Consumer
from events.envelope import Stored
from events.patience import retrying
from services.feed import core

Published = tuple[str, bytes]
"""A message's id and body."""


class _State(msgspec.Struct):
    last_seq: int


class _Info(msgspec.Struct):
    state: _State


class _Named(msgspec.Struct):
    id: str


_decode_named = msgspec.json.Decoder(_Named).decode
_PRINTED = b'{"specversion":'


def expected(commits: Iterable[Stored], cluster: str, pattern: str = ">") -> list[Published]:
    """What the feed has that is of this pattern."""
    of_interest = cloudevents.pattern_subject(cluster, pattern)
    writers = (stored for stored in commits if not core.is_foreign(stored))
    messages = (message for stored in writers for message in core.messages(stored, cluster))
    return [(message.id, message.body) for message in messages if _matches(of_interest, message.subject)]


def _matches(filter_subject: str, subject: str) -> bool:
    """As NATS matches them."""
    for wanted, token in zip_longest(filter_subject.split("."), subject.split(".")):
        if wanted == ">":
            return token is not None
        if wanted != token and (wanted != "*" or token is None):
            return False
    return True


def printed(output: Path) -> list[Published]:
    """By a subscriber, among the lines of its log. A line that was cut off by a kill is none: it was not taken."""
    lines = output.read_bytes().split(b"\n")[:-1] if output.exists() else []
    return [(_decode_named(line).id, line) for line in lines if line.startswith(_PRINTED) and line.endswith(b"}")]


async def published(url: str, cluster: str, **credentials: Any) -> list[Published]:
    """Everything that the stream holds. Raises LogError."""
    stream = cloudevents.stream(cluster)
    connection = await Connection(url).connect(**credentials)
    try:
        answer: bytes = await retrying()(connection.ask, f"$JS.API.STREAM.INFO.{stream}")
        return await retrying()(_up_to, connection, stream, msgspec.json.decode(answer, type=_Info).state.last_seq)
    finally:
        await connection.close()


async def _up_to(connection: Connection, stream: str, end: int) -> list[Published]:
    """Raises Unanswered where the consumer is lost: one in a hundred is, of three servers, at its first request, which
    reaches a server that has not heard of the consumer from the one that made it."""
    found: list[Published] = []
    consumer = Consumer(connection, stream, 1)
    try:
        await consumer.open()
        while len(found) < end:
            found += [(message.message_id, message.payload) for message in await consumer.take()]
    finally:
        await consumer.close()
    return found


def violations(found: list[Published], wanted: list[Published]) -> list[str]:
    """Where the feed parts from the log. It may be behind."""
    for place, (one, other) in enumerate(zip(found, wanted, strict=False), 1):
        if one != other:
            return [f"message {place} of the feed is {one[0]}, of the log {other[0]}"]
    return [f"the feed has {len(found)} messages, the log {len(wanted)}"] if len(found) > len(wanted) else []


def delivery_violations(delivered: list[Published], wanted: list[Published]) -> list[str]:
    """Where a subscriber got something else than what comes next, or what it had in its hand. It may be behind."""
    place = 0
    for one in delivered:
        if place < len(wanted) and one == wanted[place]:
            place += 1
        elif not place or one != wanted[place - 1]:
            due = wanted[place][0] if place < len(wanted) else "nothing"
            return [f"a subscriber got {one[0]} behind {place} messages, and {due} comes next"]
    return []
