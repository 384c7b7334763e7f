"""The feed's stream in JetStream, and publishing into it. `events.subscription` is the readers' end.

The stream is bounded in age and bytes and forgets its oldest messages. Every message is published under the expected
last sequence of the stream, many in flight. The log determines which message follows which. So whoever publishes, and
whatever is lost and sent again, each sequence of the stream can hold only one message: no gap, no repetition, no
reordering; two feeds of one cluster slow but do not harm each other. Only where an empty stream begins is a choice, and
where one goes on of which what follows was purged from the log; so that message goes alone. After any doubt the publisher
asks for the stream's last message and goes on behind it.

On a single server the stream is written without an fsync for each message (``persist_mode: async``): that leaves the
disk to the log, and a tail lost in a power failure is published again, at the same sequences.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from events import cloudevents
from events.answers import (
    EXPECTED_LAST,
    MESSAGE_ID,
    STREAM_NOT_FOUND,
    Message,
    Refused,
    StreamState,
    Unanswered,
    decoded,
)
from events.cloudevents import CONTENT_TYPE, FeedMessage
from events.connection import Connection
from events.log import LogError
from events.patience import patiently

MAX_AGE_S = 7 * 24 * 3600
MAX_BYTES = 1 << 30
WINDOW = 512
"""Messages in flight."""
ANSWER_WITHIN_S = 10.0
LEAST_WINDOW_NS = 100_000_000
"""Of JetStream's deduplication, which would take a deleted message for one that is there."""
FORGETS_THE_OLDEST = {
    "retention": "limits",
    "discard": "old",
    "max_msgs": -1,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
}
"""How the stream forgets: by age and bytes alone. One that was made otherwise would take nothing when it is full, or lose
what somebody has read; then it may be empty, and what it had would be published again."""

_IDENTITY = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?")
"""Of a feed's message: the commit, which of its events, and which part of that."""
logger = logging.getLogger("muster.feed")


class Interrupted(LogError):
    """Not everything was published; the feed's place must be asked for again."""


class _Info(msgspec.Struct):
    config: dict[str, Any]
    state: StreamState


_decode_info = msgspec.json.Decoder(_Info).decode


