"""Taking snapshots: what is stored, what stays, and the binder's child process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import events as ev
from events import envelope
from events.envelope import FIRST_VERSION, Stored, message_id
from events.jetstream import JetStreamLog
from events.log import Bounds, EventLog, LogError
from events.memory import MemoryLog
from events.server import EmbeddedServer
from events.snapshots import Kept
from services import settings, snapshots
from services.binder import core
from services.decider import Decider
from services.snapshots import KEPT, SnapshotKeeper, Taking, packed, take
from services.start import identity, is_of_another, state_at
from services.state import snapshot
from services.writer import Writer
from tests.homes import commits_of, folded, put_commits, put_snapshot
from tests.snapshots.writing import tell_snapshot, write
from tests.waiting import until
from tests.world import World


async def grow(log: EventLog, commits: list[Stored], by: int) -> None:
    """The next commits of the walk, behind those that are there."""
    end = await log.end()
    for one in commits[end : end + by]:
        writer = one.subject.split(".", 2)[2]
        subject = f"muster.{log.cluster}.{writer}"
        last = await log.last(subject)
        await log.append(subject, envelope.decode_header(one), one.payload, last.sequence if last else 0)


async def test_a_snapshot_is_the_fold_of_the_log(log: EventLog, commits: list[Stored]) -> None:
    await put_commits(log, commits)
    kept = await take(log)
    state = folded(commits, len(commits))
    assert (kept.sequence, kept.digest, kept.state) == (len(commits), snapshot.digest(state), FIRST_VERSION)
    last = (await commits_of(log))[-1]
    assert kept.commit == message_id(last.subject, 0, last.header + last.payload), "by which it is no other log's"
    assert await log.snapshots.listed() == [kept]
    assert len(await log.snapshots.get(kept)) == kept.bytes


async def test_each_stands_on_the_one_before_it(commits: list[Stored]) -> None:
    """By induction it is the fold of the whole log, although only the tail was folded."""
    log = MemoryLog("test")
    for _ in range(6):
        await grow(log, commits, 40)
        kept = await take(log)
        assert kept.digest == snapshot.digest(folded(commits, kept.sequence))
        await log.purge(kept.sequence)  # nothing before it can be read any more


async def test_without_anything_new_the_last_one_is_it(commits: list[Stored], monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog("test")
    await put_commits(log, commits)
    kept = await take(log)
    monkeypatch.delattr(snapshots, "packed")  # it is not made again
    assert await take(log) == kept
    assert await log.snapshots.listed() == [kept]


async def test_the_last_few_stay(log: EventLog, commits: list[Stored]) -> None:
    taken = []
    for _ in range(KEPT + 2):
        await grow(log, commits, 20)
        taken.append(await take(log))
    assert await log.snapshots.listed() == taken[::-1][:KEPT]


async def test_the_one_that_the_newest_stands_on_stays_as_those_between_may_be_damaged(commits: list[Stored]) -> None:
    """As it was: of the four that stayed of a purged log's none could be used once the newest was damaged, too. Seed
    507,721 of the simulator of faults, in which each was."""
    log = MemoryLog("test")
    await grow(log, commits, 20)
    good = [await take(log)]
    for _ in range(KEPT + 2):
        await grow(log, commits, 20)
        taken = await take(log)
        await log.snapshots.put(taken, b"damaged")
    assert good[0] in await log.snapshots.listed()
    started = await state_at(log)
    assert started.base == good[0]
    for _ in range(KEPT + 1):
        await grow(log, commits, 10)
        good.append(await take(log))
    assert await log.snapshots.listed() == good[::-1][:KEPT]


async def test_one_says_of_which_log_it_is_by_what_was_folded(
    commits: list[Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 708242: the log was set back while it was made, and had another commit in the place by the time at which that
    was asked for. As it was, it passed for a snapshot of that log, and what stood on it for confirmed."""
    log = MemoryLog("test")
    await grow(log, commits, 20)
    base = await take(log)
    await grow(log, commits, 20)
    place = log.commits[-1].sequence
    started = await state_at(log)
    log.commits[-1] = msgspec.structs.replace(true := log.commits[-1], payload=b"[]")
    kept, data = await packed(started, snapshot.FORM)
    assert (kept.sequence, kept.commit, started.base) == (place, identity(true), base)
    await log.snapshots.put(kept, data)
    assert await is_of_another(log, kept)
    at_base = await state_at(log, base.sequence)
    assert (at_base.base, at_base.commit) == (base, base.commit)


ATTEMPTS = 10 * KEPT


