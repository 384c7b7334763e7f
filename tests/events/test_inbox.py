"""Where answers come: who hears that there will be none, and who hears it not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from events.answers import Denied, Unanswered
from events.inbox import Inbox
from events.server import EmbeddedServer
from tests.nats_server import connected
from tests.waiting import answered

MAY_HEAR = 'authorization { users: [ { user: planner, password: "one", permissions: { subscribe: "%s" } } ] }'
MAY_NOT_SAY = (
    'authorization { users: [ { user: planner, password: "one", permissions: { publish: { deny: "No" } } } ] }'
)


def of_planner(server: EmbeddedServer) -> str:
    return server.url.replace("//", "//planner:one@")


async def test_whose_inbox_was_taken_away_need_not_ask_until_he_has_it_back(tmp_path: Path) -> None:
    """He is told at once, and not when the time for an answer is over."""
    with EmbeddedServer(tmp_path, extra=MAY_HEAR % ">") as server:
        async with connected(of_planner(server)) as connection, asyncio.timeout(120):

            async def told() -> bool:
                return connection._inbox.deaf is not None

            async def asked() -> bytes:
                try:
                    return await connection.ask("$JS.API.INFO")
                except (Denied, Unanswered):
                    return b""

            for allowed in ("else", ">"):
                server.kill()
                server.extra = MAY_HEAR % allowed
                server.start()
                if allowed == "else":
                    await answered(told, "the server's no")
                    with pytest.raises(Denied, match="denies user 'planner' the inbox _INBOX_planner"):
                        await connection.request("silent", b"", within_s=600)
                else:
                    assert await answered(asked, "an answer")


async def test_a_denial_is_heard_by_who_asked_that_and_by_nobody_else(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, extra=MAY_NOT_SAY) as server:
        async with connected(of_planner(server)) as connection, connected(of_planner(server)) as other:
            slow = await other.client.subscribe("slow")
            await other.client.flush()
            asking = asyncio.create_task(connection.request("slow", b"", within_s=600))
            question = await slow.next_msg(timeout=60)
            with pytest.raises(Denied, match="No: the NATS server denies user 'planner' publishing to this subject"):
                await connection.request("No", b"", within_s=600)
            await question.respond(b"at last")
            assert (await asking).data == b"at last"


async def test_of_what_was_asked_nothing_is_kept(server: EmbeddedServer) -> None:
    async with connected(server.url) as connection:
        await connection.client.subscribe("silent")
        await connection.ask("$JS.API.INFO")
        with pytest.raises(Unanswered):
            await connection.request("silent", b"", within_s=0.01)
        assert connection._inbox._expected == {}


async def test_an_answer_that_has_come_is_not_lost_with_the_connection(server: EmbeddedServer) -> None:
    """Who asked may not have run since."""
    inbox = Inbox("nats://here")
    async with connected(server.url) as connection:
        message = Msg(connection.client, data=b"yes")
    with inbox.expecting("asked") as (_, answer), inbox.expecting("slow") as (_, other):
        answer.set_result(message)
        inbox.broke()
        assert answer.result() is message
        with pytest.raises(Unanswered, match="slow: the connection to nats://here broke"):
            other.result()
