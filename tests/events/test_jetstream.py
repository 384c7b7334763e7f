"""JetStream as the log: lost answers, other writers, servers that die, streams that were tampered with."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing, suppress
from typing import Any

import msgspec
import pytest
from nats.aio.msg import Msg

from events import envelope, subjects
from events.answers import NotLast, Unanswered
from events.connection import Connection
from events.jetstream import JetStreamLog
from events.log import Conflict, LogError, TooLarge, Unavailable
from events.server import EmbeddedServer
from tests.events.proxy import Proxy, proxy
from tests.events.writing import HEADER, append, append_through, collect, number_of, payload, sequences
from tests.waiting import until

# ---------------------------------------------------------------------------------------------------- lost answers


async def through(made: Proxy, cluster: str) -> JetStreamLog:
    return await JetStreamLog.open(made.url, cluster)


async def test_a_lost_acknowledgement_is_found_to_be_our_own_commit(
    server: EmbeddedServer, log: JetStreamLog, cluster: str
) -> None:
    async with proxy(server.port) as between:
        writer = await through(between, cluster)
        first = await append(writer, "binder", 1, 0)
        between.lose_answer_to = b"HPUB " + subjects.subject(cluster, "binder").encode()
        second = await append(writer, "binder", 2, first)
        assert between.lost.is_set()
        assert await append(writer, "binder", 3, second) == 3
        await writer.close()
    assert [number_of(commit) for commit in await collect(log.read())] == [1, 2, 3]


async def test_a_lost_request_is_repeated(server: EmbeddedServer, log: JetStreamLog, cluster: str) -> None:
    async with proxy(server.port) as between:
        writer = await through(between, cluster)
        between.lose_request_with = b"HPUB " + subjects.subject(cluster, "binder").encode()
        assert await append(writer, "binder", 1, 0) == 1
        assert between.lost.is_set()
        await writer.close()
    assert [number_of(commit) for commit in await collect(log.read())] == [1]


async def test_answers_that_stop_without_an_end_of_the_connection(
    server: EmbeddedServer, log: JetStreamLog, cluster: str
) -> None:
    async with proxy(server.port) as between:
        between.silent = True
        writer = await through(between, cluster)
        between.lose_answer_to = b"HPUB " + subjects.subject(cluster, "binder").encode()
        assert await append(writer, "binder", 1, 0) == 1
        assert between.lost.is_set()
        await writer.close()
    assert [number_of(commit) for commit in await collect(log.read())] == [1]


async def test_a_retry_after_a_lost_acknowledgement_meets_10071_and_compares_ids(log: JetStreamLog) -> None:
    """The server says 'wrong last sequence' to a process that does not know of its success: no conflict."""
    subject = subjects.subject(log.cluster, "binder")
    sequence = await append(log, "binder", 1, 0)
    answer = await log.connection.request(
        subject,
        payload(1),
        {"Nats-Expected-Last-Subject-Sequence": "0", "Nats-Msg-Id": envelope.message_id(subject, 0, payload(1))},
    )
    assert b"10071" in answer.data
    assert await append(log, "binder", 1, 0) == sequence


async def test_a_lost_request_and_another_writer_is_a_conflict(
    server: EmbeddedServer, log: JetStreamLog, cluster: str
) -> None:
    async with proxy(server.port) as between:
        writer = await through(between, cluster)
        between.lose_request_with = b"HPUB " + subjects.subject(cluster, "binder").encode()
        replaced = asyncio.ensure_future(append(writer, "binder", 1, 0))
        await between.lost.wait()
        try:
            other = await append(log, "binder", 2, 0)
        except Conflict:  # the first was quicker with its second attempt
            assert await replaced == 1
        else:
            with pytest.raises(Conflict) as conflict:
                await replaced
            assert conflict.value.actual == other
        await writer.close()
    assert len(await collect(log.read())) == 1


async def test_a_request_that_comes_late_after_all_is_our_own_commit(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes behind the question who wrote last: the same once more is refused, and asked again who did."""
    publish, last_message, late = log.connection.publish, log.connection.last_message, []

    async def lose(*arguments: Any) -> int:
        monkeypatch.setattr(log.connection, "publish", publish)
        late.append(arguments)
        raise Unanswered("no answer")

    async def ask_before(*arguments: Any, **named: Any) -> Any:
        last = await last_message(*arguments, **named)
        while late:
            await publish(*late.pop())
        return last

    monkeypatch.setattr(log.connection, "publish", lose)
    monkeypatch.setattr(log.connection, "last_message", ask_before)
    assert await append(log, "binder", 1, 0) == 1
    assert await log.end() == 1