async def test_attempts_that_end_before_they_clear_up_leave_no_more_and_more(
    log: EventLog, commits: list[Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: each left a whole one, and when that had filled the storage no other could clear up."""

    async def dies(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(snapshots, "restored", dies)
    for one in commits[:ATTEMPTS]:
        await put_commits(log, [one])
        with pytest.raises(SystemExit):
            await take(log)
        assert len(await log.snapshots.listed()) <= snapshots.KEPT + 1
    assert len(await log.snapshots.listed()) > 1


async def test_the_one_that_the_log_confirms_stays_however_many_come_that_it_does_not() -> None:
    """Nothing is purged without one, and whoever took the later ones may never come to say so."""
    log = MemoryLog("test")
    await write(log, 3)
    confirmed, taken = await tell_snapshot(log), []
    for _ in range(KEPT + 2):
        await write(log, 3)
        taken.append((await take(log)).sequence)
    assert [kept.sequence for kept in await log.snapshots.listed()] == [*taken[::-1][:KEPT], confirmed]


async def test_the_one_on_which_a_purged_log_stands_stays(commits: list[Stored]) -> None:
    log = MemoryLog("test")
    await grow(log, commits, 19)
    await take(log)  # of one commit too few: what it lacks is purged
    await grow(log, commits, 1)
    base = await take(log)
    await grow(log, commits, 20)
    await log.purge(base.sequence + 1)
    taken = []
    for _ in range(KEPT + 2):
        await grow(log, commits, 20)
        taken.append(await take(log))
    assert await log.snapshots.listed() == [*taken[::-1][:KEPT], base]
    await log.purge(taken[-1].sequence + 1 - 5)
    await grow(log, commits, 20)
    taken.append(await take(log))
    assert await log.snapshots.listed() == taken[::-1][:KEPT]


@pytest.mark.parametrize("place", [20, 40], ids=["before the end", "at the end"])
async def test_those_of_another_log_of_this_name_go_and_keep_nobody_out(
    log: EventLog, commits: list[Stored], place: int
) -> None:
    """Of a log that was deleted: some are of places where this one has not come yet, and would be the newest for long."""
    await grow(log, commits, 40)
    later = [await put_snapshot(log, folded(commits, place)) for place in range(200, 200 + KEPT)]
    for one in (later[0], await put_snapshot(log, folded(commits, place), commit="of another")):
        assert one in await log.snapshots.listed()
    taken = [await take(log)]
    await grow(log, commits, 20)
    taken.append(await take(log))
    assert await log.snapshots.listed() == taken[::-1]


async def test_those_of_another_log_are_none_of_the_last_few(commits: list[Stored]) -> None:
    log, taken = MemoryLog("test"), []
    for _ in range(KEPT):
        await grow(log, commits, 20)
        taken.append(await take(log))
    for place in range(taken[-1].sequence + 1, taken[-1].sequence + 1 + KEPT):
        await put_snapshot(log, folded(commits, place), commit="of another")
    await grow(log, commits, 20)
    taken.append(await take(log))
    assert await log.snapshots.listed() == taken[::-1][:KEPT]


async def test_what_is_ahead_of_the_end_stays_until_another_log_is_shown(
    commits: list[Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was stopped, and goes on, knows an earlier end and an earlier beginning until it hears of the new
    leader. As it was: who took a snapshot by its word deleted all that were newer, also those that the log confirms."""
    log = MemoryLog("test")
    early = log.bounds
    for _ in range(KEPT):
        await grow(log, commits, 20)
        await take(log)
    kept = await log.snapshots.listed()
    monkeypatch.setattr(log, "bounds", lambda: answered(Bounds(1, kept[-1].sequence + 5)))
    await take(log)
    monkeypatch.setattr(log, "bounds", early)
    assert [one for one in kept if one not in await log.snapshots.listed()] == []


async def answered(bounds: Bounds) -> Bounds:
    return bounds


async def test_an_empty_log_has_no_state_to_keep(log: EventLog) -> None:
    with pytest.raises(LogError, match="the log is empty"):
        await take(log)


async def test_what_does_not_come_back_is_deleted(commits: list[Stored], monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog("test")
    await put_commits(log, commits)

    async def torn(kept: Kept) -> bytes:
        return b"torn"

    monkeypatch.setattr(log.snapshots, "get", torn)
    with pytest.raises(LogError, match=f"snapshot {len(commits)} did not come back as it was stored"):
        await take(log)
    assert await log.snapshots.listed() == []


# ------------------------------------------------------------------------------------------------- the binder's child


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


@pytest.mark.parametrize("set_back", [False, True])
async def test_what_is_taken_of_more_than_is_folded_is_reported_once_that_is_of_the_log(
    set_back: bool, commits: list[Stored], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As it was, a binder that was behind told a log that had been set back meanwhile of a snapshot of what is lost."""
    monkeypatch.setattr(snapshots, "LOOK_EVERY_S", 0.01)
    log = MemoryLog("test")
    await grow(log, commits, 20)
    decider = idle(log)
    await decider.catch_up()
    decider.active = True
    await grow(log, commits, 20)
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
