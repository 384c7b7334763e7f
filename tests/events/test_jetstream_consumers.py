"""How a log is read: gaps, requests that expire, consumers that go, and what somebody purged or deleted."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
from nats.aio.msg import Msg

from events import consumer, subjects
from events.answers import Denied, Unanswered
from events.consumer import AHEAD_BYTES, KEPT_S, PULL_MESSAGES, Consumer
from events.jetstream import JetStreamLog
from events.log import LogError
from events.server import EmbeddedServer
from tests.events.writing import HEADER, append, collect, fill, payload, sequences
from tests.waiting import until


async def test_gaps_are_pulled_again(log: JetStreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are lost between the server and the reader, as nats-py does to a slow consumer; four in all, and none
    twice."""
    await fill(log, "binder", 20)
    deliver, lost = Consumer._on_message, []

    async def lossy(self: Consumer, message) -> None:  # type: ignore[no-untyped-def]
        if message.data in map(payload, (5, 9, 13, 17)) and message.data not in lost:
            lost.append(message.data)
            return
        await deliver(self, message)

    monkeypatch.setattr(Consumer, "_on_message", lossy)
    assert sequences(await collect(log.read())) == list(range(1, 21))
    assert len(lost) == 4


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Consumer]:
    """The consumers that were made."""
    open_it, made = Consumer.open, []

    async def count(self: Consumer) -> None:
        made.append(self)
        await open_it(self)

    monkeypatch.setattr(Consumer, "open", count)
    return made


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the server said of pull requests: 100, a heartbeat; 408, its time is over."""
    said: list[str] = []
    on_status = Consumer._on_status

    def record(self: Consumer, headers: dict[str, str]) -> None:
        said.append(headers["Status"])
        on_status(self, headers)

    monkeypatch.setattr(Consumer, "_on_status", record)
    return said


async def test_one_consumer_is_enough_for_many_requests(
    log: JetStreamLog, opened: list[Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("events.consumer.PULL_MESSAGES", 4)
    await fill(log, "binder", 30)
    assert sequences(await collect(log.read())) == list(range(1, 31))
    assert len(opened) == 1


async def test_a_consumer_that_has_nothing_to_send_says_so_and_is_kept(
    log: JetStreamLog, opened: list[Consumer], statuses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    often = {"batch": PULL_MESSAGES, "expires": 60_000_000_000, "idle_heartbeat": 100_000_000}
    monkeypatch.setattr("events.consumer._pull_request", lambda *_: msgspec.json.encode(often))
    async with aclosing(log.follow()) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        await until(lambda: len(statuses) >= 4)
        await append(log, "binder", 1, 0)
        assert sequences(await waiting) == [1]
    assert (set(statuses), len(opened)) == ({"100"}, 1)


async def test_who_follows_never_gives_up_and_who_reads_does(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(log, "binder", 1, 0)
    open_it, left = Consumer.open, 5

    async def refuse(self: Consumer) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise Unanswered("no answer")
        await open_it(self)

    monkeypatch.setattr(Consumer, "open", refuse)
    monkeypatch.setattr("events.patience.PATIENCE_S", 0.0)
    with pytest.raises(Unanswered):
        await collect(log.read())
    assert left > 0
    assert sequences(await collect(log.follow(), 1)) == [1]


async def test_who_may_not_pull_is_told(tmp_path: Path) -> None:
    """As it was: the next consumer was made, for ever and without a word."""
    denied = '{ publish: { deny: "$JS.API.CONSUMER.MSG.>" } }'
    users = f"authorization {{ users: [ {{ user: planner, password: one, permissions: {denied} }} ] }}"
    with EmbeddedServer(tmp_path, extra=users) as server:
        log = await JetStreamLog.open(server.url, "deaf", user="planner", password="one")
        await fill(log, "binder", 2)
        for reading in (log.read, log.follow):
            with pytest.raises(Denied, match=r"CONSUMER\.MSG\.NEXT"):
                await asyncio.wait_for(collect(reading(), 1), 5)
        await log.close()


async def test_whose_pulls_the_server_refuses_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: a hundred consumers a second, and no word."""
    for name in ("PATIENCE_S", "TOLD_AFTER_S"):
        monkeypatch.setattr(f"events.patience.{name}", 0.2)
    with EmbeddedServer(tmp_path, jetstream="limits { max_request_batch: 500 }") as server:
        log = await JetStreamLog.open(server.url, "bounded")
        await fill(log, "binder", 2)
        with pytest.raises(Unanswered, match="Exceeded MaxRequestBatch of 500"):
            await asyncio.wait_for(collect(log.read()), 5)
        caplog.clear()
        waiting = asyncio.ensure_future(collect(log.follow(), 1))
        await until(lambda: "MaxRequestBatch of 500; asked again until it is answered" in caplog.text)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await log.close()


