"""How a state is got at a place of a log: from the newest good snapshot and its tail, over all three homes."""

from __future__ import annotations

import asyncio
import random
import re
from itertools import pairwise

import msgspec
import pytest

import events as ev
from events import envelope
from events.envelope import FIRST_VERSION, Header, Stored
from events.log import EventLog, Purged
from events.snapshots import BrokenSnapshot, Kept
from services.binder import core as binder
from services.planner import core as planner
from services.start import FOLD_BYTES, NoStart, beginning, fold, identity, is_of_another, snapshots_said, state_at
from services.state import snapshot
from services.state.fold import State
from tests.homes import commits_of, folded, put_commits, put_snapshot
from tests.walk.walk import Walk
from tests.world import World

# ------------------------------------------------------------------------------------------------------- where to begin


async def test_without_a_snapshot_the_whole_log_is_folded(log: EventLog, commits: list[Stored]) -> None:
    await put_commits(log, commits)
    state, base, tail_bytes, _ = await state_at(log)
    assert base is None
    assert snapshot.digest(state) == snapshot.digest(folded(commits, len(commits)))
    assert tail_bytes == sum(len(one.header) + len(one.payload) for one in await commits_of(log))


async def test_an_empty_log_is_an_empty_state(log: EventLog) -> None:
    state, base, tail_bytes, _ = await state_at(log)
    assert (state.sequence, base, tail_bytes) == (0, None, 0)


