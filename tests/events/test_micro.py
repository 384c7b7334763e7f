"""The micro service as any client of NATS sees it: discovery, answers, refusals, and bugs."""

from __future__ import annotations

import json
from typing import Any

import nats.errors
import pytest

from events.connection import Connection
from events.log import LogError, Unavailable
from events.micro import MOST_SAID, Unfit, ask, served
from events.server import MAX_PAYLOAD_BYTES, EmbeddedServer
from tests.nats_server import connected, own_server

__all__ = ["own_server"]

PREFIX = "muster-jobs.lab"


async def echo(data: bytes) -> Any:
    match data:
        case b'"unfit"':
            raise Unfit(409, "not\nnow")
        case b'"much"':
            raise Unfit(404, "x" * MAX_PAYLOAD_BYTES)
        case b'"log"':
            raise LogError("no log")
        case b'"bug"':
            raise KeyError("the odd one")
    return {"said": data.decode()}


async def discovered(connection: Connection, what: str) -> Any:
    return json.loads((await connection.request(f"$SRV.{what}.muster-test", b"")).data)


async def test_it_ends_for_its_own_reason_though_the_server_hangs(
    own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: after ten seconds with nats-py's timeout, which the federator took for a bug."""
    monkeypatch.setattr("events.micro.CLOSE_WITHIN_S", 0.1)

    async def serve(connection: Connection) -> None:
        async with served(connection, "muster-test", "1.2.3", "a test", PREFIX, {"echo": echo}):
            own_server.pause()
            raise LookupError("the reason")

    async with connected(own_server.url) as serving:
        with pytest.raises(LookupError, match="the reason"):
            await serve(serving)
        own_server.resume()


async def test_a_server_that_hangs_before_it_is_served_is_unavailable(
    own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(own_server.url) as serving:

        async def flush() -> None:
            raise nats.errors.FlushTimeoutError

        monkeypatch.setattr(serving.client, "flush", flush)
        with pytest.raises(Unavailable, match=PREFIX):
            async with served(serving, "muster-test", "1.2.3", "a test", PREFIX, {"echo": echo}):
                pass


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


async def test_a_refusal_that_quotes_too_much_is_cut(own_server: EmbeddedServer) -> None:
    """As it was: the server took the answer for a mistake and reset the connection, and who had asked waited."""
    async with (
        connected(own_server.url) as serving,
        connected(own_server.url) as client,
        served(serving, "muster-test", "1.2.3", "a test", PREFIX, {"echo": echo}),
    ):
        with pytest.raises(Unfit) as refused:
            await ask(client, PREFIX, "echo", "much", within_s=5)
        assert refused.value.message == "x" * MOST_SAID
