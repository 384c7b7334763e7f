"""Taking over, stepping down, and events that share commits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from events import Event, IngestTaken, PodDeleted, envelope
from events.envelope import Header, Stored
from events.log import Conflict, LogError, Unavailable
from events.memory import MemoryLog
from services.writer import Gather, Outbox, Spacing, SteppedDown, Writer
from tests.facts import scheduling_class
from tests.waiting import until


def deleted(number: int, text: str = "") -> PodDeleted:
    return PodDeleted(uid=f"{number}{text}", namespace="default", name="p")


def written(log: MemoryLog) -> list[list[Event]]:
    return [envelope.decode(stored).events for stored in log.commits]


async def taken(log: MemoryLog) -> Writer:
    writer = Writer(log, "ingest")
    await writer.take(IngestTaken(holder="test"))
    return writer


async def test_a_writer_appends_behind_what_it_took() -> None:
    log = MemoryLog("c")
    first = await taken(log)
    assert await first.append([deleted(1)], basis=1, cause="facts") == 2
    second = await taken(log)
    assert second.last == 3
    assert [stored.subject for stored in log.commits] == ["muster.c.ingest"] * 3
    header = envelope.decode_header(log.commits[1])
    assert (header.writer, header.epoch, header.basis, header.cause) == ("ingest", 0, 1, "facts")
    assert envelope.decode_header(log.commits[0]).basis == 0
    assert first.stored is not None
    assert (first.stored.sequence, first.stored.payload) == (2, log.commits[1].payload)


async def test_which_commit_was_acknowledged_is_told_to_who_asks_for_much(caplog: pytest.LogCaptureFixture) -> None:
    """By these two, lines of different processes are put in order."""
    log = MemoryLog("c")
    await taken(log)
    assert not caplog.records
    caplog.set_level(logging.DEBUG, "muster.writer")
    await taken(log)
    told = [vars(record) for record in caplog.records]
    assert [(each["sequence"], each["id"]) for each in told] == [(2, log.commits[1].message_id)]


@pytest.mark.parametrize("offset_ms", [0, 600_000, -600_000])
async def test_its_commits_are_timed_by_its_clock(offset_ms: int) -> None:
    log = MemoryLog("c")
    earliest_ns = time.time_ns()
    writer = Writer(log, "ingest", clock_offset_ms=offset_ms)
    await writer.take(IngestTaken(holder="test"))
    of_commit_ns = envelope.decode_header(log.commits[0]).time_ns - offset_ms * 1_000_000
    assert earliest_ns <= of_commit_ns <= time.time_ns()


async def test_a_replaced_writer_steps_down_at_its_next_append() -> None:
    log = MemoryLog("c")
    first = await taken(log)
    await taken(log)
    with pytest.raises(SteppedDown):
        await first.append([deleted(1)], basis=0, cause="facts")
    assert len(log.commits) == 2


class Between(MemoryLog):
    """Somebody else appends between a look at the subject and the append behind it."""

    def __init__(self, writer: str, events: list[Event], cause: str) -> None:
        super().__init__("c")
        self.words = [(writer, events, cause)]

    async def last(self, subject: str) -> Stored | None:
        found = await super().last(subject)
        for writer, events, cause in [self.words.pop()] if self.words else []:
            header = Header(writer=writer, epoch=0, basis=0, time_ns=0, cause=cause)
            self.append_now(subject, header, envelope.encode_events(events), self._last.get(subject, 0))
        return found


@pytest.mark.parametrize(("writer", "cause"), [("ingest", "facts"), ("binder", "taken")], ids=["its own", "nobody's"])
async def test_who_takes_over_comes_behind_what_the_one_before_says_meanwhile(writer: str, cause: str) -> None:
    """A soak found it, on a busy host: a binder whose lease had run out said one thing more, its standby ended, then the
    binder itself, and nobody bound anything until both were started again. Nor does it end at an outsider's word."""
    log = Between(writer, [deleted(1)], cause)
    taker = await taken(log)
    assert [envelope.decode_header(stored).cause for stored in log.commits] == [cause, "taken"]
    assert await taker.append([deleted(2)], basis=2, cause="facts") == 3


async def test_of_two_that_take_over_at_once_one_steps_down() -> None:
    log = Between("ingest", [IngestTaken(holder="other")], "taken")
    with pytest.raises(SteppedDown):
        await taken(log)
    assert len(log.commits) == 1


