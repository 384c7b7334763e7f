"""Leases: who tries to be a role's active service. They keep nothing safe: the log's own fencing does.

A lease is the last message on ``muster-leases.<cluster>.<role>``, in a stream that keeps one message for each subject.
Its holder publishes it again under the expected sequence and with a time to live. When the holder stops, the server
forgets it (within 10 ms of its time, as measured with 2.15) and the next standby's message is accepted. A clean end
publishes an empty lease, which a standby hears at once. The server could mark what it forgets
(``subject_delete_marker_ttl``), but such a marker reaches consumers only, no subscription: a standby asks five times in
a lease's life instead.

The server forgets a lease by its own clock: one that was an hour ahead and is set right keeps what it holds for an hour
more. So a standby has its own clock, too. A holder that is alive renews three times in a lease's time; the same word,
seen for twice that time from a server that answered throughout, is a dead one's, and is replaced.

While the server answers nobody, as three servers do that choose a leader, nobody can renew and nobody can claim, but the
lease's time goes on. So a holder keeps a lease that nobody else has claimed, and a standby waits one more lifetime from
that silence's end before it claims it.

A KV bucket would not do: nats-py's `update` drops the time to live, and a renewed lease would be permanent.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from events.answers import EXPECTED, NotLast, Unanswered
from events.connection import Connection
from events.log import LogError
from events.patience import PATIENCE_S, retrying
from events.wire import UNDECODABLE

_logger = logging.getLogger(__name__)
TTL = "Nats-TTL"
LIVES = 2
"""So many times of a lease without a renewal show that its holder is dead: the server forgets it after one."""


class Held(msgspec.Struct, frozen=True):
    """The message. `holder` is for people; `claim` is one `Lease` object's own, and empty when nobody holds it."""

    holder: str
    claim: str


class _Word(NamedTuple):
    """The last message on a lease's subject."""

    sequence: int
    held: Held
    ttl_s: int
    """What its sender asked for; 0 where that is not said."""


class _Silence:
    """For how long a lease's last word has been the last, by this process's clock."""

    def __init__(self, connection: Connection, ttl_s: int) -> None:
        self._connection, self._ttl_s = connection, ttl_s
        self._sequence, self._since_s = 0, 0.0

    def outlived(self, word: _Word) -> bool:
        """Whether its holder is dead, though the server has not forgotten it."""
        now_s = asyncio.get_running_loop().time()
        if word.sequence != self._sequence:
            self._sequence, self._since_s = word.sequence, now_s
        seen_s = min(now_s - self._since_s, self._connection.answers_for_s())
        return seen_s >= LIVES * (word.ttl_s or self._ttl_s)


def stream(cluster: str) -> str:
    return f"muster-leases-{cluster}"


def subject(cluster: str, role: str) -> str:
    """`role` as in a writer's subject: binder, ingest, planner.<shard>."""
    return f"muster-leases.{cluster}.{role}"