class Feed:
    """The publisher's end of a cluster's feed. Get one from `open`."""

    def __init__(self, connection: Connection, cluster: str) -> None:
        self.cluster, self.connection = cluster, connection
        self.stream = cloudevents.stream(cluster)
        self.sequence = 0
        """Of the stream's last message, as far as this publisher knows."""
        self.goes_alone = True
        """Whether what is published next is a choice, and another feed's may be another."""

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

    async def position(self) -> FeedMessage | None:
        """The last message of a feed; None when the stream holds none. What is published next goes behind all that is
        there, also what somebody else said. Raises LogError.
        """
        state = (await self._info()).state  # first: behind what somebody deleted, too
        message = await patiently(self.connection.last_message, self.stream, f"muster-feed.{self.cluster}.>")
        self.sequence = state.last_seq if message is None else max(state.last_seq, message.seq)
        if message is not None and not self._is_own(message):
            message = await self._last_before(message.seq, state.first_seq)
        self.goes_alone = message is None
        if message is None:
            return None
        return FeedMessage(id=message.headers[MESSAGE_ID], subject=message.subject, body=message.data)

    def _is_own(self, message: Message) -> bool:
        """Whether a feed said it."""
        of_feed = message.subject.startswith(f"muster-feed.{self.cluster}.")
        return of_feed and _IDENTITY.fullmatch(message.headers.get(MESSAGE_ID, "")) is not None

    async def _last_before(self, sequence: int, first: int) -> Message | None:
        """The last message of a feed before this one, which is somebody else's. Raises LogError."""
        for place in range(sequence - 1, first - 1, -1):
            message = await patiently(self.connection.message_at, self.stream, place)
            if message is not None and self._is_own(message):
                logger.warning("%s: from %d on somebody else publishes here", self.stream, place + 1)
                return message
        return None

    async def publish(self, messages: Sequence[FeedMessage]) -> None:
        """Publishes behind what `position` found and what was published since. Raises Interrupted, Denied; LogError where
        somebody else's message took the place of one."""
        done = 0
        while done < len(messages):
            window = messages[done : done + (1 if self.goes_alone else WINDOW)]
            answers = await asyncio.gather(
                *(self._publish(message, self.sequence + behind) for behind, message in enumerate(window)),
                return_exceptions=True,
            )
            for place, answer in enumerate(answers):
                if isinstance(answer, Refused) and any(isinstance(other, int) for other in answers[place:]):
                    await self._stands(window[place], self.sequence + place + 1)
                if isinstance(answer, (Refused, Unanswered)):
                    raise Interrupted(f"{self.stream}: {answer}") from answer
                if isinstance(answer, BaseException):
                    raise answer
            if answers[-1] != self.sequence + len(window):
                raise Interrupted(f"{self.stream}: the server says that what was published is at {answers[-1]}")
            done += len(window)
            self.sequence += len(window)
            self.goes_alone = False

    async def _stands(self, message: FeedMessage, place: int) -> None:
        """It was refused, and what comes behind it in its window was not: that expects no more than as many messages as
        there are. So another feed's, which is the same, is in its place, or somebody else's. Raises LogError."""
        there = await patiently(self.connection.message_at, self.stream, place)
        if there is None or there.headers.get(MESSAGE_ID) == message.id:
            return
        missing = f"somebody else publishes here, and a message of theirs stands where {message.id} was to stand"
        raise LogError(f"{self.stream}: {missing}. To begin anew, delete the feed's stream")

    async def _publish(self, message: FeedMessage, expected: int) -> int:
        if not self.connection.client.is_connected:  # nats-py would keep it for the next, which may lead to another log
            raise Unanswered(f"{message.subject}: not connected to {self.connection.url}")
        headers = {MESSAGE_ID: message.id, "content-type": CONTENT_TYPE, EXPECTED_LAST: str(expected)}
        return await self.connection.publish(message.subject, message.body, headers, ANSWER_WITHIN_S)

    async def reconnected(self) -> None:
        """Until its connection was made anew: a server that lost power may lack what it had acknowledged."""
        anew = asyncio.Event()
        self.connection.wake.add(anew)
        try:
            await anew.wait()
        finally:
            self.connection.wake.discard(anew)

    async def bounds(self) -> tuple[int, int]:
        """The stream's own: age in seconds, bytes."""
        config = (await self._info()).config
        return config["max_age"] // 1_000_000_000, config["max_bytes"]

    async def close(self) -> None:
        await self.connection.close()

    async def _keep_stream(self, max_age_s: int, max_bytes: int, replicas: int) -> None:
        bounds = {
            **FORGETS_THE_OLDEST,
            "max_age": max_age_s * 1_000_000_000,
            "max_bytes": max_bytes,
            "duplicate_window": LEAST_WINDOW_NS,
        }
        config: dict[str, Any] = {
            "name": self.stream,
            "subjects": [f"muster-feed.{self.cluster}.>"],
            "storage": "file",
            "max_consumers": -1,
            "num_replicas": replicas,
            **bounds,
        }
        if replicas == 1:
            config["persist_mode"] = "async"
        try:  # asked first: to make it again, the server wants its bytes once more, and may not have them
            found = (await self._info()).config
        except Refused as refused:
            if refused.number != STREAM_NOT_FOUND:
                raise
            await patiently(self.connection.create_stream, config)
            found = (await self._info()).config  # another feed may have been first
        if config["subjects"][0] not in (found.get("subjects") or ()):  # a mirror has none
            raise LogError(f"{self.stream}: expected a stream of {config['subjects']}, found {found.get('subjects')}")
        if any(found.get(name) != bound for name, bound in bounds.items()):
            await self._api(f"STREAM.UPDATE.{self.stream}", {**found, **bounds})

    async def _info(self) -> _Info:
        return decoded(_decode_info, self.stream, await self._api(f"STREAM.INFO.{self.stream}"))

    async def _api(self, api: str, body: Any = None) -> bytes:
        return await patiently(self.connection.ask, f"$JS.API.{api}", body)
