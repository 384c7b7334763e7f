"""Homes by their names, copies between them, and files that are not as they should be."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import subprocess
import sys
import threading
from contextlib import AbstractContextManager, aclosing, closing, suppress
from pathlib import Path

import pytest
from msgspec import structs

from events import sqlite
from events.answers import Refused
from events.envelope import Stored
from events.homes import copy, open_log
from events.jetstream import JetStreamLog
from events.log import Conflict, EventLog, LogError, TooLarge, Unavailable
from events.memory import MemoryLog
from events.server import EmbeddedServer
from events.snapshots import Kept
from events.sqlite import SqliteLog
from tests.events.writing import append, collect, fill, number_of, sequences


def stored(sequence: int, cluster: str) -> Stored:
    return Stored(
        sequence=sequence,
        subject=f"muster.{cluster}.admin",
        message_id=f"id-{sequence}",
        header=b'{"writer":"admin"}',
        payload=b"[]",
        traceparent="00-1-2-01" if sequence % 2 else "",
    )


# ------------------------------------------------------------------------------------------------------------ by name


async def test_a_url_and_a_path(server: EmbeddedServer, cluster: str, tmp_path: Path) -> None:
    by_argument = await open_log(server.url, cluster, create=True)
    by_path = await open_log(f"{server.url}/{cluster}")
    assert (by_argument.cluster, by_path.cluster) == (cluster, cluster)
    await append(by_argument, "binder", 1, 0)
    assert await by_path.end() == 1
    file = await open_log(str(tmp_path / "a.db"), cluster, create=True)
    assert isinstance(file, SqliteLog)
    for log in (by_argument, by_path, file):
        await log.close()
    again = await open_log(str(tmp_path / "a.db"))
    assert again.cluster == cluster
    await again.close()


@pytest.mark.parametrize(
    ("location", "cluster", "expected"),
    [
        ("nats://127.0.0.1:1", None, "needs its cluster's name"),
        ("nats://127.0.0.1:1", "a.b", "'a.b'"),
        ("prod", None, "expected a NATS URL such as"),
        ("log.sqlite", None, "the path of a file"),
        ("/no/such/file.db", None, "/no/such/file.db: no such log"),
    ],
)
async def test_a_location_that_is_none_says_what_was_expected(location: str, cluster: str, expected: str) -> None:
    with pytest.raises(LogError, match=expected):
        await open_log(location, cluster)


async def test_a_new_file_needs_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="needs its cluster's name"):
        await open_log(str(tmp_path / "a.db"), create=True)
    assert not (tmp_path / "a.db").exists()


# -------------------------------------------------------------------------------------------------------------- files


async def test_the_wrong_cluster_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    await (await open_log(path, "one", create=True)).close()
    with pytest.raises(LogError, match=r"a\.db: the log of cluster 'one', not of 'two'"):
        await open_log(path, "two")


@pytest.mark.parametrize("content", [b"not a database at all " * 300, b"SQLite format 3\x00" + b"\xff" * 5000])
async def test_a_foreign_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "foreign.db").write_bytes(content)
    with pytest.raises(LogError, match=r"foreign\.db: not a log"):
        await open_log(str(tmp_path / "foreign.db"))
    assert (tmp_path / "foreign.db").read_bytes() == content


async def test_a_link_to_itself_is_named(tmp_path: Path) -> None:
    """Python 3.11 says it with a RuntimeError, 3.13 not at all."""
    loop = tmp_path / "loop.db"
    loop.symlink_to(loop)
    with pytest.raises(LogError, match=r"loop\.db: a link to itself; expected a file"):
        await open_log(str(loop), "one", create=True)


async def test_an_empty_file_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with pytest.raises(LogError, match=r"empty\.db: an empty file; expected"):
        await open_log(str(tmp_path / "empty.db"))


async def test_another_programs_database_is_no_log(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE commits (hash TEXT)")
    connection.close()
    with pytest.raises(LogError, match=r"other\.db: .* no tables 'log' and 'commits'"):
        await open_log(str(tmp_path / "other.db"))


async def test_a_newer_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await (await open_log(str(path), "one", create=True)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE log SET format = 2")
    connection.close()
    with pytest.raises(LogError, match=r"a\.db: a log in format 2"):
        await open_log(str(path))


async def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    log = await open_log(str(path), "one", create=True)
    await fill(log, "binder", 600)
    await log.close()
    damaged = bytearray(path.read_bytes())
    for offset in range(4096 * 4, len(damaged), 4096):
        damaged[offset : offset + 200] = b"\xff" * 200
    path.write_bytes(damaged)
    with pytest.raises(LogError, match=r"a\.db: "):
        await collect((await open_log(str(path))).read())


@pytest.mark.parametrize(
    ("behind", "until"), [(0, None), (2, None), (2, 3)], ids=["within a batch", "between two", "all that is asked for"]
)
async def test_a_missing_commit_is_named(tmp_path: Path, behind: int, until: int | None) -> None:
    path = tmp_path / "a.db"
    log = await open_log(str(path), "one", create=True)
    await fill(log, "binder", 5)
    await log.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM commits WHERE sequence = 3")
    connection.close()
    with pytest.raises(LogError, match=r"a\.db: commits are missing"):
        await collect((await open_log(str(path))).read(behind, until))


async def test_a_file_is_read_in_batches_of_so_many_bytes(tmp_path: Path) -> None:
    """As it was: 512 commits, of whatever size. Of 1 MB each, as ingest writes a large cluster, they were half a GB."""
    log = SqliteLog(tmp_path / "a.db", "one", create=True)
    large = b"[" + b" " * (sqlite.BATCH_BYTES // 2 - 1) + b"]"
    log.append_stored([structs.replace(stored(n, "one"), payload=large if n < 8 else b"[]") for n in range(1, 12)])
    batches = [[commit.sequence for commit in batch] async for batch in log.read(1)]
    assert batches == [[2, 3], [4, 5], [6, 7], [8, 9, 10, 11]]
    await log.close()


async def test_a_locked_file_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("events.sqlite.BUSY_S", 0.05)
    log = await open_log(str(tmp_path / "a.db"), "one", create=True)
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match=r"a\.db"):
        await append(log, "binder", 1, 0)
    other.execute("ROLLBACK")
    other.close()
    assert await append(log, "binder", 1, 0) == 1
    await log.close()


def write_from_another_process(path: str, count: int) -> None:
    async def write() -> None:
        log = await open_log(path)
        await fill(log, "planner.0", count)
        await log.close()

    asyncio.run(write())


async def test_another_process_is_followed(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    log = await open_log(path, "one", create=True)
    writer = multiprocessing.get_context("spawn").Process(target=write_from_another_process, args=(path, 20))
    async with aclosing(log.follow()) as batches:
        following = asyncio.ensure_future(anext(batches))
        writer.start()
        first = await following
        commits = first + (await collect(batches, 20 - len(first)) if len(first) < 20 else [])
    assert [number_of(commit) for commit in commits] == list(range(1, 21))
    await asyncio.to_thread(writer.join)
    await log.close()


async def test_two_objects_on_one_file_fence_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    first = await open_log(path, "one", create=True)
    second = await open_log(path)
    assert await append(first, "binder", 1, 0) == 1
    with pytest.raises(Conflict):
        await append(second, "binder", 2, 0)
    assert await append(second, "binder", 2, 1) == 2
    await first.close()
    await second.close()


# ------------------------------------------------------------------------------------------------------------- copies


async def test_export_and_import_keep_everything(server: EmbeddedServer, log: JetStreamLog, tmp_path: Path) -> None:
    cluster = log.cluster
    sequence = 0
    for number in range(150):
        sequence = await append(log, "binder", number, sequence)
    await append(log, "planner.0", 7, 0)
    file = await open_log(str(tmp_path / "a.db"), cluster, create=True)
    assert await copy(log, file) == 151
    original = await collect(log.read())
    assert await collect(file.read()) == original
    with suppress(Refused):  # a deletion that is asked for again, as its answer took long, finds nothing
        await log.connection.ask(f"$JS.API.STREAM.DELETE.{log.stream}")
    back = await open_log(server.url, cluster, create=True)
    assert await copy(file, back) == 151
    assert await collect(back.read()) == original
    assert await append(back, "binder", 150, sequence) == 152
    await file.close()
    await back.close()


async def test_a_log_is_made_of_what_another_left_who_began_to_make_one(tmp_path: Path) -> None:
    """As it was: an SQLite file, but no log; an export that was begun again never went on."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as other:
        other.execute("PRAGMA journal_mode = WAL")
    for name, create in (("one", False), (None, True), ("a b", True)):
        with pytest.raises(LogError, match="no log"):
            SqliteLog(tmp_path / "a.db", name, create=create)
    file = SqliteLog(tmp_path / "a.db", "one", create=True)
    assert await append(file, "binder", 1, 0) == 1
    await file.close()