async def test_of_two_writers_at_one_place_one_wins(server: EmbeddedServer, log: JetStreamLog) -> None:
    other = await JetStreamLog.open(server.url, log.cluster)
    answers = await asyncio.gather(append(log, "binder", 1, 0), append(other, "binder", 2, 0), return_exceptions=True)
    await other.close()
    won = [answer for answer in answers if isinstance(answer, int)]
    lost = [answer for answer in answers if isinstance(answer, Conflict)]
    assert (won, len(lost)) == ([1], 1)
    assert await log.end() == 1


# -------------------------------------------------------------------------------------------------- servers that die


async def test_kill_9_and_restart_lose_and_repeat_nothing(own_server: EmbeddedServer, cluster: str) -> None:
    writer = await JetStreamLog.open(own_server.url, cluster)
    reader = await JetStreamLog.open(own_server.url, cluster)

    async def crash(written: list[int]) -> None:
        for after in (60, 180):
            await until(lambda after=after: len(written) >= after)  # type: ignore[misc]
            own_server.kill()
            own_server.start()

    await append_through(writer, reader, 300, crash)
    await writer.close()
    await reader.close()


async def test_a_stopped_server_is_waited_for(own_server: EmbeddedServer, cluster: str) -> None:
    log = await JetStreamLog.open(own_server.url, cluster)
    async with aclosing(log.follow()) as batches:
        await append(log, "binder", 1, 0)
        assert sequences(await anext(batches)) == [1]
        os.kill(own_server.pid, signal.SIGSTOP)
        appending = asyncio.ensure_future(append(log, "binder", 2, 1))
        following = asyncio.ensure_future(anext(batches))
        await until(lambda: log.connection.client.is_reconnecting)
        os.kill(own_server.pid, signal.SIGCONT)
        assert await appending == 2
        assert sequences(await following) == [2]
    await log.close()


