"""The micro service as any client of NATS sees it: discovery, answers, refusals, and bugs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from events.connection import Connection
from events.log import LogError, Unavailable
from events.micro import Unfit, ask, served
from events.server import EmbeddedServer
from tests.nats_server import connected, own_server

__all__ = ["own_server"]

PREFIX = "muster-jobs.lab"


async def echo(data: bytes) -> Any:
    match data:
        case b'"unfit"':
            raise Unfit(409, "not\nnow")
        case b'"log"':
            raise LogError("no log")
        case b'"bug"':
            raise KeyError("the odd one")
    return {"said": data.decode()}


async def discovered(connection: Connection, what: str) -> Any:
    return json.loads((await connection.request(f"$SRV.{what}.muster-test", b"")).data)


async def test_it_is_found_and_answers(own_server: EmbeddedServer, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        connected(own_server.url) as serving,
        connected(own_server.url) as client,
        served(serving, "muster-test", "1.2.3", "a test", PREFIX, {"echo": echo}),
    ):
        info, ping = await discovered(client, "INFO"), await discovered(client, "PING")
        assert (info["name"], info["version"], info["description"]) == ("muster-test", "1.2.3", "a test")
        assert [endpoint["subject"] for endpoint in info["endpoints"]] == [f"{PREFIX}.echo"]
        assert ping["id"] == info["id"]
        await client.client.publish(f"{PREFIX}.echo", b"nobody waits for this answer")
        assert await ask(client, PREFIX, "echo", "a") == {"said": '"a"'}
        for asked, code, why in (("unfit", 409, "not now"), ("log", 503, "no log"), ("bug", 500, "a bug")):
            with pytest.raises(Unfit, match=why) as refused:
                await ask(client, PREFIX, "echo", asked)
            assert refused.value.code == code
            assert "the odd one" not in str(refused.value)
        assert "the odd one" in caplog.text, "the bug is in the service's own log"
        assert await ask(client, PREFIX, "echo", "b") == {"said": '"b"'}
        (stats,) = (await discovered(client, "STATS"))["endpoints"]
        assert stats["num_requests"] == 6
        assert stats["num_errors"] >= 3
        assert "the odd one" not in stats["last_error"]
        with pytest.raises(Unavailable, match="nobody at"):
            await ask(client, PREFIX, "other", {})