class Lease:
    """One holder's claim to one role.

    `holder` is a name for people. `ttl_s`: whole seconds, at least 1; renewed three times in it. After `acquire`,
    `lost` is set when the lease is another's, or nobody could be asked for `patience_s`: the service steps down.
    """

    def __init__(
        self,
        connection: Connection,
        cluster: str,
        role: str,
        holder: str,
        ttl_s: int = 5,
        *,
        replicas: int = 1,
        patience_s: float = PATIENCE_S,
    ) -> None:
        if ttl_s < 1:
            raise ValueError(f"ttl_s is {ttl_s}: the server forgets messages after whole seconds, at least 1")
        self.role = role
        self.ttl_s = ttl_s
        self.lost = asyncio.Event()
        self.why = ""
        """Why it is lost, once it is and was not given back."""
        self._connection = connection
        self._stream = stream(cluster)
        self._subject = subject(cluster, role)
        self._configuration = {
            "name": self._stream,
            "subjects": [subject(cluster, ">")],
            "storage": "file",
            "max_msgs_per_subject": 1,
            "allow_msg_ttl": True,
            "num_replicas": replicas,
        }
        self._held = Held(holder, secrets.token_hex(8))
        self._patience_s = patience_s
        self._given_back = False
        """Whether that was the last word heard of it."""
        self._silence = _Silence(connection, ttl_s)
        self._sequence = 0
        self._valid_until = 0.0
        self._renewing: asyncio.Task[None] | None = None

    async def acquire(self) -> None:
        """Waits as a standby until the lease is free and ours. Raises Unavailable, Denied, Refused."""
        await self._prepare()
        changed = asyncio.Event()

        async def on_change(message: Msg) -> None:
            self._given_back = _read(message.data) == _NOBODY
            changed.set()

        listening = await self._connection.client.subscribe(self._subject, cb=on_change)
        try:
            free = await self._try()
            if not free:
                await self._check_permitted()
            while not free:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.ttl_s / 5):  # nobody tells when the server forgets a lease
                        await changed.wait()
                changed.clear()
                free = await self._try()
            self._hold()
        finally:
            await self._unheard(listening)

    async def _unheard(self, listening: Subscription) -> None:
        """Nobody is told that this has acquired it, if it is cancelled here: then it is given back."""
        try:
            with suppress(nats.errors.Error):
                await listening.unsubscribe()
        except asyncio.CancelledError:
            await self.release()
            raise

    async def release(self) -> None:
        """Hands over at once. Does nothing when the lease is not held."""
        if self._renewing is None:
            return
        self._renewing.cancel()
        with suppress(asyncio.CancelledError):
            await self._renewing
        self._renewing = None
        self.lost.set()
        with suppress(LogError):  # then its time runs out
            last = await self._last()
            if last is not None and last.held == self._held:
                await self._publish(_NOBODY, last.sequence, ttl_s=1)

    async def __aenter__(self) -> Lease:
        await self.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    async def _prepare(self) -> None:
        await retrying()(self._connection.create_stream, self._configuration)

    def _hold(self) -> None:
        self._renewing = asyncio.create_task(self._renew(), name=f"renewing {self._subject}")

    async def _check_permitted(self) -> None:
        """Of a standby that may not claim, as it is another role's user, people must hear now, not when it is its turn.
        What it sends for that never counts. Raises Denied, Refused."""
        with suppress(Unanswered):
            await self._publish(self._held, _NEVER, self.ttl_s)

    async def _try(self) -> bool:
        """Claims the lease if nobody holds it. While the server is away, somebody might."""
        with suppress(Unanswered):
            last = await self._last()
            if last is None:
                free = self._given_back or self._connection.answers_for_s() >= self.ttl_s
                return free and await self._claim(0)
            ours = last.held == self._held  # an earlier answer was lost
            if ours or last.held == _NOBODY or self._silence.outlived(last):
                return await self._claim(last.sequence)
        return False

    async def _claim(self, expected: int) -> bool:
        """Whether it is ours now. If this is cancelled, it hears the answer all the same, and gives back what it got:
        nobody would renew it, and it would keep others waiting for as long as it lives."""
        claiming = asyncio.ensure_future(self._publish(self._held, expected, self.ttl_s))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            with suppress(LogError):  # then its time runs out
                if await claiming:
                    await self._publish(_NOBODY, self._sequence, ttl_s=1)
            raise

    async def _renew(self) -> None:
        """Renews three times in the lease's life; sets `lost` when it is another's, or patience is over."""
        clock, told = asyncio.get_running_loop().time, False
        try:
            while (over_s := clock() - self._valid_until) < self._patience_s:
                if over_s >= 0 and not told:
                    _logger.warning("no answer about %s: kept until somebody else claims it", self._subject)
                told = over_s >= 0
                await asyncio.sleep(self.ttl_s / 3)
                with suppress(Unanswered):
                    if not await self._publish(self._held, self._sequence, self.ttl_s) and not await self._keep():
                        return
            self.why = f"no answer for {over_s + self.ttl_s:.0f} s"
        except LogError as error:
            self.why = str(error)
        finally:
            self.lost.set()

    async def _keep(self) -> bool:
        """It may be ours after all: the answer to an earlier renewal was lost; or the server forgot it meanwhile, and
        nobody else has claimed it, or said what is none. It is renewed at once: of a life without an answer little may be
        left. If somebody claims it right now, the next renewal tells."""
        last = await self._last()
        if last is not None and last.held not in (self._held, _NO_LEASE):
            self.why = f"{last.held.holder or 'nobody'} holds it"
            return False
        await self._publish(self._held, 0 if last is None else last.sequence, self.ttl_s)
        return True

    async def _publish(self, held: Held, expected: int, ttl_s: int) -> bool:
        """False when another message came first. Raises Unanswered, Denied, Refused."""
        sent = asyncio.get_running_loop().time()
        headers = {EXPECTED: str(expected), TTL: f"{ttl_s}s"}
        try:
            self._sequence = await self._connection.publish(self._subject, held, headers, self.ttl_s / 3)
        except NotLast:
            return False
        self._valid_until = sent + ttl_s
        return True

    async def _last(self) -> _Word | None:
        return await _last_on(self._connection, self._stream, self._subject, self.ttl_s / 3)


