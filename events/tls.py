"""TLS on the way to NATS: files to contexts, and what is said when the two ends do not trust each other.

nats-py upgrades a connection when the server says so, and else sends all, password included, in the clear: here whoever
asks for TLS gets it, or an error. It also waits for ever for the end of a connection whose handshake failed, which
keeps it from the next server of its list: the transport here ends such a connection itself.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import nats.errors
from nats.aio.transport import TcpTransport

from events.log import LogError

GOODBYE_S = 1.0
T = TypeVar("T")
HANG_UPS = 5
"""Connections to each server that end behind the handshake, without a word, until that counts as a refusal."""


class Untrusted(LogError):
    """One end does not take the other's certificate, or a file about it cannot be used. Says what was expected."""


class Gone(ConnectionResetError, RuntimeError):
    """The connection is closed, which uvloop says by a RuntimeError where asyncio has an OSError. nats-py looks for the
    latter where it connects anew, and elsewhere for either."""


class InTheClear(nats.errors.Error):
    """The server offers no TLS, and TLS was asked for."""


def trusting(ca_file: str | None) -> ssl.SSLContext:
    """With the authorities in the file (PEM; None: the system's), and no stricter with these than Go is, and so kubectl
    and nats-server: an intermediate one may be trusted by itself, as from Python 3.13 on; what they say of themselves is
    not judged, as it is from then on, too: API servers of EKS were not trusted. Raises OSError, ValueError."""
    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def of_files(ca_file: str, certificate_file: str, key_file: str) -> Files[ssl.SSLContext]:
    """With the authorities in `ca_file` (PEM; empty: the system's), and the certificate, if any. Without a `key_file` the
    key stands in `certificate_file` as well. Raises Untrusted."""
    named = ca_file, certificate_file, key_file
    return Files(named, lambda: _context(*named), Untrusted)


class Files(Generic[T]):
    """What is made of files: a context, a bearer token.

    A file that is written anew counts from the next connection on. One that is gone by then, or unusable, keeps its
    last content: the client never stops reconnecting, and somebody may be writing it just now.
    """

    def __init__(self, named: Iterable[str | None], make: Callable[[], T], unusable: type[Exception]) -> None:
        """`make` raises `unusable` where they cannot be used, and so does this."""
        self._named = [file for file in named if file]
        self._make, self._unusable = make, unusable
        self._seen = self._stand()
        self._made = make()

    def now(self) -> T:
        """As the files stand now."""
        stand = self._stand()
        if stand != self._seen:
            with suppress(self._unusable):
                self._made = self._make()
                self._seen = stand
        return self._made

    def _stand(self) -> list[tuple[int, int, int]]:
        """What changes when a file is written anew; of those that are there."""
        found = []
        for file in self._named:
            with suppress(OSError, ValueError):  # a path may have a NUL
                status = os.stat(file)
                found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return found


def _context(ca_file: str, certificate_file: str, key_file: str) -> ssl.SSLContext:
    """Raises Untrusted."""
    try:
        made = trusting(ca_file or None)
    except OSError as error:  # SSLError is one
        raise Untrusted(f"{ca_file}: expected the certificates of authorities, in PEM: {_told(error)}") from error
    if certificate_file:
        try:
            made.load_cert_chain(certificate_file, key_file or None, password="")
        except OSError as error:
            files = f"{certificate_file} and {key_file or certificate_file}"
            raise Untrusted(f"{files}: expected a certificate and its own key, in PEM: {_told(error)}") from error
    return made


