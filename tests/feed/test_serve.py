"""The feed as the process that `muster feed` is."""

from __future__ import annotations

import asyncio

import pytest

from events.jetstream import JetStreamLog
from events.server import EmbeddedServer
from services import settings
from services.feed import service
from tests.feed.commits import append
from tests.feed.test_service import permit, take
from tests.waiting import answered


async def test_from_settings_to_a_subscriber(server: EmbeddedServer, cluster: str) -> None:
    given = settings.read({"nats_url": server.url, "cluster": cluster, "feed_max_age_s": 10**9}, {})
    log = await JetStreamLog.open(server.url, cluster)
    await append(log, "binder", [permit("a/g")])
    serving = asyncio.create_task(service.serve(log, given))

    async def is_made() -> bool:
        return f"muster-feed-{cluster}".encode() in await log.connection.ask("$JS.API.STREAM.NAMES")

    await answered(is_made, "the feed's stream")
    (message,) = await take(server.url, cluster, 1)
    assert message.event().subject == "a/g"
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    await log.close()
