"""The network between a process and the NATS server, at the level of nats-py's client.

`events.connection`, `events.consumer` and `events.jetstream` run over a `Link` as they are, with their own timeouts,
retries, settling of lost answers, gaps and silences. Messages of one connection keep their order; an answer may be lost,
and a broken connection loses what was under way.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import nats.errors

from events.connection import Connection
from events.consumer import COMMIT
from tests.simulation.processes import Process

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

T = TypeVar("T")
ANY_EPOCH = -1
HOP_S = 0.0002
PENDING_BYTES = 16 * 1024 * 1024
BUCKET = "$O."
"""What is put into the object store begins so."""
FEED = "muster-feed."
"""And what is published for others."""
LEASES = "muster-leases."
"""And who holds what."""
ABOUT_GANGS = {b'"GangPlaced"': "proposal", b'"GangPermitted"': "verdict", b'"GangHeld"': "verdict"}
"""What faults may wait for besides any commit."""
Callback = Callable[[Any], Coroutine[Any, Any, None]]


class Message(NamedTuple):
    """As nats-py gives it to a subscription."""

    subject: str
    reply: str
    headers: dict[str, str] | None
    data: bytes


class Subscription:
    def __init__(self, link: Link, subject: str) -> None:
        self._link, self._subject = link, subject

    async def unsubscribe(self) -> None:
        self._link.subscribed.pop(self._subject, None)


class Link:
    """One process's connection, with the methods of nats-py's client that Muster uses."""

    max_payload = 8 * 1024 * 1024
    _reconnection_task = None
    """nats-py's own, which Muster ends when it closes: here the world connects again."""

    def __init__(self, broker: Broker, process: Process, source: random.Random) -> None:
        self.broker, self.process, self.source = broker, process, source
        self.is_closed = False
        self.connected = True
        self.epoch = 0
        """Counts the connections: what was under way in an earlier one is lost."""
        self._known = 0
        """As of the last break that the process has heard of: who was stopped meanwhile writes into what is gone."""
        self.silent_until_s = 0.0
        """Until then nothing arrives, in either direction; then all of it does, unless the connection broke meanwhile."""
        self.lag_s = 0.0
        """What the log's messages take longer to this process."""
        self.subscribed: dict[str, Callback] = {}
        self.connection = Connection("nats://simulated:4222")
        self._unsent: list[tuple[str, bytes, str, dict[str, str] | None]] = []
        self._inboxes = 0
        self._there_s = self._here_s = 0.0

    async def open(self) -> Connection:
        """Muster's own connection over this link."""
        connection = self.connection
        connection.client = self  # type: ignore[assignment]
        await connection._inbox.open(self)  # type: ignore[arg-type]
        return connection

    # ------------------------------------------------------------------------------------------- as nats-py's client

    def new_inbox(self) -> str:
        self._inboxes += 1
        return f"_INBOX.{self.process.name}-{self._inboxes}"

    async def subscribe(self, subject: str, cb: Callback) -> Subscription:
        self.subscribed[subject] = cb
        return Subscription(self, subject)

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        if self.connected:
            if self._known == self.epoch:
                self._send(subject, payload, reply, headers)
        elif sum(len(unsent[1]) for unsent in self._unsent) + len(payload) > PENDING_BYTES:
            raise nats.errors.OutboundBufferLimitError
        else:
            self._unsent.append((subject, payload, reply, headers))

    @property
    def is_connected(self) -> bool:
        return self.connected

    async def flush(self) -> None:
        """Behind all that was sent, and all that the server says before it hears of this."""
        loop = self.broker.loop
        heard = loop.create_future()
        self._there_s = max(self._there_s, self.silent_until_s, loop.now_s + HOP_S)
        loop.at(self._there_s, self._pong, self.epoch, heard)
        await heard

    async def go_elsewhere(self) -> bool:
        """There is another server only while one is cut off."""
        parted = self.broker.parted
        if parted is None or self not in parted:
            return False
        parted.goes(self, for_good=True)
        self.break_until(self.broker.loop.now_s)
        return True

    async def close(self) -> None:
        self.is_closed = True
        self.broker.forget(self)

    # ------------------------------------------------------------------------------------------------------- network

    def latency_s(self) -> float:
        """A fifth of a millisecond; seldom much more."""
        chance = self.source.random()
        return 0.0001 + 0.0002 * chance if chance < 0.97 else 0.2 * (chance - 0.97) + 0.001

    def _send(self, subject: str, payload: bytes, reply: str, headers: dict[str, str] | None) -> None:
        loop = self.broker.loop
        self._there_s = max(self._there_s, self.silent_until_s, loop.now_s + self.latency_s())
        message = Message(subject, reply, headers, payload)
        if headers is not None and COMMIT in headers:
            also = next((kind for event, kind in ABOUT_GANGS.items() if event in payload), "")
            self.broker.faults.send("append", Append(self, message, self._there_s), also)
        elif subject.startswith(BUCKET):
            self.broker.faults.send("store", Append(self, message, self._there_s))
        elif subject.startswith(FEED):
            self.broker.faults.send("publish", Append(self, message, self._there_s))
        elif subject.startswith(LEASES):
            self.broker.faults.send("lease", Append(self, message, self._there_s))
        else:
            self.broker.faults.send("ask", Append(self, message, self._there_s))

    def deliver(self, to: str, messages: list[Message]) -> None:
        """From the server, in order, to what subscribed as `to`."""
        loop = self.broker.loop
        if not self.connected or self.is_closed:
            return
        self._here_s = max(self._here_s, self.silent_until_s, loop.now_s + self.latency_s())
        loop.call_at(self._here_s, self._arrive, self.epoch, to, messages, context=self.process.context)

    def _pong(self, epoch: int, heard: asyncio.Future[None]) -> None:
        def hear() -> None:
            if epoch == self.epoch and not heard.done():
                heard.set_result(None)

        loop = self.broker.loop
        self._here_s = max(self._here_s, self.silent_until_s, loop.now_s + HOP_S)
        loop.call_at(self._here_s, hear, context=self.process.context)

    def _arrive(self, epoch: int, to: str, messages: list[Message]) -> None:
        if epoch != self.epoch or self.is_closed:
            return
        for message in messages:
            callback = self.subscribed.get(to)
            if callback is not None:
                run_now(callback(message))

    def break_until(self, until_s: float) -> None:
        """The connection breaks, and is made again when the time is over and the server is up."""
        if self.is_closed:
            return
        if self.connected:
            self.connected = False
            self.epoch += 1
            self.broker.forget(self)
            self._tell(self._on_disconnect)
        self.broker.loop.at(until_s, self._reconnect)

    async def _on_disconnect(self) -> None:
        self._known = self.epoch
        await self.connection._on_disconnect()

    def _reconnect(self) -> None:
        if self.connected or self.is_closed:
            return
        if not self.broker.up:
            self.broker.loop.after(0.1 + self.latency_s(), self._reconnect)
            return
        self.connected = True
        self.broker.connects(self)
        unsent, self._unsent = self._unsent, []
        for message in unsent:
            self._send(*message)
        self._tell(self.connection._on_reconnect)

    def _tell(self, callback: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.broker.loop.call_soon(lambda: run_now(callback()), context=self.process.context)


class Append:
    """A commit, a part of a snapshot, or whatever is asked of the server, that leaves its process."""

    def __init__(self, link: Link, message: Message, there_s: float) -> None:
        self.link, self.process, self.message, self.there_s = link, link.process, message, there_s
        self._life = link.broker.life

    @property
    def name(self) -> str:
        return self.message.data.decode("utf-8", "replace")

    def arrive(self, after_s: float = 0.0, *, answer: bool = True, answer_after_s: float = 0.0) -> None:
        """What is late was sent on by another server of the cluster: it comes though the connection broke meanwhile."""
        broker = self.link.broker
        epoch = ANY_EPOCH if after_s else self.link.epoch
        message = self.message if answer else self.message._replace(reply="")
        if answer_after_s:
            broker.late_answers[message.reply] = answer_after_s
        broker.loop.at(self.there_s + after_s, self._arrives, epoch, message)

    def _arrives(self, epoch: int, message: Message) -> None:
        if self._life == self.link.broker.life:
            self.link.broker.receive(self.link, epoch, message)

    def refuse(self, code: int) -> None:
        broker = self.link.broker
        broker.loop.at(self.there_s, broker.refuse, self.link, self.message, code)

    def fail(self, after_s: float, *, sent: bool = True) -> None:
        """Muster's connection finds out by itself."""


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """A callback of Muster's connection, say: none of them awaits anything."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    raise AssertionError(f"{coroutine} waits")
