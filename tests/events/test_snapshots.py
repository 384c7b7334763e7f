"""Where snapshots are kept: the same tests against memory, an SQLite file and JetStream's object store; and faults."""

from __future__ import annotations

import secrets
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs

from events import object_store
from events.answers import Unanswered
from events.homes import open_log
from events.jetstream import JetStreamLog
from events.log import EventLog, LogError
from events.object_store import CHUNK_BYTES, ObjectStore
from events.server import EmbeddedServer
from events.snapshots import BrokenSnapshot, Kept
from tests.events.writing import append, fill


def kept(sequence: int, data: bytes) -> Kept:
    return Kept(sequence=sequence, digest=f"of {sequence}", state=1, bytes=len(data))


async def put(log: EventLog, sequence: int, data: bytes) -> Kept:
    await log.snapshots.put(kept(sequence, data), data)
    return kept(sequence, data)


async def test_a_log_without_snapshots(each_home: EventLog) -> None:
    assert await each_home.snapshots.listed() == []
    await each_home.snapshots.delete(kept(1, b""))
    with pytest.raises(BrokenSnapshot, match="1 is gone"):
        await each_home.snapshots.get(kept(1, b""))


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 17])
async def test_what_is_put_comes_back(each_home: EventLog, size: int) -> None:
    data = secrets.token_bytes(size)
    one = await put(each_home, 7, data)
    assert await each_home.snapshots.listed() == [one]
    assert await each_home.snapshots.get(one) == data


async def test_of_which_commit_it_is_comes_back(each_home: EventLog) -> None:
    one = structs.replace(kept(7, b"data"), commit="1a2b")
    await each_home.snapshots.put(one, b"data")
    assert await each_home.snapshots.listed() == [one]
    assert await each_home.snapshots.get(one) == b"data"


async def test_the_newest_comes_first_and_each_can_go(each_home: EventLog) -> None:
    snapshots = each_home.snapshots
    all_of_them = [await put(each_home, sequence, f"{sequence}".encode() * 1000) for sequence in (9, 1000, 10, 1)]
    newest_first = sorted(all_of_them, key=lambda one: one.sequence, reverse=True)
    assert await snapshots.listed() == newest_first
    await snapshots.delete(newest_first[1])
    assert await snapshots.listed() == [newest_first[0], *newest_first[2:]]
    with pytest.raises(BrokenSnapshot, match="10 is gone"):
        await snapshots.get(newest_first[1])
    assert await snapshots.get(newest_first[2]) == b"9" * 1000


async def test_one_of_the_same_sequence_is_replaced(each_home: EventLog) -> None:
    first = await put(each_home, 7, b"old" * CHUNK_BYTES)
    second = await put(each_home, 7, b"newer")
    assert await each_home.snapshots.listed() == [second]
    assert await each_home.snapshots.get(second) == b"newer"
    with pytest.raises(BrokenSnapshot):
        await each_home.snapshots.get(first)
    third = structs.replace(second, digest="of another state")
    await each_home.snapshots.put(third, b"other")
    assert await each_home.snapshots.get(third) == b"other"
    with pytest.raises(BrokenSnapshot):
        await each_home.snapshots.get(second)


async def test_snapshots_outlive_the_purge_of_their_commits(each_home: EventLog) -> None:
    await fill(each_home, "binder", 5)
    one = await put(each_home, 3, b"x")
    await each_home.purge(4)
    assert await each_home.snapshots.listed() == [one]


# ----------------------------------------------------------------------------------------------------------- SQLite


