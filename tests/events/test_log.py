"""The contract of `EventLog`: the same tests against memory, an SQLite file and JetStream."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from events import envelope, subjects
from events.log import MAX_COMMIT_BYTES, Conflict, EventLog, Purged, TooLarge, first_role
from tests.events.writing import HEADER, append, collect, fill, number_of, payload, sequences


@pytest.fixture
def log(each_home: EventLog) -> EventLog:
    return each_home


async def test_an_empty_log_has_an_end_and_nothing_else(log: EventLog) -> None:
    assert await log.end() == 0
    assert await log.last(subjects.subject(log.cluster, "binder")) is None
    assert await collect(log.read()) == []


async def test_sequences_are_contiguous_over_all_subjects(log: EventLog) -> None:
    assert await append(log, "binder", 1, 0) == 1
    assert await append(log, "planner.0", 2, 0) == 2
    assert await append(log, "binder", 3, 1) == 3
    assert await log.end() == 3


async def test_a_commit_comes_back_as_it_was_written(log: EventLog) -> None:
    subject = subjects.subject(log.cluster, "planner.0")
    body = '[{"type":"Ticked","note":"Zürich, \\" 東京 \\n"}]'.encode()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sequence = await log.append(subject, HEADER, body, 0, traceparent=trace)
    (commit,) = await collect(log.read())
    assert commit.sequence == sequence
    assert commit.subject == subject
    assert commit.payload == body
    assert commit.traceparent == trace
    assert commit.message_id == envelope.message_id(subject, 0, body)
    assert envelope.decode_header(commit) == HEADER
    assert await log.last(subject) == commit


async def test_last_is_the_subjects_own(log: EventLog) -> None:
    await append(log, "binder", 1, 0)
    await append(log, "binder", 2, 1)
    await append(log, "planner.0", 3, 0)
    last = await log.last(subjects.subject(log.cluster, "binder"))
    assert last is not None
    assert (last.sequence, number_of(last)) == (2, 2)


async def test_who_wrote_first_is_no_message_of_nobodys(log: EventLog) -> None:
    assert await first_role(log) == ""
    await append(log, "federator", 1, 0)  # all of them under the header of a binder
    assert await first_role(log) == ""
    await append(log, "binder", 2, 0)
    await append(log, "planner.0", 3, 0)
    assert await first_role(log) == "binder"
    await log.purge(2)
    assert await first_role(log) == "binder"


@pytest.mark.parametrize("expected", [0, 1, 3])
async def test_a_stale_or_future_expectation_is_a_conflict(log: EventLog, expected: int) -> None:
    await fill(log, "binder", 2)
    with pytest.raises(Conflict) as conflict:
        await append(log, "binder", 99, expected)
    assert conflict.value.actual == 2
    assert subjects.subject(log.cluster, "binder") in str(conflict.value)
    assert await log.end() == 2


async def test_a_conflict_on_an_empty_subject(log: EventLog) -> None:
    await fill(log, "planner.0", 2)
    with pytest.raises(Conflict):
        await append(log, "binder", 1, 2)


async def test_another_writers_commit_conflicts_although_its_payload_differs_only(log: EventLog) -> None:
    await append(log, "binder", 1, 0)
    with pytest.raises(Conflict):
        await append(log, "binder", 2, 0)


async def test_a_retried_append_is_in_the_log_once(log: EventLog) -> None:
    await append(log, "binder", 1, 0)
    assert await append(log, "binder", 2, 1) == 2
    assert await append(log, "binder", 2, 1) == 2
    assert await log.end() == 2


async def test_equal_payloads_at_different_places_are_two_commits(log: EventLog) -> None:
    assert await append(log, "binder", 1, 0) == 1
    assert await append(log, "binder", 1, 1) == 2


async def test_read_begins_behind_a_place_and_ends_where_it_is_told(log: EventLog) -> None:
    await fill(log, "binder", 10)
    assert sequences(await collect(log.read(4))) == [5, 6, 7, 8, 9, 10]
    assert sequences(await collect(log.read(4, 7))) == [5, 6, 7]
    assert sequences(await collect(log.read(0, 1))) == [1]
    assert sequences(await collect(log.read(8, 99))) == [9, 10]
    assert await collect(log.read(10)) == []
    assert await collect(log.read(7, 7)) == []
    assert await collect(log.read(7, 3)) == []


async def test_read_ends_at_the_end_as_of_its_beginning(log: EventLog) -> None:
    await fill(log, "binder", 3)
    seen = []
    async with aclosing(log.read()) as batches:
        async for batch in batches:
            seen += sequences(batch)
            if len(seen) == 3:
                await append(log, "planner.0", 1, 0)
    assert seen == [1, 2, 3]


async def test_a_log_longer_than_any_page(log: EventLog) -> None:
    await fill(log, "binder", 700)
    commits = await collect(log.read())
    assert [number_of(commit) for commit in commits] == list(range(1, 701))
    assert sequences(await collect(log.read(100, 690))) == list(range(101, 691))
    assert sequences(await collect(log.follow(100), 600)) == list(range(101, 701))
    assert all([batch async for batch in log.read(until=10_000)]), "what is not there yet is no batch"


async def test_follow_catches_up_and_then_waits(log: EventLog) -> None:
    await fill(log, "binder", 3)
    async with aclosing(log.follow(1)) as batches:
        assert sequences(await collect(batches, 2)) == [2, 3]
    async with aclosing(log.follow(3)) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        await append(log, "planner.0", 4, 0)
        assert sequences(await waiting) == [4]
        waiting = asyncio.ensure_future(anext(batches))
        await append(log, "planner.0", 5, 4)
        assert sequences(await waiting) == [5]


async def test_follow_from_a_place_that_is_not_there_yet(log: EventLog) -> None:
    async with aclosing(log.follow()) as batches:
        waiting = asyncio.ensure_future(anext(batches))
        await append(log, "binder", 1, 0)
        assert sequences(await waiting) == [1]


async def test_two_followers_see_one_order_while_three_writers_append(log: EventLog) -> None:
    each, writers = 60, ("ingest", "planner.0", "binder")

    async def write(writer: str) -> list[int]:
        sequence, written = 0, []
        for number in range(each):
            sequence = await append(log, writer, number, sequence)
            written.append(sequence)
            await asyncio.sleep(0)
        return written

    async def follow() -> list[tuple[int, str, int]]:
        async with aclosing(log.follow()) as batches:
            commits = await collect(batches, each * len(writers))
        return [(commit.sequence, commit.subject, number_of(commit)) for commit in commits]

    first, second, *written = await asyncio.gather(follow(), follow(), *(write(writer) for writer in writers))
    assert first == second
    assert [sequence for sequence, _, _ in first] == list(range(1, each * len(writers) + 1))
    for writer, sequences_ in zip(writers, written, strict=True):
        subject = subjects.subject(log.cluster, writer)
        mine = [(sequence, number) for sequence, name, number in first if name == subject]
        assert mine == list(zip(sequences_, range(each), strict=True))


async def test_a_commit_that_is_too_large_is_refused_and_the_largest_is_not(log: EventLog) -> None:
    subject = subjects.subject(log.cluster, "binder")
    room = MAX_COMMIT_BYTES - len(envelope.encode_header(HEADER))
    with pytest.raises(TooLarge, match=subject):
        await log.append(subject, HEADER, b"x" * (room + 1), 0)
    assert await log.end() == 0
    assert await log.append(subject, HEADER, b"x" * room, 0) == 1
    (commit,) = await collect(log.read())
    assert len(commit.payload) == room


async def test_a_commit_decodes(log: EventLog) -> None:
    await append(log, "binder", 7, 0)
    (stored,) = await collect(log.read())
    commit = envelope.decode(stored)
    assert commit.sequence == 1
    assert commit.header == HEADER
    assert envelope.encode_events(commit.events) == payload(7)


# -------------------------------------------------------------------------------------------------------------- purges


async def test_who_waits_over_a_log_that_stays_waits_so_long_and_no_longer(log: EventLog) -> None:
    await append(log, "ingest", 1, 0)
    await log.stays(0.001)
    waiting = asyncio.create_task(log.stays(3600.0))
    await append(log, "ingest", 2, 1)
    assert not waiting.done()
    waiting.cancel()


async def test_what_is_at_a_place(log: EventLog) -> None:
    """Nothing before the log's beginning, and nothing behind its end."""
    await fill(log, "binder", 10)
    await log.purge(7)
    found = [await log.at(sequence) for sequence in (0, 6, 7, 10, 11)]
    assert found == [None, None, *await collect(log.read(6, 7)), *await collect(log.read(9, 10)), None]


