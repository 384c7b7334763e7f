"""Copies whose target, or whose commits, are not as they should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from events.connection import Connection
from events.homes import copy
from events.jetstream import JetStreamLog
from events.log import EventLog, LogError
from events.memory import MemoryLog
from events.server import EmbeddedServer
from events.snapshots import Kept
from events.sqlite import SqliteLog
from tests.events.writing import append, fill


@pytest.mark.parametrize("limits", [{"max_msgs": 4}, {"max_msgs_per_subject": 1}], ids=str)
async def test_a_stream_that_forgets_what_is_copied_is_told(
    server: EmbeddedServer, cluster: str, limits: dict[str, Any]
) -> None:
    """As it was: all were copied, it said, and most were gone."""
    connection = await Connection(server.url).connect()
    stream = {"name": f"muster-{cluster}", "subjects": [f"muster.{cluster}.>"]}
    await connection.create_stream(stream | {"discard": "old"} | limits)
    memory = MemoryLog(cluster)
    await fill(memory, "binder", 9)
    await append(memory, "ingest", 1, 0)
    log = await JetStreamLog.open(server.url, cluster)
    with pytest.raises(LogError, match=r"begins at [79] and not at 1: it forgot some of the 10 commits"):
        await copy(memory, log)
    await log.close()
    await connection.close()


async def test_what_was_there_before_or_came_in_an_earlier_batch_is_not_forgotten_unheard(
    server: EmbeddedServer, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last batch alone has room, and all that is new."""
    monkeypatch.setattr("events.memory.BATCH", 2)
    memory = MemoryLog(cluster)
    await fill(memory, "binder", 2)
    connection = await Connection(server.url).connect()
    stream = {"name": f"muster-{cluster}", "subjects": [f"muster.{cluster}.>"]}
    await connection.create_stream(stream | {"discard": "old", "max_msgs": 3})
    log = await JetStreamLog.open(server.url, cluster)
    assert await copy(memory, log) == 2
    for writer, more, first, forgot in (("ingest", 2, 2, 2), ("admin", 4, 6, 4)):
        await fill(memory, writer, more)
        with pytest.raises(LogError, match=rf"begins at {first} and not at \d: it forgot some of the {forgot} commits"):
            await copy(memory, log)
    await log.close()
    await connection.close()


async def test_of_an_empty_log_nothing_is_copied(each_home: EventLog, tmp_path: Path) -> None:
    archive = SqliteLog(tmp_path / "a.db", each_home.cluster, create=True)
    assert await copy(each_home, archive) == 0
    assert await archive.end() == 0
    await archive.close()


@pytest.mark.parametrize(
    ("its_own", "source", "then"),
    [
        ((), (7, 30), [30]),
        ((), (8, 31), [8]),
        ((), (31,), []),
        ((8,), (20,), [8]),
        ((30,), (20,), [30]),
        ((7,), (20,), [7, 20]),
        ((31,), (20,), [20, 31]),
    ],
)
async def test_a_purged_beginning_has_one_snapshot_to_stand_on(
    tmp_path: Path, its_own: tuple[int, ...], source: tuple[int, ...], then: list[int]
) -> None:
    """At the commit before the first, or any later up to the last; the source's oldest such, unless there is one."""
    purged, target = (SqliteLog(tmp_path / name, "one", create=True) for name in ("source.db", "target.db"))
    memory = MemoryLog("one")
    await fill(memory, "binder", 30)
    purged.append_stored(memory.commits[8:])
    for log, sequences in ((purged, source), (target, its_own)):
        for sequence in sequences:
            await log.snapshots.put(Kept(sequence=sequence, digest="d", state=1, bytes=1), b"x")
    assert await copy(purged, target) == 22
    assert sorted(kept.sequence for kept in await target.snapshots.listed()) == then
    await purged.close()
    await target.close()


async def test_a_commit_of_another_cluster_is_not_given_to_its_log(server: EmbeddedServer) -> None:
    """Of a file whose cluster was renamed by hand. As it was: 30 s later the answer of the log that the commit is of, or
    its log had it."""
    memory = MemoryLog("theirs")
    await fill(memory, "binder", 3)
    memory.cluster = "ours"
    theirs, ours = [await JetStreamLog.open(server.url, cluster) for cluster in ("theirs", "ours")]
    with pytest.raises(LogError, match=r"^commit 1 on muster\.theirs\.binder: expected one of cluster 'ours'$"):
        await copy(memory, ours)
    assert [await log.end() for log in (theirs, ours)] == [0, 0]
    await theirs.close()
    await ours.close()