class Trust:
    """What failed attempts to connect say about trust: a verdict once each server had its turn, as another may be better.

    A server that refuses this client's certificate says so in an alert behind the handshake. Its connection ends at once,
    and the alert is often lost with it: what remains is a server that hangs up, time and again.
    """

    def __init__(self, servers: int = 1, ca_file: str = "", certificate_file: str = "", *, used: bool = False) -> None:
        """`used`: whether there is TLS at all."""
        self._servers, self._used = servers, used
        self._authorities = ca_file or "the system's authorities"
        self._shown = certificate_file or "none"
        self._problem = ""
        self._failures = 0

    def failed(self, error: Exception) -> str:
        """The verdict after this one, or nothing yet."""
        problem = self._meaning(error)
        hung_up = isinstance(error, (ConnectionResetError, BrokenPipeError)) and self._used
        if not problem and not hung_up:
            return ""
        self._problem = problem or self._problem
        self._failures += 1
        if self._problem:
            return self._problem if self._failures >= self._servers else ""
        return self._refusal("it hangs up behind the handshake") if self._failures >= self._servers * HANG_UPS else ""

    def restored(self) -> None:
        """A connection was made."""
        self._problem, self._failures = "", 0

    def _meaning(self, error: Exception) -> str:
        if isinstance(error, InTheClear):
            return "the NATS server offers no TLS: expected it, and sent no credentials in the clear"
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"the NATS server's certificate is refused: {error.verify_message.rstrip('.')}; expected one that is "
                f"valid now and for the host in the URL, signed by {self._authorities}"
            )
        if isinstance(error, ssl.SSLError) and "_ALERT_" in (error.reason or ""):
            return self._refusal((error.reason or "").partition("_ALERT_")[2].replace("_", " ").lower())
        return ""

    def _refusal(self, said: str) -> str:
        return (
            f"the NATS server refuses this client's certificate ({self._shown}): {said}; expected one that is valid now, "
            f"signed by an authority that the server trusts"
        )


class Transport(TcpTransport):
    """nats-py's, but for a handshake that fails, an end that the server does not answer, and one that it does not see.
    And it counts what comes."""

    _heard_bytes = 0

    def progress(self) -> tuple[int, int]:
        """Bytes that came so far; and that wait to go."""
        writer = self._io_writer
        return self._heard_bytes, 0 if writer is None else writer.transport.get_write_buffer_size()

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:
        """As asyncio.open_connection does, which nats-py's own asks, but for the protocol."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=buffer_size)
        protocol = _Protocol(reader)
        async with asyncio.timeout(connect_timeout):
            plain, _ = await loop.create_connection(lambda: protocol, uri.hostname, uri.port)
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = asyncio.StreamWriter(plain, protocol, reader, loop)

    async def read(self, buffer_size: int) -> bytes:
        found: bytes = await super().read(buffer_size)
        self._heard_bytes += len(found)
        return found

    def write(self, payload: bytes) -> None:
        try:
            super().write(payload)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise Gone(str(error)) from error

    def writelines(self, payload: list[bytes]) -> None:
        try:
            super().writelines(payload)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise Gone(str(error)) from error

    async def wait_closed(self) -> None:
        """Within a second. nats-py connects anew only behind this, and a server that hangs says no goodbye: over TLS
        asyncio waits 30 s for it.

        A caller that is cancelled leaves what the others wait for alone.
        """
        if self._io_writer is None:
            return
        closing = asyncio.ensure_future(self._io_writer.wait_closed())
        closing.add_done_callback(lambda done: done.cancelled() or done.exception())  # a cancelled caller asks no more
        await asyncio.wait({closing}, timeout=GOODBYE_S)
        if not closing.done():
            self._io_writer.transport.abort()
        await asyncio.wait({closing})
        closing.result()

    async def connect_tls(self, uri: Any, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: int) -> None:
        plain = self._bare_io_writer
        assert plain is not None, "connect comes first"
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = _SecuredProtocol(reader)
        host = uri if isinstance(uri, str) else uri.hostname
        try:
            async with asyncio.timeout(connect_timeout):
                secured = await loop.start_tls(plain.transport, protocol, ssl_context, server_hostname=host)
        except BaseException:
            plain.transport.abort()
            self._io_reader = self._io_writer = None
            raise
        assert secured is not None
        self._io_reader, self._io_writer = reader, asyncio.StreamWriter(secured, protocol, reader, loop)


class _Protocol(asyncio.StreamReaderProtocol):
    """How a connection ended is told to whoever reads, and that is enough. asyncio keeps it for whoever waits for the end
    as well, and where nobody did prints a traceback: at the latest as garbage, if that is collected in a bad order."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        closed: asyncio.Future[None] = self._closed  # type: ignore[attr-defined]
        if not closed.cancelled():
            closed.exception()


class _SecuredProtocol(_Protocol):
    """A TLS connection cannot be half closed: asyncio warns of every end of one that asks for it."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


def _told(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error)
