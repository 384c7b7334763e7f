"""Snapshots of a federation's state: with the tail behind one the state is what the whole log folds to."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events import Event, FederatorTaken, envelope, subjects
from events.envelope import FIRST_VERSION, Stored
from events.log import EventLog
from events.snapshots import Kept
from services.federator import core
from services.federator.snapshot import FORM
from services.federator.state import State
from services.federator.validate import validate_state
from services.snapshots import take
from services.start import beginning, state_at
from services.state import snapshot as of_clusters
from services.state.fold import State as ClusterState
from services.state.form import Damaged, at_once
from services.state.validate import Violated
from tests.federator import logs
from tests.federator.held import HeldWorld
from tests.federator.simulation import World
from tests.homes import each_home, put_commits
from tests.nats_server import cluster, server

__all__ = ["cluster", "each_home", "server"]
log = each_home
commits_of = cache(logs.history)


def fold(commits: list[tuple[Event, ...]], until: int, state: State | None = None) -> State:
    """The state after the first `until` commits, from the first one on or from behind this state."""
    state = State() if state is None else state
    for number in range(state.sequence, until):
        state.apply(number + 1, commits[number])
    return state


@given(st.integers(0, 300), st.sampled_from((World, HeldWorld)), st.data())
def test_a_snapshot_and_the_tail_are_the_whole_fold(seed: int, of: type[World], data: st.DataObject) -> None:
    """At any place; what is derived as well, and what is decided from there on."""
    commits = commits_of(seed, of)
    place = data.draw(st.integers(0, len(commits)))
    packed, digest = FORM.pack(fold(commits, place))
    for until in {place, data.draw(st.integers(place, len(commits))), len(commits)}:
        state = fold(commits, until, at_once(FORM.unpack(packed, digest)))
        whole = fold(commits, until)
        assert FORM.digest(state) == FORM.digest(whole)
        assert (state.names, state.submitting.keys()) == (whole.names, whole.submitting.keys())
        assert ([*state.over], state.origin, state.strays) == ([*whole.over], whole.origin, whole.strays)
        assert state.stopping.keys() == whole.stopping.keys()
        assert state.open == whole.open
        assert core.decide(state) == core.decide(whole)
        for taken_over in (state, whole):
            taken_over.apply(until + 1, [FederatorTaken(holder="another")])
        assert FORM.digest(state) == FORM.digest(whole)
    assert digest == FORM.digest(fold(commits, place))


@pytest.mark.parametrize("of", [World, HeldWorld])
@pytest.mark.parametrize("seed", range(20))
def test_the_state_is_sound_at_every_place(seed: int, of: type[World]) -> None:
    commits = commits_of(seed, of)
    state = State()
    for number, commit in enumerate(commits, 1):
        state.apply(number, commit)
        validate_state(state)
    assert not state.ignored


def test_what_is_not_sound_is_told() -> None:
    commits = commits_of(3)
    state = fold(commits, 2)
    uid = next(iter(state.jobs))
    state.actionable = {} if uid in state.actionable else {uid: None}
    with pytest.raises(Violated, match="something is to be said of job-0, or not, otherwise"):
        validate_state(state)
    state = fold(commits, 2)
    state.submitting.clear()
    with pytest.raises(Violated, match="other places are listed than are submitting or abandoned"):
        validate_state(state)


def test_what_is_no_snapshot_of_a_federation_is_damaged() -> None:
    with pytest.raises(Damaged, match="'pods', which this version does not record"):
        FORM.decode(b"pods {}\n")
    with pytest.raises(Damaged, match="a snapshot without sequence, holder, clock, set_aside"):
        FORM.decode(b"")


async def test_a_log_is_folded_from_its_newest_snapshot_in_each_home(log: EventLog) -> None:
    commits = commits_of(5)
    stored = (await logs.written(commits)).commits
    places = (len(stored) // 3, len(stored) // 2, len(stored) - 3)
    await put_commits(log, stored[: places[0]])
    taken = [await take(log, FORM)]
    for before, place in pairwise((*places, len(stored))):
        await _grow(log, stored[before:place])
        taken.append(await take(log, FORM))
    last = taken.pop()
    assert (last.digest, last.sequence) == (FORM.digest(fold(commits, len(commits))), len(commits))
    await log.snapshots.delete(last)
    started = await state_at(log, form=FORM)
    assert started.base == taken[-1]
    assert FORM.digest(started.state) == last.digest
    await log.purge(taken[-1].sequence + 1)
    assert (await beginning(log, FORM)).base == taken[-1]
    assert FORM.digest((await state_at(log, form=FORM)).state) == last.digest


async def test_a_clusters_snapshot_is_none_of_a_federations(log: EventLog) -> None:
    commits = commits_of(5)
    await put_commits(log, (await logs.written(commits)).commits)
    other = ClusterState()
    other.sequence = 3
    data, digest = of_clusters.FORM.pack(other)
    await log.snapshots.put(Kept(sequence=3, digest=digest, state=FIRST_VERSION, bytes=len(data)), data)
    assert (await state_at(log, form=FORM)).base is None


async def _grow(log: EventLog, stored: list[Stored]) -> None:
    for one in stored:
        subject = subjects.subject(log.cluster, subjects.writer_of(one.subject))
        last = await log.last(subject)
        await log.append(subject, envelope.decode_header(one), one.payload, last.sequence if last else 0)
