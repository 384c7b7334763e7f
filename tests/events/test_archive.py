"""A log in a file that whoever reads it may not write, or that somebody writes meanwhile."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from events.homes import open_log
from events.log import LogError
from events.sqlite import BATCH_COMMITS, SqliteLog
from tests.events.writing import collect, fill


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for another user, or on another's volume."""
    monkeypatch.setattr("os.access", lambda _, mode: mode != os.W_OK)


async def test_who_may_not_write_a_file_reads_what_is_in_its_wal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: the file alone, which lacks the last commits while somebody writes, and behind who was killed."""
    writing = await open_log(str(path), "one", create=True)
    await fill(writing, "binder", 3)
    monkeypatch.setattr("os.access", lambda _, mode: mode != os.W_OK)
    reading = await open_log(str(path))
    assert await reading.end() == 3
    await fill(writing, "ingest", 2)
    assert await collect(reading.read()) == await collect(writing.read())
    await reading.close()

    killed = path.parent / "killed"
    killed.mkdir()
    for file in path.parent.glob("a.db*"):
        shutil.copy(file, killed)
    reading = await open_log(str(killed / path.name))
    assert await reading.end() == 5
    await reading.close()
    await writing.close()


@pytest.mark.usefixtures("read_only")
async def test_nothing_is_made_beside_what_may_not_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as writable:
        writable.setattr("os.access", lambda *_: True)
        writing = await open_log(str(path), "one", create=True)
        await fill(writing, "binder", 3)
        await writing.close()
    reading = await open_log(str(path))
    assert await reading.end() == 3
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    await reading.close()


async def test_a_file_in_a_directory_that_may_not_be_written_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a file that alone was mounted into a container. As it was: `attempt to write a readonly database`."""
    writing = await open_log(str(path), "one", create=True)
    await fill(writing, "binder", 3)
    await writing.close()
    monkeypatch.setattr("os.access", lambda one, mode: mode != os.W_OK or Path(one) == path)
    reading = await open_log(str(path))
    assert await reading.end() == 3
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    await reading.close()


async def test_a_wal_that_cannot_be_read_without_writing_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await open_log(str(path), "one", create=True)).close()
    opened = sqlite3.connect

    def connect(where: str, **options: Any) -> Any:
        """As where there is nobody's shared memory, and none may be made."""
        return opened(where, **options) if "immutable" in where else Failing()

    monkeypatch.setattr("os.access", lambda _, mode: mode != os.W_OK)
    monkeypatch.setattr("sqlite3.connect", connect)
    wal = path.with_name("a.db-wal")
    wal.touch()
    reading = await open_log(str(path))
    assert await reading.end() == 0
    await reading.close()
    wal.write_bytes(b"x")
    with pytest.raises(LogError, match=r"a\.db: its last commits are in .*a\.db-wal, which SQLite cannot read without"):
        await open_log(str(path))


class Failing:
    """A connection."""

    def close(self) -> None:
        """Nothing."""

    def execute(self, _: str) -> None:
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error


async def test_commits_that_go_while_a_file_is_read_are_told(path: Path) -> None:
    """As it was: it was read to what was left, as if that were all."""
    log = SqliteLog(path, "one", create=True)
    await fill(log, "binder", 2 * BATCH_COMMITS)
    reading = log.read()
    assert len(await anext(reading)) == BATCH_COMMITS
    log._connection.execute("DELETE FROM commits WHERE sequence > ?", (BATCH_COMMITS,))
    with pytest.raises(LogError, match=f"commits are missing between {BATCH_COMMITS + 1} and {2 * BATCH_COMMITS}"):
        await anext(reading)
    await log.close()
