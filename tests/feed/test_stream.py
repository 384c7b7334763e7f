"""The feed's stream: made once, and held to what the feed promises, whoever made it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from events.connection import Connection
from events.feed import Feed
from events.log import LogError
from events.memory import MemoryLog
from events.server import EmbeddedServer
from tests.feed.feeding import expected, feeding, fill, kept, take


async def test_a_feed_that_is_there_needs_no_room_for_another(tmp_path: Path) -> None:
    """As it was: its stream was asked for again, and refused where there were not so many bytes once more."""
    with EmbeddedServer(tmp_path, jetstream="max_file_store: 3MB") as server:
        for max_bytes in (1 << 21, 1 << 21, 1 << 20):
            feed = await Feed.open(server.url, "small", max_bytes=max_bytes)
            assert (await feed.bounds())[1] == max_bytes
            await feed.close()


async def test_a_stream_of_somebody_elses_is_left_alone(server: EmbeddedServer, cluster: str) -> None:
    """As it was: its age and its size were bounded, be it a log that forgets nothing."""
    connection = await Connection(server.url).connect()
    stream = {"name": f"muster-feed-{cluster}", "subjects": [f"theirs.{cluster}"]}
    await connection.create_stream(stream)
    with pytest.raises(LogError, match=f"expected a stream of .'muster-feed.{cluster}.>'., found .'theirs.{cluster}'."):
        await Feed.open(server.url, cluster)
    info = json.loads(await connection.ask(f"$JS.API.STREAM.INFO.{stream['name']}"))
    assert info["config"]["max_age"] == 0
    await connection.close()


async def test_the_bounds_of_a_stream_that_is_there_are_changed(server: EmbeddedServer, cluster: str) -> None:
    await (await Feed.open(server.url, cluster, max_age_s=3600)).close()
    feed = await Feed.open(server.url, cluster, max_age_s=60)
    assert (await feed.bounds())[0] == 60, "less than JetStream's deduplication by default"
    await feed.close()
    feed = await Feed.open(server.url, cluster, max_age_s=7200, max_bytes=1 << 21)
    assert await feed.bounds() == (7200, 1 << 21)
    await feed.close()


@pytest.mark.parametrize(
    "otherwise",
    [{"discard": "new"}, {"retention": "interest"}, {"max_msgs": 3}, {"max_msgs_per_subject": 1}, {"max_msg_size": 10}],
    ids=str,
)
async def test_a_stream_that_forgets_otherwise_is_mended(
    server: EmbeddedServer, cluster: str, otherwise: dict[str, Any]
) -> None:
    """As it was: one that discards the new took nothing when it was full, and one that keeps what nobody has read lost
    the rest, and published it again after each start."""
    connection = await Connection(server.url).connect()
    stream = {"name": f"muster-feed-{cluster}", "subjects": [f"muster-feed.{cluster}.>"]}
    await connection.create_stream(stream | otherwise)
    log = MemoryLog(cluster)
    await fill(log, commits=2)
    for _ in range(2):
        async with feeding(log, server.url):
            assert await take(server.url, cluster, 6) == await expected(log)
    assert await kept(server.url, cluster) == 6
    found = json.loads(await connection.ask(f"$JS.API.STREAM.INFO.{stream['name']}"))["config"]
    assert (found["retention"], found["discard"]) == ("limits", "old")
    await connection.close()
