"""Snapshots of another state version: told from each other, restored where the code has the version, never misread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import events as ev
from events.snapshots import Kept
from services.snapshots import take
from services.start import restored, state_at
from services.state import snapshot
from services.state.fold import State
from services.state.form import Damaged
from tests.homes import put_snapshot
from tests.second import BOTH, second
from tests.world import World

STORED = Path(__file__).with_name("stored_v1.snapshot")
"""Bytes as they may lie beside a log: version 1, with something in every table and every field. They never change."""


def stored() -> dict[str, Any]:
    """What the stored bytes say, by attribute."""
    return _read(STORED.read_bytes().splitlines())


def _read(lines: list[bytes]) -> dict[str, Any]:
    return {name.decode(): msgspec.json.decode(text) for name, _, text in (line.partition(b" ") for line in lines)}


def says(found: Any, wanted: Any) -> bool:
    """Whether everything that is wanted stands there, too: a field that came later may stand beside it."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and says(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        same = isinstance(found, list) and len(found) == len(wanted)
        return same and all(says(one, other) for one, other in zip(found, wanted, strict=True))
    return bool(found == wanted)


def test_an_old_snapshot_says_what_it_said() -> None:
    state = snapshot.decode(STORED.read_bytes())
    again = _read(list(snapshot.FORM.lines(state)))
    for name, wanted in stored().items():
        assert says(again[name], wanted), name
    assert (state.rules_version, state.state_version) == (1, 1)


def test_the_stored_one_has_something_of_everything_that_was_recorded_then() -> None:
    assert all(stored().values())
    came_later = set(snapshot.FORM.recorded) - set(stored())
    assert came_later == {"rules_version", "state_version", "supports", "lacked_room"}


def test_bytes_that_say_they_are_of_a_later_version_are_not_read_as_this_one() -> None:
    later = STORED.read_bytes() + b"state_version 2\n"
    with pytest.raises(Damaged, match="it is of state version 2, and this code has 1"):
        snapshot.decode(later)
    with second():
        assert snapshot.decode(later).state_version == 2


def test_a_table_that_this_version_does_not_record_is_not_passed_over() -> None:
    with pytest.raises(Damaged, match="'moods', which this version does not record"):
        snapshot.decode(STORED.read_bytes() + b'moods {"x":1}\n')


async def test_a_label_that_its_bytes_do_not_confirm_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with second():
        world = World(supports=BOTH)
        kept = await put_snapshot(world.log, world.state, state=2)
        assert await restored(world.log, kept, snapshot.FORM) is None
    assert f"snapshot {kept.sequence} is left out: it is of {kept.sequence}, state version 1" in caplog.text


async def _over_a_switch() -> tuple[World, Kept, Kept]:
    """(the log, a snapshot before the switch, one behind it)."""
    world = World(supports=BOTH)
    world.node("n")
    world.pod("p")
    world.settle()
    before = await take(world.log)
    world.append("admin", [ev.VersionsSwitched(rules=2, state=2)], cause="admin")
    world.append("binder", [ev.Renewed()], cause="renew")
    behind = await take(world.log)
    world.pod("q")
    world.settle()
    return world, before, behind


async def test_a_snapshot_of_before_the_switch_is_made_the_later_version_by_its_tail() -> None:
    with second():
        world, before, behind = await _over_a_switch()
        assert (before.state, behind.state) == (1, 2)
        start = await state_at(world.log)
        assert start.base == behind
        await world.log.snapshots.delete(behind)
        start = await state_at(world.log)
        assert start.base == before
        assert start.state.state_version == 2
        assert snapshot.digest(start.state) == snapshot.digest(world.state)
        await world.log.purge(before.sequence + 1)
        assert snapshot.digest((await state_at(world.log)).state) == snapshot.digest(world.state)


async def test_code_that_has_only_the_later_version_needs_a_snapshot_of_it() -> None:
    """Version 1 may go from the code as soon as one of version 2 is kept."""
    with second():
        world, before, behind = await _over_a_switch()
        digest = snapshot.digest(world.state)
        from services.state.fold import FOLDS

        first = FOLDS.pop(1)
        try:
            start = await state_at(world.log)
            assert start.base == behind
            assert snapshot.digest(start.state) == digest
            assert await restored(world.log, before, snapshot.FORM) is None
        finally:
            FOLDS[1] = first


async def test_older_code_leaves_out_what_it_cannot_read_and_stops_at_the_switch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with second():
        world, before, behind = await _over_a_switch()
    found = await state_at(world.log, before.sequence)
    assert found.base == before
    with pytest.raises(Exception, match="folded by state version 2, and this code has 1"):
        await state_at(world.log)
    assert f"snapshot {behind.sequence} is left out: it is of state version 2, and this code has 1" in caplog.text


def test_an_empty_state_is_of_the_first() -> None:
    assert snapshot.decode(snapshot.encode(State())).state_version == 1