async def test_of_two_who_make_a_log_the_second_takes_what_the_first_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: a traceback."""
    made = SqliteLog(tmp_path / "made.db", "one", create=True)
    tables = [sql for (sql,) in made.rows("SELECT sql FROM sqlite_master WHERE sql NOT NULL")]
    await made.close()
    saw_none, transaction = threading.Event(), SqliteLog.transaction

    def begun(log: SqliteLog) -> AbstractContextManager[sqlite3.Cursor]:
        saw_none.set()
        return transaction(log)

    async def second() -> str:
        log = SqliteLog(tmp_path / "a.db", "one", create=True)
        await log.close()
        return log.cluster

    monkeypatch.setattr(SqliteLog, "transaction", begun)
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as first:
        first.execute("PRAGMA journal_mode = WAL")
        first.execute("BEGIN IMMEDIATE")
        for sql in tables:
            first.execute(sql)
        first.execute("INSERT INTO log VALUES ('one', 1)")
        making = asyncio.create_task(asyncio.to_thread(asyncio.run, second()))
        assert await asyncio.to_thread(saw_none.wait, 60)
        first.execute("COMMIT")
    assert await making == "one"


@pytest.mark.parametrize("blocks", [0, 8, 16, 40])
async def test_a_log_for_which_there_is_no_room_is_told_and_made_when_there_is(tmp_path: Path, blocks: int) -> None:
    """As it was: a traceback, and a file of which nobody could make a log."""
    make = "from events.sqlite import SqliteLog; import sys; SqliteLog(sys.argv[1], 'one', create=True)"
    limited = f'ulimit -f {blocks}; exec "$0" -B -c "{make}" "$1"'
    file = tmp_path / "a.db"
    process = await asyncio.create_subprocess_exec("sh", "-c", limited, sys.executable, file, stderr=subprocess.PIPE)
    _, said = await process.communicate()
    last = said.decode().splitlines()[-1]
    assert (process.returncode, last.partition(f"{file}: ")[0]) == (1, "events.log.Unavailable: ")
    log = SqliteLog(file, "one", create=True)
    assert await append(log, "binder", 1, 0) == 1
    await log.close()


async def test_a_copy_is_taken_up_where_it_ended(log: JetStreamLog, tmp_path: Path) -> None:
    last = await fill(log, "binder", 5)
    file = await open_log(str(tmp_path / "a.db"), log.cluster, create=True)
    assert await copy(log, file) == 5
    assert await copy(log, file) == 0
    await append(log, "binder", 6, last)
    assert await copy(log, file) == 1
    assert await collect(file.read()) == await collect(log.read())
    await file.close()


async def test_a_purged_log_keeps_its_sequences(server: EmbeddedServer, log: JetStreamLog, tmp_path: Path) -> None:
    file = SqliteLog(tmp_path / "a.db", log.cluster, create=True)
    file.append_stored([stored(sequence, log.cluster) for sequence in range(41, 50)])
    assert await file.end() == 49
    assert sequences(await collect(file.read())) == list(range(41, 50))
    assert sequences(await collect(file.read(0, 43))) == [41, 42, 43]
    with pytest.raises(LogError, match=r"a\.db"):
        await collect(file.read(20))
    assert await copy(file, log) == 9
    assert await collect(log.read()) == await collect(file.read())
    again = SqliteLog(tmp_path / "b.db", log.cluster, create=True)
    assert await copy(log, again) == 9
    assert await collect(again.read()) == await collect(file.read())
    assert await append(again, "admin", 1, 49) == 50
    await file.close()
    await again.close()


async def test_an_archive_grows_although_its_beginning_was_purged(each_home: EventLog, tmp_path: Path) -> None:
    """Exported again and again, and purged in between, even up to the archive's end: the log is there as a whole."""
    archive = await open_log(str(tmp_path / "archive.db"), each_home.cluster, create=True)
    sequence, original = 0, []
    for number in range(60):
        sequence = await append(each_home, "binder", number, sequence)
        original += await collect(each_home.read(sequence - 1))
        if number % 10 == 9:
            assert await copy(each_home, archive) == 10
            await each_home.purge(sequence - number % 3)
    assert await collect(archive.read()) == original
    sequence = await append(each_home, "binder", 60, sequence)
    sequence = await append(each_home, "binder", 61, sequence)
    await each_home.purge(61)
    assert await copy(each_home, archive) == 2  # what is left follows the archive's last commit at once
    await append(each_home, "binder", 62, sequence)
    await append(each_home, "binder", 63, sequence + 1)
    await each_home.purge(64)
    with pytest.raises(LogError, match="begins at 64 and the target ends at 62: the commits between them were purged"):
        await copy(each_home, archive)
    await archive.close()


