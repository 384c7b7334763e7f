"""The log in an SQLite file: an exported log, or one that a single machine keeps for itself.

One table of commits, in WAL mode: other processes read while one appends. A commit is one transaction, fenced as in
JetStream by the last sequence of its subject. A follower looks for more at short intervals, and at once when something
is appended through the same object.

The file is one thread's; its queries take microseconds and block the loop for so long.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from events import envelope, subjects
from events.envelope import Header, Stored
from events.log import Bounds, Conflict, LogError, Unavailable, check_place, check_purge, check_size
from events.snapshots import BrokenSnapshot, Kept

FORMAT = 1
BATCH_COMMITS = 512
BATCH_BYTES = 4_000_000
"""Of payloads: a batch ends with the commit that reaches this, as so many commits may be 4 GB."""
POLL_S = 0.02
BUSY_S = 30.0
"""How long to wait for another process's transaction."""

_COLUMNS = {
    "sequence": int,
    "subject": str,
    "message_id": str,
    "header": bytes,
    "payload": bytes,
    "traceparent": str,
}
_SELECT = "SELECT sequence, subject, message_id, header, payload, traceparent FROM commits"
_SNAPSHOTS = """CREATE TABLE IF NOT EXISTS snapshots (
    sequence INTEGER PRIMARY KEY, digest TEXT NOT NULL, state INTEGER NOT NULL, bytes INTEGER NOT NULL, data BLOB NOT NULL
)"""
_COMMIT = "ALTER TABLE snapshots ADD COLUMN commit_id TEXT NOT NULL DEFAULT ''"
"""A column that came later."""
_INSERT = "INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?)"


