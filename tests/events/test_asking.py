"""What a connection asks, and what it makes of answers, of silence and of denials."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import nats.errors
import pytest
from nats.aio.msg import Msg

from events.answers import Denied, NobodyThere, Refused, Unanswered
from events.connection import REQUEST_WITHIN_S, Connection
from events.leaderless import LEFT_AFTER_S
from events.log import TooLarge
from events.server import EmbeddedServer
from tests.nats_server import connected
from tests.waiting import until

REFUSED: dict[str, Any] = {"error": {"code": 400, "err_code": 10_025, "description": "bad request"}}


async def test_only_jetstream_is_asked_again(own_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What anybody else is asked, such as to submit a job, may not be what it was when it is said twice."""
    monkeypatch.setattr("events.connection.AGAIN_S", 0.01)
    heard: list[str] = []

    async def hear(message: Msg) -> None:
        heard.append(message.subject)

    async with connected(own_server.url) as asking, connected(own_server.url) as listening:
        await listening.client.subscribe(">", cb=hear)
        await listening.client.flush()
        with pytest.raises(Unanswered):
            await asking.request("once", b"", within_s=0.2)
        often = asyncio.create_task(asking.request("$JS.often", b"", within_s=600))
        await until(lambda: heard.count("$JS.often") > 1, "the question to be repeated, long before its time is over")
        often.cancel()
        await asyncio.wait({often})
        assert heard.count("once") == 1


async def test_an_answer_that_comes_twice_or_late_troubles_nobody(server: EmbeddedServer) -> None:
    replies: list[str] = []

    async def answer(message: Msg) -> None:
        replies.append(message.reply)
        for _ in range(2):
            await message.respond(message.data)

    async with connected(server.url) as connection, connected(server.url) as other:
        await other.client.subscribe("asked", cb=answer)
        await other.client.flush()
        assert (await connection.request("asked", b"one")).data == b"one"
        await other.client.publish(replies[0], b"late")
        await other.client.flush()
        assert (await connection.request("asked", b"two")).data == b"two"
        assert len(set(replies)) == 2
        assert connection.last_error is None


@pytest.mark.parametrize(("headers", "size"), [(None, 0), ({"Why": "so"}, len("NATS/1.0\r\nWhy: so\r\n\r\n"))])
async def test_what_is_larger_than_the_server_takes_is_not_sent(
    server: EmbeddedServer, headers: dict[str, str] | None, size: int
) -> None:
    """It would end the connection. Headers count, and of what is just as large there is an answer."""
    async with connected(server.url) as connection:
        limit = connection.client.max_payload - size
        with pytest.raises(TooLarge):
            await connection.request("nobody", b"x" * (limit + 1), headers)
        with pytest.raises(NobodyThere):
            await connection.request("nobody", b"x" * limit, headers)
        assert not connection.generation


async def test_an_answer_is_waited_for_as_long_as_is_said(server: EmbeddedServer) -> None:
    async with connected(server.url) as connection:
        await connection.client.subscribe("silent")
        with pytest.raises(Unanswered, match=r"silent: no answer within 0\.1 s"):
            await connection.request("silent", b"", within_s=0.1)


async def test_a_silence_is_not_over_because_all_is_heard(server: EmbeddedServer) -> None:
    asked = asyncio.get_running_loop().create_future()

    async def hear(message: Msg) -> None:
        asked.set_result(message)

    async with connected(server.url) as connection, connected(server.url) as other:
        await other.client.subscribe("slow", cb=hear)
        await other.client.flush()
        asking = asyncio.create_task(connection.request("slow", b"", within_s=600))
        question = await asked
        for _ in range(20):
            await connection.hear_all()
        assert not asking.done()
        await question.respond(b"at last")
        assert (await asking).data == b"at last"


