"""A NATS server with JetStream in virtual time, as far as Muster asks it.

It keeps: one message after the other, stored and synced before it is seen or acknowledged; the expected last sequence of
a subject; message ids; ephemeral pull consumers with heartbeats and requests that expire; purges of what a log begins
with; and the object store's buckets (`tests.simulation.bucket`). What lies between it and the processes is
`tests.simulation.network`.
"""

from __future__ import annotations

import base64
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from events import object_store, subjects
from events.answers import STREAM_NOT_FOUND
from events.consumer import COMMIT, MESSAGE_ID
from events.envelope import Stored
from events.jetstream import EXPECTED
from services.start import snapshots_said
from tests.simulation.bucket import NOT_FOUND, Bucket
from tests.simulation.faults import Faults
from tests.simulation.lease_stream import LeaseStream
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import ANY_EPOCH, BUCKET, FEED, LEASES, Link, Message
from tests.simulation.parted import Parted
from tests.simulation.processes import Process

if TYPE_CHECKING:
    from tests.simulation.feed_stream import FeedStream
    from tests.simulation.set_back import Backup

HEARTBEAT_S = 2.5
"""Less often than Muster asks for (1 s) and often enough for its patience (3 s): a quarter of a quiet history's cost."""
PATIENT_PULL_S = 30.0
WRONG_LAST = 10071
encode, decode = msgspec.json.encode, msgspec.json.decode


class Other(Protocol):
    """A stream beside the log."""

    @property
    def exists(self) -> bool: ...

    def ask(self, verb: str, asked: dict[str, Any]) -> dict[str, Any]: ...


class Pull:
    """A standing request of a consumer: how many messages it may still get, and until when."""

    def __init__(self, left: int, until_s: float) -> None:
        self.left, self.until_s = left, until_s


