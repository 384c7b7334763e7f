"""One connection to NATS: how it is made, lost and made again, and what JetStream is asked over it.

It never stops reconnecting. `request` sends, and waits for an answer in the connection's inbox (`events.inbox`); `ask`
reads it as JetStream's (`events.answers`), and each further verb is a question of its own. None of them asks again
after an error: that is its caller's patience (`events.patience`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import nats.errors
from nats.aio.msg import Msg

from events import tls
from events.answers import (
    NO_MESSAGE_FOUND,
    NOT_LAST,
    STREAM_NAME_IN_USE,
    Denied,
    Message,
    NobodyThere,
    NotLast,
    NotNow,
    Refused,
    Unanswered,
    api,
    decode_answer,
    decode_message,
    decode_published,
    decoded,
)
from events.client import Client
from events.credentials import expiry
from events.homes import without_credentials
from events.inbox import Inbox, publish_denied
from events.leaderless import Leaderless
from events.log import LogError, TooLarge, Unavailable
from events.patience import TOLD_AFTER_S

REQUEST_WITHIN_S = 2.0
CONNECT_WITHIN_S = 10.0
API, AGAIN_S = "$JS.", 0.25
"""What is asked of JetStream, whose subjects begin so, is sent again after so long without an answer: the second time it
changes nothing more."""
CLOSE_WITHIN_S = 5.0
"""What a server that hangs has not taken by then is lost, as with a crash."""

_OPTIONS: dict[str, Any] = {
    "allow_reconnect": True,
    "connect_timeout": 2,
    "max_reconnect_attempts": -1,
    "reconnect_time_wait": 0.1,
    # Round robin from a beginning that `Connection` chooses: a server that hangs is not tried again before the others.
    "dont_randomize": True,
    # A stopped server is found within three seconds; with nats-py's 120 s the client would stall.
    "ping_interval": 1,
    "max_outstanding_pings": 2,
    # What is published while reconnecting waits here; a commit is at most 8 MB.
    "pending_size": 16 * 1024 * 1024,
}
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE)

_logger = logging.getLogger(__name__)


class Connection:
    """A NATS connection that never stops reconnecting. Get one from `connect`."""

    def __init__(self, url: str) -> None:
        self.url = without_credentials(url)
        self.client = Client()
        self.generation = 0
        """Counts the reconnections: what a consumer had asked of the server in an earlier one is gone."""
        self.breaks = 0
        """Counts how often it was lost."""
        self.wake: set[asyncio.Event] = set()
        """Set at every reconnection, for those who wait for messages."""
        self.denials: dict[str, Callable[[Denied], None]] = {}
        """Who hears that his subject is denied, though he waits for no answer on it: by the subject."""
        self.last_error: Exception | None = None
        self._servers = [server if "://" in server else f"nats://{server}" for server in url.split(",")]
        random.shuffle(self._servers)
        self._trust = tls.Trust()
        self._refused: asyncio.Future[LogError] | None = None
        self._connected = False
        """Whether `connect` has ended well."""
        self._inbox = Inbox(self.url)
        self._who = ""
        """Who signed in, for people."""
        self._credentials_file = ""
        self._leaderless = Leaderless()
        self._flushing: dict[asyncio.Future[None], None] = {}  # not a set: their order is who goes on first
        self._answers_since_s: float | None = float("-inf")
        """Since when every question was answered; None while the last one was not."""

    async def connect(
        self,
        *,
        ca_file: str = "",
        certificate_file: str = "",
        key_file: str = "",
        inbox_prefix: str = "",
        **credentials: Any,
    ) -> Connection:
        """`credentials` are nats-py's: user, password, token, user_credentials.

        The URL may name several servers, with commas, and user and password as ``nats://user:password@host:4222``, or
        a token as ``nats://token@host``: where it does so once, they are for all of them, and for those that are learned.
        TLS is used, and insisted on, when a file is given (PEM: who is trusted; who we are) or the URL says ``tls://``.
        Answers come to `inbox_prefix`, by default one of the user's own (``_INBOX_binder``): nobody else may listen.

        Raises Unavailable when no server answers in time, Denied when they do not know the credentials, Untrusted when
        certificates do not fit or their files cannot be read, InvalidCredentials.
        """
        if ca_file or certificate_file or any(server.startswith(("tls://", "wss://")) for server in self._servers):
            credentials["tls"] = tls.of_files(ca_file, certificate_file, key_file)
        self._trust = tls.Trust(len(self._servers), ca_file, certificate_file, used="tls" in credentials)
        if not any(credentials.get(of) for of in ("user", "token", "user_credentials")):
            credentials |= _of_url(self._servers)
        user = credentials.get("user") or ""
        self._who = _named(user, credentials)
        self._credentials_file = str(credentials.get("user_credentials") or "")
        connecting = asyncio.ensure_future(
            self.client.connect(
                self._servers,
                error_cb=self._on_error,
                disconnected_cb=self._on_disconnect,
                reconnected_cb=self._on_reconnect,
                inbox_prefix=inbox_prefix or _own_inbox(user),
                **_OPTIONS,
                **credentials,
            )
        )
        try:
            await self._settle(connecting)
        except BaseException:  # a cancellation too: else it would go on connecting, for nobody
            await _ended(connecting)
            await self.close()
            raise
        self._connected = True
        return self

    async def close(self) -> None:
        """Ends what waits for messages too."""
        self._wake_all()
        with suppress(OSError, RuntimeError):  # a broken connection cannot be drained; uvloop's says so with the latter
            async with asyncio.timeout(CLOSE_WITHIN_S):
                reconnecting = self.client._reconnection_task
                await self.client.close()
                if reconnecting is not None:
                    await _ended(reconnecting)
                await self.client.close()  # once more: it may have connected all the same

    async def _settle(self, connecting: asyncio.Future[None]) -> None:
        """Until the connection is made, and its inbox heard, or it is known that it cannot be. Raises as `connect`."""
        refused = self._refused = asyncio.get_running_loop().create_future()
        await self._first_of({connecting, refused})
        if not connecting.done():
            silent = Unavailable(f"{self.url}: no NATS server answered within {CONNECT_WITHIN_S:.0f} s{self._why()}")
            raise refused.result() if refused.done() else silent
        try:
            connecting.result()
            await self._inbox.open(self.client)
            await self.client.flush()
        except (nats.errors.Error, OSError, ValueError) as error:
            raise Unavailable(f"{self.url}: {error}") from error
        except (AttributeError, LookupError, TypeError) as error:  # nats-py takes what it is told for what it expects
            raise Unavailable(f"{self.url}: what answers there is no NATS server: {error}") from error
        if refused.done():
            raise refused.result()

    async def _first_of(self, ends: set[asyncio.Future[Any]]) -> None:
        """Until one of them is done, or the time is over."""
        done, _ = await asyncio.wait(ends, timeout=TOLD_AFTER_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            left_s = max(0.0, CONNECT_WITHIN_S - TOLD_AFTER_S)
            _logger.warning("%s: no NATS server answers yet%s; tried for %.0f s more", self.url, self._why(), left_s)
            await asyncio.wait(ends, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    def _why(self) -> str:
        """Of some errors there is nothing to say, such as that of a server that is silent."""
        said = " ".join(str(self.last_error or "").split())
        return f": {said}" if said else ""

    # ----------------------------------------------------------------------------------------------------------- asking

    async def request(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, within_s: float | None = None
    ) -> Msg:
        """What is asked of JetStream's API is asked again meanwhile: a stream that has no leader yet hears nothing. The
        time that bytes take on the link is not counted.

        Raises Unanswered, Denied, TooLarge, and Unavailable when this connection was closed.
        """
        within_s = within_s or REQUEST_WITHIN_S
        size, limit = len(payload) + _size(headers or {}), self.client.max_payload
        if size > limit:  # a server that got it would end the connection
            raise TooLarge(f"{subject}: a message of {size} bytes; the server's max_payload is {limit}")
        try:
            with self._inbox.expecting(subject) as (reply, answer):
                send = partial(self.client.publish, subject, payload, reply=reply, headers=headers)
                await self._until_answered(answer, send, within_s, again=subject.startswith(API))
                message = answer.result()
        except TimeoutError as error:
            raise Unanswered(f"{subject}: no answer within {within_s:g} s") from error
        except nats.errors.OutboundBufferLimitError as error:
            raise Unanswered(f"{subject}: not connected to {self.url}") from error
        except (nats.errors.ConnectionClosedError, nats.errors.ConnectionDrainingError) as error:
            raise Unavailable(f"{subject}: the connection to {self.url} is closed") from error
        if message.headers and message.headers.get("Status") == "503":
            raise NobodyThere(f"{subject}: nothing at {self.url} answers it (is JetStream up, does the stream exist?)")
        return message

    async def _until_answered(
        self, answer: asyncio.Future[Msg], send: Callable[[], Awaitable[None]], within_s: float, *, again: bool
    ) -> None:
        """Raises TimeoutError. Before the question is repeated, or given up, all is heard that comes before: an answer of
        megabytes that is on its way would else be asked for again and again, until the link has nothing else to carry.
        """
        step_s, left_s = AGAIN_S if again else within_s / 2, within_s
        async with asyncio.timeout(within_s):
            await send()
        while True:
            await asyncio.wait({answer}, timeout=min(step_s, left_s))
            if not answer.done():
                await self.hear_all()
            if answer.done():
                return
            left_s -= step_s
            if left_s <= 0:
                raise TimeoutError
            if again:
                async with asyncio.timeout(within_s):
                    await send()

    async def hear_all(self) -> None:
        """Until the server has all that was sent, and what it had to say by then is here; or this connection is gone."""
        if not self.client.is_connected:
            return
        flushing = asyncio.ensure_future(self.client.flush())
        self._flushing[flushing] = None
        try:
            await asyncio.wait({flushing})
        finally:
            del self._flushing[flushing]
            flushing.cancel()
            await asyncio.gather(flushing, return_exceptions=True)

    async def ask(
        self, subject: str, body: Any = None, headers: dict[str, str] | None = None, within_s: float | None = None
    ) -> bytes:
        """A request that JetStream answers in JSON; `body` is bytes, or anything that becomes JSON.

        Raises what `Answer.check` does, and `request`. A server at which no leader answers is left, in time.
        """
        payload = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        asked_s = time.monotonic()
        try:
            answer: bytes = (await self.request(subject, payload, headers, within_s)).data
            decoded(decode_answer, subject, answer).check(subject)
        except Refused:
            self._is_answered(subject)
            raise
        except Unanswered as error:
            self._answers_since_s = None
            if isinstance(error, NotNow):
                self._leaderless.answered(subject)
            elif self._leaderless.unanswered(subject, asked_s, time.monotonic()):
                await self._leave(error)
            raise
        if time.monotonic() - asked_s > (within_s or REQUEST_WITHIN_S):
            self._answers_since_s = None  # it is back, perhaps after it hung
        self._is_answered(subject)
        return answer

    def _is_answered(self, subject: str) -> None:
        self._leaderless.answered(subject)
        if self._answers_since_s is None:
            self._answers_since_s = time.monotonic()

    async def _leave(self, why: Unanswered) -> None:
        self._leaderless.forget()
        if await self.client.go_elsewhere():
            _logger.warning("%s; another server is asked", why)

    def answers_for_s(self) -> float:
        """For how long everything that was asked has been answered; without end, when it always was."""
        return 0.0 if self._answers_since_s is None else time.monotonic() - self._answers_since_s

    async def publish(
        self, subject: str, body: Any, headers: dict[str, str] | None = None, within_s: float | None = None
    ) -> int:
        """A message into the stream that takes `subject`; its sequence. Raises NotLast, and what `ask` raises."""
        try:
            return decoded(decode_published, subject, await self.ask(subject, body, headers, within_s)).seq
        except Refused as refused:
            if refused.number in NOT_LAST:
                raise NotLast(subject, refused.code, refused.number, refused.description) from refused
            raise

    async def last_message(
        self, stream: str, subject: str, within_s: float | None = None, domain: str = ""
    ) -> Message | None:
        """The last on `subject`, asked of the stream's leader: another replica may be behind. Raises as `ask` does."""
        return await self._message(stream, {"last_by_subj": subject}, within_s, domain)

    async def message_at(self, stream: str, sequence: int, domain: str = "") -> Message | None:
        """The one with that sequence. Raises as `ask` does."""
        return await self._message(stream, {"seq": sequence}, domain=domain)

    async def next_message(self, stream: str, subject: str, after: int) -> Message | None:
        """The first on `subject` (wildcards too) behind sequence `after`. Raises as `ask` does."""
        return await self._message(stream, {"seq": after + 1, "next_by_subj": subject})

    async def _message(self, stream: str, body: Any, within_s: float | None = None, domain: str = "") -> Message | None:
        try:
            answer = await self.ask(f"{api(domain)}.STREAM.MSG.GET.{stream}", body, within_s=within_s)
        except Refused as refused:
            if refused.number == NO_MESSAGE_FOUND:
                return None
            raise
        return decoded(decode_message, stream, answer).message

    async def create_stream(self, configuration: dict[str, Any]) -> None:
        """Creates the stream unless it is there, be it another than this. Raises as `ask` does."""
        try:
            await self.ask(f"$JS.API.STREAM.CREATE.{configuration['name']}", configuration)
        except Refused as refused:
            if refused.number != STREAM_NAME_IN_USE:
                raise

    # ----------------------------------------------------------------------------------------------- what happens to it

    async def _on_error(self, error: Exception) -> None:
        """Errors while connecting, and what the server says unasked."""
        self.last_error = error
        text = str(error).lower()
        if problem := self._trust.failed(error):
            self._refuse(tls.Untrusted(f"{self.url}: {problem}"))
        elif "authorization violation" in text:
            ends = expiry(self._credentials_file) if self._credentials_file else ""
            self._refuse(Denied(f"{self.url}: the NATS server refused the credentials of {self._who}{ends}"))
        elif denied := _DENIED.search(text):
            self._deny(denied[1], denied[2])
        elif "maximum subscriptions exceeded" in text:  # who subscribed hears nothing, and does not know why
            _logger.error("%s: the NATS server takes no more subscriptions: %s", self.url, error)

    def _refuse(self, why: LogError) -> None:
        """Ends `connect`. Later, when a lost connection cannot be made again, people must hear of it, but once."""
        if self._refused is not None and not self._refused.done():
            self._refused.set_result(why)
            if self._connected:
                _logger.error("%s", why)

    async def _on_disconnect(self) -> None:
        if not self.client.is_closed:
            _logger.warning("disconnected from NATS at %s%s", self.url, self._why())
        self.breaks += 1
        self._inbox.broke()
        for flushing in self._flushing:
            flushing.cancel()

    async def _on_reconnect(self) -> None:
        _logger.warning("connected again to NATS at %s", self.url)
        self._trust.restored()
        self._leaderless.forget()
        self._refused = asyncio.get_running_loop().create_future()
        self._wake_all()

    def _wake_all(self) -> None:
        self.generation += 1
        for event in self.wake:
            event.set()

    def _deny(self, verb: str, denied: str) -> None:
        """Whoever waits for an answer that cannot come is told, and whoever hears that his subject is denied. nats-py
        lowers the server's words."""
        if verb == "subscription":
            self._inbox.subscription_denied(denied, self._who)
            if self._inbox.deaf is not None:
                self._refuse(self._inbox.deaf)
            return
        self._inbox.publish_denied(denied, self._who)
        for subject, tell in tuple(self.denials.items()):
            if subject.lower() == denied:
                tell(publish_denied(subject, self._who))