class Behind(MemoryLog):
    """Who is asked for the last word does not know it: a server that led the stream, and was stopped meanwhile."""

    async def last(self, subject: str) -> Stored | None:
        return self.commits[0]


async def test_who_does_not_hear_the_last_word_does_not_ask_for_it_for_ever() -> None:
    log = Behind("c")
    for expected, number in enumerate((1, 2)):
        header = Header(writer="ingest", epoch=0, basis=0, time_ns=0, cause="facts")
        log.append_now("muster.c.ingest", header, envelope.encode_events([deleted(number)]), expected)
    with pytest.raises(SteppedDown):
        await taken(log)


class Purged(MemoryLog):
    """Its last word is gone by the time somebody asks for it."""

    async def append(self, subject: str, *_: Any, **more: Any) -> int:
        raise Conflict(subject, 0, 7)


async def test_who_is_refused_and_finds_no_last_word_does_not_ask_for_ever() -> None:
    with pytest.raises(SteppedDown):
        await taken(Purged("c"))


async def test_a_writer_was_replaced_only_by_who_took_its_subject_behind_it() -> None:
    """Its own commit may be read before it is acknowledged, and others take theirs."""
    log = MemoryLog("c")
    writer = Writer(log, "ingest")
    await taken(log)
    assert not writer.was_taken_by(envelope.decode(log.commits[0])), "it has not taken it itself"
    await writer.take(IngestTaken(holder="test"))
    assert [writer.was_taken_by(envelope.decode(stored)) for stored in log.commits] == [False, False]
    said = [("ingest", "facts", False), ("binder", "taken", False), ("ingest", "taken", True)]
    last = 2
    for name, cause, replaced in said:
        subject = f"muster.c.{name}"
        header = Header(writer=name, epoch=0, basis=0, time_ns=0, cause=cause)
        expected = last if name == "ingest" else 0
        found = log.append_now(subject, header, envelope.encode_events([deleted(1)]), expected)
        last = found if name == "ingest" else last
        assert writer.was_taken_by(envelope.decode(log.commits[-1])) == replaced


class Busy(MemoryLog):
    """Others have their turn before it appends."""

    async def append(self, *arguments: Any, **more: Any) -> int:
        await asyncio.sleep(0)
        return await super().append(*arguments, **more)


async def test_appends_queue_up_behind_each_other() -> None:
    log = Busy("c")
    writer = await taken(log)
    sequences = await asyncio.gather(*(writer.append([deleted(n)], basis=0, cause="facts") for n in range(20)))
    assert sequences == list(range(2, 22))


@pytest.fixture
async def gathering() -> AsyncIterator[tuple[MemoryLog, Gather, asyncio.Task[None]]]:
    log = MemoryLog("c")
    gather = Gather(await taken(log))
    task = asyncio.create_task(gather.run())
    yield log, gather, task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_arrives_together_shares_a_commit_in_order(
    gathering: tuple[MemoryLog, Gather, asyncio.Task[None]],
) -> None:
    log, gather, _ = gathering
    gather.add([])
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(log.commits) == 1, "nothing is no commit"
    for number in range(100):
        gather.add([deleted(number)])
    await gather.flush()
    assert written(log)[1:] == [[deleted(number) for number in range(100)]]
    assert gather.pending == 0


async def test_when_all_is_sent_nothing_more_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else empty commits for ever, as often as the spacing allows."""
    monkeypatch.setattr(Spacing, "FIRST_S", 0.0)
    monkeypatch.setattr(Spacing, "LONGEST_S", 0.0)
    log = Busy("c")
    gather = Gather(await taken(log))
    task = asyncio.create_task(gather.run())
    gather.add([deleted(1)])
    await gather.flush()
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    assert written(log)[1:] == [[deleted(1)]]


async def test_under_load_commits_are_few_and_nothing_is_lost(
    gathering: tuple[MemoryLog, Gather, asyncio.Task[None]],
) -> None:
    log, gather, _ = gathering
    for number in range(500):
        gather.add([deleted(number)])
        await asyncio.sleep(0)
    await gather.flush()
    commits = written(log)[1:]
    assert [event for commit in commits for event in commit] == [deleted(number) for number in range(500)]
    assert len(commits) < 100


class Held(MemoryLog):
    """A log that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__("c")
        self.going_on, self.asked = asyncio.Event(), 0

    async def append(self, *arguments: Any, **more: Any) -> int:
        self.asked += 1
        await self.going_on.wait()
        return await super().append(*arguments, **more)


