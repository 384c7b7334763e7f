"""What may go of a log: what the last two snapshots, the days and the archive allow, and nothing of it unarchived."""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result
from typer.testing import CliRunner

import events as ev
from events import memory
from events.envelope import Stored
from events.homes import copy, open_log
from events.jetstream import JetStreamLog
from events.log import EventLog, LogError
from events.memory import MemoryLog
from events.server import EmbeddedServer
from events.sqlite import SqliteLog
from services.cli.muster import app
from services.console import retention
from services.console.retention import DAY_NS, retain
from services.snapshots import KEPT, take
from services.start import beginning, state_at
from services.state import snapshot
from services.state.fold import State
from services.writer import SteppedDown, Writer
from tests.homes import commits_of
from tests.snapshots.writing import NOW_NS, append, tell_snapshot, write


@pytest.fixture
async def archive(tmp_path: Path, cluster: str) -> SqliteLog:
    opened = await open_log(str(tmp_path / "archive.db"), cluster, create=True)
    assert isinstance(opened, SqliteLog)
    return opened


# --------------------------------------------------------------------------------------------------------- the bounds


async def test_up_to_the_older_of_the_last_two_snapshots(log: EventLog, archive: SqliteLog) -> None:
    await append(log, "admin", [ev.IngestTaken(holder="x")], "admin")
    for _ in range(3):
        await write(log, 10)
        await tell_snapshot(log)
    await write(log, 10)
    before = await state_at(log)
    whole = await commits_of(log)
    older = min(before.state.snapshots)
    found = await retain(log, archive, days=1, now_ns=NOW_NS)
    assert (found.first, found.purged, found.archived) == (older + 1, older, len(whole))
    assert found.emptied == ["admin"]
    assert found.archive_end == len(whole)
    assert f"the snapshot of {older} is the older of the last 2" in found.because
    assert (await log.bounds()).first == older + 1
    assert await commits_of(archive) == whole
    after = await state_at(log)
    assert snapshot.digest(after.state) == snapshot.digest(before.state)
    again = await retain(log, archive, days=1, now_ns=NOW_NS)
    assert (again.purged, again.archived, again.first) == (0, 0, older + 1)
    await archive.close()


async def test_for_ever_by_default_but_archived(archive: SqliteLog, cluster: str) -> None:
    log = MemoryLog(cluster)
    for _ in range(3):
        await write(log, 10)
        await tell_snapshot(log)
    found = await retain(log, archive, days=0, now_ns=NOW_NS)
    assert (found.purged, found.first, found.archive_end) == (0, 1, 33)
    assert "neither --days nor MUSTER_RETENTION_DAYS is more than 0" in found.because


async def test_what_is_younger_than_the_days_stays() -> None:
    """By its writers' clocks, which need not agree: the first young commit ends it."""
    log = MemoryLog("test")
    for age_days in (9, 8, 7, 6, 8, 3, 2, 1, 0):
        await write(log, 5, NOW_NS - age_days * DAY_NS)
        await tell_snapshot(log, NOW_NS - age_days * DAY_NS)
    assert (await retain(log, None, days=10, now_ns=NOW_NS)).purged == 0
    found = await retain(log, None, days=7, now_ns=NOW_NS)
    assert found.first == 13  # the first of those that are 7 days old
    assert found.because == "commit 13 is younger than 7 days"
    found = await retain(log, None, days=2, now_ns=NOW_NS)
    assert found.first == 37
    found = await retain(log, None, days=1, now_ns=NOW_NS)
    assert found.first == 43
    assert (await retain(log, None, days=1, now_ns=NOW_NS)).purged == 0


async def test_a_commit_from_the_future_goes_with_an_older_one_behind_it() -> None:
    """A machine came up with the wrong date, and wrote until its clock was set."""
    log = MemoryLog("test")
    for age_days in (9, 8, -400, 6, -400):
        await write(log, 5, NOW_NS - age_days * DAY_NS)
        await tell_snapshot(log, NOW_NS - age_days * DAY_NS)
    found = await retain(log, None, days=7, now_ns=NOW_NS)
    assert (found.purged, found.because) == (12, "commit 19 is younger than 7 days")
    found = await retain(log, None, days=5, now_ns=NOW_NS)
    assert (found.purged, found.because) == (11, "the snapshot of 23 is the older of the last 2")
    await write(log, 5, NOW_NS)
    await tell_snapshot(log, NOW_NS + DAY_NS)
    await tell_snapshot(log, NOW_NS + DAY_NS)
    found = await retain(log, None, days=5, now_ns=NOW_NS)
    assert (found.purged, found.because) == (1, "commit 31 is younger than 5 days")
    found = await retain(log, None, days=5, now_ns=NOW_NS - DAY_NS)
    assert (found.purged, found.because) == (0, "commit 35 is of a time that is still to come")


