"""The feed's stream, against what the log makes of it: every message, once, in order."""

from __future__ import annotations

from collections.abc import Iterable
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


def expected(commits: Iterable[Stored], cluster: str) -> list[Published]:
    return [(message.id, message.body) for stored in commits for message in core.messages(stored, cluster)]


async def published(url: str, cluster: str, **credentials: Any) -> list[Published]:
    """Everything that the stream holds. Raises LogError."""
    stream = cloudevents.stream(cluster)
    connection = await Connection(url).connect(**credentials)
    try:
        answer: bytes = await retrying()(connection.ask, f"$JS.API.STREAM.INFO.{stream}")
        end = msgspec.json.decode(answer, type=_Info).state.last_seq
        found: list[Published] = []
        consumer = Consumer(connection, stream, 1)
        await consumer.open()
        while len(found) < end:
            found += [(message.message_id, message.payload) for message in await consumer.take()]
        await consumer.close()
        return found
    finally:
        await connection.close()


def violations(found: list[Published], wanted: list[Published]) -> list[str]:
    """Where the feed parts from the log. It may be behind."""
    for place, (one, other) in enumerate(zip(found, wanted, strict=False), 1):
        if one != other:
            return [f"message {place} of the feed is {one[0]}, of the log {other[0]}"]
    return [f"the feed has {len(found)} messages, the log {len(wanted)}"] if len(found) > len(wanted) else []