async def test_what_is_on_its_way_is_not_acknowledged_yet() -> None:
    """A list of ten thousand pods would be taken for written, and the next one read into memory."""
    log = Held()
    gather = Gather(Writer(log, "ingest"))
    task = asyncio.create_task(gather.run())
    gather.add([deleted(1)])
    await until(lambda: log.asked, "it to be sent")
    flushing = asyncio.create_task(gather.flush())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not flushing.done()
    assert gather.pending == 1
    await gather.flush(left=1)
    log.going_on.set()
    await flushing
    assert written(log) == [[deleted(1)]]
    task.cancel()


async def test_the_payload_is_what_encoding_the_events_together_gives() -> None:
    log = MemoryLog("c")
    writer = await taken(log)
    gather = Gather(writer)
    task = asyncio.create_task(gather.run())
    events = [deleted(1), deleted(2, 'é"\n')]
    gather.add(events)
    await gather.flush()
    task.cancel()
    assert log.commits[1].payload == envelope.encode_events(events)


async def test_commits_are_split_by_events_and_by_bytes() -> None:
    log = MemoryLog("c")
    gather = Gather(await taken(log), Outbox(max_events=10, max_bytes=1_000))
    task = asyncio.create_task(gather.run())
    gather.add([deleted(number) for number in range(25)])
    gather.add([deleted(number, "x" * 300) for number in range(4)])
    gather.add([deleted(0, "x" * 3_000)])
    await gather.flush()
    task.cancel()
    sizes = [(len(commit), len(stored.payload)) for commit, stored in zip(written(log), log.commits, strict=True)][1:]
    assert sum(count for count, _ in sizes) == 30
    assert all(count <= 10 and (size <= 1_000 or count == 1) for count, size in sizes)


@given(st.lists(st.booleans()), st.integers(1, 4), st.integers(1, 400))
def test_a_class_and_the_pod_that_it_is_written_for_are_never_in_two_commits(
    classed: list[bool], max_events: int, max_bytes: int
) -> None:
    """A class that the state knew only for room that was kept may go in between: the pod's would be unknown."""
    facts = [
        fact
        for number, with_class in enumerate(classed)
        for fact in ([scheduling_class(str(number), {})] if with_class else []) + [deleted(number)]
    ]
    outbox = Outbox(max_events=max_events, max_bytes=max_bytes)
    outbox.add(facts)
    written: list[Event] = []
    while outbox:
        payload, count = outbox.cut()
        commit = msgspec.json.decode(payload, type=list[Event])
        assert len(commit) == count
        assert isinstance(commit[-1], PodDeleted)
        alone = sum(isinstance(event, PodDeleted) for event in commit) == 1
        assert alone or (count <= max_events and len(payload) <= max_bytes)
        written += commit
    assert written == facts


async def test_who_waits_learns_that_another_took_over() -> None:
    log = MemoryLog("c")
    gather = Gather(await taken(log))
    await taken(log)
    task = asyncio.create_task(gather.run())
    gather.add([deleted(1)])
    with pytest.raises(SteppedDown):
        await gather.flush()
    with pytest.raises(SteppedDown):
        await task


class Away(MemoryLog):
    """A log whose home cannot be reached."""

    async def append(self, *arguments: object, **more: object) -> int:
        raise Unavailable("no server")


async def test_a_log_that_is_away_is_told() -> None:
    gather = Gather(Writer(Away("c"), "ingest"))
    task = asyncio.create_task(gather.run())
    gather.add([deleted(1)])
    with pytest.raises(LogError):
        await gather.flush()
    assert isinstance(task.exception(), Unavailable) or not task.done()
    await asyncio.gather(task, return_exceptions=True)


def test_commits_come_back_to_back_ever_more_seldom_and_at_once_after_a_pause() -> None:
    spacing, now_s, gaps_ms = Spacing(), 5.0, []
    for _ in range(6):
        assert spacing.due_s <= now_s
        spacing.sent(now_s)
        gaps_ms.append(round((spacing.due_s - now_s) * 1_000))
        now_s = spacing.due_s  # the next one waited for its turn
    assert gaps_ms == [10, 20, 40, 80, 100, 100]
    now_s = spacing.due_s + 0.09  # a whole gap is a pause, and nothing less
    spacing.sent(now_s)
    assert spacing.due_s == pytest.approx(now_s + Spacing.LONGEST_S)
    now_s = spacing.due_s + 0.11
    spacing.sent(now_s)
    assert spacing.due_s == pytest.approx(now_s + Spacing.FIRST_S)
