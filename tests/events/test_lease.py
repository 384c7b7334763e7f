"""Leases: who tries."""

from __future__ import annotations

import asyncio

import pytest

from events import lease as leases
from events.connection import Connection
from events.lease import Lease, Watch
from events.server import EmbeddedServer
from tests.events.proxy import proxy
from tests.nats_server import connected
from tests.waiting import until

TTL_S = 1


async def test_a_free_lease_is_taken_and_kept_beyond_its_time(server: EmbeddedServer, cluster: str) -> None:
    async with (
        connected(server.url) as connection,
        connected(server.url) as other,
        Lease(connection, cluster, "binder", "first", TTL_S) as held,
    ):
        standby = asyncio.ensure_future(Lease(other, cluster, "binder", "second", TTL_S).acquire())
        first = held._sequence
        await until(lambda: held._sequence >= first + 5 or held.lost.is_set())  # three renewals make one life
        assert not held.lost.is_set()
        assert not standby.done()
        standby.cancel()


async def test_a_released_lease_changes_hands_at_once(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection, connected(server.url) as other:
        first = Lease(connection, cluster, "binder", "first", 60)
        second = Lease(other, cluster, "binder", "second", 60)
        await first.acquire()
        standby = asyncio.ensure_future(second.acquire())
        await first.release()
        async with asyncio.timeout(10):  # its polling would take 12 s, its time 60
            await standby
        assert first.lost.is_set()
        assert not second.lost.is_set()
        await second.release()


async def test_the_lease_of_a_dead_holder_runs_out(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection, connected(server.url) as other:
        dead = Lease(connection, cluster, "binder", "dead", TTL_S)
        await dead.acquire()
        await connection.close()
        second = Lease(other, cluster, "binder", "second", TTL_S)
        await second.acquire()
        await dead.lost.wait()
        await dead.release()
        assert not second.lost.is_set()
        await second.release()


async def test_a_holder_keeps_it_while_the_server_answers_nobody(
    own_server: EmbeddedServer, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can have claimed it, and when the server is back the holder is first, though the lease was forgotten."""
    async with connected(own_server.url) as connection, connected(own_server.url) as other:
        held, second = (Lease(each, cluster, "binder", "me", 2) for each in (connection, other))
        await held.acquire()
        standby = asyncio.ensure_future(second.acquire())
        async with Watch(other, cluster, "binder", 2) as watch:
            own_server.pause()
            looking = asyncio.ensure_future(never_free(watch, "binder"))
            await until(lambda: "no answer about" in caplog.text)
            own_server.resume()
            first = held._sequence
            await until(lambda: held._sequence >= first + 4 or held.lost.is_set() or standby.done() or looking.done())
            assert not held.lost.is_set()
            assert not standby.done()
            assert not looking.done(), "the binder would have called the shard lost"
            standby.cancel()
            looking.cancel()
        await held.release()


async def never_free(watch: Watch, role: str) -> None:
    """Ends when it is."""
    while not await watch.is_free(role):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def test_a_holder_whose_server_stays_away_has_lost_it(own_server: EmbeddedServer, cluster: str) -> None:
    async with connected(own_server.url) as connection:
        held = Lease(connection, cluster, "binder", "first", TTL_S, patience_s=1.0)
        await held.acquire()
        own_server.kill()
        await held.lost.wait()
        own_server.start()
        await held.release()
        again = Lease(connection, cluster, "binder", "first", TTL_S)
        await again.acquire()
        await again.release()


async def test_a_holder_that_was_replaced_steps_down(server: EmbeddedServer, cluster: str) -> None:
    """Its message was forgotten while it slept, and another's stands there."""
    async with connected(server.url) as connection:
        held = Lease(connection, cluster, "binder", "first", TTL_S)
        await held.acquire()
        await connection.ask(leases.subject(cluster, "binder"), leases.Held("usurper", "c"), {"Nats-TTL": "60s"})
        await held.lost.wait()
        await held.release()
        last = await held._last()
        assert last is not None
        assert last[1].holder == "usurper"


async def test_a_renewal_whose_answer_was_lost_is_our_own(server: EmbeddedServer, cluster: str) -> None:
    async with proxy(server.port) as between, connected(between.url) as connection:
        held = Lease(connection, cluster, "binder", "first", 3)
        await held.acquire()
        first = held._sequence
        between.lose_answer_to = b"HPUB " + leases.subject(cluster, "binder").encode()
        await between.lost.wait()
        await until(lambda: held._sequence > first + 1 or held.lost.is_set())
        assert not held.lost.is_set()
        await held.release()


async def test_each_role_has_its_own(server: EmbeddedServer, cluster: str) -> None:
    async with (
        connected(server.url) as connection,
        Lease(connection, cluster, "planner.0", "me") as zero,
        Lease(connection, cluster, "planner.1", "me") as one,
    ):
        assert not zero.lost.is_set()
        assert not one.lost.is_set()


async def test_what_is_no_lease_is_replaced(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection:
        await connection.create_stream(Lease(connection, cluster, "binder", "first")._configuration)
        await connection.ask(leases.subject(cluster, "binder"), b"\x00garbage")
        async with Lease(connection, cluster, "binder", "first") as held:
            assert not held.lost.is_set()


def test_a_life_is_whole_seconds() -> None:
    with pytest.raises(ValueError, match="ttl_s is 0"):
        Lease(Connection("nats://127.0.0.1:1"), "c", "binder", "me", 0)
