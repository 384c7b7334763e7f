"""What a subscriber asks of the server, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from events.client import Client
from events.connection import Connection
from events.log import LogError
from events.memory import MemoryLog
from events.server import EmbeddedServer
from events.subscription import BATCH, subscribe
from tests.feed.commits import append
from tests.feed.feeding import feeding, fill, permit, take
from tests.waiting import until


class Asked:
    """Of all clients of this process: where each pull is to be answered, and how often they asked about a consumer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pulls: list[str] = []
        self.checks = 0
        publish, check = Client.publish, Connection.ask

        async def published(client: Client, subject: str, *arguments: Any, **named: Any) -> None:
            if "CONSUMER.MSG.NEXT" in subject:
                self.pulls.append(named["reply"])
            await publish(client, subject, *arguments, **named)

        async def ask(connection: Connection, subject: str, *arguments: Any, **named: Any) -> bytes:
            self.checks += "CONSUMER.INFO" in subject
            return await check(connection, subject, *arguments, **named)

        monkeypatch.setattr(Client, "publish", published)
        monkeypatch.setattr(Connection, "ask", ask)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """A host that is slow is no silence."""
    monkeypatch.setattr("events.subscription.SILENCE_S", 60.0)
    return Asked(monkeypatch)


@pytest.fixture
async def log(server: EmbeddedServer, cluster: str) -> AsyncIterator[MemoryLog]:
    """Of which the feed tells as it grows."""
    log = MemoryLog(cluster)
    await append(log, "binder", [permit("a/first")])
    async with feeding(log, server.url):
        await take(server.url, cluster, 1)
        yield log


async def test_who_is_far_behind_pulls_when_a_request_is_used_up(
    server: EmbeddedServer, log: MemoryLog, asked: Asked
) -> None:
    """Neither for each message, nor after a silence."""
    await fill(log, BATCH // 3 + 1)
    await take(server.url, log.cluster, BATCH + 2)
    assert len(asked.pulls) == 2


async def test_who_waits_hears_that_the_server_lives_and_asks_it_nothing(
    server: EmbeddedServer, log: MemoryLog, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a heartbeat: without any it would ask, and pull, every three seconds."""
    beats = 0

    async def next_msg(subscription: Subscription, **within: float) -> Msg:
        nonlocal beats
        message = await real(subscription, **within)
        beats += (message.headers or {}).get("Status") == "100"
        return message

    real = Subscription.next_msg
    monkeypatch.setattr(Subscription, "next_msg", next_msg)
    messages = subscribe(server.url, log.cluster, "GangPermitted", history=False)
    waiting = asyncio.create_task(anext(messages))
    await until(lambda: beats, "a heartbeat")
    assert len(asked.pulls) == 1
    await append(log, "binder", [permit("a/late")])
    assert (await waiting).event().subject == "a/late"
    assert len(asked.pulls) == 1
    await messages.aclose()


@pytest.mark.parametrize(("status", "checked"), [("408", False), ("409", False), ("503", True)])
async def test_a_pull_that_the_server_ends_is_followed_by_another(
    server: EmbeddedServer, log: MemoryLog, asked: Asked, status: str, checked: bool
) -> None:
    """It expired, or its leader changed. Where nobody answers, it waits until somebody does: that is said at once, and it
    would pull thousands of times a second."""
    messages = subscribe(server.url, log.cluster, "GangPermitted", history=False)
    waiting = asyncio.create_task(anext(messages))
    await until(lambda: asked.pulls, "a pull")
    before = asked.checks
    connection = await Connection(server.url).connect()
    await connection.client.publish(asked.pulls[0], headers={"Status": status, "Description": "said"})
    await connection.close()
    await until(lambda: len(asked.pulls) == 2, "another pull")
    assert (asked.checks > before) is checked
    await append(log, "binder", [permit("a/late")])
    assert (await waiting).event().subject == "a/late"
    await messages.aclose()


async def test_a_consumer_of_whose_end_nothing_was_heard_is_missed(
    server: EmbeddedServer, log: MemoryLog, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted while its subscriber was between two servers."""

    async def next_msg(subscription: Subscription, **within: float) -> Msg:
        while True:
            message = await real(subscription, **within)
            if message.reply:
                return message

    real = Subscription.next_msg
    monkeypatch.setattr(Subscription, "next_msg", next_msg)
    monkeypatch.setattr("events.subscription.SILENCE_S", 0.2)
    messages = subscribe(server.url, log.cluster, "Ticked", "doomed", history=False)
    waiting = asyncio.create_task(anext(messages))
    await until(lambda: asked.pulls, "a pull")
    connection = await Connection(server.url).connect()
    await connection.ask(f"$JS.API.CONSUMER.DELETE.muster-feed-{log.cluster}.doomed")
    await connection.close()
    with pytest.raises(LogError, match=r"the consumer 'doomed' is gone: .*consumer not found"):
        await waiting


async def test_who_waits_has_more_patience_than_who_asks(
    own_server: EmbeddedServer, cluster: str, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the server is away."""
    log = MemoryLog(cluster)
    await append(log, "binder", [permit("a/before")])
    async with feeding(log, own_server.url):
        messages = subscribe(own_server.url, cluster, "GangPermitted", "steady")
        assert (await anext(messages)).event().subject == "a/before"
        monkeypatch.setattr("events.subscription.SILENCE_S", 0.1)
        with monkeypatch.context() as impatient:
            impatient.setattr("events.patience.PATIENCE_S", 0.0)
            impatient.setattr("events.connection.REQUEST_WITHIN_S", 0.1)
            own_server.kill()
            waiting = asyncio.create_task(anext(messages))
            await until(lambda: asked.checks > 4 or waiting.done(), "the server to be asked again and again")
        own_server.start()
        await append(log, "binder", [permit("a/after")])
        while (await waiting).event().subject != "a/after":  # the one before may come again
            waiting = asyncio.create_task(anext(messages))
        await messages.aclose()