async def test_a_commit_that_somebody_deleted_is_named(log: JetStreamLog) -> None:
    await fill(log, "binder", 5)
    await log.connection.ask(f"$JS.API.STREAM.MSG.DELETE.{log.stream}", {"seq": 3})
    with pytest.raises(LogError, match=f"^{log.stream}: commit 3 is missing"):
        await collect(log.read())
    assert sequences(await collect(log.read(3))) == [4, 5]


async def test_that_the_last_commit_was_deleted_is_told(log: JetStreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: who read waited for it for ever, and without a word, services at their start among them."""
    monkeypatch.setattr("events.consumer.QUIET_S", 0.0)
    monkeypatch.setattr("events.consumer.SILENCE_S", 2.0)
    await fill(log, "binder", 5)
    await log.connection.ask(f"$JS.API.STREAM.MSG.DELETE.{log.stream}", {"seq": 5})
    for reading in (log.read, log.follow):
        with pytest.raises(LogError, match=f"^{log.stream}: commit 5 is missing, and there is none behind it, however"):
            await asyncio.wait_for(collect(reading(), 5), 60)


async def test_a_purged_log_is_read_from_where_it_begins(log: JetStreamLog) -> None:
    await fill(log, "binder", 5)
    await log.connection.ask(f"$JS.API.STREAM.PURGE.{log.stream}", {"seq": 4})
    assert sequences(await collect(log.read())) == [4, 5]
    assert sequences(await collect(log.read(3))) == [4, 5]
    assert await collect(log.read(0, 2)) == []
    async with aclosing(log.follow()) as batches:
        assert sequences(await collect(batches, 2)) == [4, 5]
    with pytest.raises(LogError, match="what follows 2 was purged"):
        await collect(log.read(2))


async def test_a_log_that_was_purged_wholly(log: JetStreamLog) -> None:
    await fill(log, "binder", 3)
    await log.connection.ask(f"$JS.API.STREAM.PURGE.{log.stream}")
    assert await log.end() == 3
    assert await collect(log.read()) == []
    assert await append(log, "planner.0", 4, 0) == 4
    assert sequences(await collect(log.read(3))) == [4]


async def test_a_consumer_that_the_server_dropped_is_made_anew(log: JetStreamLog) -> None:
    await fill(log, "binder", 2)
    async with aclosing(log.follow()) as batches:
        assert sequences(await collect(batches, 2)) == [1, 2]
        waiting = asyncio.ensure_future(anext(batches))
        (name,) = await consumers(log)
        await log.connection.ask(f"$JS.API.CONSUMER.DELETE.{log.stream}.{name}")
        await append(log, "binder", 3, 2)
        assert sequences(await waiting) == [3]


async def test_pull_requests_that_expire_are_renewed(
    log: JetStreamLog, opened: list[Consumer], statuses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = msgspec.json.encode({"batch": PULL_MESSAGES, "expires": 20_000_000})
    monkeypatch.setattr("events.consumer._pull_request", lambda *_: short)
    async with aclosing(log.follow()) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        await until(lambda: len(statuses) >= 6)
        await append(log, "binder", 1, 0)
        assert sequences(await waiting) == [1]
    assert (set(statuses), len(opened)) == ({"408"}, 1)


@pytest.mark.parametrize(
    ("status", "description", "pending", "ends"),
    [
        ("408", "Request Timeout", "7", False),
        ("404", "No Messages", "7", False),
        ("409", "Message Size Exceeds MaxBytes", "7", False),
        ("409", "Batch Completed", "7", False),
        ("409", "Consumer Deleted", "7", True),
        ("409", "Leadership Change", "7", True),
        ("408", "Request Timeout", "", True),
        ("408", "Request Timeout", "many", True),
        ("503", "", "", True),
    ],
)
async def test_what_ends_a_request_is_asked_for_again_and_what_else_is_said_ends_the_consumer(
    log: JetStreamLog, status: str, description: str, pending: str, ends: bool
) -> None:
    """Without a word of how much is still to come nobody knows how much to ask for."""
    reader = Consumer(log.connection, log.stream, 1)
    reader._requested = 20
    reader._on_status({"Status": status, "Description": description, "Nats-Pending-Messages": pending})
    assert (reader._requested, reader._lost is not None) == ((20, True) if ends else (13, False))


async def test_who_pulls_where_nobody_answers_is_told_so_in_one_line(log: JetStreamLog) -> None:
    reader = Consumer(log.connection, log.stream, 1)
    headers = await log.connection.client._process_headers(b"NATS/1.0 503\r\nNats-Subject: a.b\r\n\r\n")
    reader._on_status(headers or {})
    assert str(reader._lost) == f"{log.stream}: 503 no responders"


async def test_large_commits_go_in_several_requests(log: JetStreamLog, opened: list[Consumer]) -> None:
    """The bytes of a pull request bound what waits in memory: six of 7 MB are more than its 16 MB."""
    subject, sequence = subjects.subject(log.cluster, "binder"), 0
    for _ in range(6):
        sequence = await log.append(subject, HEADER, b"x" * 7_000_000, sequence)
    async with aclosing(log.follow()) as batches:
        assert sequences(await collect(batches, 6)) == [1, 2, 3, 4, 5, 6]
    assert len(opened) == 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each pull request asks for."""
    counts: list[int] = []
    request = consumer._pull_request
    monkeypatch.setattr(consumer, "_pull_request", lambda count, most: (counts.append(count), request(count, most))[1])
    return counts


@pytest.mark.parametrize(("size", "batch"), [(1, PULL_MESSAGES), (100_000, 5), (AHEAD_BYTES * 2, 1)])
async def test_what_is_asked_for_at_a_time_is_bounded_by_its_bytes(
    log: JetStreamLog, asked: list[int], size: int, batch: int
) -> None:
    """As it was: 32 MB might be on their way, and the answer to a lease's renewal behind them, until the lease was over:
    a planner lost its own over 10 MB/s while it read 100 MB."""
    subject, sequence = subjects.subject(log.cluster, "binder"), 0
    for _ in range(12):
        sequence = await log.append(subject, HEADER, b"x" * size, sequence)
    assert sequences(await collect(log.read())) == list(range(1, 13))
    assert set(asked) == {batch}


async def test_less_is_asked_for_as_commits_turn_out_to_be_large(
    log: JetStreamLog, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever those before were on the average."""
    monkeypatch.setattr(consumer, "PULL_MESSAGES", 4)
    subject, sequence = subjects.subject(log.cluster, "binder"), 0
    for _ in range(12):
        sequence = await log.append(subject, HEADER, b"x" * AHEAD_BYTES, sequence)
    reader = Consumer(log.connection, log.stream, 1)
    await reader.open()
    read = 0
    while read < sequence:
        read = (await reader.take())[-1].sequence
    await reader.close()
    assert (asked[:2], set(asked[2:])) == ([4, 4], {1})


async def test_a_reader_leaves_no_consumer_behind(log: JetStreamLog) -> None:
    await fill(log, "binder", 3)
    await collect(log.read())
    async with aclosing(log.follow()) as batches:
        await anext(batches)
    async with asyncio.timeout(KEPT_S / 2):  # by then the server would not have forgotten them by itself
        while await consumers(log):
            pass
    assert len(log.connection.client._subs) == 1, "where answers come"


async def consumers(log: JetStreamLog) -> list[str]:
    answer = await log.connection.ask(f"$JS.API.CONSUMER.NAMES.{log.stream}")
    return msgspec.json.decode(answer)["consumers"] or []


async def test_a_consumer_that_sends_heartbeats_alone_while_the_log_goes_on_is_made_anew(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: a consumer on a server whose disk was full never sent anything again, and its reader waited for ever,
    with the lease in its hands."""
    monkeypatch.setattr("events.consumer.QUIET_S", 0.3)
    hear, stuck = Consumer._on_message, list[Consumer]()

    async def hear_of_a_full_server(consumer: Consumer, message: Msg) -> None:
        stuck.append(consumer)
        if consumer is not stuck[0] or not message.reply:
            await hear(consumer, message)

    monkeypatch.setattr(Consumer, "_on_message", hear_of_a_full_server)
    reading = asyncio.create_task(collect(log.follow(), 2))
    await until(lambda: stuck, "heartbeats")
    await fill(log, "binder", 2)
    async with asyncio.timeout(10):
        assert [commit.sequence for commit in await reading] == [1, 2]
    assert len(set(stuck)) == 2
