"""A TCP proxy before a NATS server that loses what a test wants lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

CHUNK_BYTES = 1 << 16
SLICES_PER_S = 50
"""In so many pieces a second bytes go over a slow link."""


class Proxy:
    """Forwards bytes both ways, until a rule says what goes missing.

    `lose_request_with`: the first bytes from the client that contain it are lost, and with them the connection.
    `lose_answer_to`: the first bytes from the client that contain it are forwarded, but nothing comes back any more;
    `cut` ends the connection then, unless `silent`.
    `bytes_per_s`: how many go each way; 0: as many as there are.
    """

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.lose_request_with = b""
        self.lose_answer_to = b""
        self.silent = False
        self.bytes_per_s = 0
        self.lost = asyncio.Event()
        self._server_port = server_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._deaf: set[asyncio.StreamWriter] = set()
        """Clients that get no more answers."""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Ends every connection as it is."""
        for writer in list(self._writers):
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers |= {writer, server_writer}
        try:
            await asyncio.gather(self._upward(reader, server_writer, writer), self._downward(server_reader, writer))
        finally:
            self._writers -= {writer, server_writer}

    async def _upward(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            while chunk := await self._next(reader):
                if self.lose_request_with and self.lose_request_with in chunk:
                    self.lose_request_with = b""
                    self.lost.set()
                    break
                if self.lose_answer_to and self.lose_answer_to in chunk:
                    self.lose_answer_to = b""
                    self._deaf.add(client)
                server.write(chunk)
                await server.drain()
        server.close()
        client.close()

    async def _downward(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await self._next(server):
                if client in self._deaf:
                    self.lost.set()
                    if not self.silent:
                        break
                    continue
                client.write(chunk)
                await client.drain()
        client.close()

    async def _next(self, reader: asyncio.StreamReader) -> bytes:
        """What came, when it has gone over the link."""
        if not self.bytes_per_s:
            return await reader.read(CHUNK_BYTES)
        chunk = await reader.read(self.bytes_per_s // SLICES_PER_S)
        await asyncio.sleep(len(chunk) / self.bytes_per_s)
        return chunk


@asynccontextmanager
async def proxy(server_port: int) -> AsyncIterator[Proxy]:
    made = Proxy(server_port)
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = listening.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        listening.close()
        made.cut()
        await listening.wait_closed()
