"""One ephemeral pull consumer: messages of a stream from a sequence on, as fast as nats-py can take them.

Two standing pull requests are answered into one plain subscription. They are counted in messages, fewer where these are
large: what is still to come is topped up whenever a request's worth has been taken, and a request's bytes bound what
waits in memory. Whatever ends the flow ends the consumer, and its reader makes a new one: a gap in the sequences, a
reconnection, a 409 that says that the consumer or its server is gone, silence where heartbeats should be, or heartbeats
alone where messages should be. The last is how a consumer goes on whose server is full, or cut off from the others: it
has nothing of what they store. So a consumer that has sent no message for a while has the stream's leader asked for the
stream's end.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from typing import Any

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from events import subjects
from events.answers import MESSAGE_ID, Denied, Unanswered, api, decode_stream, decoded
from events.connection import Connection
from events.envelope import Stored
from events.log import LogError

TOO_LARGE = "Message Size Exceeds MaxBytes"
COMMIT = "Muster-Commit"
TRACE = "traceparent"

PULL_MESSAGES = 1024
PULL_BYTES = 16 * 1024 * 1024
AHEAD_BYTES = 1 << 19
"""About what a pull request brings, by the commits that came last. Whatever else is said on the connection, as that a
lease was renewed, comes behind what two of them bring."""
PULL_EXPIRES_S = 30
HEARTBEAT_S = 1
SILENCE_S = 3.0
"""A consumer that sends neither message nor heartbeat for so long is gone."""
QUIET_S = 10.0
"""After so long without a message the stream's end is asked for, and again. What was there the first time, and did not
come until the second, never will."""
KEPT_S = 10
"""How long the server keeps a consumer that nobody pulls from."""


class Gap(Unanswered):
    """A message is missing between two that arrived."""


class Consumer:
    """The messages of `stream` from sequence `first` on. `open` it, `take` in a loop, `close` it."""

    def __init__(
        self, connection: Connection, stream: str, first: int, domain: str = "", *, commit_bytes: int = 0
    ) -> None:
        """`commit_bytes`: how large the stream's messages are, on the average."""
        self._connection = connection
        self._api, self._domain = api(domain), domain
        self._generation = connection.generation
        self._stream, self._own = stream, subjects.of_stream(stream)
        self._first = first
        self._next = first
        self._awaited = first
        """The message that was to come next when this last waited."""
        self._quiet_since_s = time.monotonic()
        """Since when it has been waited for; or, if the stream's end was asked for meanwhile, since then."""
        self._is_there = False
        """Whether the stream had it, when its end was asked for."""
        self._inbox = connection.client.new_inbox()
        self._name = "muster-" + self._inbox.rpartition(".")[2]
        self._pulls = f"{self._api}.CONSUMER.MSG.NEXT.{stream}.{self._name}"
        self._heard = False
        """Whether a message or a heartbeat has come."""
        self._is_large = False
        """Whether the next one is larger than a pull request's bytes: then it is pulled alone, whatever its size. A
        server bounds what is published to it, and not what it says itself onto a subject of the stream."""
        self._subscription: Subscription | None = None
        self._arrived: list[Stored] = []
        self._requested = 0
        self._commit_bytes = commit_bytes
        """How large the last ones were, on the average."""
        self._awake = asyncio.Event()
        self._lost: LogError | None = None

    async def open(self) -> None:
        """Until the server says something of what is pulled: one that refuses it may be silent for ever, and who only
        made the next consumer would be so, too. Raises Unanswered, Denied, Refused."""
        self._connection.wake.add(self._awake)
        self._connection.denials[self._pulls] = self._on_denial
        try:
            self._subscription = await self._connection.client.subscribe(self._inbox, cb=self._on_message)
            await self._connection.ask(
                f"{self._api}.CONSUMER.CREATE.{self._stream}.{self._name}",
                {"stream_name": self._stream, "config": self._configuration(), "action": "create"},
            )
            while not self._heard:
                await self._wait()
        except BaseException:
            await self.close()
            raise

    async def take(self) -> list[Stored]:
        """Everything that has arrived since the last call, contiguous, never empty. Raises as `open`, and Gap."""
        while not self._arrived:
            await self._wait()
        taken, self._arrived = self._arrived, []
        self._commit_bytes = sum(len(one.header) + len(one.payload) for one in taken) // len(taken)
        await self._top_up()
        return taken

    async def close(self) -> None:
        """Tells the server, without waiting for its answer: it forgets a consumer that nobody pulls from anyway."""
        self._connection.wake.discard(self._awake)
        self._connection.denials.pop(self._pulls, None)
        try:
            if self._subscription is not None:
                await self._subscription.unsubscribe()
                await self._connection.client.publish(f"{self._api}.CONSUMER.DELETE.{self._stream}.{self._name}")
        except nats.errors.Error:
            pass  # closed or not connected
        self._subscription = None

    def _configuration(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._first,
            "ack_policy": "none",
            "replay_policy": "instant",
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": KEPT_S * 1_000_000_000,
        }

    async def _wait(self) -> None:
        """Until something came, or the flow has ended: then this raises why."""
        self._awake.clear()  # first: what comes while something is asked below has come
        if self._lost is not None:
            raise self._lost
        if self._generation != self._connection.generation:
            raise Unanswered(f"{self._stream}: the connection was made anew")
        await self._check_progress()
        await self._top_up()
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                await self._awake.wait()
        if not self._awake.is_set():
            await self._connection.hear_all()  # megabytes take their time, and heartbeats come behind them
        if not self._awake.is_set():
            raise Unanswered(f"{self._stream}: no heartbeat for {SILENCE_S:g} s")

    async def _check_progress(self) -> None:
        """Raises Unanswered where what is there does not come, or no leader says what is; and what `ask` raises."""
        if self._next != self._awaited:
            self._awaited, self._quiet_since_s, self._is_there = self._next, time.monotonic(), False
        elif time.monotonic() - self._quiet_since_s >= QUIET_S:
            if self._is_there:
                await self._tell_what_is_missing()
            answer = await self._connection.ask(f"{self._api}.STREAM.INFO.{self._stream}")
            self._is_there = decoded(decode_stream, self._stream, answer).state.last_seq >= self._awaited
            self._quiet_since_s = time.monotonic()

    async def _tell_what_is_missing(self) -> None:
        """No message shows the gap where the last was deleted. Raises Gap, and Unanswered where it is there all the same;
        and what `ask` raises."""
        with suppress(Denied):  # over a leaf node nobody may ask
            if await self._connection.message_at(self._stream, self._next, self._domain) is None:
                raise Gap(f"{self._stream}: commit {self._next} is missing, and there is none behind it")
        raise Unanswered(f"{self._stream}: {self._next} is there, and did not come for {QUIET_S:g} s")

    async def _top_up(self) -> None:
        batch, most = min(PULL_MESSAGES, max(1, AHEAD_BYTES // max(1, self._commit_bytes))), PULL_BYTES
        if self._is_large:
            batch, most = 1, 0
        while self._requested <= batch:
            self._requested += batch
            try:
                await self._connection.client.publish(self._pulls, _pull_request(batch, most), reply=self._inbox)
            except nats.errors.Error as error:
                raise Unanswered(f"{self._stream}: {error}") from error

    async def _on_message(self, message: Msg) -> None:
        if not message.reply:
            self._on_status(message.headers or {})
        elif self._lost is None:
            sequence = _sequence(message.reply)
            if sequence == 0:
                return  # not from JetStream
            self._requested -= 1
            self._heard, self._is_large = True, False
            if sequence == self._next:
                self._next += 1
                headers = message.headers or {}
                self._arrived.append(stored(sequence, message.subject, headers, message.data, of=self._own))
            else:
                self._lost = Gap(f"{self._stream}: commit {self._next} is missing before {sequence}")
        self._awake.set()

    def _on_denial(self, denied: Denied) -> None:
        self._lost = denied
        self._awake.set()

    def _on_status(self, headers: dict[str, str]) -> None:
        """100: heartbeat. 404, 408 and a 409 about bytes end the pull request; another 409 and 503, the consumer."""
        status = headers.get("Status", "")
        description = headers.get("Description", "")
        if status == "100":
            self._heard = True
            return
        self._is_large |= description == TOO_LARGE
        ended = status in ("404", "408") or description in ("Batch Completed", TOO_LARGE)
        pending = _PENDING.fullmatch(headers.get("Nats-Pending-Messages", ""))
        if ended and pending:
            self._requested -= int(pending[0])
        else:
            self._lost = Unanswered(f"{self._stream}: {status} {description or 'no responders'}")


_PENDING = re.compile("[0-9]{1,10}")


def _pull_request(batch: int, most_bytes: int) -> bytes:
    """`most_bytes` 0: any."""
    return msgspec.json.encode(
        {
            "batch": batch,
            "max_bytes": most_bytes,
            "expires": PULL_EXPIRES_S * 1_000_000_000,
            "idle_heartbeat": HEARTBEAT_S * 1_000_000_000,
        }
    )


def stored(sequence: int, subject: str, headers: dict[str, str], payload: bytes, *, of: str) -> Stored:
    """A message as the log holds it; one that is not a commit has an empty header, and decoding it says so. `of`: with
    what the log's own subjects begin. A consumer can have a commit of another cluster's delivered onto one of these."""
    return Stored(
        sequence=sequence,
        subject=subject,
        message_id=headers.get(MESSAGE_ID, ""),
        header=headers.get(COMMIT, "").encode() if subject.startswith(of) else b"",
        payload=payload,
        traceparent=headers.get(TRACE, ""),
    )


def _sequence(reply: str) -> int:
    """The stream sequence in a delivered message's reply subject, in both of the server's forms; 0 for another subject.

    ``$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.…``, or with domain and account before the stream.
    """
    tokens = reply.split(".")
    try:
        return int(tokens[5] if len(tokens) == 9 else tokens[7]) if reply.startswith("$JS.ACK.") else 0
    except (IndexError, ValueError):
        return 0