async def test_a_log_begins_at_1_until_it_is_purged(log: EventLog) -> None:
    assert (await log.bounds()).first == 1
    await fill(log, "binder", 10)
    assert (await log.bounds()).first == 1
    await log.purge(7)
    assert await log.bounds() == (7, 10)
    assert sequences(await collect(log.read())) == [7, 8, 9, 10]
    assert sequences(await collect(log.read(6, 8))) == [7, 8]
    last = await log.last(subjects.subject(log.cluster, "binder"))
    assert (last and last.sequence) == 10
    assert await append(log, "binder", 11, 10) == 11
    await log.purge(5)  # gone already
    assert (await log.bounds()).first == 7


@pytest.mark.parametrize("first", [0, 4])
async def test_a_purge_leaves_the_last_commit(log: EventLog, first: int) -> None:
    await fill(log, "binder", 3)
    with pytest.raises(ValueError, match="ends at 3"):
        await log.purge(first)
    await log.purge(3)
    assert sequences(await collect(log.read())) == [3]


@pytest.mark.parametrize("place", [1, 5])
async def test_a_reader_whose_place_was_purged_is_told(log: EventLog, place: int) -> None:
    await fill(log, "binder", 10)
    await log.purge(7)
    with pytest.raises(Purged, match=f"begins at 7: what follows {place} was purged"):
        await collect(log.read(place))
    with pytest.raises(Purged, match=f"begins at 7: what follows {place} was purged"):
        await collect(log.follow(place), 1)
    assert sequences(await collect(log.follow(6), 4)) == [7, 8, 9, 10]
    assert sequences(await collect(log.follow(), 4)) == [7, 8, 9, 10]


