"""The feed over a real NATS server, of a log that was purged: what is left out, and by whom."""

from __future__ import annotations

import asyncio

import pytest

from events.feed import Feed
from events.memory import MemoryLog
from events.server import EmbeddedServer
from services.feed import service
from tests.feed.feeding import expected, feeding, fill, take


async def test_a_feed_that_slept_while_the_log_was_purged_says_so_and_goes_on(
    server: EmbeddedServer, cluster: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SETTLED_S", 0.01)
    log = MemoryLog(cluster)
    await fill(log, commits=10, events=1)
    async with feeding(log, server.url):
        assert await take(server.url, cluster, 10) == await expected(log)
    await fill(log, commits=10, events=1)
    await log.purge(10)  # what was published last is still there: nothing is missing
    async with feeding(log, server.url):
        assert [message.id for message in await take(server.url, cluster, 20)] == [f"{n}.0" for n in range(1, 21)]
    assert "is gone" not in caplog.text
    await fill(log, commits=10, events=1)
    await log.purge(25)
    async with feeding(log, server.url):
        taken = await take(server.url, cluster, 26)
    assert [message.id for message in taken[20:]] == [f"{n}.0" for n in range(25, 31)]
    assert "the log begins at 25: what was not published behind 20.0 is gone" in caplog.text


async def test_a_feed_that_slept_since_the_first_commit_says_so_as_well(
    server: EmbeddedServer, cluster: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: silent, as if it had published nothing yet."""
    monkeypatch.setattr(service, "SETTLED_S", 0.01)
    log = MemoryLog(cluster)
    await fill(log, commits=1, events=1)
    async with feeding(log, server.url):
        assert await take(server.url, cluster, 1) == await expected(log)
    await fill(log, commits=4, events=1)
    await log.purge(4)
    async with feeding(log, server.url):
        assert [message.id for message in await take(server.url, cluster, 3)] == ["1.0", "4.0", "5.0"]
    assert "the log begins at 4: what was not published behind 1.0 is gone" in caplog.text


async def test_what_another_feed_has_read_before_it_was_purged_is_not_left_out(
    server: EmbeddedServer, cluster: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds 640098, 640243: what the other had sent was refused in part, and the rest stood behind what came later."""
    log, sleep = MemoryLog(cluster), asyncio.sleep
    await fill(log, commits=2, events=1)
    async with feeding(log, server.url):
        await take(server.url, cluster, 2)
    await fill(log, commits=4, events=1)
    read = (await expected(log))[2:5]
    await log.purge(5)
    other = await Feed.open(server.url, cluster)
    await other.position()

    async def meanwhile(seconds: float) -> None:
        await (other.publish(read) if seconds == service.SETTLED_S else sleep(seconds))

    monkeypatch.setattr(asyncio, "sleep", meanwhile)
    async with feeding(log, server.url):
        taken = await take(server.url, cluster, 6)
    await other.close()
    assert [message.id for message in taken] == [f"{n}.0" for n in range(1, 7)]
    reasons = [vars(record).get("reason", "") for record in caplog.records]  # a slow server is told of, too
    assert any("another feed goes on behind 2.0" in reason for reason in reasons)
    assert "is gone" not in caplog.text


async def test_where_something_is_left_out_the_next_message_goes_alone(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another feed may leave out more, or less: one of them has its way, and the other asks again."""
    monkeypatch.setattr(service, "SETTLED_S", 0.01)
    log = MemoryLog(cluster)
    await fill(log, commits=1, events=1)
    async with feeding(log, server.url):
        await take(server.url, cluster, 1)
    await fill(log, commits=4, events=1)
    await log.purge(3)
    feed = await Feed.open(server.url, cluster)
    last = await feed.position()
    assert not feed.goes_alone
    assert await service._behind(log, feed, last, (1, 0, 0)) == 2
    assert feed.goes_alone
    await feed.publish((await expected(log))[:2])
    assert not feed.goes_alone
    assert await service._behind(log, feed, await feed.position(), (4, 0, 0)) == 3
    await feed.close()


async def test_a_new_feed_of_a_purged_log_misses_nothing(
    server: EmbeddedServer, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It has published nothing yet behind which there could be a gap."""
    log = MemoryLog(cluster)
    await fill(log, commits=5, events=1)
    await log.purge(4)
    async with feeding(log, server.url):
        assert [message.id for message in await take(server.url, cluster, 2)] == ["4.0", "5.0"]
    assert "is gone" not in caplog.text