async def test_a_copy_of_a_purged_log_has_what_its_beginning_stands_on(each_home: EventLog, tmp_path: Path) -> None:
    await fill(each_home, "binder", 30)
    kept = [Kept(sequence=sequence, digest=f"d{sequence}", state=1, bytes=4) for sequence in (5, 10, 20)]
    for one in kept:
        await each_home.snapshots.put(one, b"data")
    whole = await open_log(str(tmp_path / "whole.db"), each_home.cluster, create=True)
    await copy(each_home, whole)
    assert await whole.snapshots.listed() == []
    await each_home.purge(8)
    rest = await open_log(str(tmp_path / "rest.db"), each_home.cluster, create=True)
    await copy(each_home, rest)
    assert ((await rest.bounds()).first, await rest.snapshots.listed()) == (8, [kept[1]])
    assert await rest.snapshots.get(kept[1]) == b"data"
    await each_home.purge(15)
    await append(each_home, "binder", 31, 30)
    assert await copy(each_home, rest) == 1
    assert await rest.snapshots.listed() == [kept[1]]
    await whole.close()
    await rest.close()


async def test_a_copy_stands_on_the_next_snapshot_when_one_is_broken(tmp_path: Path) -> None:
    source = SqliteLog(tmp_path / "source.db", "one", create=True)
    source.append_stored([stored(sequence, "one") for sequence in range(8, 30)])
    kept = [Kept(sequence=sequence, digest=f"d{sequence}", state=1, bytes=4) for sequence in (10, 20)]
    for one, data in zip(kept, (b"cut", b"data"), strict=True):
        await source.snapshots.put(one, data)
    target = SqliteLog(tmp_path / "target.db", "one", create=True)
    assert await copy(source, target) == 22
    assert await target.snapshots.listed() == [kept[1]]
    await source.close()
    await target.close()