async def acquire_first(leases: Sequence[Lease]) -> Lease:
    """The first of these that is free becomes ours; waits only while all of them are held.

    Raises Unavailable, Denied, Refused.
    """
    await leases[0]._prepare()
    while True:
        for lease in leases:
            if await lease._try():
                lease._hold()
                return lease
        await asyncio.sleep(leases[0].ttl_s / 5)


class Watch:
    """An observer of a cluster's leases: hears renewals, and asks the server only of those that fell silent.

    `roles` as in a writer's subject, with wildcards: ``planner.*``. Use it as a context.
    """

    def __init__(self, connection: Connection, cluster: str, roles: str, ttl_s: int) -> None:
        self.given_back = asyncio.Event()
        """Set when somebody gave a lease back."""
        self._connection = connection
        self._cluster = cluster
        self._roles = roles
        self._ttl_s = ttl_s
        self._heard: dict[str, tuple[float, Held]] = {}
        """subject → when its last message came, and what it said."""
        self._silences: defaultdict[str, _Silence] = defaultdict(lambda: _Silence(connection, ttl_s))
        self._listening: Subscription | None = None
        self._since_s = float("inf")
        """When it began to listen. For a lease's time from then on nothing counts as free: what the server forgot while
        it hung, its holder is about to claim again."""

    async def __aenter__(self) -> Watch:
        self._since_s = asyncio.get_running_loop().time()
        self._listening = await self._connection.client.subscribe(subject(self._cluster, self._roles), cb=self._hear)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listening is not None:
            with suppress(nats.errors.Error):
                await self._listening.unsubscribe()

    async def is_free(self, role: str) -> bool:
        """Whether nobody holds it. False while the server does not answer, and until this has listened for a lease's
        time: somebody might. Raises Denied, Refused."""
        now_s = asyncio.get_running_loop().time()
        heard_s, held = self._heard.get(subject(self._cluster, role), (float("-inf"), _NOBODY))
        if now_s - heard_s < self._ttl_s / 2:
            return held == _NOBODY
        if now_s - self._since_s < self._ttl_s:
            return False
        with suppress(Unanswered):
            last = await _last_on(self._connection, stream(self._cluster), subject(self._cluster, role))
            gone = last is None or last.held == _NOBODY or self._silences[role].outlived(last)
            return gone and self._connection.answers_for_s() >= self._ttl_s
        return False

    async def _hear(self, message: Msg) -> None:
        held = _read(message.data)
        self._heard[message.subject] = asyncio.get_running_loop().time(), held
        if held == _NOBODY:
            self.given_back.set()


async def holder_of(
    connection: Connection, cluster: str, role: str, *, within_s: float | None = None, domain: str = ""
) -> str:
    """Who holds the role's lease; empty when nobody does. `domain`: where the cluster's streams are, behind a leaf node.

    Raises Unanswered, Denied, Refused.
    """
    last = await _last_on(connection, stream(cluster), subject(cluster, role), within_s, domain)
    return "" if last is None else last.held.holder


async def _last_on(
    connection: Connection, name: str, lease: str, within_s: float | None = None, domain: str = ""
) -> _Word | None:
    message = await connection.last_message(name, lease, within_s, domain)
    if message is None:
        return None
    asked = message.headers.get(TTL, "").removesuffix("s")
    return _Word(message.seq, _read(message.data), int(asked) if asked.isdecimal() else 0)


def _read(data: bytes) -> Held:
    try:
        return _decode_held(data)
    except UNDECODABLE:
        return _NO_LEASE


_NOBODY, _NO_LEASE = Held("", ""), Held("", "?")
"""What is no lease takes none away: who holds it renews it, and else it is as a dead one's word."""
_NEVER = (1 << 63) - 1
"""The sequence of no message."""
_decode_held = msgspec.json.Decoder(Held).decode
