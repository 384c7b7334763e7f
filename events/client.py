"""nats-py's client with some of its methods replaced: how it reads messages, flushes, closes, and does TLS and .creds
files. Each says what is wrong with nats-py's own.

What it cannot read nobody can: whoever reads the stream that a message stands in is given it again behind each
reconnection. So there is nothing that a server passes on and this does not read.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from typing import Any

import nats.aio.client
import nats.errors
from nats.aio.client import DEFAULT_BUFFER_SIZE, DEFAULT_FLUSH_TIMEOUT
from nats.aio.msg import Msg
from nats.js.api import Header
from nats.protocol import parser

from events import credentials, tls

parser.MSG_RE = re.compile(rb"\AMSG[ \t]+([^ \t\r\n]+)[ \t]+(\d+)[ \t]+(([^ \t\r\n]+)[ \t]+)?(\d+)\r\n")
parser.HMSG_RE = re.compile(rb"\AHMSG[ \t]+([^ \t\r\n]+)[ \t]+(\d+)[ \t]+(([^ \t\r\n]+)[ \t]+)?(\d+)[ \t]+(\d+)\r\n")
"""As servers do, words are told apart by spaces and tabs. nats-py's own are by vertical tabs and form feeds, too, which
may stand in a subject: it would fail at that."""
_SAID, _HEADERS = re.compile(rb"\r\n(Muster-Commit|Nats-Expected-Last-Sequence): "), 1_024
"""How a commit, or a message of the feed, is known on its way, within so many bytes. One that waited while the connection
broke is not sent over the next: whoever says it looks first whether that leads to the same log (`events.jetstream`), and
where the feed stands."""
_STAYS = ("permissions violation", "maximum subscriptions exceeded")
"""What a server says of one message or subscription; the connection stays."""


class Client(nats.aio.client.Client):
    """Get a connection from `events.connection`, which uses this one."""

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        """nats-py's own fails at what is no block of headers, and looks for a space in each name, character by character:
        a third of the time that a replay of small commits takes."""
        return parse_headers(headers) or None if headers else None

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        """nats-py's own fails at words that are no UTF-8."""
        try:
            return super()._build_message(sid, subject, reply, data, headers)  # type: ignore[no-any-return]
        except UnicodeDecodeError:
            readable = _readable(subject), _readable(reply)
            return super()._build_message(sid, *readable, data, headers)  # type: ignore[no-any-return]

    async def flush(self, timeout: int = DEFAULT_FLUSH_TIMEOUT) -> None:  # noqa: ASYNC109
        """Returns once the server has answered for all that was sent: nats-py's first ping overtakes what waits to go.

        In a task of its own: Python 3.11's wait_for, in nats-py's, swallows a cancellation that meets its result, and a
        service that was told to end in that moment would run on. `asyncio.wait` loses none.
        """
        flushing = asyncio.ensure_future(self._flushed(timeout))
        flushing.add_done_callback(lambda done: done.cancelled() or done.exception())  # a cancelled caller asks no more
        try:
            await asyncio.wait({flushing})
        finally:
            flushing.cancel()
        flushing.result()

    async def _flushed(self, timeout: int) -> None:  # noqa: ASYNC109
        await super().flush(timeout)
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError
        await super().flush(timeout)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """nats-py's own passes a cancellation over: with much that waits to go, a request whose time is over would wait
        on, and a service that is told to end would run on."""
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        found = await super()._flush_pending(force_flush)
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
        return found

    async def _ping_interval(self) -> None:
        """What comes, or goes, is a sign of life: a ping and its answer may wait behind megabytes on a slow link, and
        nats-py would take the connection for dead."""
        heard = left = 0
        while True:
            await asyncio.sleep(self.options["ping_interval"])
            if not self.is_connected:
                continue
            if isinstance(self._transport, tls.Transport):
                came, waits = self._transport.progress()
                if came != heard or 0 < waits < left:
                    self._pings_outstanding = 0
                heard, left = came, waits
            self._pings_outstanding += 1
            if self._pings_outstanding > self.options["max_outstanding_pings"]:
                await self._process_op_err(nats.errors.StaleConnectionError())
                return
            try:
                await self._send_ping()
            except (RuntimeError, AttributeError):
                return

    async def _process_pong(self) -> None:
        """The answer to a flush that was cancelled, or whose time was over, is an answer: nats-py would fail at it, and
        read no more."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.Future()
        await super()._process_pong()

    async def _process_err(self, err_msg: str) -> None:
        """A client that the server disconnects says why, and reconnects: with its file as it is now, or when it is
        accepted again. nats-py would close for good, silently."""
        error = nats.errors.Error(f"nats: {err_msg}")
        await self._error_cb(error)
        if not any(about in err_msg for about in _STAYS):
            await self._process_op_err(error)

    async def go_elsewhere(self) -> bool:
        """To the next server that is known; False where there is no other, or one is looked for already.

        nats-py keeps the list in order of trying.
        """
        if len(self._server_pool) < 2 or not self.is_connected:
            return False
        await self.force_reconnect()
        return True

    async def close(self) -> None:
        """One that has not begun to connect is closed; nats-py expects it to have begun."""
        if self._flush_queue is not None:
            await super().close()

    def _setup_nkeys_jwt_connect(self) -> None:
        file = credentials.File(str(self._user_credentials))
        self._user_jwt_cb, self._signature_cb = file.jwt, file.sign

    @property
    def ssl_context(self) -> ssl.SSLContext:
        files = self.options.get("tls")
        return files.now() if files is not None else super().ssl_context

    async def _connect_to_server(self, s: Any) -> None:
        if s.uri.scheme in ("nats", "tls"):
            if self._transport:
                self._transport.close()  # type: ignore[no-untyped-call]
            self._transport = tls.Transport()  # type: ignore[no-untyped-call]
            s.last_attempt = time.monotonic()
            await self._transport.connect(s.uri, DEFAULT_BUFFER_SIZE, self.options["connect_timeout"])
        else:
            async with asyncio.timeout(self.options["connect_timeout"]):  # what aiohttp is told is for the end alone
                await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        """At a reconnection, whatever comes instead of a greeting is an error like others: nats-py would silently end
        the task that tries, and try no more. At the first connection the caller gets it as it is."""
        self._pending = [command for command in self._pending if not _SAID.search(command, 0, _HEADERS)]
        self._pending_data_size = sum(map(len, self._pending))
        try:
            await super()._process_connect_init()
        except OSError:  # a certificate that is refused is a ValueError, too
            raise
        except RuntimeError as error:  # uvloop's word for a connection that is gone
            raise tls.Gone(str(error)) from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            if asyncio.current_task() is not self._reconnection_task:
                raise
            raise nats.errors.Error(f"what answers there is no NATS server: {error}") from error

    def _connect_command(self) -> bytes:
        assert self._current_server is not None
        plain = self._current_server.uri.scheme in ("nats", "tls") and not self._server_info.get("tls_required")
        if plain and "tls" in self.options:
            raise tls.InTheClear
        return super()._connect_command()


def parse_headers(block: bytes) -> dict[str, str]:
    """NATS headers: a version, behind which a server says what it says itself (``NATS/1.0 100 Idle Heartbeat``), and then
    ``Name: value`` lines. What has no colon is no header."""
    first, _, lines = block.decode("utf-8", "replace").partition("\r\n")
    headers = {}
    if len(first) > len(_VERSION):
        status, _, description = first[len(_VERSION) :].strip().partition(" ")
        headers = {Header.STATUS.value: status, Header.DESCRIPTION.value: description}
    for line in lines.split("\r\n"):
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip()] = value.strip()
    return headers


_VERSION = "NATS/1.0"


def _readable(word: bytes) -> bytes:
    """As the server's JSON has a subject: each byte of it that is not UTF-8 is U+FFFD."""
    return _SURROGATES.sub("\ufffd", word.decode("utf-8", "surrogateescape")).encode()


_SURROGATES = re.compile("[\udc80-\udcff]")
