"""An API server that asks for a token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest
from aiohttp import web


class Server:
    """It knows one token at a time, and has nothing."""

    url, token = "", "old"
    asked = 0
    headers: Mapping[str, str] = {}
    """Of the last request."""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked, self.headers = self.asked + 1, request.headers
        known = request.headers.get("Authorization") == f"Bearer {self.token}"
        code, reason = (404, "NotFound") if known else (401, "Unauthorized")
        return web.json_response({"kind": "Status", "code": code, "reason": reason}, status=code)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found, app = Server(), web.Application()
    app.router.add_route("*", "/{any:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = site.name
    yield found
    await runner.cleanup()
