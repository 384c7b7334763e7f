"""SQLite files that are no log, or were one: each command ends with one line and its documented exit code."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.console import commands
from tests.console.manifests import node, pod
from tests.fuzz import examples
from tests.fuzz.generate import RAW, TEXTS, mangled

COMMANDS: dict[str, Callable[[str], int]] = {
    "replay": lambda path: commands.replay(path, None),
    "replay --at": lambda path: commands.replay(path, None, at="5"),
    "verify": lambda path: commands.verify(path, None),
    "export": lambda path: commands.copy_log(path, f"{path}.out.db", None),
    "policy show": lambda path: commands.show_policy(path, None),
    "policy set": lambda path: commands.set_policy(path, None, {"backoff_max_ms": 20_000}),
}
DOCUMENTED = {0, 1, 2, 5}
COLUMNS = ("sequence", "subject", "message_id", "header", "payload", "traceparent")
SCHEMAS = (
    "DROP TABLE log",
    "DROP TABLE commits",
    "DELETE FROM log",
    "DELETE FROM commits",
    "UPDATE log SET format = 2",
    "UPDATE log SET cluster = '[/]'",
    "UPDATE log SET cluster = NULL",
    "ALTER TABLE commits RENAME COLUMN payload TO other",
    "ALTER TABLE commits DROP COLUMN traceparent",
    "DELETE FROM commits WHERE sequence = 4",
    "DELETE FROM commits WHERE sequence < 4",
    "UPDATE commits SET sequence = -sequence",
    "UPDATE commits SET sequence = 9223372036854775807 WHERE sequence = (SELECT max(sequence) FROM commits)",
    "CREATE TABLE snapshots (sequence, digest, state, bytes, data);"
    "INSERT INTO snapshots VALUES ('x', NULL, 'y', 1.5, 5)",
    "CREATE TABLE snapshots (other)",
    "DROP TABLE commits; CREATE VIEW commits AS SELECT 1 AS sequence",
    "DROP TABLE commits; CREATE TABLE commits (sequence, subject, message_id, header, payload, traceparent);"
    "INSERT INTO commits VALUES ('a', 'b', 'c', 'd', 'e', 'f')",
)
UNTYPED = "CREATE TABLE other AS SELECT * FROM commits; DROP TABLE commits; ALTER TABLE other RENAME TO commits"
"""Columns that take anything."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file, without a write-ahead log beside it."""
    directory = tmp_path_factory.mktemp("log")
    manifests, path = directory / "all.json", directory / "log.db"
    manifests.write_text("\n---\n".join(map(json.dumps, [node("n1"), pod("a"), pod("b", "99")])))
    assert commands.simulate([manifests], profile="default", log=path, as_json=True) == 0
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("bad")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def end(path: Path) -> None:
    """Run every command on it."""
    for name, command in COMMANDS.items():
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = command(str(path))
            except SystemExit as ended:
                code = ended.code  # type: ignore[assignment]
        assert code in DOCUMENTED, name
        if code == 2:
            assert err.getvalue().startswith("error: "), name
            assert len(err.getvalue().strip().splitlines()) == 1, name


def fresh(scratch: Path) -> Path:
    for left in scratch.iterdir():
        left.unlink()
    return scratch / "bad.db"


@examples(25)
@given(data=st.data())
def test_bytes_that_were_a_log(log: Path, scratch: Path, data: st.DataObject) -> None:
    path = fresh(scratch)
    path.write_bytes(data.draw(mangled([log.read_bytes()]), label="file"))
    end(path)


values = st.sampled_from([None, 0, -1, 2**63 - 1, 1.5, *(bytes(raw) for raw in RAW), *TEXTS]) | st.binary(max_size=20)


@examples(25)
@given(st.sampled_from(COLUMNS), st.integers(1, 9), values, st.booleans())
def test_rows_that_hold_something_else(
    log: Path,
    scratch: Path,
    column: str,
    sequence: int,
    value: object,
    untyped: bool,
) -> None:
    path = fresh(scratch)
    shutil.copy(log, path)
    with closing(sqlite3.connect(path)) as connection:
        if untyped:
            connection.executescript(UNTYPED)
        try:
            connection.execute(f"UPDATE commits SET {column} = ? WHERE sequence = ?", (value, sequence))
            connection.commit()
        except sqlite3.Error:
            return  # the table would not have it
    end(path)


@pytest.mark.parametrize("change", SCHEMAS)
def test_tables_that_are_others(log: Path, scratch: Path, change: str) -> None:
    path = fresh(scratch)
    shutil.copy(log, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(change)
    end(path)


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"SQLite format 3\0", b"hello\n", b"\xff" * 100])
def test_a_file_that_never_was_one(scratch: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    path = fresh(scratch)
    path.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        commands.replay(str(path), None)
    assert ended.value.code == 2
    assert str(path) in capsys.readouterr().err
