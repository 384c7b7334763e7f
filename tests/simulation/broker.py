"""A NATS server with JetStream in virtual time, as far as Muster asks it, and the network between it and the processes.

It stands where nats-py's client would: `events.connection`, `events.consumer` and `events.jetstream` run over it as they
are, with their own timeouts, retries, settling of lost answers, gaps and silences. Of JetStream it keeps: one message
after the other, stored and synced before it is seen or acknowledged; the expected last sequence of a subject; message
ids; ephemeral pull consumers with heartbeats and requests that expire. Messages of one connection keep their order; an
answer may be lost, and a broken connection loses what was under way.
"""

from __future__ import annotations

import base64
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import msgspec
import nats.errors

from events import subjects
from events.connection import NO_MESSAGE_FOUND, STREAM_NOT_FOUND, Connection
from events.consumer import COMMIT, MESSAGE_ID
from events.envelope import Stored
from events.jetstream import EXPECTED
from tests.simulation.faults import Faults
from tests.simulation.loop import VirtualLoop
from tests.simulation.processes import Process

HEARTBEAT_S = 2.5
"""Less often than Muster asks for (1 s) and often enough for its patience (3 s): a quarter of a quiet history's cost."""
PATIENT_PULL_S = 30.0
WRONG_LAST = 10071
ANY_EPOCH = -1
PENDING_BYTES = 16 * 1024 * 1024
encode, decode = msgspec.json.encode, msgspec.json.decode
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
        connection._inbox = self.new_inbox()
        await self.subscribe(f"{connection._inbox}.*", connection._on_answer)
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
            self._send(subject, payload, reply, headers)
        elif sum(len(unsent[1]) for unsent in self._unsent) + len(payload) > PENDING_BYTES:
            raise nats.errors.OutboundBufferLimitError
        else:
            self._unsent.append((subject, payload, reply, headers))

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
            self.broker.faults.send("append", Append(self, message, self._there_s))
        else:
            loop.at(self._there_s, self.broker.receive, self, self.epoch, message)

    def deliver(self, to: str, messages: list[Message]) -> None:
        """From the server, in order, to what subscribed as `to`."""
        loop = self.broker.loop
        if not self.connected or self.is_closed:
            return
        self._here_s = max(self._here_s, self.silent_until_s, loop.now_s + self.latency_s())
        loop.call_at(self._here_s, self._arrive, self.epoch, to, messages, context=self.process.context)

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
            self._tell(self.connection._on_disconnect)
        self.broker.loop.at(until_s, self._reconnect)

    def _reconnect(self) -> None:
        if self.connected or self.is_closed:
            return
        if not self.broker.up:
            self.broker.loop.after(0.1 + self.latency_s(), self._reconnect)
            return
        self.connected = True
        unsent, self._unsent = self._unsent, []
        for message in unsent:
            self._send(*message)
        self._tell(self.connection._on_reconnect)

    def _tell(self, callback: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.broker.loop.call_soon(lambda: run_now(callback()), context=self.process.context)


class Append:
    """A commit that leaves its process."""

    name = ""

    def __init__(self, link: Link, message: Message, there_s: float) -> None:
        self.link, self.process, self.message, self.there_s = link, link.process, message, there_s

    def arrive(self, after_s: float = 0.0, *, answer: bool = True, answer_after_s: float = 0.0) -> None:
        """What is late was sent on by another server of the cluster: it comes though the connection broke meanwhile."""
        broker = self.link.broker
        epoch = ANY_EPOCH if after_s else self.link.epoch
        message = self.message if answer else self.message._replace(reply="")
        if answer_after_s:
            broker.late_answers[message.reply] = answer_after_s
        broker.loop.at(self.there_s + after_s, broker.receive, self.link, epoch, message)

    def refuse(self, code: int) -> None:
        broker = self.link.broker
        broker.loop.at(self.there_s, broker.refuse, self.link, self.message, code)

    def fail(self, after_s: float, *, sent: bool = True) -> None:
        """Muster's connection finds out by itself."""


class Pull:
    """A standing request of a consumer: how many messages it may still get, and until when."""

    def __init__(self, left: int, until_s: float) -> None:
        self.left, self.until_s = left, until_s


class ServerConsumer:
    """The server's side of a consumer: its place, and what was pulled."""

    def __init__(self, broker: Broker, link: Link, name: str, place: int) -> None:
        self.broker, self.link, self.name, self.place = broker, link, name, place
        self.inbox = ""
        self.pulls: deque[Pull] = deque()
        self.sent_s = broker.loop.now_s
        self.alive = True
        self._flushing = False
        broker.loop.after(HEARTBEAT_S, self._beat)

    def pull(self, inbox: str, messages: int) -> None:
        self.inbox = inbox
        self.pulls.append(Pull(messages, self.broker.loop.now_s + PATIENT_PULL_S))
        self.flush()

    def flush(self) -> None:
        """Send what there is, as far as it was pulled; to a reader that lags, later."""
        if not self.link.lag_s:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self.broker.loop.after(self.link.lag_s, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        stored, batch = self.broker.stored, []
        while self.alive and self.place <= len(stored) and self.pulls:
            self.pulls[0].left -= 1
            if not self.pulls[0].left:
                self.pulls.popleft()
            batch.append(self._delivered(stored[self.place - 1]))
            self.place += 1
        if batch:
            self.sent_s = self.broker.loop.now_s
            if len(batch) > 2 and self.broker.faults.hit("read", self.link.process):
                del batch[1]  # a client that is too slow loses messages
            self.link.deliver(self.inbox, batch)

    def _delivered(self, one: Stored) -> Message:
        reply = f"$JS.ACK.{self.broker.stream}.{self.name}.1.{one.sequence}.{one.sequence}.0.0"
        headers = {MESSAGE_ID: one.message_id, COMMIT: one.header.decode("utf-8", "replace")}
        return Message(one.subject, reply, headers, one.payload)

    def _beat(self) -> None:
        if not self.alive:
            return
        now_s = self.broker.loop.now_s
        while self.pulls and self.pulls[0].until_s <= now_s:
            left = str(self.pulls.popleft().left)
            self._status({"Status": "408", "Description": "Request Timeout", "Nats-Pending-Messages": left})
        if now_s - self.sent_s >= HEARTBEAT_S - 0.001:
            self._status({"Status": "100", "Description": "Idle Heartbeat"})
        self.broker.loop.at(max(self.sent_s, now_s - HEARTBEAT_S / 2) + HEARTBEAT_S, self._beat)

    def _status(self, headers: dict[str, str]) -> None:
        self.sent_s = self.broker.loop.now_s
        self.link.deliver(self.inbox, [Message(self.inbox, "", headers, b"")])


class Broker:
    """The server and its one stream. `landed` sees each message when it stands in the stream, and whose it was."""

    def __init__(
        self,
        loop: VirtualLoop,
        cluster: str,
        faults: Faults,
        source: random.Random,
        landed: Callable[[Stored, Process | None], None],
        *,
        replicas: int,
    ) -> None:
        self.loop, self.cluster, self.faults, self.source = loop, cluster, faults, source
        self.stream = subjects.stream(cluster)
        self.replicas = replicas
        self.stored: list[Stored] = []
        self.last: dict[str, int] = {}
        self.up = True
        self.links: list[Link] = []
        self.late_answers: dict[str, float] = {}
        """By their inbox: how much later they come."""
        self._landed = landed
        self._ids: dict[str, int] = {}
        self._consumers: dict[str, ServerConsumer] = {}
        self._busy_until_s = 0.0
        self._syncing: deque[tuple[Link, int, Message]] = deque()

    def link(self, process: Process, source: random.Random) -> Link:
        link = Link(self, process, source)
        if not self.up:
            link.break_until(self.loop.now_s)
        self.links.append(link)
        return link

    def forget(self, link: Link) -> None:
        """A connection is gone, and its consumers with it."""
        if link.is_closed and link in self.links:
            self.links.remove(link)
        for consumer in [one for one in self._consumers.values() if one.link is link]:
            self._drop(consumer)

    def lose_consumers(self, link: Link) -> None:
        """The server forgets them and tells nobody."""
        self.forget(link)

    def _drop(self, consumer: ServerConsumer) -> None:
        consumer.alive = False
        self._consumers.pop(consumer.name, None)

    # --------------------------------------------------------------------------------------------------------- outages

    def stop(self, until_s: float) -> None:
        """The server dies, its disk keeps what was synced: of what was being written, only a first part may survive."""
        self.up = False
        survivors = self.source.randrange(len(self._syncing) + 1)
        for _ in range(survivors):
            self._store(*self._syncing.popleft(), answer=False)
        self._syncing.clear()
        for link in list(self.links):
            link.break_until(until_s)
        self.loop.at(until_s, self._start)

    def _start(self) -> None:
        self.up = True
        self._ids.clear()

    # -------------------------------------------------------------------------------------------------------- requests

    def receive(self, link: Link, epoch: int, message: Message) -> None:
        """A message has arrived; that its sender is dead or stopped by now is unknown here."""
        if not self.up or epoch not in (link.epoch, ANY_EPOCH):
            return
        subject = message.subject
        if not subject.startswith("$JS.API."):
            self._syncing.append((link, epoch, message))
            self._busy_until_s = max(self._busy_until_s, self.loop.now_s) + 0.0002 + 0.0003 * self.source.random()
            self.loop.at(self._busy_until_s, self._sync)
            return
        if f".{self.stream}" not in subject:  # the snapshots' bucket: nobody has put one
            self.refuse(link, message, STREAM_NOT_FOUND)
            return
        verb, _, rest = subject.removeprefix("$JS.API.").partition(f".{self.stream}")
        name = rest.removeprefix(".")
        match verb:
            case "STREAM.INFO":
                found = {"state": {"first_seq": 1, "last_seq": len(self.stored)}}
                self.answer(link, message, found)
            case "STREAM.MSG.GET":
                self.answer(link, message, self._message(decode(message.data)["last_by_subj"]))
            case "CONSUMER.CREATE":
                place = decode(message.data)["config"]["opt_start_seq"]
                self._consumers[name] = ServerConsumer(self, link, name, place)
                self.answer(link, message, {"name": name})
            case "CONSUMER.MSG.NEXT":
                if consumer := self._consumers.get(name):
                    consumer.pull(message.reply, decode(message.data)["batch"])
            case "CONSUMER.DELETE":
                if consumer := self._consumers.get(name):
                    self._drop(consumer)
            case _:
                raise NotImplementedError(subject)

    def answer(self, link: Link, to: Message, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        """An answer goes back, if one is wanted."""
        if not to.reply:
            return
        told = [Message(to.reply, "", headers, encode(body))]
        inbox = f"{to.reply.rpartition('.')[0]}.*"
        if after_s := self.late_answers.pop(to.reply, 0.0):
            self.loop.after(after_s, link.deliver, inbox, told)
        else:
            link.deliver(inbox, told)

    def refuse(self, link: Link, to: Message, code: int) -> None:
        """503: no leader; 10164: three replicas are still busy with another message of the subject."""
        if code == 503:
            self.answer(link, to, {}, {"Status": "503"})
        else:
            self.answer(link, to, {"error": {"code": 400, "err_code": code, "description": "simulated"}})

    def _message(self, subject: str) -> dict[str, Any]:
        sequence = self.last.get(subject, 0)
        if not sequence:
            return {"error": {"code": 404, "err_code": NO_MESSAGE_FOUND, "description": "no message found"}}
        one = self.stored[sequence - 1]
        lines = f"NATS/1.0\r\n{MESSAGE_ID}: {one.message_id}\r\n{COMMIT}: {one.header.decode()}\r\n\r\n"
        hdrs, data = base64.b64encode(lines.encode()).decode(), base64.b64encode(one.payload).decode()
        return {"message": {"subject": subject, "seq": sequence, "hdrs": hdrs, "data": data}}

    # --------------------------------------------------------------------------------------------------------- storing

    def _sync(self) -> None:
        """The oldest message under way is on the disk: it is checked and stored, seen and acknowledged."""
        if self._syncing:
            self._store(*self._syncing.popleft())

    def _store(self, link: Link | None, epoch: int, message: Message, *, answer: bool = True) -> None:
        headers = message.headers or {}
        message_id = headers.get(MESSAGE_ID, "")
        known = self._ids.get(message_id, 0) if message_id else 0
        last = self.last.get(message.subject, 0)
        stale = EXPECTED in headers and int(headers[EXPECTED]) != last
        if known and (self.replicas > 1 or not stale):
            body: dict[str, Any] = {"stream": self.stream, "seq": known, "duplicate": True}
        elif stale:
            body = {"error": {"code": 400, "err_code": WRONG_LAST, "description": f"wrong last sequence: {last}"}}
        else:
            body = {"stream": self.stream, "seq": self._append(link, message, message_id, headers)}
        if link is not None and answer and link.epoch == epoch:
            self.answer(link, message, body)

    def _append(self, link: Link | None, message: Message, message_id: str, headers: dict[str, str]) -> int:
        sequence = len(self.stored) + 1
        one = Stored(
            sequence=sequence,
            subject=message.subject,
            message_id=message_id,
            header=headers.get(COMMIT, "").encode(),
            payload=message.data,
        )
        self.stored.append(one)
        self.last[message.subject] = sequence
        if message_id:
            self._ids[message_id] = sequence
        self._landed(one, link.process if link is not None else None)
        for consumer in list(self._consumers.values()):
            consumer.flush()
        return sequence

    def inject(self, subject: str, headers: dict[str, str], payload: bytes) -> None:
        """A message of nobody whom the log knows."""
        self._store(None, 0, Message(subject, "", headers, payload))


def run_now(coroutine: Coroutine[Any, Any, None]) -> None:
    """A callback of Muster's connection: none of them awaits anything."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError(f"{coroutine} waits")
