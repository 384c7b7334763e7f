"""Subscribing to the feed: each subscriber through a durable consumer of its own.

The server sends a message once the one before is acknowledged: so they come in the log's order, and a subscriber that
dies with one in hand gets that one again.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from events import cloudevents
from events.answers import MESSAGE_ID, STREAM_NOT_FOUND, Denied, Refused, Unanswered, decode_stream, decoded
from events.cloudevents import FeedMessage
from events.connection import Connection
from events.log import LogError
from events.patience import retrying

logger = logging.getLogger("muster.subscription")
CONSUMER_NOT_FOUND = 10014

BATCH = 256
"""Messages that one pull request asks for."""
PULL_EXPIRES_S = 30
HEARTBEAT_S = 1
SILENCE_S = 3.0
ACK_WAIT_S = 30
"""When a message that nobody acknowledged comes again: its subscriber died with it in hand."""
UNNAMED_KEPT_S = 3600
"""How long the server keeps the place of a subscriber that gave no name and was cut off. One that ends gives it up."""

_PULL = msgspec.json.encode(
    {"batch": BATCH, "expires": PULL_EXPIRES_S * 1_000_000_000, "idle_heartbeat": HEARTBEAT_S * 1_000_000_000}
)


class _Floor(msgspec.Struct, frozen=True):
    stream_seq: int = 0


class _Info(msgspec.Struct):
    config: dict[str, Any]
    ack_floor: _Floor = _Floor()
    """Up to where everything was taken."""


_decode_info = msgspec.json.Decoder(_Info).decode


async def subscribe(
    url: str,
    cluster: str,
    pattern: str,
    durable: str | None = None,
    *,
    history: bool = True,
    **credentials: Any,
) -> AsyncGenerator[FeedMessage]:
    """The messages that match `pattern`, for ever, through a durable consumer: in order, and each at least once.

    A message counts as taken when the next one is asked for; only then the server sends that. `durable` names the
    subscriber: who comes back under its name goes on behind what it had taken, and a warning tells if the feed forgot
    some of what followed. Without a name the place is given up at the end. A new subscriber begins with the oldest
    message that is kept, or, without `history`, with the next.
    Raises PatternError, Unavailable, Denied, and LogError for a name that is not fit or is in use with another pattern,
    a cluster without a feed, or a consumer that somebody deleted or bounded meanwhile.
    """
    filter_subject = cloudevents.pattern_subject(cluster, pattern)
    if durable is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", durable):
        raise LogError(f"durable name {durable!r}: expected letters, digits, '-' and '_', at most 64")
    stream, name = cloudevents.stream(cluster), durable or f"subscriber-{secrets.token_hex(4)}"
    connection = await Connection(url).connect(**credentials)
    try:
        await _keep_consumer(connection, stream, name, filter_subject, pattern, durable is not None, history)
        async with aclosing(_deliver(connection, stream, name)) as deliveries:
            async for message in deliveries:
                identity = (message.headers or {}).get(MESSAGE_ID, "")
                yield FeedMessage(id=identity, subject=message.subject, body=message.data)
    finally:
        if durable is None:
            with suppress(nats.errors.Error):
                await connection.client.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{name}")
        await connection.close()


async def _keep_consumer(
    connection: Connection, stream: str, name: str, filter_subject: str, pattern: str, named: bool, history: bool
) -> None:
    """Makes the consumer, or finds the one that this subscriber left."""
    try:
        await retrying()(_find_or_create, connection, stream, name, filter_subject, named, history)
    except Refused as refused:
        if refused.number == STREAM_NOT_FOUND:
            raise LogError(
                f"{connection.url}: no feed (no stream {stream}); does `muster feed` run? Another cluster is named by "
                f"--cluster, or behind the URL"
            ) from refused
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
            "max_ack_pending": 1,
            "replay_policy": "instant",
        }
        if not named:
            config["inactive_threshold"] = UNNAMED_KEPT_S * 1_000_000_000
        await connection.ask(
            f"$JS.API.CONSUMER.CREATE.{stream}.{name}.{filter_subject}", {"stream_name": stream, "config": config}
        )
    else:
        found = decoded(_decode_info, stream, answer)
        if (other := found.config.get("filter_subject", "")) != filter_subject:
            raise _OtherFilter(other)
        if found.config.get("deliver_subject"):
            raise LogError(f"durable {name!r} is a consumer to which the server pushes: choose another name")
        await _tell_what_is_gone(connection, stream, name, found.ack_floor.stream_seq)


async def _tell_what_is_gone(connection: Connection, stream: str, name: str, taken: int) -> None:
    """A subscriber may have been away for longer than the feed keeps its events. If it was there and waited for what is
    rare, nothing is lost: the server knows only what it took last. Raises Unanswered, Refused."""
    with suppress(Denied):  # permissions of an earlier version
        info = decoded(decode_stream, stream, await connection.ask(f"$JS.API.STREAM.INFO.{stream}"))
        first = info.state.first_seq
        if first > taken + 1:
            gone = "%s no longer has its messages %d to %d; what of them came for %r while it was away is lost to it"
            logger.warning(gone, stream, taken + 1, first - 1, name)


async def _deliver(connection: Connection, stream: str, name: str) -> AsyncGenerator[Msg]:
    """What the consumer has, and what it will have, as it comes.

    Raises LogError when somebody deleted the consumer, or it may not be pulled from.

    One pull request after the other, answered into a plain subscription: nats-py's `fetch` would hold a message back
    until its batch is full.
    """
    inbox, pulls = connection.client.new_inbox(), f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
    arrivals = await connection.client.subscribe(inbox)
    in_hand: Msg | None = None
    denials: list[Denied] = []
    connection.denials[pulls] = denials.append
    try:
        while True:
            if denials:
                raise denials[0]
            with suppress(nats.errors.Error):  # reconnecting: asked again after the silence
                await connection.client.publish(pulls, _PULL, reply=inbox)
            async for message in _answers(connection, arrivals, stream, name):
                in_hand = message
                yield message
                await _acknowledge(connection, message, stream, name)
                in_hand = None
    finally:
        del connection.denials[pulls]
        with suppress(nats.errors.Error):
            await arrivals.unsubscribe()  # first: what is given back must not come here again
            if in_hand is not None:
                await in_hand.nak()


async def _answers(connection: Connection, arrivals: Subscription, stream: str, name: str) -> AsyncGenerator[Msg]:
    """The messages that one pull request brings. Ends when it is used up, has expired, or is lost."""
    remaining = BATCH
    while remaining:
        _end_if_told()
        try:
            message = await arrivals.next_msg(timeout=SILENCE_S)
        except nats.errors.TimeoutError:  # not even a heartbeat: also how a server is that lost the others
            await _check_consumer(connection, stream, name)
            return
        if message.reply:
            remaining -= 1
            yield message
            continue
        headers = message.headers or {}
        status = headers.get("Status", "")
        description = headers.get("Description", "")
        if description == "Consumer Deleted":
            raise LogError(f"{stream}: the consumer {name!r} was deleted")
        if description.startswith("Exceeded MaxRequest"):  # a limit of the consumer's, or of the server's
            asked = f"{BATCH} messages within {PULL_EXPIRES_S} s"
            raise LogError(f"{stream}: the consumer {name!r} may not be asked for {asked}: {description}")
        if status == "503":
            await _check_consumer(connection, stream, name)
        if status != "100":
            return


def _end_if_told() -> None:
    """Python 3.11's wait_for, in nats-py's `next_msg`, swallows a cancellation that meets a message: a subscriber that is
    behind would hardly hear Ctrl-C."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _acknowledge(connection: Connection, message: Msg, stream: str, name: str) -> None:
    """With the server's answer: a lost acknowledgement would hold the next message back until it is too late.

    A server that died without having written what it had delivered does not answer: the message comes again.
    """
    for _ in range(2):
        try:
            await connection.request(message.reply, b"+ACK", within_s=SILENCE_S)
            return
        except Unanswered:
            await _check_consumer(connection, stream, name)


async def _check_consumer(connection: Connection, stream: str, name: str) -> None:
    """Nobody answers: because the server restarts, or because the consumer is gone. Raises LogError for the latter."""
    try:
        await retrying(forever=True)(connection.ask, f"$JS.API.CONSUMER.INFO.{stream}.{name}")
    except Refused as refused:
        raise LogError(f"{stream}: the consumer {name!r} is gone: {refused}") from refused