async def test_who_reads_only_what_was_purged_is_told(log: EventLog) -> None:
    await fill(log, "binder", 10)
    await log.purge(7)
    with pytest.raises(Purged, match="begins at 7: what follows 2 was purged"):
        await collect(log.read(2, 4))


async def test_who_begins_at_the_beginning_finds_it_close_behind_1(log: EventLog) -> None:
    await fill(log, "binder", 10)
    await log.purge(2)
    assert sequences(await collect(log.read())) == list(range(2, 11))
    assert sequences(await collect(log.follow(), 9)) == list(range(2, 11))


async def test_who_begins_at_the_beginning_finds_it_far_behind_1(log: EventLog) -> None:
    await fill(log, "binder", 1100)
    await log.purge(1099)
    assert sequences(await collect(log.read())) == [1099, 1100]
    assert sequences(await collect(log.follow(), 2)) == [1099, 1100]


async def test_a_follower_at_the_end_does_not_notice_a_purge(log: EventLog) -> None:
    await fill(log, "binder", 10)
    async with aclosing(log.follow(8)) as batches:
        assert sequences(await collect(batches, 2)) == [9, 10]
        await log.purge(10)
        await append(log, "binder", 11, 10)
        assert sequences(await collect(batches, 1)) == [11]


async def test_a_writer_whose_last_commit_was_purged_begins_anew(log: EventLog) -> None:
    """The log compares with the last commit that it holds: who expects the one that is gone has been replaced by nobody,
    and is refused all the same."""
    await fill(log, "planner.0", 3)
    await append(log, "binder", 4, 0)
    await log.purge(4)
    assert await log.last(subjects.subject(log.cluster, "planner.0")) is None
    with pytest.raises(Conflict) as conflict:
        await append(log, "planner.0", 5, 3)
    assert conflict.value.actual == 0
    assert "expected last sequence 3, found 0: what it wrote was purged or deleted" in str(conflict.value)
    assert await append(log, "planner.0", 6, 0) == 5
    assert await append(log, "planner.0", 7, 5) == 6
    assert await append(log, "binder", 8, 4) == 7