async def test_a_purged_archive_is_imported_with_its_snapshot(log: JetStreamLog, tmp_path: Path) -> None:
    file = SqliteLog(tmp_path / "a.db", log.cluster, create=True)
    file.append_stored([stored(sequence, log.cluster) for sequence in range(41, 50)])
    one, later = (Kept(sequence=sequence, digest="d", state=1, bytes=1) for sequence in (40, 90))
    await file.snapshots.put(one, b"x")
    await log.snapshots.put(later, b"y")  # of the log that was deleted, to be brought back from this archive
    assert await copy(file, log) == 9
    assert ((await log.bounds()).first, await log.snapshots.listed()) == (41, [later, one])
    await file.close()


async def test_an_import_goes_on_from_batch_to_batch_and_where_it_ended(log: JetStreamLog, tmp_path: Path) -> None:
    file = SqliteLog(tmp_path / "a.db", log.cluster, create=True)
    file.append_stored([stored(sequence, log.cluster) for sequence in range(1, 601)])
    await log.append_stored([stored(sequence, log.cluster) for sequence in range(1, 71)])
    assert await copy(file, log) == 530
    assert await collect(log.read()) == await collect(file.read())
    await file.close()


async def test_what_is_imported_is_a_beginning_although_a_commit_of_it_is_refused(tmp_path: Path) -> None:
    """As it was: what came behind it took its place, and nobody could take the import up again."""
    commits = [stored(sequence, "one") for sequence in range(1, 7)]
    commits[2] = structs.replace(commits[2], payload=b"x" * 1_200_000)
    small = EmbeddedServer(tmp_path / "small", extra="max_payload: 1048576")
    with small:
        log = await JetStreamLog.open(small.url, "one")
        with pytest.raises(TooLarge, match="max_payload is 1048576"):
            await log.append_stored(commits)
        assert await collect(log.read()) == commits[:2]
        await log.close()