class SqliteLog:
    """An `EventLog` in a file. Sequences are contiguous, but may begin behind 1: a log that was purged and exported."""

    def __init__(self, path: Path | str, cluster: str | None = None, *, create: bool = False) -> None:
        """With `create` a file that is absent is made, for `cluster`.

        Raises LogError when the file is no log, or that of another cluster; the message names the file.
        """
        self.path = Path(path)
        self._connection = _open(self.path, cluster, create)
        self._appended = asyncio.Event()
        self.snapshots = SqliteSnapshots(self)
        try:
            with self.errors():
                if create and subjects.valid_cluster(cluster or "") and not self._tables():
                    self._make(cluster)
                self.cluster = self._check(cluster)
        except LogError:
            self._connection.close()
            raise

    async def append(
        self, subject: str, header: Header, payload: bytes, expected: int, *, traceparent: str = ""
    ) -> int:
        """Raises Conflict, TooLarge, Unavailable when another process keeps the file locked."""
        message_id = envelope.message_id(subject, expected, payload)
        header_bytes = envelope.encode_header(header)
        check_size(subject, header_bytes, payload)
        with self.transaction() as cursor:
            last = cursor.execute(f"{_SELECT} WHERE subject = ? ORDER BY sequence DESC LIMIT 1", (subject,)).fetchone()
            actual = last[0] if last else 0
            if actual != expected:
                if last and last[2] == message_id:
                    return int(actual)
                raise Conflict(subject, expected, actual)
            sequence = self._end() + 1
            cursor.execute(_INSERT, (sequence, subject, message_id, header_bytes, payload, traceparent))
        self._appended.set()
        return sequence

    def append_stored(self, commits: list[Stored]) -> None:
        """Export: commits of another home at their own sequences, in one transaction.

        Raises LogError when they do not continue the file; into an empty one they may begin anywhere.
        """
        with self.transaction() as cursor:
            expected = self._end() + 1
            for commit in commits:
                if commit.sequence != expected and expected > 1:
                    what = f"commit {commit.sequence} does not continue it; expected {expected}"
                    raise LogError(f"{self.path}: {what}, unless another process writes it, too")
                cursor.execute(_INSERT, _row(commit))
                expected = commit.sequence + 1
        self._appended.set()

    async def last(self, subject: str) -> Stored | None:
        found = self._select("WHERE subject = ? ORDER BY sequence DESC LIMIT 1", subject)
        return found[0] if found else None

    async def at(self, sequence: int) -> Stored | None:
        found = self._select("WHERE sequence = ?", sequence)
        return found[0] if found else None

    async def bounds(self) -> Bounds:
        with self.errors():
            return Bounds(self._first(), self._end())

    async def end(self) -> int:
        with self.errors():
            return self._end()

    async def read(self, after: int = 0, until: int | None = None) -> AsyncIterator[list[Stored]]:
        """Raises LogError where the file is damaged or commits are missing."""
        end = await self.end()
        stop = end if until is None else min(until, end)
        place = after
        while place < stop:
            batch = self._batch(place, stop)
            if not batch:
                if place == after and self._first() > stop:
                    return  # all that was asked for was purged
                raise LogError(f"{self.path}: commits are missing between {place + 1} and {stop}")
            place = batch[-1].sequence
            yield batch

    async def follow(self, after: int = 0) -> AsyncIterator[list[Stored]]:
        place = after
        while True:
            self._appended.clear()
            batch = self._batch(place, None)
            if batch:
                place = batch[-1].sequence
                yield batch
                continue
            try:
                async with asyncio.timeout(POLL_S):
                    await self._appended.wait()
            except TimeoutError:
                pass  # perhaps another process appended

    async def stays(self, for_s: float) -> None:
        await asyncio.sleep(for_s)

    async def purge(self, first: int) -> None:
        with self.transaction() as cursor:
            check_purge(first, self._end())
            cursor.execute("DELETE FROM commits WHERE sequence < ?", (first,))

    def checkpoint(self) -> None:
        """All of it into the file itself, which somebody may copy without the one beside it; as far as no reader is in
        the way. Raises LogError."""
        with self.errors():
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    async def close(self) -> None:
        self._connection.close()

    # ----------------------------------------------------------------------------------------------------------- inside

    def _make(self, cluster: str | None) -> None:
        """The tables, all or none: a process that dies meanwhile, or a full disk, leaves a file that can still become a
        log."""
        from sqlite_utils import Database

        self._connection.execute("PRAGMA journal_mode = WAL")
        with self.transaction():
            if self._tables():  # another process was first
                return
            database = Database(self._connection)
            database.table("commits").create(_COLUMNS, pk="sequence", not_null=set(_COLUMNS))
            database.table("commits").create_index(["subject", "sequence"])
            database.table("log").insert({"cluster": cluster, "format": FORMAT}, pk="cluster")

    def _tables(self) -> set[str]:
        return {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def _check(self, cluster: str | None) -> str:
        """The cluster that the file is of."""
        if not {"log", "commits"} <= self._tables():
            raise LogError(f"{self.path}: an SQLite file, but no log: it has no tables 'log' and 'commits'")
        found, version = self._connection.execute("SELECT cluster, format FROM log").fetchone() or ("", 0)
        if version != FORMAT:
            raise LogError(f"{self.path}: a log in format {version}; this version reads format {FORMAT}")
        if type(found) is not str or not subjects.valid_name(found):  # an older file's may be kept back since
            raise LogError(f"{self.path}: the log of a cluster {found!r}; expected {subjects.EXPECTED_NAME}")
        if cluster is not None and cluster != found:
            raise LogError(f"{self.path}: the log of cluster {found!r}, not of {cluster!r}")
        return found

    def _batch(self, after: int, stop: int | None) -> list[Stored]:
        limit = BATCH_COMMITS if stop is None else min(BATCH_COMMITS, stop - after)
        batch = self._select_batch(after, limit)
        check_place(str(self.path), after, self._first())
        if batch and (batch[-1].sequence - batch[0].sequence != len(batch) - 1 or 0 < after < batch[0].sequence - 1):
            raise LogError(f"{self.path}: commits are missing between {after + 1} and {batch[-1].sequence}")
        return batch if stop is None else [commit for commit in batch if commit.sequence <= stop]

    def _select_batch(self, after: int, limit: int) -> list[Stored]:
        query = f"{_SELECT} WHERE sequence > ? ORDER BY sequence LIMIT ?"
        batch, size = list[Stored](), 0
        with self.errors(), closing(self._connection.execute(query, (after, limit))) as rows:
            for row in rows:
                batch.append(self._stored(row))
                size += len(batch[-1].payload)
                if size >= BATCH_BYTES:
                    break
        return batch

    def _select(self, condition: str, *values: str | int) -> list[Stored]:
        return [self._stored(row) for row in self.rows(f"{_SELECT} {condition}", *values)]

    def _stored(self, row: Any) -> Stored:
        """SQLite keeps whatever it is given, in any column. Bytes that were edited by hand may be text."""
        sequence, subject, message_id, header, payload, traceparent = row
        header, payload = (part.encode() if type(part) is str else part for part in (header, payload))
        texts = type(subject) is type(message_id) is type(traceparent) is str
        if not (type(sequence) is int and sequence > 0 and texts and type(header) is type(payload) is bytes):
            raise LogError(f"{self.path}: commit {str(sequence)[:40]!r} has values in its row that no commit has")
        return Stored(
            sequence=sequence,
            subject=subject,
            message_id=message_id,
            header=header,
            payload=payload,
            traceparent=traceparent,
        )

    def rows(self, query: str, *values: str | int) -> list[Any]:
        with self.errors():
            return self._connection.execute(query, values).fetchall()

    def _first(self) -> int:
        return self._place("min", 1)

    def _end(self) -> int:
        return self._place("max", 0)

    def _place(self, which: str, empty: int) -> int:
        (found,) = self._connection.execute(f"SELECT {which}(sequence) FROM commits").fetchone()
        if found is not None and (type(found) is not int or found < 1):
            raise LogError(f"{self.path}: a commit's sequence is {str(found)[:40]!r}; expected numbers from 1 on")
        return empty if found is None else found

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        with self.errors():
            cursor = self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.rollback()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """SQLite's errors, with the name of the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise Unavailable(f"{self.path}: {error}") from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise LogError(f"{self.path}: not a log that can be read: {error}") from error


class SqliteSnapshots:
    """Snapshots in a table of the log's file, which an older file does not have yet."""

    def __init__(self, log: SqliteLog) -> None:
        self._log = log

    async def put(self, kept: Kept, data: bytes) -> None:
        with self._log.transaction() as cursor:
            cursor.execute(_SNAPSHOTS)
            if not self._has_commits():
                cursor.execute(_COMMIT)
            row = kept.sequence, kept.digest, kept.state, kept.bytes, data, kept.commit
            cursor.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", row)

    async def listed(self) -> list[Kept]:
        if not self._has_table():
            return []
        commit = "commit_id" if self._has_commits() else "''"
        rows = self._log.rows(f"SELECT sequence, digest, state, bytes, {commit} FROM snapshots ORDER BY sequence DESC")
        return [
            Kept(sequence=row[0], digest=row[1], state=row[2], bytes=row[3], commit=row[4])
            for row in rows
            if _is_kept(row)
        ]

    async def get(self, kept: Kept) -> bytes:
        query = "SELECT data FROM snapshots WHERE sequence = ? AND digest = ? AND bytes = ? AND length(data) = bytes"
        rows = self._log.rows(query, kept.sequence, kept.digest, kept.bytes) if self._has_table() else []
        if not rows or type(data := rows[0][0]) is not bytes:
            raise BrokenSnapshot(f"{self._log.path}: snapshot {kept.sequence} is gone, or not whole")
        return data

    async def delete(self, kept: Kept) -> None:
        if self._has_table():
            with self._log.transaction() as cursor:
                cursor.execute("DELETE FROM snapshots WHERE sequence = ?", (kept.sequence,))

    def _has_commits(self) -> bool:
        return bool(self._log.rows("SELECT 1 FROM pragma_table_info('snapshots') WHERE name = 'commit_id'"))

    def _has_table(self) -> bool:
        return bool(self._log.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'snapshots'"))


def _open(path: Path, cluster: str | None, create: bool) -> sqlite3.Connection:
    """A connection in autocommit. Raises LogError."""
    new = not path.exists() or not (path.is_dir() or path.stat().st_size)
    if new and not create:
        what = "an empty file" if path.is_file() else "no such log"
        raise LogError(f"{path}: {what}; expected an SQLite file that `muster export` wrote")
    if new and (cluster is None or not subjects.valid_cluster(cluster)):
        raise LogError(f"{path}: a new log needs its cluster's name: {subjects.EXPECTED_CLUSTER}; not {cluster!r}")
    _check_place(path, new)
    try:
        if new or _may_be_written(path):
            return _connect(path, "rwc" if new else "rw")
        return _open_to_read(path)
    except (sqlite3.Error, OSError) as error:
        raise LogError(f"{path}: {error}") from error


def _may_be_written(path: Path) -> bool:
    """SQLite puts a WAL beside what it may write, even to read it: not where that cannot be made, as beside a file that
    alone was mounted into a container."""
    return os.access(path, os.W_OK) and (os.access(path.resolve().parent, os.W_OK) or _wal_of(path).exists())


def _wal_of(path: Path) -> Path:
    return path.resolve().with_name(f"{path.resolve().name}-wal")


def _open_to_read(path: Path) -> sqlite3.Connection:
    """What may not be written. The last commits may be in a WAL beside it, to which somebody may be writing; without one,
    SQLite would have to make it. Raises sqlite3.Error, OSError, LogError."""
    wal = _wal_of(path)
    if wal.exists():
        connection = _connect(path, "ro")
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
            return connection
        except sqlite3.OperationalError as error:
            connection.close()
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise Unavailable(f"{path}: {error}") from error
            if wal.exists() and wal.stat().st_size:
                told = f"its last commits are in {wal}, which SQLite cannot read without writing: {error}"
                raise LogError(f"{path}: {told}; expected permission to write, or a copy of both") from error
    return _connect(path, "ro&immutable=1")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=BUSY_S, isolation_level=None)


def _check_place(path: Path, new: bool) -> None:
    """SQLite says of all this only that it is unable to open the file. Raises LogError."""
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LogError(f"{path}: a link to itself; expected a file") from error
    if path.is_dir():
        raise LogError(f"{path}: a directory; expected a file")
    if new and not path.parent.is_dir():
        raise LogError(f"{path}: there is no directory {path.parent}")
    if not (os.access(path.parent, os.W_OK) if new else os.access(path, os.R_OK)):
        raise LogError(f"{path}: permission denied")


def _is_kept(row: Any) -> bool:
    """Not what somebody else put there."""
    return tuple(map(type, row)) == (int, str, int, int, str) and row[0] > 0


def _row(commit: Stored) -> tuple[int, str, str, bytes, bytes, str]:
    return commit.sequence, commit.subject, commit.message_id, commit.header, commit.payload, commit.traceparent
