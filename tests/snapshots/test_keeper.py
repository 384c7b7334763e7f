"""The child that takes snapshots for a binder or a federator: when, what is told of it, and what its failures cost."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

import events as ev
from events.envelope import Stored
from events.jetstream import JetStreamLog
from events.log import EventLog, LogError
from events.memory import MemoryLog
from events.server import EmbeddedServer
from events.snapshots import Kept
from services import settings, snapshots
from services.binder import core
from services.decider import Decider
from services.snapshots import SnapshotKeeper, Taking, packed
from services.start import state_at
from services.state import snapshot
from services.writer import Writer
from tests.homes import commits_of, folded, put_commits
from tests.snapshots.writing import grow
from tests.waiting import until
from tests.world import World


def environment(server: EmbeddedServer, cluster: str) -> Mapping[str, str]:
    return settings.read({"nats_url": server.url, "cluster": cluster, "log_level": "info"}).environment()


def idle(log: EventLog) -> Decider:
    """A binder's decider that decides nothing."""
    return Decider(log, Writer(log, "binder"), lambda state: iter(()))  # type: ignore[arg-type,return-value]


@asynccontextmanager
async def keeping(log: EventLog, taking: Taking, *, busy: bool = False) -> AsyncIterator[Decider]:
    """A binder's decider and its keeper."""

    def decide(state: Any) -> Any:
        return (yield from core.decide(state))

    decider = Decider(log, Writer(log, "binder"), decide)
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(decider.run(ev.BinderTaken(holder="test"))),
            tasks.create_task(SnapshotKeeper(decider, lambda: busy, taking).run()),
        ]
        try:
            yield decider
        finally:
            for task in running:
                task.cancel()


