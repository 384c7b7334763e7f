"""Leases seen from outside: the first that is free, and which are."""

from __future__ import annotations

import asyncio

import pytest

from events.connection import Connection
from events.lease import Lease, Watch, acquire_first, holder_of
from events.server import EmbeddedServer
from tests.nats_server import connected
from tests.waiting import answered, until

TTL_S = 1


def shards(connection: Connection, cluster: str, holder: str, count: int = 3) -> list[Lease]:
    return [Lease(connection, cluster, f"planner.{number}", holder, 60) for number in range(count)]


async def test_the_first_that_is_free_is_taken(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection:
        taken = [await acquire_first(shards(connection, cluster, name)) for name in ("one", "two", "three")]
        assert [lease.role for lease in taken] == ["planner.0", "planner.1", "planner.2"]
        await taken[1].release()
        again = await acquire_first(shards(connection, cluster, "four"))
        assert again.role == "planner.1"
        assert await holder_of(connection, cluster, "planner.1") == "four"
        for lease in (taken[0], again, taken[2]):
            assert not lease.lost.is_set()
            await lease.release()


async def test_of_many_at_once_each_has_its_own(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection, connected(server.url) as other:
        taken = await asyncio.gather(
            *(acquire_first(shards(where, cluster, f"h{n}", 6)) for n, where in enumerate([connection, other] * 3))
        )
        assert sorted(lease.role for lease in taken) == [f"planner.{n}" for n in range(6)]
        for lease in taken:
            await lease.release()


class Tried(Lease):
    """Counts how often it was not to be had."""

    refused = 0

    async def _try(self) -> bool:
        taken = await super()._try()
        self.refused += not taken
        return taken


async def test_while_all_are_held_one_waits(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection:
        held = await acquire_first(shards(connection, cluster, "first", 1))
        asked = Tried(connection, cluster, "planner.0", "second", TTL_S)
        waiting = asyncio.ensure_future(acquire_first([asked]))
        await until(lambda: asked.refused > 1 or waiting.done(), "it to be asked for again")
        assert not waiting.done()
        await held.release()
        lease = await waiting
        assert lease.role == "planner.0"
        await lease.release()


async def test_an_observer_hears_at_once_that_a_lease_was_given_back(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection, connected(server.url) as other:
        held = await acquire_first(shards(connection, cluster, "first"))
        async with Watch(other, cluster, "planner.*", 60) as watch:
            assert not await watch.is_free("planner.0")
            await held.release()
            await watch.given_back.wait()
            assert await watch.is_free("planner.0")


async def test_an_observer_finds_a_dead_holders_lease_run_out(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection, connected(server.url) as other:
        dead = Lease(connection, cluster, "planner.0", "dead", TTL_S)
        await dead.acquire()
        async with Watch(other, cluster, "planner.*", TTL_S) as watch:
            await until(lambda: watch._heard)  # a renewal
            assert not await watch.is_free("planner.0")
            await connection.close()
            await answered(lambda: watch.is_free("planner.0"), "the lease of a dead holder")
        await dead.release()


async def test_a_lease_that_nobody_ever_held_is_free(server: EmbeddedServer, cluster: str) -> None:
    async with connected(server.url) as connection, Lease(connection, cluster, "binder", "me") as held:
        async with Watch(connection, cluster, "planner.*", TTL_S) as watch:
            assert not await watch.is_free("planner.7"), "a holder would be heard within a lease's time"
            await answered(lambda: watch.is_free("planner.7"), "nobody to be heard")
        assert not held.lost.is_set()


async def test_while_the_server_is_away_no_lease_is_called_free(own_server: EmbeddedServer, cluster: str) -> None:
    async with connected(own_server.url) as connection:
        held = Lease(connection, cluster, "planner.0", "first", 60)
        await held.acquire()
        async with Watch(connection, cluster, "planner.*", TTL_S) as watch:
            own_server.kill()
            assert not await watch.is_free("planner.0")
            assert not await watch.is_free("planner.1")
        own_server.start()
        await held.release()


async def test_after_a_silence_a_lease_that_is_not_there_is_its_holders_for_one_more_life(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        connected(server.url) as connection,
        Lease(connection, cluster, "binder", "me"),
        Watch(connection, cluster, "planner.*", TTL_S) as watch,
    ):
        await answered(lambda: watch.is_free("planner.0"), "nobody to be heard")
        monkeypatch.setattr(connection, "answers_for_s", lambda: TTL_S - 0.1)
        assert not await watch.is_free("planner.0")
        monkeypatch.setattr(connection, "answers_for_s", lambda: TTL_S)
        assert await watch.is_free("planner.0")
