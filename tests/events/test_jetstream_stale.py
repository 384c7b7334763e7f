"""A leader that was stopped answers with what it knew: stale answers, and who believes them."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from nats.aio.msg import Msg

from events import subjects
from events.answers import Unanswered
from events.jetstream import JetStreamLog
from events.log import LogError, Purged
from tests.events.writing import append, collect, number_of


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


async def test_servers_without_a_leader_are_not_believed(log: JetStreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two of three are away, the third says what it has. Who took that for the log's end, opened a log that nobody
    could read, and a service that was started ended instead of waiting."""
    await append(log, "binder", 1, 0)
    request, asked = log.connection.request, list[str]()

    async def leaderless(subject: str, *arguments: Any, **named: Any) -> Msg:
        message = await request(subject, *arguments, **named)
        asked.append(subject)
        behind = {"cluster": {"name": "all", "replicas": []}, "state": {"first_seq": 1, "last_seq": 0}}
        told = msgspec.json.decode(message.data) | (behind if len(asked) < 3 else {"cluster": {"leader": "one"}})
        message.data = msgspec.json.encode(told)
        return message

    monkeypatch.setattr(log.connection, "request", leaderless)
    fresh = JetStreamLog(log.connection, log.cluster)
    with pytest.raises(Unanswered, match="has no leader"):
        await fresh.end_now(1.0)
    assert (await fresh.end(), len(asked)) == (1, 3)


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
    monkeypatch.setattr("events.patience.PATIENCE_S", 0.2)
    with pytest.raises(LogError, match="ends at 1 and lost what was there up to 2"):
        async for _ in log.follow(2):
            pass


async def test_a_commit_that_was_seen_is_there_whatever_a_stopped_leader_says(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a start would not know whose its snapshot is."""
    await append(log, "binder", 1, 0)
    message_at, asked = log.connection.message_at, 0

    async def ask_zombie(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return None if asked < 3 else await message_at(*arguments)

    monkeypatch.setattr(log.connection, "message_at", ask_zombie)
    found = await log.at(1)
    assert found is not None
    assert (number_of(found), asked) == (1, 3)
