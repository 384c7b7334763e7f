"""Verify: what was forged where nothing else depends on it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import events as ev
from events import envelope
from events.envelope import Stored
from events.homes import open_log
from events.log import EventLog
from services.console.verify import verify
from tests.console.test_verify import altered, find, world
from tests.homes import folded, put_snapshot
from tests.world import World

__all__ = ["world"]


async def filed(path: Path, commits: list[Stored]) -> EventLog:
    log = await open_log(str(path), "test", create=True)
    log.append_stored(commits)  # type: ignore[attr-defined]
    return log


def says_otherwise(stored: Stored, basis: int) -> Stored:
    """The refusal with another word, over another basis, and the message id of just these bytes."""
    events = [
        msgspec.structs.replace(event, detail="a lie") if isinstance(event, ev.GroupsRefused) else event
        for event in envelope.decode(stored).events
    ]
    header = msgspec.structs.replace(envelope.decode_header(stored), basis=basis)
    return msgspec.structs.replace(
        stored, payload=envelope.encode_events(events), header=envelope.encode_header(header)
    )


async def test_a_basis_behind_its_writers_commit_is_a_difference_in_a_purged_log_too(
    world: World, tmp_path: Path
) -> None:
    """As it was: counted as of before the log's beginning, where nobody can decide again, and nothing more was asked."""
    commits = world.log.commits
    target = [one for one in commits if b'"GroupsRefused"' in one.payload][-1]
    before = [one for one in commits if one.subject == target.subject and one.sequence < target.sequence][-1]
    cut = before.sequence - 1
    forged = says_otherwise(target, cut - 1)
    log = await filed(tmp_path / "x.db", [forged if one is target else one for one in commits[cut:]])
    await put_snapshot(log, folded(commits, cut))
    report = await verify(log)
    assert report.difference is not None
    assert report.difference.sequence == target.sequence
    assert report.difference.what == f"its basis {cut - 1} lies before its writer's own commit {before.sequence}"


@pytest.mark.parametrize("where", [ev.BinderTaken, ev.NodeObserved])
async def test_bytes_that_are_not_those_of_their_message_id_are_a_difference(world: World, where: type) -> None:
    """As it was: of a fact on which no decision hangs, or of who took a subject, anything could be said later on."""
    sequence, _ = find(world.log, where)
    stored = world.log.commits[sequence - 1]
    payload = stored.payload.replace(b"test", b"tess").replace(b"uid-n", b"uid-m")
    assert payload != stored.payload
    report = await verify(altered(world.log, sequence, payload=payload))
    assert report.difference is not None
    assert (report.difference.sequence, report.differences) == (sequence, 1)
    assert report.difference.what == "its bytes are not those that its message id was made of"


async def test_so_they_are_in_a_purged_log(world: World, tmp_path: Path) -> None:
    """But for the first commit on its subject there: behind what that was said, nobody knows any more."""
    cut = world.state.sequence
    for name in ("x", "y"):
        world.node(name)
    commits = world.log.commits
    last = commits[-1]
    for index in (-2, -1):
        stored = commits[index]
        forged = msgspec.structs.replace(stored, payload=stored.payload.replace(b"uid-", b"uis-"))
        assert forged.payload != stored.payload
        log = await filed(tmp_path / f"{index}.db", [forged if one is stored else one for one in commits[cut:]])
        await put_snapshot(log, folded(commits, cut))
        report = await verify(log)
        assert (report.start, report.differences) == (cut, 1 if stored is last else 0)


async def test_a_writer_whose_last_commit_was_purged_expected_none(world: World, tmp_path: Path) -> None:
    """An archive has what the log has no more: behind it, or behind nothing."""
    commits = list(world.log.commits)
    last = max(one.sequence for one in commits if one.subject.endswith("ingest"))
    stored = commits[last - 1]
    for expected, code in ((0, 0), (last + 7, 1)):
        other = envelope.message_id(stored.subject, expected, stored.payload)
        commits[last - 1] = msgspec.structs.replace(stored, message_id=other)
        log = await filed(tmp_path / f"{expected}.db", commits)
        assert (await verify(log)).exit_code == code
        await log.close()
