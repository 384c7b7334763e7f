"""Taking snapshots: what is stored, and what stays."""

from __future__ import annotations

import msgspec
import pytest

from events.envelope import FIRST_VERSION, Stored, message_id
from events.log import Bounds, EventLog, LogError
from events.memory import MemoryLog
from events.snapshots import Kept
from services import snapshots
from services.snapshots import KEPT, packed, take
from services.start import identity, is_of_another, state_at
from services.state import snapshot
from tests.homes import commits_of, folded, put_commits, put_snapshot
from tests.snapshots.writing import grow, tell_snapshot, write


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
