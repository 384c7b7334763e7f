"""Probes for whoever runs the service: ``/healthz`` answers while its event loop turns, ``/readyz`` once it has the log.

A standby is ready: it takes over within a lease. HTTP by hand, as a probe needs one line of it
and a web framework would cost more to import than the rest of the service.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

REQUEST_WITHIN_S = 5.0
ANSWERS = {200: b"200 OK", 404: b"404 Not Found", 503: b"503 Service Unavailable"}


class Health:
    """What the probes say. `ready` is set by the service."""

    def __init__(self) -> None:
        self.ready = False

    def status(self, path: str) -> int:
        """The HTTP status for a path."""
        if path == "/healthz":
            return 200
        if path == "/readyz":
            return 200 if self.ready else 503
        return 404

    @asynccontextmanager
    async def serve(self, host: str, port: int) -> AsyncIterator[None]:
        """Answers probes until the block ends; port 0: nobody asks. Raises OSError where that cannot be: the port is
        taken, or there is no such host."""
        if not port:
            yield
            return
        try:
            server = await asyncio.start_server(self._answer, host, port, limit=1 << 14)
        except (OSError, UnicodeError) as error:  # the latter: a host that can be nobody's name
            raise OSError(
                f"MUSTER_HEALTH_HOST, MUSTER_HEALTH_PORT: probes cannot be answered at {host}:{port}: {error}"
            ) from error
        async with server:
            yield

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_WITHIN_S):
                request = await reader.readuntil(b"\r\n\r\n")
                _, _, target = request.partition(b" ")
                path = target.split(b" ", 1)[0].split(b"?", 1)[0]
                answer = ANSWERS[self.status(path.decode("ascii", "replace"))]
                writer.write(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
        writer.close()
