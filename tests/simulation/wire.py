"""Muster's client of the simulated API server: each request goes there, through the faults, instead of to aiohttp.

`SimulatedClient` is the client itself with another transport under it, so that its retries, its pages and its reading of
answers run as they are.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from services.kubernetes import discovery
from services.kubernetes.access import Access, direct
from services.kubernetes.client import Client
from services.kubernetes.share import Share
from services.kubernetes.transport import Answer, Transport, error_of
from services.simulator.errors import ApiError
from services.simulator.server import VERSION
from services.simulator.store import encode
from tests.simulation.kube import ApiServer, Watch, refusal
from tests.simulation.processes import Process

CONNECTIONS = 128


class Wire(Transport):
    """Where aiohttp would be."""

    server: ApiServer
    process: Process

    def __init__(self, access: Access, **_: Any) -> None:
        self._access, self._share = access, Share(CONNECTIONS)

    async def _send(
        self, request: str, verb: str, path: str, body: bytes | None, content_type: str, accept: str
    ) -> Answer:
        if path == discovery.VERSION and self.server.servers is None:
            return Answer(200, encode(VERSION))
        on, name = self.asked(verb, path)
        return await self.server.request(
            self.process, on, name, lambda: self.server.execute(self.process, verb, path, body or b"", content_type)
        )

    def asked(self, verb: str, path: str) -> tuple[str, str]:
        """How faults name a request (list, get, bind, evict, patch, event, version), and the object's name."""
        if path == discovery.VERSION:
            return "version", ""
        path, _, query = path.partition("?")
        parts = path.split("/")
        match verb, parts[-1]:
            case "POST", "binding":
                return "bind", parts[-2]
            case "POST", "eviction":
                return "evict", parts[-2]
            case "PATCH", "status":
                return "patch", parts[-2]
            case "GET", name:
                return ("list", "") if query else ("get", name)
        return "event", ""

    async def stream(self, request: str, path: str, silence_s: float) -> AsyncGenerator[bytes, None]:
        opened: list[Watch] = []

        def execute() -> Answer:
            try:
                opened.append(self.server.watch(self.process, path))
            except ApiError as error:
                return refusal(error)
            return Answer(200, b"")

        answer = await self.server.request(self.process, "watch", "", execute)
        if answer.code != 200:
            raise error_of(request, answer)
        async with aclosing(opened[0].chunks()) as chunks:
            async for chunk in chunks:
                yield chunk


class SimulatedClient(Client, Wire):
    """Muster's client of the simulated server, for one process."""

    def __init__(self, server: ApiServer, process: Process) -> None:
        super().__init__(direct("http://simulated"))
        self.server, self.process = server, process

    async def minor(self) -> int:
        self.process.minor = max(self.process.minor, found := await super().minor())
        return found
