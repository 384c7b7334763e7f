"""One server after another is lost: decisions pause for seconds, no event is lost, and no service ends.

The tests stand in one order, on one field: each hurts it, sees it go on, and makes it whole again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
import pytest_asyncio

from events import cloudevents
from events.consumer import Consumer
from services.feed.core import messages
from tests.failover.field import CLUSTER, SNAPSHOTS, STREAMS, WITHIN_S, Field, running

pytestmark = [pytest.mark.xdist_group("three servers"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def field(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Field]:
    async with running(tmp_path_factory.mktemp("failover")) as started:
        await started.whole()
        yield started


async def test_every_stream_stands_on_three_servers(field: Field) -> None:
    for stream in STREAMS:
        leader, others = await field.placement(stream)
        assert {leader, *(one["name"] for one in others)} == set(field.servers.servers)


async def test_the_leader_dies(field: Field) -> None:
    server = await field.leader()
    server.kill()
    await field.goes_on()
    server.start()
    await field.whole()


async def test_all_three_are_restarted_one_after_another(field: Field) -> None:
    for server in field.servers.servers.values():
        server.stop()
        server.start()
        await field.whole()
    await field.goes_on()


async def test_so_far_nobody_had_to_step_in(field: Field) -> None:
    """A server that is gone is seen at once, and while there is no leader nobody can take anybody's place."""
    assert field.taken() == 4, "ingest, two planners and one binder"
    assert field.stepped_down == 0


async def test_the_leader_hangs(field: Field) -> None:
    """It keeps its clients' connections: they notice after seconds, and a standby may be faster. When it wakes up, it
    believes for a moment that it still leads."""
    server = await field.leader()
    server.pause()
    await field.goes_on()
    server.resume()
    await field.whole()


async def test_a_follower_hangs(field: Field) -> None:
    server = await field.follower()
    server.pause()
    await field.goes_on()
    server.resume()
    await field.whole()


async def test_everything_comes_to_rest(field: Field) -> None:
    await field.rest()
    assert field.taken() <= 4 + field.stepped_down, "nobody took a place but for those who stepped down"


async def test_what_was_acknowledged_is_in_the_log_and_nothing_else(field: Field) -> None:
    async with aclosing(field.log.read()) as batches:
        again = [stored async for batch in batches for stored in batch]
    await field.until(lambda: len(field.acknowledged()) >= len(again), "the last one's word")
    acknowledged = sorted(field.acknowledged())
    assert [(one.sequence, one.message_id) for one in again] == acknowledged[: len(again)]
    assert again == [one.stored for one in field.read][: len(again)], "it reads now as it read at once"


async def test_a_snapshot_stands_on_three_servers(field: Field) -> None:
    await field.until(lambda: field.state.snapshots, "a snapshot")
    assert await field.is_whole(SNAPSHOTS)


async def test_every_decision_is_reproduced(field: Field) -> None:
    code, said = await field.muster("verify", field.servers.url, user="reader")
    assert (code, said["verified"]) == (0, True), said
    assert said["last"] >= said["decided"] > 0


async def test_the_feed_has_said_everything_once(field: Field) -> None:
    expected = [message.id for one in field.read for message in messages(one.stored, CLUSTER)]
    consumer = Consumer(field.operator, cloudevents.stream(CLUSTER), 1)
    await consumer.open()
    said: list[str] = []
    async with asyncio.timeout(WITHIN_S):
        while len(said) < len(expected):
            said += [message.message_id for message in await consumer.take()]
    await consumer.close()
    assert said[: len(expected)] == expected
