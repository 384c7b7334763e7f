"""The feed's stream in JetStream: publishing into it, and subscribing to it.

The stream is bounded in age and bytes and forgets its oldest messages. Every message is published under the expected
last sequence of the stream, many in flight: either a message stands directly behind the one before it, or nothing
behind it is taken. So there is neither a gap nor a change of order, whatever gets lost on the way, and two feeds of one
cluster can hinder but not hurt each other. After any doubt the publisher asks for the stream's last message and goes on
behind it.

On a single server the stream is written without an fsync for each message (``persist_mode: async``): the log beside it
keeps its disk, and a tail that a power failure takes is published again, at the same sequences.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Any

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import PubAck

from events import cloudevents
from events.cloudevents import CONTENT_TYPE, FeedMessage
from events.connection import Connection, Refused, retrying
from events.log import LogError

MAX_AGE_S = 7 * 24 * 3600
MAX_BYTES = 1 << 30
WINDOW = 512
"""Messages in flight."""
ANSWER_WITHIN_S = 10.0
MESSAGE_ID = "Nats-Msg-Id"
EXPECTED = "Nats-Expected-Last-Sequence"

STREAM_NOT_FOUND = 10059
STREAM_NAME_IN_USE = 10058
NO_MESSAGE_FOUND = 10037
CONSUMER_NOT_FOUND = 10014

BATCH = 256
PULL_EXPIRES_S = 30
HEARTBEAT_S = 1
SILENCE_S = 3.0
ACK_WAIT_S = 60
UNNAMED_KEPT_S = 3600
"""How long the server keeps the place of a subscriber that gave no name and went away."""


_PULL = msgspec.json.encode(
    {"batch": BATCH, "expires": PULL_EXPIRES_S * 1_000_000_000, "idle_heartbeat": HEARTBEAT_S * 1_000_000_000}
)


class Interrupted(LogError):
    """Not everything was published; where the feed stands is to be asked anew."""


class _Info(msgspec.Struct):
    config: dict[str, Any]


class _Message(msgspec.Struct):
    seq: int
    hdrs: bytes = b""


class _MessageAnswer(msgspec.Struct):
    message: _Message


class Feed:
    """The publisher's end of a cluster's feed. Get one from `open`."""

    def __init__(self, connection: Connection, cluster: str) -> None:
        self.cluster, self.connection = cluster, connection
        self.stream = cloudevents.stream(cluster)
        self._sequence = 0
        self._jetstream: JetStreamContext = connection.client.jetstream(publish_async_max_pending=WINDOW)

    @classmethod
    async def open(
        cls,
        url: str,
        cluster: str,
        *,
        max_age_s: int = MAX_AGE_S,
        max_bytes: int = MAX_BYTES,
        replicas: int = 1,
        **credentials: Any,
    ) -> Feed:
        """Connects; makes the stream, or gives the one that is there these bounds. Raises LogError."""
        feed = cls(await Connection(url).connect(**credentials), cluster)
        try:
            await feed._keep_stream(max_age_s, max_bytes, replicas)
        except BaseException:
            await feed.close()
            raise
        return feed

    async def position(self) -> str | None:
        """The id of the stream's last message; None when it holds none. What is published next goes behind it.

        Raises LogError.
        """
        try:
            answer = await self._api(f"STREAM.MSG.GET.{self.stream}", {"last_by_subj": f"muster-feed.{self.cluster}.>"})
        except Refused as refused:
            if refused.number != NO_MESSAGE_FOUND:
                raise
            self._sequence = await self._last_sequence()
            return None
        message = msgspec.json.decode(answer, type=_MessageAnswer).message
        self._sequence = message.seq
        found = re.search(rb"\r\nNats-Msg-Id: *([^\r\n]+)", message.hdrs)
        if found is None:
            raise LogError(f"{self.stream}: message {message.seq} has no {MESSAGE_ID}: somebody else publishes here")
        return found[1].decode()

    async def publish(self, messages: Sequence[FeedMessage]) -> None:
        """Publishes behind what `position` found and what was published since. Raises Interrupted."""
        answers: list[asyncio.Future[PubAck]] = []
        try:
            for message in messages:
                headers = {
                    MESSAGE_ID: message.id,
                    "content-type": CONTENT_TYPE,
                    EXPECTED: str(self._sequence + len(answers)),
                }
                answers.append(
                    await self._jetstream.publish_async(
                        message.subject, message.body, wait_stall=ANSWER_WITHIN_S, headers=headers
                    )
                )
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await asyncio.gather(*answers)
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            why = self.connection.last_error if isinstance(error, TimeoutError) else error
            raise Interrupted(f"{self.stream}: {why or 'no answer'}") from error
        finally:
            for answer in answers:
                answer.cancel()  # frees its place in the window
        self._sequence += len(answers)

    async def close(self) -> None:
        await self.connection.close()

    async def _keep_stream(self, max_age_s: int, max_bytes: int, replicas: int) -> None:
        bounds = {"max_age": max_age_s * 1_000_000_000, "max_bytes": max_bytes}
        config: dict[str, Any] = {
            "name": self.stream,
            "subjects": [f"muster-feed.{self.cluster}.>"],
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            "max_consumers": -1,
            "max_msgs": -1,
            "num_replicas": replicas,
            **bounds,
        }
        if replicas == 1:
            config["persist_mode"] = "async"
        try:
            await self._api(f"STREAM.CREATE.{self.stream}", config)
        except Refused as refused:
            if refused.number != STREAM_NAME_IN_USE:
                raise
            info = msgspec.json.decode(await self._api(f"STREAM.INFO.{self.stream}"), type=_Info)
            await self._api(f"STREAM.UPDATE.{self.stream}", {**info.config, **bounds})

    async def _last_sequence(self) -> int:
        info = msgspec.json.decode(await self._api(f"STREAM.INFO.{self.stream}"))
        return int(info["state"]["last_seq"])

    async def _api(self, api: str, body: Any = None) -> bytes:
        return await retrying()(self.connection.ask, f"$JS.API.{api}", body)


async def subscribe(
    url: str,
    cluster: str,
    pattern: str,
    durable: str | None = None,
    *,
    history: bool = True,
    **credentials: Any,
) -> AsyncGenerator[FeedMessage]:
    """The messages that match `pattern`, in order, for ever; through a durable consumer, so at least once each.

    `durable` names the subscriber: who comes back under its name goes on behind what it had taken. Without one the
    server gives the place up after an hour. A new subscriber begins with the oldest message that is kept, or, without
    `history`, with the next. A message counts as taken when the next one is asked for.
    Raises PatternError, Unavailable, Denied, and LogError for a name that is not fit or is in use with another pattern,
    or a cluster without a feed.
    """
    filter_subject = cloudevents.pattern_subject(cluster, pattern)
    if durable is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", durable):
        raise LogError(f"durable name {durable!r}: expected letters, digits, '-' and '_', at most 64")
    connection = await Connection(url).connect(**credentials)
    try:
        stream, name = cloudevents.stream(cluster), durable or f"subscriber-{secrets.token_hex(4)}"
        await _keep_consumer(connection, stream, name, filter_subject, pattern, durable is not None, history)
        async with aclosing(_deliver(connection, stream, name)) as deliveries:
            async for message in deliveries:
                identity = (message.headers or {}).get(MESSAGE_ID, "")
                yield FeedMessage(id=identity, subject=message.subject, body=message.data)
                with suppress(nats.errors.Error):  # lost: the message comes again
                    await message.ack()
    finally:
        await connection.close()


async def _keep_consumer(
    connection: Connection, stream: str, name: str, filter_subject: str, pattern: str, named: bool, history: bool
) -> None:
    """Makes the consumer, or finds the one that this subscriber left."""
    try:
        await retrying()(_find_or_create, connection, stream, name, filter_subject, named, history)
    except Refused as refused:
        if refused.number == STREAM_NOT_FOUND:
            raise LogError(f"{connection.url}: no feed (no stream {stream}); does `muster feed` run?") from refused
        raise
    except _OtherFilter as other:
        raise LogError(
            f"durable {name!r} subscribes to {other}, not to {filter_subject} ({pattern!r}): choose another name"
        ) from other


class _OtherFilter(Exception):
    """The durable name is taken by a subscriber to something else."""


async def _find_or_create(
    connection: Connection, stream: str, name: str, filter_subject: str, named: bool, history: bool
) -> None:
    try:
        answer = await connection.ask(f"$JS.API.CONSUMER.INFO.{stream}.{name}")
    except Refused as refused:
        if refused.number != CONSUMER_NOT_FOUND:
            raise
        config: dict[str, Any] = {
            "durable_name": name,
            "name": name,
            "filter_subject": filter_subject,
            "deliver_policy": "all" if history else "new",
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_S * 1_000_000_000,
            "max_ack_pending": BATCH,
            "replay_policy": "instant",
        }
        if not named:
            config["inactive_threshold"] = UNNAMED_KEPT_S * 1_000_000_000
        await connection.ask(
            f"$JS.API.CONSUMER.CREATE.{stream}.{name}.{filter_subject}", {"stream_name": stream, "config": config}
        )
    else:
        found = msgspec.json.decode(answer, type=_Info).config.get("filter_subject", "")
        if found != filter_subject:
            raise _OtherFilter(found)


async def _deliver(connection: Connection, stream: str, name: str) -> AsyncGenerator[Msg]:
    """What the consumer has, and what it will have, as it comes. Raises LogError when somebody deleted the consumer.

    One pull request after the other, answered into a plain subscription: nats-py's `fetch` would hold a message back
    until its batch is full.
    """
    inbox = connection.client.new_inbox()
    arrivals = await connection.client.subscribe(inbox)
    while True:
        with suppress(nats.errors.Error):  # reconnecting: asked again after the silence
            await connection.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", _PULL, reply=inbox)
        remaining = BATCH
        while remaining:
            try:
                message = await arrivals.next_msg(timeout=SILENCE_S)
            except nats.errors.TimeoutError:
                break  # not even a heartbeat
            if message.reply:
                remaining -= 1
                yield message
                continue
            headers = message.headers or {}
            status, description = headers.get("Status", ""), headers.get("Description", "")
            if description == "Consumer Deleted":
                raise LogError(f"{stream}: the consumer {name!r} was deleted")
            if status == "503":
                await _check_consumer(connection, stream, name)
            if status != "100":
                break


async def _check_consumer(connection: Connection, stream: str, name: str) -> None:
    """Nobody answers the pull request: because the server restarts, or because the consumer is gone."""
    try:
        await retrying(forever=True)(connection.ask, f"$JS.API.CONSUMER.INFO.{stream}.{name}")
    except Refused as refused:
        raise LogError(f"{stream}: the consumer {name!r} is gone: {refused}") from refused