async def test_a_server_that_stays_away_makes_reading_unavailable(
    own_server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("events.patience.PATIENCE_S", 0.3)
    monkeypatch.setattr("events.connection.REQUEST_WITHIN_S", 0.2)
    log = await JetStreamLog.open(own_server.url, cluster)
    own_server.kill()
    with pytest.raises(Unavailable, match=cluster):
        await append(log, "binder", 1, 0)
    with pytest.raises(Unavailable, match=cluster):
        await collect(log.read())
    await log.close()
    with pytest.raises(Unavailable, match="closed"):
        await log.end()


async def test_no_server_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("events.connection.CONNECT_WITHIN_S", 0.5)
    with pytest.raises(Unavailable, match=r"nats://127\.0\.0\.1:1"):
        await JetStreamLog.open("nats://127.0.0.1:1", "nowhere")


async def test_a_log_that_is_closed_ends_its_followers(server: EmbeddedServer, cluster: str) -> None:
    log = await JetStreamLog.open(server.url, cluster)
    following = asyncio.ensure_future(collect(log.follow()))
    await until(lambda: bool(log.connection.wake))
    await log.close()
    with pytest.raises(Unavailable, match="closed"):
        await following


async def test_of_several_servers_one_that_answers_is_taken(server: EmbeddedServer, cluster: str) -> None:
    log = await JetStreamLog.open(f"nats://127.0.0.1:1,127.0.0.1:{server.port}", cluster)
    assert await append(log, "binder", 1, 0) == 1
    await log.close()


async def test_passwords_stay_out_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("events.connection.CONNECT_WITHIN_S", 0.2)
    with pytest.raises(Unavailable) as error:
        await JetStreamLog.open("nats://binder:secret@127.0.0.1:1,other:hidden@127.0.0.1:2", "nowhere")
    assert str(error.value).startswith("nats://127.0.0.1:1,127.0.0.1:2: ")


# -------------------------------------------------------------------------------------------- what is not as expected


async def test_a_message_that_is_no_commit_is_shown_as_it_is(log: JetStreamLog) -> None:
    subject = subjects.subject(log.cluster, "intruder")
    await append(log, "binder", 1, 0)
    await log.connection.ask(subject, b"hello")
    await append(log, "binder", 2, 1)
    commits = await collect(log.read())
    assert sequences(commits) == [1, 2, 3]
    assert (commits[1].subject, commits[1].header, commits[1].payload) == (subject, b"", b"hello")
    with pytest.raises(envelope.MalformedCommit, match=f"commit 2 on {subject}"):
        envelope.decode(commits[1])
    last = await log.last(subject)
    assert last == commits[1]


async def test_a_server_with_a_smaller_message_size(tmp_path, cluster: str) -> None:  # type: ignore[no-untyped-def]
    small = EmbeddedServer(tmp_path / "small")
    small._configuration = lambda version: (  # type: ignore[method-assign]
        f"host: 127.0.0.1\nport: -1\nports_file_dir: '{small.store}'\nmax_payload: 1000\n"
        f"jetstream {{ store_dir: '{small.store}' }}\n"
    )
    with small:
        log = await JetStreamLog.open(small.url, cluster)
        with pytest.raises(TooLarge, match="max_payload is 1000"):
            await log.append(subjects.subject(cluster, "binder"), HEADER, b"x" * 900, 0)
        assert await append(log, "binder", 1, 0) == 1
        await log.close()


async def test_a_log_forgets_nothing_by_itself(log: JetStreamLog) -> None:
    config = msgspec.json.decode(await log.connection.ask(f"$JS.API.STREAM.INFO.{log.stream}"))["config"]
    assert (config["storage"], config["retention"], config["discard"]) == ("file", "limits", "new")
    limits = [config[name] for name in ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject")]
    assert limits == [0, -1, -1, -1]


async def test_a_commit_that_comes_twice_is_one(log: JetStreamLog) -> None:
    """Three replicas tell a repeated append only by its id, for as long as they remember that."""
    subject = subjects.subject(log.cluster, "binder")
    await append(log, "binder", 1, 0)
    message_id = {"Nats-Msg-Id": envelope.message_id(subject, 0, payload(1))}
    assert await log.connection.publish(subject, payload(1), message_id) == 1
    assert await log.end() == 1
    config = msgspec.json.decode(await log.connection.ask(f"$JS.API.STREAM.INFO.{log.stream}"))["config"]
    assert config["duplicate_window"] == 120 * 10**9


async def test_a_cluster_without_a_log(server: EmbeddedServer, cluster: str) -> None:
    with pytest.raises(LogError, match=f"no log of a cluster '{cluster}'"):
        await JetStreamLog.open(server.url, cluster, create=False)


async def test_opening_twice_makes_one_stream(server: EmbeddedServer, cluster: str) -> None:
    first, second = await asyncio.gather(JetStreamLog.open(server.url, cluster), JetStreamLog.open(server.url, cluster))
    assert await append(first, "binder", 1, 0) == 1
    assert await second.end() == 1
    await first.close()
    await second.close()


async def test_a_request_that_nobody_answers(server: EmbeddedServer) -> None:
    connection = await Connection(server.url).connect()
    with pytest.raises(Unanswered, match=r"nobody\.listens"):
        await connection.request("nobody.listens", b"")
    await connection.close()


@pytest.mark.parametrize(
    ("code", "number", "description"),
    [
        (503, 10008, "JetStream system temporarily unavailable"),
        (400, 10005, "no suitable peers for placement"),
        (500, 10118, "stream is offline"),
        (500, 10119, "consumer is offline"),
    ],
)
async def test_an_answer_that_says_not_now_is_no_refusal(
    server: EmbeddedServer, code: int, number: int, description: str
) -> None:
    """A service that was refused ended, when the one server that had its new consumer was lost in that moment."""
    one, other = await Connection(server.url).connect(), await Connection(server.url).connect()
    await refuse(other, "api", code, number, description)
    with pytest.raises(Unanswered, match=description):
        await one.ask("api")
    await one.close()
    await other.close()


@pytest.mark.parametrize("number", [10071, 10164, 10158])
async def test_every_way_to_say_that_another_message_is_last(server: EmbeddedServer, number: int) -> None:
    """One replica says the first alone, three all of them. Each is settled by the subject's last message: taken for a
    plain refusal, it would end a writer whose commit is in the log."""
    one, other = await Connection(server.url).connect(), await Connection(server.url).connect()
    await refuse(other, "stream", 400, number, "not the last")
    with pytest.raises(NotLast, match=f"not the last .*{number}"):
        await one.publish("stream", b"[]")
    await one.close()
    await other.close()


async def refuse(by: Connection, subject: str, code: int, number: int, description: str) -> None:
    """From here on `subject` is answered as JetStream answers what it does not do."""
    error = {"code": code, "err_code": number, "description": description}

    async def answer(message: Msg) -> None:
        await message.respond(msgspec.json.encode({"error": error}))

    await by.client.subscribe(subject, cb=answer)
    await by.client.flush()


# ------------------------------------------------------------------------------------------------------------- closing


async def test_a_connection_that_is_closed_while_it_is_made_anew_stays_closed(own_server: EmbeddedServer) -> None:
    """`asyncio.wait_for` loses a cancellation that comes together with what it waits for."""
    connection = await Connection(own_server.url).connect()
    client, begun = connection.client, asyncio.Event()
    greet = client._process_connect_init

    async def greet_undisturbed() -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await greet()

    client._process_connect_init = greet_undisturbed  # type: ignore[method-assign]
    own_server.kill()
    own_server.start()
    await begun.wait()
    await connection.close()
    assert client._reconnection_task is not None
    await asyncio.wait({client._reconnection_task})
    assert client.is_closed
