"""What is left of a purged log: from its first commit on it can be folded, verified and archived anew."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

import events as ev
from events.envelope import FIRST_VERSION, Header
from events.homes import copy, open_log
from events.log import EventLog, LogError
from events.memory import MemoryLog
from events.snapshots import Kept
from events.subjects import subject
from services import snapshots
from services.console import retention
from services.console.retention import DAY_NS, retain
from services.console.verify import verify
from services.snapshots import KEPT, packed, put, take
from services.start import beginning, is_of_another, state_at
from services.state import snapshot
from tests.snapshots.writing import NOW_NS, tell_snapshot, write
from tests.world import World


async def of_many_snapshots() -> World:
    """Of which only the last are there."""
    world = World()
    world.node("n0", cpu=64)
    for number in range(2 * KEPT):
        world.gang(f"gang-{number}", 3, 3)
        world.settle()
        await tell_snapshot_of(world)
    return world


async def test_what_was_to_be_dropped_before_the_purge_and_is_dropped_behind_it_is_put_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the binder's child, which had looked where the log begins a moment too early."""
    world = await of_many_snapshots()
    place = (await state_at(world.log)).state.sequence // 2

    async def until_there(*_: object) -> retention._Bound:
        return retention._Bound(place, "what follows is younger")

    async def drop(_: float) -> None:
        for kept in await world.log.snapshots.listed():
            if kept.sequence == place and (await world.log.bounds()).first == place + 1:
                await world.log.snapshots.delete(kept)
                dropped.append(kept)

    dropped: list[Kept] = []
    monkeypatch.setattr(retention, "_by_age", until_there)
    monkeypatch.setattr(retention, "asyncio", SimpleNamespace(sleep=lambda s: drop(s) if s else asyncio.sleep(0)))
    monkeypatch.setattr(retention, "LOOKS_AGAIN_S", 1.0)
    await retain(world.log, None, days=1, now_ns=NOW_NS)
    assert dropped
    assert (await verify(world.log)).start == place


async def test_archives_and_what_is_left_are_one_history(tmp_path: Path) -> None:
    """A log that is purged again and again: the archive verifies from 1, what is left from its snapshot, alike."""
    world = World()
    world.node("n0", cpu=64)
    archive = await open_log(str(tmp_path / "archive.db"), "test", create=True)
    for number in range(8):
        world.gang(f"gang-{number}", 3, 3)
        world.settle()
        await tell_snapshot_of(world)
        await retain(world.log, archive, days=1, now_ns=NOW_NS)
    assert (await world.log.bounds()).first > 20
    left, whole = await verify(world.log), await verify(archive)
    assert left.verified
    assert whole.verified
    assert left.digest == whole.digest == snapshot.digest(world.state)
    assert (whole.first, whole.start, whole.snapshots) == (1, 0, 8)
    assert left.first == (await world.log.bounds()).first
    assert left.start_digest == world.state.snapshots[left.start].digest