async def test_the_child_takes_it_and_the_log_says_so(
    server: EmbeddedServer, cluster: str, commits: list[Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "LOOK_EVERY_S", 0.01)
    log = await JetStreamLog.open(server.url, cluster)
    await put_commits(log, commits)
    async with keeping(log, Taking(1_000, environment(server, cluster))) as decider:
        await until(lambda: decider.state.snapshots, "SnapshotTaken")
    (taken,) = decider.state.snapshots.values()
    (kept,) = await log.snapshots.listed()
    assert (kept.sequence, kept.digest, kept.bytes) == (taken.sequence, taken.digest, taken.bytes)
    started = await state_at(log)
    assert started.base == kept
    whole = folded(await commits_of(log), taken.sequence)
    assert taken.digest == snapshot.digest(whole)
    await log.close()


async def test_nothing_is_taken_before_enough_was_written(
    commits: list[Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(snapshots, "COMMAND", ("/no/such/command",))
    log = MemoryLog("test")
    await put_commits(log, commits)
    written = sum(len(one.header) + len(one.payload) for one in log.commits)
    for after_bytes, busy, due in (
        (written * 2, False, False),
        (written // 2, True, False),
        (written // 2, False, True),
        (written // 8, True, True),
    ):
        async with keeping(log, Taking(after_bytes, {}), busy=busy) as decider:
            await until(lambda: decider.active, "an active binder")
            keeper = SnapshotKeeper(decider, lambda: busy, Taking(after_bytes, {}))  # noqa: B023
            assert keeper._is_due() is due, (after_bytes, busy)


async def test_a_binder_that_takes_over_counts_from_the_last_snapshot_that_the_log_knows() -> None:
    world = World()
    world.append("binder", [ev.SnapshotTaken(sequence=1, digest="d", bytes=1, state=1)], cause="outcome")
    decider = idle(world.log)
    keeper = SnapshotKeeper(decider, lambda: False, Taking(1_000, {}))
    assert not keeper._is_due(), "nothing is read yet"
    await decider.catch_up()
    decider.tail_bytes = 5_000
    assert not keeper._is_due(), "a standby has none taken"
    decider.active = True
    assert keeper._is_due(), "what follows the snapshot of its start counts"
    world.append("binder", [ev.SnapshotTaken(sequence=2, digest="d", bytes=1, state=1)], cause="outcome")
    decider.state = world.state
    assert not keeper._is_due()
    decider.tail_bytes += 999
    assert not keeper._is_due()
    decider.tail_bytes += 1
    assert keeper._is_due()


async def test_none_is_taken_where_none_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "LOOK_EVERY_S", 0)
    keeper, looks = SnapshotKeeper(idle(MemoryLog("test")), lambda: False, Taking(1, {})), list[bool]()
    taken = asyncio.Event()

    def is_due() -> bool:
        looks.append(len(looks) == 2)
        return looks[-1]

    async def take() -> None:
        assert looks == [False, False, True]
        taken.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(keeper, "_is_due", is_due)
    monkeypatch.setattr(keeper, "_take", take)
    running = asyncio.create_task(keeper.run())
    await asyncio.wait({running, asyncio.create_task(taken.wait())}, return_when=asyncio.FIRST_COMPLETED)
    assert taken.is_set()
    running.cancel()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("raise SystemExit(2)", "ended with 2"),
        ("raise SystemExit('error: no room')", "muster snapshot: error: no room"),
        ("print('no json')", "no snapshot was taken"),
        ("print('{\"sequence\": 1}')", "no snapshot was taken"),
        ("", "no snapshot was taken"),
        ("import os; os.kill(os.getpid(), 9)", "ended with -9"),
    ],
)
async def test_a_child_that_fails_costs_a_line_and_is_tried_again_later(
    commits: list[Stored],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    script: str,
    told: str,
) -> None:
    monkeypatch.setattr(snapshots, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(snapshots, "COMMAND", (sys.executable, "-c", script))
    log = MemoryLog("test")
    await put_commits(log, commits)
    async with keeping(log, Taking(1, dict(os.environ))) as decider:
        await until(lambda: told in caplog.text, told)
        assert not decider.state.snapshots
    monkeypatch.setattr(snapshots, "FIRST_PAUSE_S", 0.01)
    caplog.clear()
    async with keeping(log, Taking(1, dict(os.environ))):
        await until(lambda: caplog.text.count("no snapshot was taken") >= 3, "attempts")


async def test_after_failures_it_is_tried_ever_more_seldom_until_one_is_taken(
    commits: list[Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(snapshots, "time", SimpleNamespace(monotonic=lambda: now_s))
    log = MemoryLog("test")
    await put_commits(log, commits)
    decider = idle(log)
    await decider.catch_up()
    decider.active = True
    keeper = SnapshotKeeper(decider, lambda: False, Taking(1, {}))
    pauses_s, taken = [], Kept(sequence=decider.state.sequence, digest="d", state=1, bytes=1)
    for fails in (*[True] * 8, False, True):

        async def run_child() -> bytes:
            decider.tail_bytes += 1  # the log goes on meanwhile, and that counts for the next one
            if fails:  # noqa: B023
                raise OSError
            return msgspec.json.encode(taken)

        monkeypatch.setattr(keeper, "_run_child", run_child)
        await keeper._take()
        if fails:
            pauses_s.append(keeper._not_before_s - now_s)
            assert not keeper._is_due()
            now_s = keeper._not_before_s
        assert keeper._is_due()
    assert pauses_s == [60, 120, 240, 480, 960, 1_920, 3_600, 3_600, 60]
    assert len(decider.outcomes) == 1


async def test_what_is_taken_is_reported_once_and_what_was_written_meanwhile_counts_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A child may read the log before the report of the last one's stands there, and finds nothing new."""
    world = World()
    world.append("binder", [ev.BinderTaken(holder="test")])
    decider = idle(world.log)
    await decider.catch_up()
    decider.active, decider.tail_bytes = True, 1_000
    keeper = SnapshotKeeper(decider, lambda: False, Taking(1_000, {}))
    assert keeper._is_due()

    async def run_child() -> bytes:
        decider.tail_bytes += 600
        return msgspec.json.encode(Kept(sequence=1, digest="d", state=1, bytes=1))

    monkeypatch.setattr(keeper, "_run_child", run_child)
    await keeper._take()
    await keeper._take()
    assert len(decider.outcomes) == 1, "as it was: two, unless the first was folded meanwhile"
    world.append("binder", [ev.SnapshotTaken(sequence=1, digest="d", bytes=1, state=1)], cause="outcome")
    decider.state = world.state
    decider.tail_bytes += 399
    assert not keeper._is_due()
    decider.tail_bytes += 1
    assert keeper._is_due()


async def one_that_is_behind(commits: list[Stored]) -> tuple[MemoryLog, Decider]:
    """A log, and an active binder that has folded half of it."""
    log = MemoryLog("test")
    await grow(log, commits, 20)
    decider = idle(log)
    await decider.catch_up()
    decider.active = True
    await grow(log, commits, 20)
    return log, decider


@pytest.mark.parametrize("set_back", [False, True])
async def test_what_is_taken_of_more_than_is_folded_is_reported_once_that_is_of_the_log(
    set_back: bool, commits: list[Stored], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was, a binder that was behind told a log that had been set back meanwhile of a snapshot of what is lost."""
    monkeypatch.setattr(snapshots, "LOOK_EVERY_S", 0.01)
    log, decider = await one_that_is_behind(commits)
    kept, _ = await packed(ahead := await state_at(log), snapshot.FORM)
    keeper = SnapshotKeeper(decider, lambda: False, Taking(1, {}))

    async def run_child() -> bytes:
        if set_back:
            log.commits[-1] = msgspec.structs.replace(log.commits[-1], payload=b"[]")
        return msgspec.json.encode(kept)

    monkeypatch.setattr(keeper, "_run_child", run_child)
    taking = asyncio.create_task(keeper._take())
    await asyncio.sleep(0.05)
    assert not decider.outcomes
    assert not taking.done()
    decider.state = ahead.state
    await taking
    assert len(decider.outcomes) == (not set_back)
    assert ("the log was set back" in caplog.text) == set_back


async def test_a_log_that_cannot_say_whether_what_is_taken_is_of_it_costs_a_line(
    commits: list[Stored], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log, decider = await one_that_is_behind(commits)
    await decider.catch_up()
    kept, _ = await packed(await state_at(log), snapshot.FORM)
    keeper = SnapshotKeeper(decider, lambda: False, Taking(1, {}))
    monkeypatch.setattr(keeper, "_run_child", AsyncMock(return_value=msgspec.json.encode(kept)))
    monkeypatch.setattr(log, "at", AsyncMock(side_effect=LogError("away")))
    await keeper._take()
    assert not decider.outcomes
    assert "away" in caplog.text


async def test_what_is_taken_of_a_log_that_was_set_back_is_not_reported_by_who_came_to_that_place_in_the_new_one(
    commits: list[Stored], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was, it was reported where the binder came there before the child ended."""
    log, decider = await one_that_is_behind(commits)
    kept, _ = await packed(await state_at(log), snapshot.FORM)
    keeper = SnapshotKeeper(decider, lambda: False, Taking(1, {}))

    async def run_child() -> bytes:
        log.commits[-1] = msgspec.structs.replace(log.commits[-1], payload=b"[]")
        await decider.catch_up()
        return msgspec.json.encode(kept)

    monkeypatch.setattr(keeper, "_run_child", run_child)
    await keeper._take()
    assert decider.state.sequence == kept.sequence
    assert not decider.outcomes
    assert "the log was set back" in caplog.text


async def test_a_child_that_does_not_end_is_ended_and_tried_again(
    commits: list[Stored], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, seconds in (("LOOK_EVERY_S", 0.01), ("TAKEN_WITHIN_S", 0.1), ("FIRST_PAUSE_S", 0.01)):
        monkeypatch.setattr(snapshots, name, seconds)
    monkeypatch.setattr(snapshots, "COMMAND", (sys.executable, "-c", "import time; time.sleep(600)"))
    log = MemoryLog("test")
    await put_commits(log, commits)
    async with keeping(log, Taking(1, dict(os.environ))):
        await until(lambda: caplog.text.count("no snapshot was taken: TimeoutError") >= 2, "attempts")


async def test_a_child_that_cannot_be_started_costs_a_line(
    commits: list[Stored], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where there is no memory for another process."""
    monkeypatch.setattr(snapshots, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(snapshots, "COMMAND", ("/no/such/command",))
    log = MemoryLog("test")
    await put_commits(log, commits)
    async with keeping(log, Taking(1, dict(os.environ))):
        await until(lambda: "no snapshot was taken: [Errno 2]" in caplog.text, "a line")


async def test_the_child_ends_with_the_binder(
    commits: list[Stored], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(snapshots, "LOOK_EVERY_S", 0.01)
    pid_file = tmp_path / "pid"
    script = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    monkeypatch.setattr(snapshots, "COMMAND", (sys.executable, "-c", script))
    log = MemoryLog("test")
    await put_commits(log, commits)
    async with keeping(log, Taking(1, dict(os.environ))):
        await until(lambda: pid_file.exists() and pid_file.read_text(), "the child")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