def _own_inbox(user: str) -> str:
    """Where answers come: each user has a place of its own, so that the server can keep others from listening."""
    return f"_INBOX_{user}" if re.fullmatch(r"[A-Za-z0-9_-]+", user) else "_INBOX"


def _of_url(servers: Iterable[str]) -> dict[str, str]:
    """The credentials in the servers' URLs. nats-py takes them for those of one server alone, and as they are written.
    Empty where there are none, or not the same."""
    found = dict.fromkeys((parts.username, parts.password) for parts in map(urlsplit, servers) if parts.username)
    if len(found) != 1:
        return {}
    ((user, password),) = found
    return {"token": unquote(user)} if password is None else {"user": unquote(user), "password": unquote(password)}


def _named(user: str, credentials: Mapping[str, Any]) -> str:
    """Who signs in, for people: which role's user it was is half of why it may not."""
    if user:
        return f"user {user!r}"
    if file := credentials.get("user_credentials"):
        return f"the user of {file}"
    return "this user" if credentials.get("token") else "a client without a user (MUSTER_NATS_USER)"


async def _ended(task: asyncio.Future[None]) -> None:
    """One of nats-py's, cancelled until it has ended: Python 3.11's `wait_for`, in which it waits, can miss one."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=AGAIN_S)
    await asyncio.gather(task, return_exceptions=True)  # nobody needs its result any more


def _size(headers: dict[str, str]) -> int:
    """Bytes on the wire; of none nothing."""
    lines = sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())
    return len("NATS/1.0\r\n\r\n") + lines if headers else 0
