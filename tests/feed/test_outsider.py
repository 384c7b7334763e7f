"""Whoever reads the feed with a program of their own: nats-py, the user `subscriber`, and nothing of Muster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from events import permissions
from events.memory import MemoryLog
from events.server import EmbeddedServer
from tests.feed.commits import append
from tests.feed.feeding import expected, feeding, permit, take

COMMITS, EVENTS, LONG = 10, 100, 2_000
"""More bytes than JetStream pushes before it waits to be told that they were taken."""
Reading = Callable[[JetStreamContext, str, str], Awaitable[Any]]


async def ordered(asked: JetStreamContext, stream: str, subject: str) -> Any:
    return await asked.subscribe(subject, stream=stream, ordered_consumer=True)


async def pushed(asked: JetStreamContext, stream: str, subject: str) -> Any:
    untold = ConsumerConfig(ack_policy=AckPolicy.NONE)
    return await asked.subscribe(
        subject, stream=stream, durable="mine", config=untold, flow_control=True, idle_heartbeat=1
    )


@pytest.mark.parametrize("reading", [ordered, pushed])
async def test_an_outsider_reads_as_its_client_likes(
    own_server: EmbeddedServer, cluster: str, reading: Reading
) -> None:
    """As it was: an ordered consumer could not be made, and one that pushes with flow control stood still for good."""
    own_server.stop()
    own_server.extra = permissions.configuration(cluster, dict.fromkeys(permissions.users(), "secret"))
    own_server.start()
    log = MemoryLog(cluster)
    for _ in range(COMMITS):
        await append(log, "binder", [permit(f"a/{'x' * LONG}")] * EVENTS)
    denied: list[Exception] = []

    async def note(error: Exception) -> None:
        denied.append(error)

    async with feeding(log, own_server.url, user="feed", password="secret"):
        subscriber = {"user": "subscriber", "password": "secret"}
        await take(own_server.url, cluster, COMMITS * EVENTS, **subscriber)
        connection = await nats.connect(
            own_server.url, **subscriber, inbox_prefix=b"_INBOX_subscriber", error_cb=note, allow_reconnect=False
        )
        try:
            asked = connection.jetstream(timeout=2)
            arriving = await reading(asked, f"muster-feed-{cluster}", f"muster-feed.{cluster}.>")
            bodies = [(await arriving.next_msg(timeout=5)).data for _ in range(COMMITS * EVENTS)]
        finally:
            await connection.close()
    assert bodies == [message.body for message in await expected(log)]
    assert denied == []