async def test_what_is_left_is_verified_from_its_first_commit_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the days end between two snapshots of which none is there any more, and in an archive begun there."""
    world = await of_many_snapshots()
    place = (await state_at(world.log)).state.sequence // 2
    assert min(kept.sequence for kept in await world.log.snapshots.listed()) > place

    async def until_there(*_: object) -> retention._Bound:
        return retention._Bound(place, "what follows is younger")

    monkeypatch.setattr(retention, "_by_age", until_there)
    assert (await retain(world.log, None, days=1, now_ns=NOW_NS)).first == place + 1
    for _ in range(2):
        world.gang("more", 3, 3)
        world.settle()
        await tell_snapshot_of(world)  # which drops what nothing needs
    archive = await open_log(str(tmp_path / "archive.db"), "test", create=True)
    await copy(world.log, archive)
    for log in (world.log, archive):
        found = await verify(log)
        assert found.verified
        assert (found.start, found.first) == (place, place + 1)
    await archive.close()


async def test_an_earlier_snapshot_that_is_still_there_is_not_that_of_the_place() -> None:
    log = MemoryLog("test")
    await age(log)
    listed = [kept.sequence for kept in await log.snapshots.listed()]
    assert (await retain(log, None, days=6, now_ns=NOW_NS)).first == 19
    assert min(listed) == 17
    assert (await beginning(log)).state.sequence == 18


async def test_where_there_is_no_room_for_a_snapshot_the_log_is_purged_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryLog("test")
    await age(log)

    async def full(*_: object) -> None:
        raise LogError("insufficient resources")

    monkeypatch.setattr(log.snapshots, "put", full)
    assert (await retain(log, None, days=7, now_ns=NOW_NS)).purged == 12
    assert "the log begins at 13, and no snapshot of 12 is kept: insufficient resources" in caplog.text


async def test_where_there_is_room_only_behind_the_purge_the_snapshot_is_taken_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryLog("test")
    await age(log)
    put_it = log.snapshots.put

    async def full_before(kept: Kept, data: bytes) -> None:
        if (await log.bounds()).first == 1:
            raise LogError("insufficient resources")
        await put_it(kept, data)

    monkeypatch.setattr(log.snapshots, "put", full_before)
    assert (await retain(log, None, days=7, now_ns=NOW_NS)).purged == 12
    assert not caplog.text
    assert (await verify(log)).start == 12


async def test_who_takes_a_snapshot_meanwhile_does_not_drop_that_of_the_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For whom the log begins where it did, and another snapshot is one that nobody needs."""
    log = MemoryLog("test")
    await age(log)
    await write(log, 5, NOW_NS)
    purge = log.purge

    async def meanwhile(first: int) -> None:
        await take(log)
        await purge(first)

    monkeypatch.setattr(log, "purge", meanwhile)
    assert (await retain(log, None, days=7, now_ns=NOW_NS)).purged == 12
    assert (await verify(log)).start == 12


async def test_nor_does_who_had_looked_before_and_drops_behind_the_purge(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: where the log begins was asked once, before each snapshot's commit was read."""
    log = MemoryLog("test")
    await age(log)
    await write(log, 5, NOW_NS)
    purge = log.purge
    looking, purged = asyncio.Event(), asyncio.Event()
    taking: list[asyncio.Task[Kept]] = []

    async def looks_for_long(of: EventLog, kept: Kept) -> bool:
        looking.set()
        await purged.wait()
        return await is_of_another(of, kept)

    async def meanwhile(first: int) -> None:
        monkeypatch.setattr(snapshots, "is_of_another", looks_for_long)
        taking.append(asyncio.create_task(take(log)))
        await looking.wait()
        await purge(first)

    monkeypatch.setattr(log, "purge", meanwhile)
    assert (await retain(log, None, days=7, now_ns=NOW_NS)).purged == 12
    purged.set()
    await taking[0]
    assert (await verify(log)).start == 12


async def test_where_what_goes_cannot_be_folded_by_this_version_the_log_is_purged_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A newer version wrote a commit, took a snapshot behind it, and was taken back."""
    log = MemoryLog("test")
    await write(log, 3, NOW_NS - 10 * DAY_NS)
    newer = await state_at(log)
    last = await log.last(subject("test", "ingest"))
    assert last is not None
    header = Header(writer="ingest", epoch=0, basis=0, time_ns=NOW_NS - 10 * DAY_NS, cause="facts")
    await log.append(last.subject, header, b'[{"type":"NotYetInvented"}]', last.sequence)
    newer.state.sequence = 4
    await put(log, *await packed(newer._replace(commit=""), snapshot.FORM), snapshot.FORM)
    await age(log)
    assert (await retain(log, None, days=7, now_ns=NOW_NS)).purged == 16
    assert "the log is to begin at 17, and no snapshot of 16 can be taken: commit 4 on" in caplog.text


async def tell_snapshot_of(world: World) -> None:
    kept = await take(world.log)
    taken = ev.SnapshotTaken(sequence=kept.sequence, digest=kept.digest, bytes=kept.bytes, state=FIRST_VERSION)
    world.append("binder", [taken], cause="outcome")


async def age(log: EventLog) -> None:
    """Five days of five facts each, and a snapshot behind each day's; the youngest is of five days ago."""
    for age_days in (9, 8, 7, 6, 5):
        await write(log, 5, NOW_NS - age_days * DAY_NS)
        await tell_snapshot(log, NOW_NS - age_days * DAY_NS)
