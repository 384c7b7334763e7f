"""Leases: who tries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.aio.subscription import Subscription

from events import lease as leases
from events.answers import EXPECTED, Unanswered
from events.connection import Connection
from events.lease import Lease, Watch
from events.server import EmbeddedServer
from tests.events.proxy import proxy
from tests.nats_server import connected
from tests.waiting import answered, until

TTL_S, LONG_S = 1, 4
"""Lives of leases: where others are to outlive them soon, and where nobody is."""


class Standby(Lease):
    """Counts what it asks, and sends none of that unless it is `going_on`, as on a busy host."""

    def __init__(self, connection: Connection, cluster: str, ttl_s: int = 60) -> None:
        super().__init__(connection, cluster, "binder", "standby", ttl_s)
        self.going_on = asyncio.Event()
        self.going_on.set()
        self.asked = 0

    async def _last(self) -> leases._Word | None:
        await self.going_on.wait()
        self.asked += 1
        return await super()._last()


async def test_a_free_lease_is_taken_and_kept_beyond_its_time(server: EmbeddedServer, cluster: str) -> None:
    async with (
        connected(server.url) as connection,
        connected(server.url) as other,
        Lease(connection, cluster, "binder", "first", TTL_S, patience_s=0.5) as held,
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


async def test_a_standby_asks_once_for_each_word_that_it_hears(server: EmbeddedServer, cluster: str) -> None:
    async with (
        connected(server.url) as connection,
        connected(server.url) as other,
        Lease(connection, cluster, "binder", "first", TTL_S) as held,
    ):
        standby = Standby(other, cluster)
        standing_by = asyncio.ensure_future(standby.acquire())
        await until(lambda: standby.asked)
        asked, first = standby.asked, held._sequence
        await until(lambda: held._sequence >= first + 3)  # its polling would take 12 s
        assert standby.asked - asked <= held._sequence - first + 1
        standing_by.cancel()


async def test_a_lease_that_was_given_back_is_free_at_once_though_its_last_word_is_forgotten(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a silence a lease that is not there counts as its holder's for one more life, but not if he gave it back."""
    async with connected(server.url) as connection, connected(server.url) as other:
        monkeypatch.setattr(other, "answers_for_s", lambda: 0.0)
        first, second = Lease(connection, cluster, "binder", "first", 60), Standby(other, cluster)
        await first.acquire()
        standby = asyncio.ensure_future(second.acquire())
        await until(lambda: second.asked)
        second.going_on.clear()
        await first.release()
        await answered(lambda: forgotten(first), "the server to forget the empty lease")
        second.going_on.set()
        async with asyncio.timeout(10):
            await standby
        await second.release()


async def test_a_lease_that_was_given_back_and_claimed_again_is_that_holders(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server.url) as connection, connected(server.url) as other:
        monkeypatch.setattr(other, "answers_for_s", lambda: 0.0)
        first, third = (Lease(connection, cluster, "binder", name, TTL_S) for name in ("first", "third"))
        second = Standby(other, cluster)
        await first.acquire()
        standby = asyncio.ensure_future(second.acquire())
        await until(lambda: second.asked)
        second.going_on.clear()
        await first.release()
        await third.acquire()
        asked = second.asked
        await connection.close()
        observer = Lease(other, cluster, "binder", "observer")
        await answered(lambda: forgotten(observer), "the server to forget the lease of a dead holder")
        second.going_on.set()
        await until(lambda: second.asked > asked + 1 or standby.done())
        assert not standby.done(), "met by silence, it would have claimed what it does not know to be free"
        standby.cancel()
        await third.release()


async def forgotten(lease: Lease) -> bool:
    return await lease._last() is None


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


async def never_forgotten(connection: Connection, cluster: str, headers: dict[str, str] | None = None) -> None:
    """The lease of a dead holder in a server that does not forget it, as its clock was ahead when the last word came."""
    await connection.create_stream(Lease(connection, cluster, "binder", "observer")._configuration)
    await connection.ask(leases.subject(cluster, "binder"), leases.Held("dead", "c"), headers or {})


async def test_the_lease_of_a_dead_holder_is_replaced_though_the_servers_clock_was_set_back(
    server: EmbeddedServer, cluster: str
) -> None:
    async with connected(server.url) as connection:
        await never_forgotten(connection, cluster)
        async with Watch(connection, cluster, "binder", TTL_S) as watch:
            assert not await watch.is_free("binder")
            await answered(lambda: watch.is_free("binder"), "the silence of a dead holder")
        second = Lease(connection, cluster, "binder", "second", TTL_S)
        assert not await second._try(), "a holder that lives would have been seen for too short a time"
        await second.acquire()
        assert await leases.holder_of(connection, cluster, "binder") == "second"
        await second.release()


async def test_a_silent_holder_is_not_dead_before_its_own_time_nor_while_nobody_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processes of one cluster may be given another MUSTER_LEASE_S one after the other."""
    connection = Connection("nats://127.0.0.1:1")
    silence, word = leases._Silence(connection, TTL_S), leases._Word(7, leases.Held("dead", "c"), ttl_s=60)
    assert not silence.outlived(word)
    silence._since_s -= 119
    assert not silence.outlived(word)
    silence._since_s -= 2
    monkeypatch.setattr(connection, "answers_for_s", lambda: 119.0)
    assert not silence.outlived(word)
    monkeypatch.setattr(connection, "answers_for_s", lambda: 121.0)
    assert silence.outlived(word)
    assert not silence.outlived(word._replace(sequence=8)), "a renewal"


async def test_a_holder_keeps_it_while_the_server_answers_nobody(
    own_server: EmbeddedServer, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can have claimed it, and when the server is back the holder is first, though the lease was forgotten: a busy
    machine's connections do not all come back at once, and its life is what the first of them has to wait for."""
    async with connected(own_server.url) as connection, connected(own_server.url) as other:
        held, second = Lease(connection, cluster, "binder", "me", LONG_S), Standby(other, cluster, LONG_S)
        await held.acquire()
        standby = asyncio.ensure_future(second.acquire())
        await until(lambda: second.asked)
        async with Watch(other, cluster, "binder", LONG_S) as watch:
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