@pytest.mark.parametrize("fault", ["one", "gone", "broken", "not confirmed"])
async def test_nothing_goes_without_two_snapshots_that_are_good(fault: str) -> None:
    log = MemoryLog("test")
    for number in range(1 if fault == "one" else 2):
        await write(log, 10)
        if fault == "not confirmed" and number:
            await take(log)
        else:
            await tell_snapshot(log)
    await write(log, 3)
    newest = (await log.snapshots.listed())[0]
    if fault == "gone":
        await log.snapshots.delete(newest)
    elif fault == "broken":
        await log.snapshots.put(newest, b"broken")
    found = await retain(log, None, days=1, now_ns=NOW_NS)
    assert found.purged == 0
    assert found.because == (
        f"snapshot {newest.sequence} cannot be restored"
        if fault in ("gone", "broken")
        else "the log confirms 1 snapshot: 2 are needed, of those that binder or federator take "
        "(MUSTER_SNAPSHOT_AFTER_BYTES)"
    )


async def test_snapshots_that_people_take_keep_nothing_from_being_purged() -> None:
    """They help a start. The log does not confirm them, and those that it does outlive any number of them."""
    log = MemoryLog("test")
    for _ in range(2):
        await write(log, 10)
        await tell_snapshot(log)
    for _ in range(KEPT + 1):
        await write(log, 2)
        await take(log)
    found = await retain(log, None, days=1, now_ns=NOW_NS)
    assert (found.purged, found.because) == (10, "the snapshot of 10 is the older of the last 2")


async def test_what_is_left_can_be_folded_from_its_first_commit_on_wherever_a_run_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The snapshot of the last commit that goes is put first: a purge after which nothing could be done leaves it."""
    log = MemoryLog("test")
    await write(log, 10)
    for _ in range(2):
        await write(log, 10, NOW_NS)
        await tell_snapshot(log, NOW_NS)
    purge = log.purge

    async def ends(first: int) -> None:
        await purge(first)
        raise LogError("killed")

    monkeypatch.setattr(log, "purge", ends)
    with pytest.raises(LogError, match="killed"):
        await retain(log, None, days=1, now_ns=NOW_NS)
    assert (await log.bounds()).first == 11
    assert (await beginning(log)).state.sequence == 10


async def test_what_nobody_known_wrote_goes_with_the_rest() -> None:
    log = MemoryLog("test")
    log.commits.append(Stored(sequence=1, subject="muster.test.x", message_id="", header=b"{}", payload=b"?"))
    for _ in range(2):
        await write(log, 5)
        await tell_snapshot(log)
    assert (await retain(log, None, days=1, now_ns=NOW_NS)).purged == 6


# -------------------------------------------------------------------------------------------------------- the archive


@pytest.mark.parametrize("end", [0, 1, 12])
async def test_no_more_goes_than_the_archive_holds(
    archive: SqliteLog, cluster: str, monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    """The log grows while it is archived, and a disk may lose what it was given."""
    log = MemoryLog(cluster)
    for _ in range(3):
        await write(log, 10)
        await tell_snapshot(log)

    async def some(source: EventLog, target: SqliteLog) -> int:
        target.append_stored(log.commits[:end])
        return end

    monkeypatch.setattr("services.console.retention.copy", some)
    found = await retain(log, archive, days=1, now_ns=NOW_NS)
    assert (found.purged, found.archive_end, found.because) == (end, end, f"the archive ends at {end}")
    await archive.close()


async def test_an_archive_that_does_not_give_back_what_it_was_given_purges_nothing(
    archive: SqliteLog, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MemoryLog(cluster)
    for _ in range(3):
        await write(log, 10)
        await tell_snapshot(log)

    async def torn(source: EventLog, target: SqliteLog) -> int:
        target.append_stored([*log.commits[:-1], msgspec.structs.replace(log.commits[-1], payload=b"[]")])
        return len(log.commits)

    monkeypatch.setattr("services.console.retention.copy", torn)
    with pytest.raises(LogError, match="commit 33 of the archive is not the log's"):
        await retain(log, archive, days=1, now_ns=NOW_NS)
    assert (await log.bounds()).first == 1
    await archive.close()


async def test_what_goes_is_in_the_archives_own_file(
    archive: SqliteLog, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: of a run that was killed behind its purge, the last commits stood in the `-wal` beside it alone."""
    log, alone = MemoryLog(cluster), tmp_path / "alone.db"
    for _ in range(3):
        await write(log, 10)
        await tell_snapshot(log)

    async def killed(first: int) -> None:
        alone.write_bytes(archive.path.read_bytes())
        raise SystemExit

    monkeypatch.setattr(log, "purge", killed)
    with pytest.raises(SystemExit):
        await retain(log, archive, days=1, now_ns=NOW_NS)
    copied = await open_log(str(alone), cluster)
    assert await commits_of(copied) == log.commits
    await copied.close()
    await archive.close()


