"""The feed as the process that `muster feed` is."""

from __future__ import annotations

import asyncio

import pytest

from events.jetstream import JetStreamLog
from events.server import EmbeddedServer
from services import settings
from services.feed import service
from tests.feed.commits import append
from tests.feed.feeding import permit, take
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


async def test_behind_a_lost_connection_no_publishing_of_before_goes_on() -> None:
    """It would interrupt the one that begins anew, and the other way round."""
    ended = asyncio.Event()

    class Reconnected:
        async def reconnected(self) -> None:
            await asyncio.sleep(0)

    async def publishing() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await service._until_reconnected(Reconnected(), publishing())  # type: ignore[arg-type]
    assert ended.is_set()