class ServerConsumer:
    """The server's side of a consumer: its place, and what was pulled."""

    def __init__(self, broker: Broker, link: Link, name: str, place: int) -> None:
        self.broker, self.link, self.name, self.place = broker, link, name, max(place, broker.first)
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
        self.place = max(self.place, self.broker.first)
        while self.alive and self.place <= self.broker.end_for(self.link) and self.pulls:
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
        """All that ever stood in the log, also what was purged since."""
        self.first = 1
        self.purged: Callable[[], object] = lambda: None
        """Called when the log was purged."""
        """What is before is purged."""
        streams = (object_store.stream(cluster), object_store.stream_of(object_store.bodies_bucket(cluster)))
        self.buckets = {stream: Bucket(stream, lambda: self.loop.now_s) for stream in streams}
        self.bucket, self.bodies = self.buckets.values()
        """Of snapshots; of a federation's bodies."""
        self.feed: FeedStream | None = None
        """Where there is one."""
        self.leases = LeaseStream(self)
        self.last: dict[str, int] = {}
        self.up = True
        self.parted: Parted | None = None
        """One of its servers, while that is cut off from the others."""
        self.links: list[Link] = []
        self.late_answers: dict[str, float] = {}
        """By their inbox: how much later they come."""
        self._landed = landed
        self._ids: dict[str, int] = {}
        self._consumers: dict[str, ServerConsumer] = {}
        self._busy_until_s = 0.0
        self.life = 0
        """Counts the backups that were restored: of what was on its way to the servers before nothing comes any more."""
        self._syncing: deque[tuple[Link, int, Message]] = deque()

    def link(self, process: Process, source: random.Random) -> Link:
        link = Link(self, process, source)
        if not self.up:
            link.break_until(self.loop.now_s)
        self.links.append(link)
        self.connects(link)
        return link

    def connects(self, link: Link) -> None:
        if self.parted is not None:
            self.parted.comes(link)

    def forget(self, link: Link) -> None:
        """A connection is gone, and its consumers with it."""
        if self.parted is not None:
            self.parted.goes(link)
        if link.is_closed and link in self.links:
            self.links.remove(link)
        for consumer in [one for one in self._consumers.values() if one.link is link]:
            self._drop(consumer)

    def _drop(self, consumer: ServerConsumer) -> None:
        consumer.alive = False
        self._consumers.pop(consumer.name, None)

    # --------------------------------------------------------------------------------------------------------- outages

    def stop(self, until_s: float) -> None:
        """The server dies, its disk keeps what was synced: of what was being written, only a first part may survive."""
        self.up, self.parted = False, None
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

    def restore(self, backup: Backup) -> None:
        """All is as it was then, while nobody is connected."""
        self.life += 1
        self._syncing.clear()
        self._ids.clear()
        self.first, self.stored = backup.first, [*backup.stored]
        self.last = {one.subject: one.sequence for one in self.stored[self.first - 1 :]}
        self.leases.restore(backup.leases)
        if backup.bucket is not None:
            self.bucket.restore(backup.bucket, backup.denied)
        self.bucket.forget_altered({taken.sequence for one in self.stored for taken in snapshots_said(one)})

    def part(self, until_s: float) -> bool:
        """One server is cut off; whether there are several, and they are together."""
        if self.replicas < 3 or self.parted is not None or not self.up:
            return False
        self.parted = Parted(self)
        self.loop.at(until_s, self.unite, self.parted)
        return True

    def unite(self, parted: Parted | None) -> None:
        if parted is None or parted is not self.parted:
            return
        self.parted = None
        parted.together()
        for consumer in list(self._consumers.values()):
            consumer.flush()

    def is_alone(self, link: Link | None) -> bool:
        """Whether it leads to a server that is cut off."""
        return self.parted is not None and link in self.parted

    def end_for(self, link: Link) -> int:
        """How far the log goes where it leads to."""
        return self.parted.end if self.parted is not None and link in self.parted else len(self.stored)

    # -------------------------------------------------------------------------------------------------------- requests

    def receive(self, link: Link, epoch: int, message: Message) -> None:
        """A message has arrived; that its sender is dead or stopped by now is unknown here."""
        if not self.up or epoch not in (link.epoch, ANY_EPOCH):
            return
        subject = message.subject
        if subject.startswith(LEASES):
            self.leases.heard(link, message)
        if self.parted is not None and link in self.parted:
            if subject.startswith("$JS.API."):
                self.parted.received(link, message, *self._parsed(subject)[:2])
        elif not subject.startswith("$JS.API."):
            self._syncing.append((link, epoch, message))
            self._busy_until_s = max(self._busy_until_s, self.loop.now_s) + 0.0002 + 0.0003 * self.source.random()
            self.loop.at(self._busy_until_s, self._sync)
        else:
            self._asked(link, message)

    def _asked(self, link: Link, message: Message) -> None:
        """Of the server's API."""
        verb, stream, rest = self._parsed(message.subject)
        asked = decode(message.data) if message.data else {}
        other = self._others.get(stream)
        if other is not None:
            self._other_asked(other, link, message, verb, asked)
            return
        match verb:
            case "STREAM.INFO":
                self.answer(link, message, {"state": {"first_seq": self.first, "last_seq": len(self.stored)}})
            case "STREAM.MSG.GET":
                self.answer(link, message, self.message(asked.get("seq") or self.last.get(asked["last_by_subj"], 0)))
            case "STREAM.PURGE":
                self._purge(asked["seq"])
                self.answer(link, message, {"success": True})
            case "CONSUMER.CREATE":
                self._consumers[rest] = ServerConsumer(self, link, rest, asked["config"]["opt_start_seq"])
                self.answer(link, message, {"name": rest})
            case "CONSUMER.MSG.NEXT":
                if consumer := self._consumers.get(rest):
                    consumer.pull(message.reply, asked["batch"])
            case "CONSUMER.DELETE":
                if consumer := self._consumers.get(rest):
                    self._drop(consumer)
            case _:
                raise NotImplementedError(message.subject)

    @property
    def _others(self) -> dict[str, Other]:
        others: dict[str, Other] = {**self.buckets, self.leases.name: self.leases}
        return others if self.feed is None else {**others, self.feed.name: self.feed}

    def _parsed(self, subject: str) -> tuple[str, str, str]:
        """(verb, stream, what follows) of what is asked of the server's API."""
        asked = subject.removeprefix("$JS.API.")
        for stream in (self.stream, *self._others):
            verb, found, rest = asked.partition(f".{stream}")
            if found:
                return verb, stream, rest.removeprefix(".")
        raise NotImplementedError(subject)

    def _other_asked(self, stream: Other, link: Link, message: Message, verb: str, asked: dict[str, Any]) -> None:
        if stream.exists or verb == "STREAM.CREATE":
            self.answer(link, message, stream.ask(verb, asked))
        else:
            self.refuse(link, message, STREAM_NOT_FOUND)

    def _purge(self, first: int) -> None:
        """What is before goes; a subject that had nothing else is empty."""
        self.first = max(self.first, first)
        self.last = {subject: sequence for subject, sequence in self.last.items() if sequence >= self.first}
        self.purged()

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

    def message(self, sequence: int) -> dict[str, Any]:
        if not self.first <= sequence <= len(self.stored):
            return NOT_FOUND
        one = self.stored[sequence - 1]
        lines = f"NATS/1.0\r\n{MESSAGE_ID}: {one.message_id}\r\n{COMMIT}: {one.header.decode()}\r\n\r\n"
        hdrs, data = base64.b64encode(lines.encode()).decode(), base64.b64encode(one.payload).decode()
        return {"message": {"subject": one.subject, "seq": sequence, "hdrs": hdrs, "data": data}}

    # --------------------------------------------------------------------------------------------------------- storing

    def _sync(self) -> None:
        """The oldest message under way is on the disk: it is checked and stored, seen and acknowledged."""
        if self._syncing:
            self._store(*self._syncing.popleft())

    def _store(self, link: Link | None, epoch: int, message: Message, *, answer: bool = True) -> None:
        if message.subject.startswith(BUCKET):
            body = self.buckets[object_store.stream_of(message.subject.split(".")[1])].put(message)
        elif message.subject.startswith(FEED):
            body = self.feed.put(message) if self.feed is not None else NOT_FOUND
        elif message.subject.startswith(LEASES):
            body = self.leases.put(message)
        else:
            body = self._commit(link, message)
        if link is not None and answer and link.epoch == epoch and not self.is_alone(link):
            self.answer(link, message, body)

    def _commit(self, link: Link | None, message: Message) -> dict[str, Any]:
        """Into the log, if it comes behind what it expects; the acknowledgement, or the refusal."""
        headers = message.headers or {}
        message_id = headers.get(MESSAGE_ID, "")
        known = self._ids.get(message_id, 0) if message_id else 0
        last = self.last.get(message.subject, 0)
        stale = EXPECTED in headers and int(headers[EXPECTED]) != last
        if known and (self.replicas > 1 or not stale):
            return {"stream": self.stream, "seq": known, "duplicate": True}
        if stale:
            return {"error": {"code": 400, "err_code": WRONG_LAST, "description": f"wrong last sequence: {last}"}}
        return {"stream": self.stream, "seq": self._append(link, message, message_id, headers)}

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