async def test_one_state_is_held_at_a_time(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: two, which of a cluster of 100,000 pods were 150 MB instead of 80."""
    log = MemoryLog(cluster)
    for _ in range(3):
        await write(log, 10)
        await tell_snapshot(log)
    held, begins = list[int](), State.__init__

    def counted(state: State, *fields: Any, **named: Any) -> None:
        gc.collect()
        held.append(sum(type(one) is State for one in gc.get_objects()))
        begins(state, *fields, **named)

    monkeypatch.setattr(State, "__init__", counted)
    assert (await retain(log, None, days=1, now_ns=NOW_NS)).purged
    assert len(held) > 3, "what the log says, two snapshots, the one that is made"
    assert set(held) == {held[0]}


async def test_of_two_runs_at_once_the_slower_says_where_the_log_begins(
    cluster: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was: that it had purged what the other had, and, in a warning, that no snapshot could be taken."""
    log = MemoryLog(cluster)
    for _ in range(3):
        await write(log, 10)
        await tell_snapshot(log)
    checked = retention._emptied

    async def overtaken(*about: Any) -> list[str]:
        found = await checked(*about)
        await log.purge(25)
        return found

    monkeypatch.setattr(retention, "_emptied", overtaken)
    found = await retain(log, None, days=1, now_ns=NOW_NS)
    assert (found.first, (await log.bounds()).first) == (25, 25)
    assert found.purged <= 24
    assert not caplog.records


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE commits SET payload = '[]'",
        "UPDATE commits SET header = '{}'",
        "UPDATE commits SET message_id = ''",
        "UPDATE commits SET traceparent = '0'",
        "DELETE FROM commits",
    ],
)
async def test_an_archive_that_lost_something_in_between_purges_nothing(
    archive: SqliteLog, cluster: str, change: str
) -> None:
    """It was archived by an earlier run, and is the only copy of what goes now."""
    log = MemoryLog(cluster)
    for _ in range(3):
        await write(log, 10)
        await tell_snapshot(log)
    assert (await retain(log, archive, days=0, now_ns=NOW_NS)).archived == 33
    with sqlite3.connect(archive.path) as connection:
        connection.execute(f"{change} WHERE sequence = 5")
    connection.close()
    with pytest.raises(LogError, match=r"(commit 5 of the archive is not the log's|commits are missing)"):
        await retain(log, archive, days=1, now_ns=NOW_NS)
    assert (await log.bounds()).first == 1
    await archive.close()


async def test_in_whatever_batches_the_log_is_read_it_is_compared_with_its_archive(
    archive: SqliteLog, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "BATCH", 4)
    log = MemoryLog(cluster)
    for _ in range(3):
        await write(log, 10)
        await tell_snapshot(log)
    assert (await retain(log, archive, days=1, now_ns=NOW_NS)).purged == 21
    await archive.close()


async def test_an_archive_that_is_not_the_logs_purges_nothing(tmp_path: Path, cluster: str) -> None:
    log, other = MemoryLog(cluster), MemoryLog(cluster)
    for each, time_ns in ((log, 0), (other, 1)):
        for _ in range(3):
            await write(each, 10, time_ns)
            await tell_snapshot(each)
    archive = await open_log(str(tmp_path / "a.db"), cluster, create=True)
    await write(other, 5, 7)
    await copy(other, archive)
    with pytest.raises(LogError, match="has all 33 commits of the source, and 5 more"):
        await retain(log, archive, days=1, now_ns=NOW_NS)
    assert (await log.bounds()).first == 1


