"""One server after another is lost: decisions pause for seconds, and no event is lost.

One test, as starting all of it costs more than any of its steps. Each step hurts one server, sees that it goes on, and
makes the three whole again.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

from tests.chaos import feeding
from tests.failover.field import CLUSTER, SNAPSHOTS, STREAMS, WITHIN_S, Field, running

FIRST_TAKEN = 4
"""Ingest, two planners and one binder."""
EVERY_S = 0.25
"""Between two gangs: every step still meets some, and none has to wait for processors."""


async def test_three_servers_lose_one_after_another_and_the_log_loses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, EVERY_S) as field:
        await field.whole()
        await every_stream_stands_on_three_servers(field)
        await the_leader_dies(field)
        await the_leader_hangs(field)
        await a_follower_hangs(field)
        await all_three_are_restarted_one_after_another(field)
        await a_snapshot_is_taken_and_stands_on_three_servers(field)
        await everything_comes_to_rest(field)
        await what_was_acknowledged_is_in_the_log_and_nothing_else(field)
        await every_decision_is_reproduced(field)
        await the_feed_has_said_everything_once(field)


async def every_stream_stands_on_three_servers(field: Field) -> None:
    for stream in STREAMS:
        leader, others = await field.placement(stream)
        assert {leader, *(one["name"] for one in others)} == set(field.servers.servers)


async def the_leader_dies(field: Field) -> None:
    server = await field.leader()
    server.kill()
    await field.goes_on()
    server.start()
    await field.whole()


async def the_leader_hangs(field: Field) -> None:
    """It keeps its clients' connections: they notice after seconds, and a standby may be faster. When it wakes up, it
    believes for a moment that it still leads."""
    server = await field.leader()
    server.pause()
    await field.goes_on()
    server.resume()
    await field.whole()


async def a_follower_hangs(field: Field) -> None:
    server = await field.follower()
    server.pause()
    await field.goes_on()
    server.resume()
    await field.whole()


async def all_three_are_restarted_one_after_another(field: Field) -> None:
    for server in field.servers.servers.values():
        server.stop()
        server.start()
        await field.whole()
    await field.goes_on()


async def a_snapshot_is_taken_and_stands_on_three_servers(field: Field) -> None:
    """While gangs still come: where no step took long, the log may be too short for one until then."""
    await field.until(lambda: field.state.snapshots, "a snapshot")
    await field.whole([SNAPSHOTS])


async def everything_comes_to_rest(field: Field) -> None:
    """A standby may have been faster than a service that was cut off: then that one steps down, and nobody else."""
    await field.rest()
    await field.until(lambda: field.taken() == FIRST_TAKEN + field.stepped_down, "who was replaced to step down")


async def what_was_acknowledged_is_in_the_log_and_nothing_else(field: Field) -> None:
    """An append whose writer stepped down before its answer came may stand in the log unacknowledged."""
    acknowledged = field.acknowledged()
    async with aclosing(field.log.read()) as batches:
        again = [stored async for batch in batches for stored in batch]
    there = {stored.sequence: stored.message_id for stored in again}
    assert acknowledged
    assert [told for told in acknowledged if there.get(told[0]) != told[1]] == []
    assert [stored.sequence for stored in again] == list(range(1, len(again) + 1))
    assert len({stored.message_id for stored in again}) == len(again), "nothing stands there twice"
    await field.until(lambda: len(field.read) >= len(again), "the reader to read all of it")
    assert again == [one.stored for one in field.read][: len(again)], "it reads now as it read at once"


async def every_decision_is_reproduced(field: Field) -> None:
    code, said = await field.muster("verify", field.servers.url, user="reader")
    assert (code, said["verified"]) == (0, True), said
    assert said["decided"] > 0


async def the_feed_has_said_everything_once(field: Field) -> None:
    wanted = feeding.expected((one.stored for one in field.read), CLUSTER)
    said: list[feeding.Published] = []
    async with asyncio.timeout(WITHIN_S):
        while len(said) < len(wanted):
            said = await feeding.published(field.servers.url, CLUSTER, **field.login("operator"))
    assert feeding.violations(said[: len(wanted)], wanted) == [], "a snapshot may have come meanwhile"
