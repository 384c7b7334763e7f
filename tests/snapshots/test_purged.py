"""Logs of which the beginning is gone: verified from a snapshot, replayed as far back as it goes, read by who slept."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

import events as ev
from events import envelope
from events.envelope import FIRST_VERSION, Stored, decode_header
from events.log import Purged
from events.memory import MemoryLog
from services.console.replay import BadPlace, replay
from services.console.verify import Report, verify
from services.planner import core as planner
from services.snapshots import take
from services.start import NoStart
from services.state import snapshot
from tests.homes import folded, put_commits, put_snapshot
from tests.world import World


async def taken(world: World, **otherwise: int | str) -> ev.SnapshotTaken:
    """A snapshot of the end, and what the binder says of it."""
    kept = await take(world.log)
    world.pod(f"while-{kept.sequence}-is-kept")
    event = ev.SnapshotTaken(sequence=kept.sequence, digest=kept.digest, bytes=kept.bytes, state=kept.state)
    event = msgspec.structs.replace(event, **otherwise)
    world.append("binder", [event], cause="outcome")
    return event


@pytest.fixture
async def world() -> World:
    """Gangs that fit and that do not, pods that go, ticks, a fact while it is planned; and two snapshots in between."""
    world = World()
    for i in range(4):
        world.node(f"n{i}", cpu=4)
    world.gang("train", 6, 6)
    world.gang("never", 90, 90)
    world.settle()
    await taken(world)
    world.pass_s(2)
    world.gang("large", 20, 20)
    world.node("n9", cpu=16)
    basis, decided = world.state.sequence, planner.decide_now(world.state, "a")
    world.node("n8")
    world.append("planner.a", decided, cause="decide", basis=basis)
    world.judge()
    await taken(world)
    world.settle()
    world.finished("train-0", succeeded=False, reason="OutOfcpu")
    world.settle()
    world.pass_s(12)
    world.settle()
    return world


async def purged(commits: list[Stored], at: int) -> MemoryLog:
    """The log with a snapshot of `at`, and nothing else of what stood up to there."""
    log = MemoryLog("test")
    await put_commits(log, commits)
    await put_snapshot(log, folded(commits, at))
    await log.purge(at + 1)
    return log


# -------------------------------------------------------------------------------------------------------------- verify


async def test_the_digests_of_snapshots_are_found_again(world: World) -> None:
    report = await verify(world.log)
    assert report.verified
    assert (report.snapshots, report.start, report.first) == (2, 0, 1)


@pytest.mark.parametrize("place", ["the place", "the digest"])
async def test_another_state_in_a_snapshot_is_a_difference(world: World, place: str) -> None:
    event = await taken(world, **({"sequence": 20} if place == "the place" else {"digest": "0" * 64}))
    report = await verify(world.log)
    assert report.exit_code == 1
    assert report.difference is not None
    assert f"SnapshotTaken of {event.sequence} says {event.digest}" in report.difference.what


async def test_a_snapshot_of_what_is_not_there_yet_is_a_difference(world: World) -> None:
    await taken(world, sequence=9_999)
    report = await verify(world.log)
    assert report.exit_code == 1
    assert world.state.ignored == {"SnapshotTaken": 1}


async def test_a_snapshot_of_another_fold_is_not_compared(world: World) -> None:
    await taken(world, state=FIRST_VERSION + 1, digest="of that fold")
    report = await verify(world.log)
    assert report.verified
    assert report.snapshots == 2


async def test_from_every_place_what_is_left_is_verified(world: World) -> None:
    """Whatever was under way at the snapshot: proposals without verdict, permits without outcome, deadlines."""
    commits = world.log.commits
    whole = await verify(world.log)
    headers = [decode_header(stored) for stored in commits]
    for at in range(1, len(commits)):
        report: Report = await verify(await purged(commits, at))
        assert report.verified, f"from {at}: {report.difference or report.violation or report.why_unverifiable}"
        assert (report.start, report.first, report.last) == (at, at + 1, len(commits))
        assert report.start_digest == snapshot.digest(folded(commits, at))
        assert report.digest == whole.digest
        left = [header for header in headers[at:] if header.cause == "decide"]
        assert report.decided == sum(header.basis >= at for header in left)
        assert report.before == len(left) - report.decided


class PurgedMeanwhile(MemoryLog):
    """Purged when it is read for the last time of so many."""

    readings = 1

    def read(self, after: int = 0, until: int | None = None) -> AsyncIterator[list[Stored]]:
        self.readings -= 1
        if not self.readings:
            del self.commits[:9]
            self._purged = 9
        return super().read(after, until)


@pytest.mark.parametrize("readings", [1, 2])
async def test_a_log_that_is_purged_meanwhile_is_no_difference(world: World, readings: int) -> None:
    """As it was: what was left was folded as if it had been all, and said to be decided otherwise."""
    log = PurgedMeanwhile("test")
    await put_commits(log, world.log.commits)
    log.readings = readings
    with pytest.raises(Purged, match="begins at 10: what follows 0 was purged"):
        await verify(log)


async def test_a_log_that_is_purged_meanwhile_is_not_replayed_from_there(world: World) -> None:
    log = PurgedMeanwhile("test")
    await put_commits(log, world.log.commits)
    with pytest.raises(Purged, match="begins at 10: what follows 0 was purged"):
        await replay(log, "1970-01-01")


async def test_a_lie_behind_the_snapshot_is_found(world: World) -> None:
    commits = list(world.log.commits)
    at = len(commits) // 2
    place = next(
        stored.sequence
        for stored in commits[at:]
        if (header := decode_header(stored)).cause == "decide" and header.basis >= at
    )
    commits[place - 1] = msgspec.structs.replace(commits[place - 1], payload=b"[]")
    report = await verify(await purged(commits, at))
    assert report.exit_code == 1
    assert report.difference is not None
    assert report.difference.sequence == place


async def test_a_snapshot_of_which_the_log_says_otherwise_behind_it_is_a_difference(world: World) -> None:
    """What is left stands on it: where that was altered, every state behind it is another."""
    (place, *_) = sorted(world.state.snapshots)
    altered = folded(world.log.commits, place)
    altered.ignored["PodBound"] = 1
    log = MemoryLog("test")
    await put_commits(log, world.log.commits)
    await put_snapshot(log, altered)
    await log.purge(place + 1)
    report = await verify(log)
    assert (report.start, report.exit_code) == (place, 1)
    assert report.difference is not None
    assert f"SnapshotTaken of {place} says" in report.difference.what


def lost_one_of_three() -> World:
    """A gang was permitted, and a pod of it went before any outcome."""
    world = World()
    world.node("n0", cpu=8)
    world.gang("train", 3, 3)
    world.plan()
    world.judge()
    world.deleted("train-0")
    return world


async def test_an_outcome_whose_intent_was_purged_is_counted_not_blamed() -> None:
    """The pod is gone, or was settled by its fact: the state does not show the permit any more."""
    world = lost_one_of_three()
    world.assigned("train-1", "n0")
    at = world.state.sequence
    for uid in ("train-0", "train-1", "train-2"):
        world.append("binder", [ev.PodBound(uid=uid, namespace="default", name=uid, node="n0")], cause="outcome")
    report = await verify(await purged(world.log.commits, at))
    assert report.verified, report.difference
    assert report.before == 2
    assert report.outcomes == 3


async def test_so_is_one_of_a_pod_that_was_gone_and_is_there_again() -> None:
    """Simulated seed 424188: etcd was restored from a backup that knows it as it waited."""
    world = lost_one_of_three()
    at = world.state.sequence
    world.pod("train-0", "train")
    world.append("binder", [gone("train-0")], cause="outcome")
    report = await verify(await purged(world.log.commits, at))
    assert report.verified, report.difference
    assert report.before == 1


async def test_a_binder_that_took_over_since_knows_of_no_intent_that_was_purged() -> None:
    world = lost_one_of_three()
    at = world.state.sequence
    world.append("binder", [ev.BinderTaken(holder="new")], cause="taken")
    world.append("binder", [gone("train-0")], cause="outcome")
    report = await verify(await purged(world.log.commits, at))
    assert report.exit_code == 1
    assert report.difference is not None
    assert report.difference.what == "event 0: BindingFailed, intended was nothing"


def gone(uid: str) -> ev.BindingFailed:
    about = {"uid": uid, "namespace": "default", "name": uid, "node": "n0"}
    return ev.BindingFailed(**about, reason="PodGone", message="gone", assigned_node="")


async def test_a_purged_log_without_a_snapshot_is_not_verifiable(world: World) -> None:
    log = MemoryLog("test")
    await put_commits(log, world.log.commits)
    await log.purge(9)
    report = await verify(log)
    assert (report.exit_code, report.first) == (5, 9)
    assert "the log begins at 9, and none of its snapshots can be used" in report.why_unverifiable


# -------------------------------------------------------------------------------------------------------------- replay


async def test_every_place_that_is_left_has_its_state(world: World) -> None:
    commits = world.log.commits
    at = len(commits) // 2
    log = await purged(commits, at)
    await put_snapshot(log, folded(commits, at + 7))
    for place in range(at, len(commits) + 1):
        assert snapshot.digest(await replay(log, str(place))) == snapshot.digest(folded(commits, place))
    assert snapshot.digest(await replay(log)) == snapshot.digest(world.state)


async def test_a_place_that_was_purged_says_so_and_what_is_left(world: World) -> None:
    at = len(world.log.commits) // 2
    log = await purged(world.log.commits, at)
    with pytest.raises(BadPlace, match=f"--at 3: the log begins at {at + 1}: .*; the first place that is left is {at}"):
        await replay(log, "3")
    with pytest.raises(BadPlace, match=f"the log ends at {len(world.log.commits)}"):
        await replay(log, "99999")


async def test_a_time_that_was_purged_says_so() -> None:
    log = MemoryLog("timed")
    for second in range(10):
        header = envelope.Header(writer="ingest", epoch=0, basis=0, time_ns=second * 10**9, cause="facts")
        payload = envelope.encode_events([ev.IngestTaken(holder=str(second))])
        log.append_now("muster.timed.ingest", header, payload, second)
    await put_snapshot(log, folded(log.commits, 4))
    await log.purge(5)
    assert (await replay(log, "1970-01-01T00:00:06Z")).sequence == 7
    with pytest.raises(BadPlace, match="what follows 4 is younger, and everything before was purged"):
        await replay(log, "1970-01-01T00:00:02Z")


async def test_without_a_snapshot_nothing_can_be_replayed(world: World) -> None:
    log = MemoryLog("test")
    await put_commits(log, world.log.commits)
    await log.purge(9)
    for at in (None, "20", "2100-01-01"):
        with pytest.raises(NoStart, match="the log begins at 9"):
            await replay(log, at)