async def test_the_newest_snapshot_and_its_tail(log: EventLog, commits: list[Stored]) -> None:
    await put_commits(log, commits)
    end = len(commits)
    for place in (end // 3, end // 2, end - 5):
        await put_snapshot(log, folded(commits, place))
    state, base, tail_bytes, _ = await state_at(log)
    assert base is not None
    assert base.sequence == end - 5
    assert tail_bytes == sum(len(one.header) + len(one.payload) for one in commits[-5:])
    assert snapshot.digest(state) == snapshot.digest(folded(commits, end))


async def test_a_place_in_the_past_begins_at_the_snapshot_before_it(log: EventLog, commits: list[Stored]) -> None:
    await put_commits(log, commits)
    end = len(commits)
    early = await put_snapshot(log, folded(commits, end // 3))
    late = await put_snapshot(log, folded(commits, end // 2))
    for until, base in ((end // 2 - 1, early), (end // 2, late), (end // 3 - 1, None), (0, None)):
        found = await state_at(log, until)
        assert found.base == base
        assert found.state.sequence == until
        assert snapshot.digest(found.state) == snapshot.digest(folded(commits, until))


async def test_a_crash_between_store_and_event_leaves_a_snapshot_that_is_good(
    log: EventLog, commits: list[Stored]
) -> None:
    """Nothing in the log speaks of it; what counts is that it is what it says."""
    await put_commits(log, commits)
    kept = await put_snapshot(log, folded(commits, len(commits) - 1))
    assert (await state_at(log)).base == kept


# -------------------------------------------------------------------------------------------------- what is not good


@pytest.mark.parametrize("fault", ["digest", "version", "torn", "sequence", "broken"])
async def test_what_is_not_good_is_told_and_the_one_before_is_taken(
    log: EventLog,
    commits: list[Stored],
    fault: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await put_commits(log, commits)
    end = len(commits)
    good = await put_snapshot(log, folded(commits, end // 2))
    late = folded(commits, end - 3)
    if fault == "digest":
        await put_snapshot(log, late, digest="0" * 64)
        why = "its digest is .* not 0000"
    elif fault == "version":
        await put_snapshot(log, late, state=FIRST_VERSION + 1)
        why = f"state version {FIRST_VERSION + 1}, and this code has {FIRST_VERSION}"
    elif fault == "broken":
        broken, get = await put_snapshot(log, late), log.snapshots.get
        monkeypatch.setattr(log.snapshots, "get", lambda kept: lost() if kept == broken else get(kept))
        why = "parts of it are gone"
    elif fault == "sequence":
        await put_snapshot(log, folded(commits, end // 3), sequence=end - 3)
        why = f"it is of {end // 3}"
    else:
        data, digest = snapshot.FORM.pack(late)
        torn = Kept(sequence=end - 3, digest=digest, state=FIRST_VERSION, bytes=len(data) // 2)
        await log.snapshots.put(torn, data[: len(data) // 2])
        why = "not gzip"
    state, base, *_ = await state_at(log)
    assert base == good
    assert snapshot.digest(state) == snapshot.digest(folded(commits, end))
    assert re.search(f"snapshot {end - 3} is left out: .*{why}", caplog.text)


async def lost() -> bytes:
    raise BrokenSnapshot("parts of it are gone")


async def test_one_of_which_the_log_says_otherwise_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """It was replaced by another that is whole in itself."""
    walk = Walk(11)
    walk.walk(60)
    world = walk.world
    place = world.state.sequence
    kept = await put_snapshot(world.log, folded(world.log.commits, place))
    taken = ev.SnapshotTaken(sequence=place, digest="of the true one", bytes=kept.bytes, state=FIRST_VERSION)
    world.append("binder", [taken], cause="outcome")
    state, base, *_ = await state_at(world.log)
    assert base is None
    assert snapshot.digest(state) == snapshot.digest(world.state)
    assert "the log says of the true one" in caplog.text


async def test_one_of_which_the_log_said_otherwise_long_ago_is_left_out() -> None:
    """Seed 89134: the two that it confirmed since could not be restored, and of this one the state remembers nothing."""
    walk = Walk(11)
    walk.walk(60)
    world = walk.world
    kept = await put_snapshot(world.log, folded(world.log.commits, world.state.sequence))
    said = ev.SnapshotTaken(sequence=kept.sequence, digest="of the true one", bytes=kept.bytes, state=FIRST_VERSION)
    world.append("binder", [said], cause="outcome")
    for _ in range(2):
        later = ev.SnapshotTaken(sequence=world.state.sequence, digest="lost", bytes=1, state=FIRST_VERSION)
        world.append("binder", [later], cause="outcome")
    assert kept.sequence not in world.state.snapshots
    state, base, *_ = await state_at(world.log)
    assert base is None
    assert snapshot.digest(state) == snapshot.digest(world.state)


async def test_one_of_which_the_log_says_otherwise_behind_the_place_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seed 327462: the retention made the snapshot on which the log then stood from one that the log denied three commits
    later, and `replay --at` a place between them showed its state."""
    walk = Walk(11)
    walk.walk(60)
    world = walk.world
    place = world.state.sequence
    await put_snapshot(world.log, folded(world.log.commits, place))
    world.node("another")
    world.append("binder", [ev.SnapshotTaken(sequence=place - 7, digest="of another", bytes=1, state=FIRST_VERSION)])
    said = ev.SnapshotTaken(sequence=place, digest="of the true one", bytes=1, state=FIRST_VERSION)
    world.append("planner.a", [said])
    assert (await state_at(world.log, place + 1)).base is not None, "no planner may say that"
    world.append("binder", [said], cause="outcome")
    state, base, *_ = await state_at(world.log, place + 1)
    assert base is None
    assert snapshot.digest(state) == snapshot.digest(folded(world.log.commits, place + 1))
    assert "the log says of the true one" in caplog.text


async def test_one_of_another_log_of_this_name_is_left_out(
    log: EventLog, commits: list[Stored], caplog: pytest.LogCaptureFixture
) -> None:
    """The log was deleted to begin anew, or to be brought back from an archive; the bucket of its snapshots was not."""
    walk = Walk(12)
    walk.walk(60)
    await put_commits(log, commits)
    before = walk.world.log.commits[: len(commits) // 2]
    of_before = await put_snapshot(log, folded(before, len(before)), commit=before[-1].message_id)
    assert of_before.sequence < len(commits)
    state, base, *_ = await state_at(log)
    assert base is None
    assert snapshot.digest(state) == snapshot.digest(folded(commits, len(commits)))
    assert f"snapshot {of_before.sequence} is left out: it is of another log of this name" in caplog.text


async def test_a_message_of_nobodys_in_the_place_of_its_commit_says_that_it_is_another_log(
    log: EventLog, commits: list[Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulator of faults found it, seed 600310, as it learned to restore logs."""
    await put_commits(log, commits)
    last = await log.at(len(commits))
    assert last is not None
    kept = await put_snapshot(log, folded(commits, last.sequence), commit=last.message_id)
    nobodys = Stored(sequence=last.sequence, subject=last.subject, message_id="", header=b"", payload=b"hello?")
    for there, is_another in ((last, False), (nobodys, True), (None, False)):  # of what was purged nothing is known

        async def at(_: int, there: Stored | None = there) -> Stored | None:
            return there

        monkeypatch.setattr(log, "at", at)
        assert await is_of_another(log, kept) == is_another


async def test_one_behind_a_message_of_nobodys_is_known_by_that(
    log: EventLog, commits: list[Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was, it was good for any log: found with logs that are set back more often than the seeds have it."""
    await put_commits(log, commits)
    last, there = commits[-1], [commits[-1]]

    async def at(_: int) -> Stored:
        return there[0]

    monkeypatch.setattr(log, "at", at)
    there[0] = nobodys = Stored(sequence=last.sequence, subject=last.subject, message_id="", header=b"", payload=b"?")
    kept = await put_snapshot(log, folded(commits, last.sequence), commit=identity(nobodys))
    assert not await is_of_another(log, kept)
    for there[0] in (last, msgspec.structs.replace(nobodys, payload=b"!")):
        assert await is_of_another(log, kept)


async def test_one_behind_a_commit_that_another_log_has_at_another_time_is_not_its_own(
    log: EventLog, commits: list[Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 662815: behind a log that was set back a planner decided the same at the same place. Its message id is none of
    the time. An earlier version's snapshots have that alone."""
    await put_commits(log, commits)
    last, there = commits[-1], [commits[-1]]

    async def at(_: int) -> Stored:
        return there[0]

    monkeypatch.setattr(log, "at", at)
    kept = await put_snapshot(log, folded(commits, last.sequence), commit=identity(last))
    earlier = msgspec.structs.replace(kept, commit=last.message_id)
    assert not await is_of_another(log, kept)
    assert not await is_of_another(log, earlier)
    header = envelope.decode_header(last)
    there[0] = msgspec.structs.replace(
        last, header=envelope.encode_header(msgspec.structs.replace(header, time_ns=header.time_ns + 1))
    )
    assert await is_of_another(log, kept)


# ------------------------------------------------------------------------------------------------------------- purged


async def test_a_purged_log_stands_on_its_snapshot(log: EventLog, commits: list[Stored]) -> None:
    await put_commits(log, commits)
    end = len(commits)
    places = (end // 3, end // 2, end - 5)
    for place in places:
        await put_snapshot(log, folded(commits, place))
    await log.purge(end // 2 + 1)
    state, base, *_ = await state_at(log)
    assert base is not None
    assert base.sequence == end - 5
    assert snapshot.digest(state) == snapshot.digest(folded(commits, end))
    oldest = await beginning(log)
    assert (oldest.state.sequence, oldest.base is not None) == (end // 2, True)
    with pytest.raises(NoStart, match=f"the log begins at {end // 2 + 1}"):
        await state_at(log, end // 2 - 1)


async def test_a_purged_log_without_a_good_snapshot_cannot_be_started_from(
    log: EventLog, commits: list[Stored]
) -> None:
    await put_commits(log, commits)
    end = len(commits)
    await put_snapshot(log, folded(commits, end // 3))
    await put_snapshot(log, folded(commits, end - 5), digest="0" * 64)
    await log.purge(end // 2)
    for start in (state_at(log), beginning(log)):
        with pytest.raises(NoStart, match=f"the log begins at {end // 2}, and no"):
            await start


async def test_a_log_that_is_purged_while_it_is_read_does_not_lose_what_is_between(
    log: EventLog, commits: list[Stored]
) -> None:
    await put_commits(log, commits)
    await log.purge(9)
    with pytest.raises(Purged, match="begins at 9: what follows 0 was purged"):
        await fold(log, State(), len(commits))


async def test_a_log_that_is_purged_beyond_what_is_folded_does_not_pass_for_folded(
    log: EventLog, commits: list[Stored]
) -> None:
    """As it was: an empty state, and no word."""
    await put_commits(log, commits)
    await log.purge(9)
    with pytest.raises(Purged, match="what follows 0, up to 5, was purged meanwhile"):
        await fold(log, State(), 5)


async def test_between_two_turns_of_others_it_folds_so_many_bytes_however_few_events(log: EventLog) -> None:
    """As it was: up to 2,000 events in one go, and each may be about tens of thousands of pods."""
    world = World()
    pods = tuple(f"{number:036}" for number in range(2_000))
    for _ in range(40):
        world.append("binder", [ev.GangReleased(group="a/g", reason="Timeout", pods=pods)], cause="decide")
    commits = world.log.commits
    await put_commits(log, commits)
    state, folded = State(), [0]

    async def others() -> None:
        while state.sequence < len(commits):
            folded.append(sum(len(one.header) + len(one.payload) for one in commits[: state.sequence]))
            await asyncio.sleep(0)

    watching = asyncio.create_task(others())
    await asyncio.sleep(0)
    await fold(log, state, len(commits))
    await watching
    folded.append(sum(len(one.header) + len(one.payload) for one in commits))
    largest = max(len(one.header) + len(one.payload) for one in commits)
    assert max(after - before for before, after in pairwise(folded)) <= FOLD_BYTES + largest


# ------------------------------------------------------------------------------------------------- deciding from there


@pytest.mark.parametrize("seed", range(8))
async def test_from_a_snapshot_at_any_place_the_same_state_and_the_same_decisions(seed: int) -> None:
    """Planner and binder, restored at random places of a random walk, decide the bytes that one decides who never
    stopped."""
    source = random.Random(seed)
    walk = Walk(seed)
    for _ in range(6):
        walk.walk(40)
        world = walk.world
        cut = source.randrange(1, world.state.sequence)
        kept = await put_snapshot(world.log, folded(world.log.commits, cut))
        state, base, *_ = await state_at(world.log)
        assert base == kept
        assert snapshot.encode(state) == snapshot.encode(world.state)
        for shard in ("a", "b"):
            live = envelope.encode_events(planner.decide_now(world.state, shard))
            assert envelope.encode_events(planner.decide_now(state, shard)) == live
        assert envelope.encode_events(binder.decide_now(state)) == envelope.encode_events(
            binder.decide_now(world.state)
        )
        await world.log.snapshots.delete(kept)


async def test_deciding_changes_nothing_that_a_snapshot_holds() -> None:
    """So the child that takes one, and never decides, finds the digest of those who do."""
    walk = Walk(5)
    for _ in range(10):
        walk.walk(25)
        assert snapshot.encode(folded(walk.world.log.commits, walk.state.sequence)) == snapshot.encode(walk.state)
        planner.decide_now(walk.state, "a")
        binder.decide_now(walk.state)
        assert snapshot.encode(folded(walk.world.log.commits, walk.state.sequence)) == snapshot.encode(walk.state)


@pytest.mark.parametrize(
    ("writer", "told"), [("binder", [7]), ("planner.a", []), ("nobody", [])], ids=["binder", "planner", "nobody"]
)
@pytest.mark.parametrize("readable", [True, False])
def test_of_snapshots_the_log_says_what_this_version_reads_of_who_may(
    writer: str, told: list[int], readable: bool
) -> None:
    """What it cannot read counts as not said: the snapshot may be good, and its digest is compared anyway."""
    taken = ev.SnapshotTaken(sequence=7, digest="d", state=1, bytes=1)
    payload = envelope.encode_events([ev.Renewed(), taken])  # outcomes share commits
    header = Header(writer=writer, epoch=0, basis=0, time_ns=0, cause="outcome")
    stored = Stored(
        sequence=9,
        subject=f"muster.test.{writer}",
        message_id="",
        header=envelope.encode_header(header),
        payload=payload if readable else payload.replace(b'"sequence":7', b'"sequence":"seven"'),
    )
    assert [one.sequence for one in snapshots_said(stored)] == (told if readable else [])