async def test_whose_connection_breaks_hears_it_at_once_and_who_closes_his_hears_nothing(
    own_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(own_server.url) as connection:
        await connection.client.subscribe("silent")
        asking = asyncio.create_task(connection.request("silent", b"", within_s=600))
        await until(lambda: connection.client.stats["out_msgs"], "the question")
        own_server.kill()
        async with asyncio.timeout(60):
            with pytest.raises(Unanswered, match=r"silent: the connection to .* broke"):
                await asking
        assert "disconnected from NATS" in caplog.text
        own_server.start()
        await until(lambda: connection.generation, "the connection that is made again")
        caplog.clear()
    assert caplog.messages == []


# --------------------------------------------------------------------------------------- for how long all was answered


class Asked:
    """A connection whose questions are answered as the test says, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connection, self.now_s = Connection("nats://here"), 100.0
        self._answer: Any = None
        self._after_s = 0.0
        self.left = AsyncMock(return_value=True)
        monkeypatch.setattr("events.connection.time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(self.connection, "request", self._request)
        monkeypatch.setattr(self.connection.client, "go_elsewhere", self.left)

    async def _request(self, *_: Any) -> Msg:
        self.now_s += self._after_s
        if self._answer is None:
            raise Unanswered("nobody")
        return Msg(self.connection.client, data=msgspec.json.encode(self._answer))

    async def ask(self, answer: Any, *, after_s: float = 0.0, at_s: float | None = None, **more: Any) -> float:
        """For how long all was answered then; `answer` is None for silence."""
        self._answer, self._after_s, self.now_s = answer, after_s, self.now_s if at_s is None else at_s
        try:
            await self.connection.ask("$JS.API.INFO", **more)
        except (Refused, Unanswered):
            pass
        return self.connection.answers_for_s()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


@pytest.mark.parametrize("answer", [{}, REFUSED], ids=["an answer", "a no"])
async def test_how_long_all_was_answered_counts_from_the_first_answer_behind_a_silence(
    asked: Asked, answer: dict[str, Any]
) -> None:
    """By this a standby knows whether it would have heard a holder: too long, and two hold one lease."""
    assert await asked.ask(answer) == float("inf")
    assert await asked.ask(None) == 0.0
    assert await asked.ask(answer, at_s=110.0) == 0.0
    assert await asked.ask(answer, at_s=112.0) == 2.0
    assert await asked.ask(None, at_s=113.0) == 0.0


@pytest.mark.parametrize(("within_s", "patience_s"), [(None, REQUEST_WITHIN_S), (7.0, 7.0)])
async def test_an_answer_behind_its_time_counts_as_one_behind_a_silence(
    asked: Asked, within_s: float | None, patience_s: float
) -> None:
    """The server, or this process, may have hung: what was said meanwhile was not heard."""
    assert await asked.ask({}, after_s=patience_s, within_s=within_s) == float("inf")
    assert await asked.ask({}, after_s=patience_s + 0.5, within_s=within_s) == 0.0
    asked.now_s += 3
    assert asked.connection.answers_for_s() == 3.0


@pytest.mark.parametrize("answer", [{}, REFUSED], ids=["an answer", "a no"])
async def test_an_answer_of_a_leader_is_a_reason_to_stay(asked: Asked, answer: dict[str, Any]) -> None:
    await asked.ask(None, at_s=0.0)
    await asked.ask(answer, at_s=LEFT_AFTER_S - 1)
    await asked.ask(None, at_s=LEFT_AFTER_S)
    assert asked.left.await_count == 0


async def test_who_leaves_gives_the_next_server_as_long(asked: Asked, caplog: pytest.LogCaptureFixture) -> None:
    """Also what is asked before it is connected there."""
    await asked.ask(None, at_s=0.0)
    await asked.ask(None, at_s=LEFT_AFTER_S)
    assert asked.left.await_count == 1
    assert caplog.messages == ["nobody; another server is asked"]
    await asked.ask(None, at_s=LEFT_AFTER_S + 1)
    await asked.ask(None, at_s=2 * LEFT_AFTER_S)
    assert asked.left.await_count == 1
    await asked.ask(None, at_s=2 * LEFT_AFTER_S + 1)
    assert asked.left.await_count == 2


async def test_a_connection_that_was_made_again_gives_its_server_as_long(asked: Asked) -> None:
    await asked.ask(None, at_s=0.0)
    await asked.connection._on_reconnect()
    await asked.ask(None, at_s=LEFT_AFTER_S)
    assert asked.left.await_count == 0


# --------------------------------------------------------------------------------------------------- what is still heard


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Connection:
    """One that says it is connected."""
    monkeypatch.setattr("events.client.Client.is_connected", True)
    return Connection("nats://here")


async def test_who_waits_to_hear_all_ends_with_the_connection_or_when_he_is_told(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection.client, "flush", asyncio.Event().wait)
    before = asyncio.all_tasks()

    async def broke() -> None:
        await connection._on_disconnect()

    async def cancelled() -> None:
        hearing.cancel()

    for end in (broke, cancelled):
        hearing = asyncio.create_task(connection.hear_all())
        await until(lambda: connection._flushing, "the question")
        await end()
        await asyncio.wait({hearing}, timeout=60)
        assert hearing.cancelled() == (end is cancelled)
        assert asyncio.all_tasks() == before
        assert not connection._flushing


async def test_a_flush_that_fails_is_nobodys_error(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    monkeypatch.setattr(connection.client, "flush", AsyncMock(side_effect=nats.errors.FlushTimeoutError))
    await connection.hear_all()
    gc.collect()
    assert told == []


async def test_who_is_not_connected_has_nothing_to_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, flush = Connection("nats://here"), AsyncMock()
    monkeypatch.setattr(connection.client, "flush", flush)
    await connection.hear_all()
    assert flush.await_count == 0


@pytest.mark.parametrize(("verb", "heard"), [("publish", 1), ("subscription", 0)])
async def test_only_what_is_said_of_publishing_is_told_to_who_publishes(verb: str, heard: int) -> None:
    connection, told = Connection("nats://here"), list[Denied]()
    tell: Callable[[Denied], None] = told.append
    connection.denials = {"Muster.c": tell, "muster.d": tell}
    await connection._on_error(nats.errors.Error(f'nats: permissions violation for {verb} to "muster.c"'))
    assert len(told) == heard


async def test_who_waits_for_messages_is_woken_when_the_connection_is_made_again_or_closed() -> None:
    connection, waiting = Connection("nats://here"), asyncio.Event()
    connection.wake.add(waiting)
    for happens in (connection._on_reconnect, connection.close):
        waiting.clear()
        await happens()
        assert waiting.is_set()
    assert connection.generation == 2