async def test_an_archive_that_begins_too_late_purges_nothing(tmp_path: Path, cluster: str) -> None:
    log = MemoryLog(cluster)
    for _ in range(3):
        await write(log, 10)
        await tell_snapshot(log)
    archive = await open_log(str(tmp_path / "a.db"), cluster, create=True)
    assert isinstance(archive, SqliteLog)
    archive.append_stored(log.commits[5:])
    with pytest.raises(LogError, match="the archive begins at 6, the log at 1: not all is in it"):
        await retain(log, archive, days=1, now_ns=NOW_NS)
    assert (await log.bounds()).first == 1


# -------------------------------------------------------------------------------------------------------- its writers


async def test_a_writer_that_was_silent_for_long_begins_anew(log: EventLog) -> None:
    silent, loud = Writer(log, "planner.7"), Writer(log, "ingest")
    await silent.take(ev.PlannerTaken(shard="7", holder="asleep"))
    await loud.take(ev.IngestTaken(holder="awake"))
    for _ in range(2):
        for number in range(8):
            fact = ev.PriorityClassObserved(name="c", uid="u", resource_version=str(number), value=1, preempts=True)
            await loud.append([fact], basis=0, cause="facts")
        await tell_snapshot(log)
    found = await retain(log, None, days=1, now_ns=2 * DAY_NS + time.time_ns())
    assert found.purged > 0
    assert found.emptied == ["planner.7"]
    with pytest.raises(SteppedDown, match="found 0"):
        await silent.append([ev.Ticked(time_ns=1, jumped_ns=0)], basis=0, cause="tick")
    again = Writer(log, "planner.7")
    sequence = await again.take(ev.PlannerTaken(shard="7", holder="back"))
    assert await again.append([ev.Renewed()], basis=sequence, cause="renew") == sequence + 1
    await loud.append([ev.Renewed()], basis=sequence, cause="renew")


async def test_a_writer_whose_last_commit_is_the_last_that_goes_begins_anew() -> None:
    log = MemoryLog("test")
    await write(log, 10)
    await append(log, "planner.7", [ev.PlannerTaken(shard="7", holder="asleep")], "taken")
    for _ in range(2):
        await tell_snapshot(log)
        await write(log, 10)
    found = await retain(log, None, days=1, now_ns=NOW_NS)
    assert (found.purged, found.emptied) == (11, ["planner.7"])


async def test_a_writer_that_renewed_is_not_touched(log: EventLog) -> None:
    idle = Writer(log, "planner.7")
    await idle.take(ev.PlannerTaken(shard="7", holder="idle"))
    for _ in range(2):
        await write(log, 10)
        await tell_snapshot(log)
    await idle.append([ev.Renewed()], basis=0, cause="renew")
    found = await retain(log, None, days=1, now_ns=2 * DAY_NS + time.time_ns())
    assert found.purged > 0
    assert found.emptied == []
    await idle.append([ev.Ticked(time_ns=1, jumped_ns=0)], basis=0, cause="tick")


# -------------------------------------------------------------------------------------------------------- the command


async def test_the_command_archives_and_purges_and_insists_on_an_archive(
    server: EmbeddedServer, cluster: str, tmp_path: Path
) -> None:
    log = await JetStreamLog.open(server.url, cluster)
    for _ in range(3):
        await write(log, 10)
        await tell_snapshot(log)
    url, file = f"{server.url}/{cluster}", tmp_path / "archive.db"

    async def run(*arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, arguments)

    async def said(*arguments: str) -> dict[str, object]:
        ran = await run(*arguments, "--json")
        assert ran.exit_code == 0, ran.output
        answer: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
        return answer

    nothing = await said("retention", url, "--archive", str(file))
    assert (nothing["purged"], nothing["archived"]) == (0, 33)
    assert (await said("retention", url, "--archive", str(file), "--days", "1"))["purged"] == 21
    assert (await said("verify", url))["start"] == 21
    assert (await said("verify", str(file)))["start"] == 0
    assert (await said("replay", str(file), "--at", "5"))["digest"]
    gone = await run("replay", url, "--at", "5")
    assert gone.exit_code == 2
    assert "the first place that is left is 21" in gone.output
    left = await said("replay", url, "--at", "21")
    assert (left["sequence"], left["time"]) == (21, ""), "the commit itself is purged"
    for arguments in ([], ["--archive", str(file), "--no-archive"]):
        refused = await run("retention", url, *arguments)
        assert refused.exit_code == 2
        assert "expected --archive FILE.db" in refused.output
    assert (await said("export", url, str(file)))["copied"] == 0
    await write(log, 4)
    assert (await said("export", url, str(file))) == {"cluster": cluster, "copied": 4, "end": 37}
    await log.close()