async def test_what_does_not_continue_is_refused(log: JetStreamLog, tmp_path: Path) -> None:
    file = SqliteLog(tmp_path / "a.db", log.cluster, create=True)
    file.append_stored([stored(1, log.cluster)])
    with pytest.raises(LogError, match=r"a\.db: commit 3 does not continue it; expected 2"):
        file.append_stored([stored(3, log.cluster)])
    await fill(log, "binder", 1)
    with pytest.raises(LogError, match="commit 3 does not continue it"):
        await log.append_stored([stored(3, log.cluster)])
    with pytest.raises(LogError, match="not a beginning of the source"):
        await copy(file, log)
    await file.close()


async def test_what_goes_further_than_the_source_is_no_beginning_of_it(tmp_path: Path) -> None:
    """The source lost its end: what it writes there from now on is something else."""
    whole, lost = (SqliteLog(tmp_path / name, "one", create=True) for name in ("whole.db", "lost.db"))
    whole.append_stored([stored(sequence, "one") for sequence in range(1, 6)])
    lost.append_stored([stored(sequence, "one") for sequence in range(1, 4)])
    with pytest.raises(LogError, match=r"^the target has all 3 commits of the source, and 2 more behind them$"):
        await copy(lost, whole)
    other = SqliteLog(tmp_path / "other.db", "one", create=True)
    other.append_stored([structs.replace(stored(sequence, "one"), message_id=f"o-{sequence}") for sequence in (1, 2)])
    with pytest.raises(LogError, match=r"the target's 5 commits are not a beginning of the source \(the last is of "):
        await copy(other, whole)
    await other.close()
    assert await copy(whole, lost) == 2
    await whole.close()
    await lost.close()


async def test_half_a_batch_is_not_exported(tmp_path: Path) -> None:
    file = SqliteLog(tmp_path / "a.db", "one", create=True)
    with pytest.raises(LogError, match="commit 4"):
        file.append_stored([stored(1, "one"), stored(2, "one"), stored(4, "one")])
    assert await file.end() == 0
    await file.close()


async def test_a_copy_to_another_cluster_is_refused(tmp_path: Path) -> None:
    file = SqliteLog(tmp_path / "a.db", "one", create=True)
    with pytest.raises(LogError, match="'two' cannot become that of 'one'"):
        await copy(MemoryLog("two"), file)
    await file.close()


async def test_a_log_in_memory_is_exported(tmp_path: Path) -> None:
    memory = MemoryLog("one")
    await fill(memory, "binder", 700)
    file = SqliteLog(tmp_path / "a.db", "one", create=True)
    assert await copy(memory, file) == 700
    assert await collect(file.read()) == memory.commits
    await file.close()