async def test_a_file_that_never_had_snapshots_may_be_read_only(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await (await open_log(str(path), "one", create=True)).close()
    path.chmod(0o400)
    log = await open_log(str(path))
    assert await log.snapshots.listed() == []
    await log.close()


async def test_a_table_of_before_goes_on(tmp_path: Path) -> None:
    """It does not say of which commit a snapshot is."""
    path = tmp_path / "a.db"
    log = await open_log(str(path), "one", create=True)
    old = structs.replace(await put(log, 7, b"old"), commit="of 7")
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE snapshots DROP COLUMN commit_id")
    connection.close()
    assert await log.snapshots.listed() == [structs.replace(old, commit="")]
    new = structs.replace(kept(8, b"new"), commit="of 8")
    await log.snapshots.put(new, b"new")
    assert await log.snapshots.listed() == [new, structs.replace(old, commit="")]
    await log.close()


@pytest.mark.parametrize("edited", ["substr(data, 1, 8)", "CAST(data AS TEXT)", "1000000000000000"])
async def test_a_row_that_was_edited_is_broken(tmp_path: Path, edited: str) -> None:
    """SQLite keeps text and numbers in a column of bytes, too."""
    path = tmp_path / "a.db"
    log = await open_log(str(path), "one", create=True)
    one = await put(log, 7, b"x" * 16)
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE snapshots SET data = {edited}")
    connection.close()
    with pytest.raises(BrokenSnapshot, match=r"a\.db: snapshot 7 is gone, or not whole"):
        await log.snapshots.get(one)
    await log.close()


# -------------------------------------------------------------------------------------------------------- JetStream


async def chunks(log: JetStreamLog) -> int:
    """Messages in the bucket, one of each object being its meta message."""
    asked = {"subjects_filter": f"$O.{object_store.bucket(log.cluster)}.C.*"}
    info = await log.connection.ask(f"$JS.API.STREAM.INFO.{object_store.stream(log.cluster)}", asked)
    return sum(object_store._decode_info(info).state.subjects.values())


async def test_nats_pys_own_client_reads_what_was_put(log: JetStreamLog) -> None:
    data = secrets.token_bytes(3 * CHUNK_BYTES)
    await put(log, 7, data)
    bucket = await log.connection.client.jetstream().object_store(object_store.bucket(log.cluster))
    found = await bucket.get(f"{7:020}")
    assert found.data == data
    assert found.info.headers == {object_store.DIGEST: ["of 7"], object_store.STATE: ["1"]}


async def test_objects_that_are_no_snapshots_are_left_alone(log: JetStreamLog) -> None:
    one = await put(log, 7, b"data")
    bucket = await log.connection.client.jetstream().object_store(object_store.bucket(log.cluster))
    await bucket.put("holiday.jpg", b"sea")
    await bucket.put("00000000000000000008", b"without headers")
    await log.connection.publish(f"$O.{object_store.bucket(log.cluster)}.M.bm9uZQ==", b"not json")
    assert await log.snapshots.listed() == [one]
    two = await put(log, 9, b"data")
    assert await log.snapshots.listed() == [two, one]


async def test_one_that_nats_pys_client_deleted_is_not_listed(log: JetStreamLog) -> None:
    await put(log, 7, b"data")
    bucket = await log.connection.client.jetstream().object_store(object_store.bucket(log.cluster))
    await bucket.delete(f"{7:020}")
    assert await log.snapshots.listed() == []


@pytest.mark.parametrize("lost", ["all", "the last", "the first"])
async def test_a_torn_object_is_broken(log: JetStreamLog, lost: str) -> None:
    data = secrets.token_bytes(3 * CHUNK_BYTES)
    one = await put(log, 7, data)
    stream = object_store.stream(log.cluster)
    subject = f"$O.{object_store.bucket(log.cluster)}.C.*"
    sequences = []
    while (message := await log.connection.next_message(stream, subject, max(sequences, default=0))) is not None:
        sequences.append(message.seq)
    gone = {"all": sequences, "the last": sequences[-1:], "the first": sequences[:1]}[lost]
    for sequence in gone:
        await log.connection.ask(f"$JS.API.STREAM.MSG.DELETE.{stream}", {"seq": sequence})
    with pytest.raises(BrokenSnapshot, match=f"snapshot 7: {(3 - len(gone)) * CHUNK_BYTES} of"):
        await log.snapshots.get(one)


async def test_bytes_that_were_turned_are_broken(log: JetStreamLog) -> None:
    one = await put(log, 7, b"data")
    message = await log.connection.next_message(
        object_store.stream(log.cluster), f"$O.{object_store.bucket(log.cluster)}.C.*", 0
    )
    assert message is not None
    await log.connection.ask(f"$JS.API.STREAM.MSG.DELETE.{object_store.stream(log.cluster)}", {"seq": message.seq})
    await log.connection.publish(message.subject, b"dada")
    with pytest.raises(BrokenSnapshot, match="not those that were put"):
        await log.snapshots.get(one)


async def test_a_put_that_was_cut_off_leaves_nothing_for_long(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks without a meta message are no object; a put clears them away when they have lain there for a while."""
    one = await put(log, 7, b"x" * CHUNK_BYTES)
    for _ in range(3):
        await log.connection.publish(f"$O.{object_store.bucket(log.cluster)}.C.orphan", b"y")
    assert await log.snapshots.listed() == [one]
    assert await chunks(log) == 4
    two = await put(log, 9, b"x" * 2 * CHUNK_BYTES)
    assert await log.snapshots.listed() == [two, one]
    assert await chunks(log) == 6
    monkeypatch.setattr(object_store, "ABANDONED_AFTER", timedelta(0))
    three = await put(log, 11, b"x")
    assert await log.snapshots.listed() == [three, two, one]
    assert await chunks(log) == 4


async def test_what_another_process_is_putting_is_not_cleared_away(
    log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`muster snapshot` beside the binder's."""
    publish, others = object_store.Bucket._publish, iter([9])

    async def published(self: object_store.Bucket, subject: str, data: bytes, headers: dict[str, str]) -> None:
        await publish(self, subject, data, headers)
        for sequence in others:  # behind the first chunk
            await put(log, sequence, b"small")

    monkeypatch.setattr(object_store.Bucket, "_publish", published)
    data = secrets.token_bytes(3 * CHUNK_BYTES)
    one = await put(log, 7, data)
    assert [kept.sequence for kept in await log.snapshots.listed()] == [9, 7]
    assert await log.snapshots.get(one) == data


A_USER = "accounts { A { jetstream: { max_file: 4MB }, users: [{ user: u, password: p }] } }"


@pytest.mark.parametrize(
    ("server", "user", "said"),
    [
        ({"jetstream": "max_file_store: 4MB"}, {}, "insufficient resources"),
        ({"extra": A_USER}, {"user": "u", "password": "p"}, "resource limits exceeded"),
    ],
    ids=["the server's", "the account's"],
)
async def test_one_for_which_there_is_no_room_leaves_the_log_its_own(
    tmp_path: Path, server: dict[str, str], user: dict[str, str], said: str
) -> None:
    """It is given up at once, with what crashes left before: while the storage is full nobody can append."""
    with EmbeddedServer(tmp_path / "small", **server) as small:
        log = await JetStreamLog.open(small.url, "c", **user)
        last = await fill(log, "binder", 1)
        one = await put(log, 1, b"small")
        await log.connection.publish(f"$O.{object_store.bucket(log.cluster)}.C.orphan", b"y")
        with pytest.raises(LogError, match=said) as refused:
            await put(log, 7, secrets.token_bytes(12 * CHUNK_BYTES))
        assert not isinstance(refused.value, Unanswered)
        assert await chunks(log) == 1
        assert await log.snapshots.listed() == [one]
        assert await append(log, "binder", 2, last) == last + 1
        await log.close()


async def test_a_deleted_one_takes_its_chunks_along(log: JetStreamLog) -> None:
    one = await put(log, 7, b"x" * 2 * CHUNK_BYTES)
    await log.snapshots.delete(one)
    assert await chunks(log) == 0


async def test_two_clusters_have_their_own(server: EmbeddedServer, log: JetStreamLog) -> None:
    await put(log, 7, b"data")
    other = ObjectStore(log.connection, f"{log.cluster}-other")
    assert await other.listed() == []