async def test_a_holder_whose_server_stays_away_has_lost_it(
    own_server: EmbeddedServer, cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And says once that it may."""
    async with connected(own_server.url) as connection:
        held = Lease(connection, cluster, "binder", "first", TTL_S, patience_s=2.0)
        await held.acquire()
        own_server.kill()
        await held.lost.wait()
        assert caplog.text.count("no answer about") == 1
        assert held.why.startswith("no answer for ")
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
        assert held.why == "usurper holds it"
        await held.release()
        assert await leases.holder_of(connection, cluster, "binder") == "usurper"


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


class Unheard:
    """What a connection publishes: of the next the answer is lost, or, while `away`, nothing is sent."""

    def __init__(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lose_answer = self.away = False
        self.expected: list[int] = []
        self._publish = connection.publish
        monkeypatch.setattr(connection, "publish", self.publish)

    async def publish(self, subject: str, body: Any, headers: dict[str, str], within_s: float) -> int:
        if self.away:
            raise Unanswered("not connected")
        self.expected.append(int(headers[EXPECTED]))
        sequence = await self._publish(subject, body, headers, within_s)
        if self.lose_answer:
            self.lose_answer = False
            raise Unanswered("no answer")
        return sequence


async def test_a_claim_whose_answer_was_lost_is_our_own(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server.url) as connection:
        unheard = Unheard(connection, monkeypatch)
        unheard.lose_answer = True
        async with asyncio.timeout(10):  # it would be forgotten after 60 s
            async with Lease(connection, cluster, "binder", "first", 60):
                assert unheard.expected == [0, leases._NEVER, 1]


async def test_a_claim_that_is_cancelled_is_given_back(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: it stood, nobody renewed it, and the next standby waited for its time to be over."""
    made, heard = asyncio.Event(), asyncio.Event()
    async with connected(server.url) as connection, connected(server.url) as other:
        publish = connection.publish

        async def late(*asked: Any) -> int:
            sequence = await publish(*asked)
            made.set()
            await heard.wait()
            return sequence

        monkeypatch.setattr(connection, "publish", late)
        standby = asyncio.ensure_future(Lease(connection, cluster, "binder", "told to end", 60).acquire())
        await made.wait()
        standby.cancel()
        asyncio.get_running_loop().call_soon(heard.set)
        with pytest.raises(asyncio.CancelledError):
            await standby
        async with asyncio.timeout(10):  # its time is 60
            async with Lease(other, cluster, "binder", "next", 60):
                pass


async def test_who_is_cancelled_when_it_has_just_become_his_gives_it_back(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: nobody was told that he had it, and he renewed it for as long as his process lived."""
    leaving = asyncio.Event()
    async with connected(server.url) as connection, connected(server.url) as other:

        async def unsubscribe(_: Subscription) -> None:
            leaving.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as patched:
            patched.setattr(Subscription, "unsubscribe", unsubscribe)
            standby = asyncio.ensure_future(Lease(connection, cluster, "binder", "told to end", 60).acquire())
            await leaving.wait()
            standby.cancel()
            with pytest.raises(asyncio.CancelledError):
                await standby
        async with asyncio.timeout(10):  # its time is 60
            async with Lease(other, cluster, "binder", "next", 60):
                pass


async def test_a_renewal_whose_answer_was_lost_is_followed_by_another_at_once(
    server: EmbeddedServer, cluster: str
) -> None:
    """A third of its time went by until the answer was given up, and another until it was asked for: with the last one
    gone, too, the server forgets it, and anybody may have it."""
    async with (
        connected(server.url) as connection,
        Lease(connection, cluster, "binder", "first", 60) as held,
    ):
        expected = {EXPECTED: str(held._sequence), leases.TTL: "60s"}
        unheard = await connection.publish(leases.subject(cluster, "binder"), held._held, expected)
        assert await held._keep()
        renewed = await held._last()
        assert renewed is not None
        assert renewed.sequence == held._sequence == unheard + 1


async def test_after_a_renewal_whose_answer_was_lost_the_next_but_one_is_a_renewal_again(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only when the server has forgotten the lease, and anybody may have it."""
    async with connected(server.url) as connection:
        unheard = Unheard(connection, monkeypatch)
        async with Lease(connection, cluster, "binder", "first", TTL_S):
            unheard.lose_answer = True
            await until(lambda: len(unheard.expected) >= 4)
            assert unheard.expected[:4] == [0, 1, 1, 2]


async def test_a_holder_whose_lease_was_forgotten_claims_it_again(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server.url) as connection, connected(server.url) as other:
        unheard = Unheard(connection, monkeypatch)
        async with Lease(connection, cluster, "binder", "first", TTL_S) as held:
            unheard.away = True
            observer = Lease(other, cluster, "binder", "observer")
            await answered(lambda: forgotten(observer), "the server to forget the lease")
            unheard.away = False
            await answered(observer._last, "the holder to claim it again")
            assert not held.lost.is_set()


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


async def test_what_was_never_held_is_not_given_back() -> None:
    lease = Lease(Connection("nats://127.0.0.1:1"), "c", "binder", "standby")
    await lease.release()
    assert not lease.lost.is_set()


def test_a_life_is_whole_seconds() -> None:
    with pytest.raises(ValueError, match="ttl_s is 0"):
        Lease(Connection("nats://127.0.0.1:1"), "c", "binder", "me", 0)
