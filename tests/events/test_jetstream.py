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
from events.connection import Connection, Unanswered
from events.consumer import KEPT_S, PULL_MESSAGES, Consumer
from events.jetstream import JetStreamLog
from events.log import Conflict, LogError, Purged, TooLarge, Unavailable
from events.server import EmbeddedServer
from tests.events.proxy import Proxy, proxy
from tests.events.writing import HEADER, append, append_through, collect, fill, number_of, payload, sequences
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
    monkeypatch.setattr("events.connection.PATIENCE_S", 0.3)
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


# ------------------------------------------------------------------------------------------------- gaps and consumers


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


async def test_one_consumer_is_enough_for_many_requests(
    log: JetStreamLog, opened: list[Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("events.consumer.PULL_MESSAGES", 4)
    await fill(log, "binder", 30)
    assert sequences(await collect(log.read())) == list(range(1, 31))
    assert len(opened) == 1


async def test_a_consumer_that_has_nothing_to_send_says_so_and_is_kept(
    log: JetStreamLog, opened: list[Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    often = {"batch": PULL_MESSAGES, "expires": 60_000_000_000, "idle_heartbeat": 100_000_000}
    monkeypatch.setattr("events.consumer._pull_request", lambda: msgspec.json.encode(often))
    on_status, statuses = Consumer._on_status, []

    def record(self: Consumer, headers: dict[str, str]) -> None:
        statuses.append(headers["Status"])
        on_status(self, headers)

    monkeypatch.setattr(Consumer, "_on_status", record)
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
    monkeypatch.setattr("events.connection.PATIENCE_S", 0.0)
    with pytest.raises(Unanswered):
        await collect(log.read())
    assert left > 0
    assert sequences(await collect(log.follow(), 1)) == [1]


async def test_a_commit_that_somebody_deleted_is_named(log: JetStreamLog) -> None:
    await fill(log, "binder", 5)
    await log.connection.ask(f"$JS.API.STREAM.MSG.DELETE.{log.stream}", {"seq": 3})
    with pytest.raises(LogError, match="commit 3 is missing"):
        await collect(log.read())
    assert sequences(await collect(log.read(3))) == [4, 5]


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
    log: JetStreamLog, opened: list[Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = msgspec.json.encode({"batch": PULL_MESSAGES, "expires": 20_000_000})
    monkeypatch.setattr("events.consumer._pull_request", lambda: short)
    statuses: list[str] = []
    on_status = Consumer._on_status

    def record(self: Consumer, headers: dict[str, str]) -> None:
        statuses.append(headers["Status"])
        on_status(self, headers)

    monkeypatch.setattr(Consumer, "_on_status", record)
    async with aclosing(log.follow()) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        await until(lambda: len(statuses) >= 6)
        await append(log, "binder", 1, 0)
        assert sequences(await waiting) == [1]
    assert (set(statuses), len(opened)) == ({"408"}, 1)


async def test_large_commits_go_in_several_requests(log: JetStreamLog, opened: list[Consumer]) -> None:
    """The bytes of a pull request bound what waits in memory: six of 7 MB are more than its 16 MB."""
    subject, sequence = subjects.subject(log.cluster, "binder"), 0
    for _ in range(6):
        sequence = await log.append(subject, HEADER, b"x" * 7_000_000, sequence)
    async with aclosing(log.follow()) as batches:
        assert sequences(await collect(batches, 6)) == [1, 2, 3, 4, 5, 6]
    assert len(opened) == 1


async def test_a_reader_leaves_no_consumer_behind(log: JetStreamLog) -> None:
    await fill(log, "binder", 3)
    await collect(log.read())
    async with aclosing(log.follow()) as batches:
        await anext(batches)
    async with asyncio.timeout(KEPT_S / 2):  # by then the server would not have forgotten them by itself
        while await consumers(log):
            pass


async def consumers(log: JetStreamLog) -> list[str]:
    answer = await log.connection.ask(f"$JS.API.CONSUMER.NAMES.{log.stream}")
    return msgspec.json.decode(answer)["consumers"] or []


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
    error = {"code": code, "err_code": number, "description": description}

    async def answer(message: Msg) -> None:
        await message.respond(msgspec.json.encode({"error": error}))

    await other.client.subscribe("api", cb=answer)
    await other.flush()
    with pytest.raises(Unanswered, match=description):
        await one.ask("api")
    await one.close()
    await other.close()


# ------------------------------------------------------------------------------------------------------ stale answers


def answering_late(log: JetStreamLog, monkeypatch: pytest.MonkeyPatch, answers: int) -> list[bytes]:
    """The next so many answers about the stream are those of now: of a leader that was stopped now. Returns what was
    asked."""
    ask, asked = log.connection.ask, []
    info = f"$JS.API.STREAM.INFO.{log.stream}"
    kept: list[bytes] = []

    async def ask_zombie(subject: str, *arguments: Any, **named: Any) -> bytes:
        answer = await ask(subject, *arguments, **named)
        if subject != info:
            return answer
        kept.append(answer)
        asked.append(kept[0] if len(kept) <= answers + 1 else answer)
        return asked[-1]

    monkeypatch.setattr(log.connection, "ask", ask_zombie)
    return asked


async def test_a_log_that_is_purged_beyond_the_end_of_a_reading_says_so(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulator of faults found it, seed 42081: a start met a purge, and ended with an IndexError."""
    sequence = 0
    for number in range(5):
        sequence = await append(log, "binder", number, sequence)
    answering_late(log, monkeypatch, 1)
    await log.purge(4)
    with pytest.raises(Purged):
        await collect(log.read(0, 2))


async def test_a_leader_that_was_stopped_says_what_it_knew_and_is_not_believed(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(log, "binder", 1, 0)
    asked = answering_late(log, monkeypatch, 3)
    assert await log.end() == 1
    second = await append(log, "binder", 2, 1)
    assert await log.end() == 2, "it was acknowledged: an end before it is none"
    assert len(set(asked)) == 2
    assert [number_of(commit) for commit in await collect(log.read())] == [1, second]


async def test_a_leader_that_was_stopped_makes_no_writer_step_down(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked who wrote last, it says what it knew: what was written since is acknowledged, and nobody has taken over."""
    publish, last_message = log.connection.publish, log.connection.last_message
    await append(log, "binder", 1, 0)
    old, asked = await last_message(log.stream, subjects.subject(log.cluster, "binder")), []
    await append(log, "binder", 2, 1)

    async def lose(*arguments: Any) -> int:
        monkeypatch.setattr(log.connection, "publish", publish)
        raise Unanswered("no answer")

    async def ask_zombie(*arguments: Any, **named: Any) -> Any:
        asked.append(old if len(asked) < 2 else await last_message(*arguments, **named))
        return asked[-1]

    monkeypatch.setattr(log.connection, "publish", lose)
    monkeypatch.setattr(log.connection, "last_message", ask_zombie)
    assert (await append(log, "binder", 3, 2), len(asked)) == (3, 3)


async def test_what_was_said_to_be_the_last_of_a_subject_is_there(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(log, "binder", 1, 0)
    answering_late(log, monkeypatch, 3)
    other = JetStreamLog(log.connection, log.cluster)
    assert await other.end() == 1
    await append(log, "binder", 2, 1)
    assert await other.last(subjects.subject(log.cluster, "binder")) is not None
    assert await other.end() == 2


async def test_what_is_acknowledged_while_the_answer_is_on_its_way_is_not_lost(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A soak found it: a warning that the log had lost its last commit, on a single server."""
    await append(log, "binder", 1, 0)
    ask, asked = log.connection.ask, 0

    async def slowly(subject: str, *arguments: Any, **options: Any) -> bytes:
        nonlocal asked
        answer = await ask(subject, *arguments, **options)
        if ".STREAM.INFO." in subject:
            asked += 1
            await append(log, "binder", 2, 1)
        return answer

    monkeypatch.setattr(log.connection, "ask", slowly)
    assert (await log.end(), asked) == (1, 1)


async def test_who_follows_goes_on_behind_what_it_read_whatever_a_stopped_leader_says(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(log, "binder", 1, 0)
    asked = answering_late(log, monkeypatch, 3)
    assert await log.end() == 1
    await append(log, "binder", 2, 1)
    await append(log, "binder", 3, 2)
    async with aclosing(log.follow(2)) as batches:
        assert [number_of(commit) for commit in await anext(batches)] == [3]
    assert len(asked) > 3


async def test_a_stream_that_stays_behind_what_was_read_has_lost_it(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(log, "binder", 1, 0)
    monkeypatch.setattr("events.connection.PATIENCE_S", 0.2)
    with pytest.raises(LogError, match="ends at 1 and lost what was there up to 2"):
        async for _ in log.follow(2):
            pass


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
