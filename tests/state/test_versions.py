"""What is in force: a switch holds from its place on, if everybody who writes there has the code for it."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

import events as ev
from services.binder.standing import Standing
from services.state import snapshot
from services.state.fold import State
from services.state.form import UnknownVersion
from tests.second import BOTH, second
from tests.world import World, of_type, tried


@pytest.fixture(autouse=True)
def code() -> Iterator[None]:
    with second():
        yield


def switch(world: World, rules: int, state: int) -> tuple[int, int]:
    """What is in force behind it."""
    world.append("admin", [ev.VersionsSwitched(rules=rules, state=state)], cause="admin")
    return world.state.rules_version, world.state.state_version


def waiting(world: World) -> None:
    """Pods of two priorities that are to be planned."""
    world.node("n", cpu=8)
    world.pod("first", priority=2)
    world.pod("second", priority=1)


def test_the_rules_in_force_decide() -> None:
    world = World(supports=BOTH)
    waiting(world)
    assert tried(world) == ["pod/default/first", "pod/default/second"]
    assert switch(world, 2, 1) == (2, 1)
    assert tried(world) == ["pod/default/second", "pod/default/first"]
    world.settle()
    assert world.bound() == ["first", "second"]


def test_the_rules_may_be_switched_back() -> None:
    world = World(supports=BOTH)
    waiting(world)
    assert switch(world, 2, 1) == (2, 1)
    assert switch(world, 1, 1) == (1, 1)
    assert tried(world) == ["pod/default/first", "pod/default/second"]


@pytest.mark.parametrize("late", [False, True])
def test_who_was_refused_by_the_rules_before_is_tried_again(late: bool) -> None:
    """`late`: the refusal is on its way when the rules are switched."""
    world = World(supports=BOTH)
    world.node("n", cpu=1)
    world.pod("large", cpu=2)
    basis, refusal = world.state.sequence, world.plan_without_appending()
    assert [type(event) for event in refusal] == [ev.GroupsRefused]
    if late:
        assert switch(world, 2, 1) == (2, 1)
    world.append("planner.a", refusal, cause="decide", basis=basis)
    if not late:
        assert switch(world, 2, 1) == (2, 1)
    world.pass_s(2)
    assert of_type(world.plan_without_appending(), ev.GroupsRefused), "tried"


@pytest.mark.parametrize("late", [False, True])
def test_a_proposal_by_the_rules_before_that_those_in_force_refuse_is_no_disagreement(late: bool) -> None:
    """Its gang was set aside, for good, as if planner and binder had a bug. `late`: the proposal is on its way when the
    rules are switched."""
    world = World(supports=BOTH)
    world.node("n")
    world.gang("train", 2, 2)
    basis, proposal = world.state.sequence, world.plan_without_appending()
    if late:
        assert switch(world, 2, 1) == (2, 1)
    world.append("planner.a", proposal, cause="decide", basis=basis)
    if not late:
        assert switch(world, 2, 1) == (2, 1)
    with patch.object(Standing, "_unfit", lambda *_: "n"):
        assert [type(event) for event in world.judge()] == [ev.ProposalRefused]
    assert tried(world) == ["default/train"]


def test_what_stands_behind_a_switch_is_folded_by_the_version_that_it_names() -> None:
    world = World(supports=BOTH)
    world.append("binder", [ev.Renewed()], cause="renew")
    assert switch(world, 1, 2) == (1, 2)
    assert world.state.ignored == {}
    world.append("binder", [ev.Renewed()], cause="renew")
    assert world.state.ignored == {"Renewed": 1}


def test_the_state_goes_one_version_forward_and_never_back() -> None:
    world = World(supports=ev.VersionsAnnounced(rules=(1,), state=(1, 2, 3)))
    assert switch(world, 1, 3) == (1, 1)
    assert switch(world, 1, 2) == (1, 2)
    assert switch(world, 1, 1) == (1, 2)
    assert world.state.ignored == {"VersionsSwitched": 2}


@pytest.mark.parametrize("lacking", ["ingest", "planner.a", "planner.b", "binder"])
def test_nobody_who_writes_is_switched_past(lacking: str) -> None:
    world = World(supports=BOTH, shards=("a", "b"))
    older = {"ingest": ev.IngestTaken(holder="old"), "binder": ev.BinderTaken(holder="old")}
    taken = older.get(lacking, ev.PlannerTaken(shard=lacking[-1], holder="old"))
    world.append(lacking, [taken], cause="taken")
    assert switch(world, 2, 2) == (1, 1)
    world.append(lacking, [taken, BOTH], cause="taken")
    assert switch(world, 2, 2) == (2, 2)


@pytest.mark.parametrize("has", [ev.VersionsAnnounced(rules=(1, 2), state=(1,)), ev.VersionsAnnounced((1,), (1, 2))])
def test_one_that_has_the_half_of_it_is_not_switched_past_either(has: ev.VersionsAnnounced) -> None:
    world = World(supports=BOTH)
    world.append("binder", [ev.BinderTaken(holder="half"), has], cause="taken")
    assert switch(world, 2, 2) == (1, 1)


@pytest.mark.parametrize("gone", ["left", "lost"])
def test_a_shard_that_is_gone_is_not_asked(gone: str) -> None:
    world = World(supports=BOTH)
    world.append("planner.old", [ev.PlannerTaken(shard="old", holder="old")], cause="taken")
    assert switch(world, 2, 1) == (1, 1)
    (world.leave if gone == "left" else world.lose)("old")
    assert switch(world, 2, 1) == (2, 1)


def test_one_that_decides_nothing_need_not_have_the_rules() -> None:
    world = World(supports=BOTH)
    only_folds = ev.VersionsAnnounced(rules=(), state=(1, 2))
    world.append("ingest", [ev.IngestTaken(holder="new"), only_folds], cause="taken")
    assert switch(world, 2, 2) == (2, 2)


def test_a_fold_that_this_code_lacks_stops_it_at_the_switch() -> None:
    three = ev.VersionsAnnounced(rules=(1,), state=(1, 2, 3))
    world = World(supports=three)
    switch(world, 1, 2)
    with pytest.raises(
        UnknownVersion, match=r"^from 8 on the log is folded by state version 3, and this code has 1, 2$"
    ):
        switch(world, 1, 3)


def test_a_switch_that_holds_for_nobody_stops_nobody() -> None:
    world = World()
    assert switch(world, 9, 2) == (1, 1)


def test_a_state_of_before_has_the_digest_that_it_had_before_there_were_versions() -> None:
    world = World()
    assert not [line for line in snapshot.FORM.lines(world.state) if b"version" in line or line.startswith(b"supports")]


def test_a_snapshot_knows_what_is_in_force() -> None:
    world = World(supports=BOTH)
    switch(world, 2, 2)
    again = snapshot.decode(snapshot.encode(world.state))
    assert (again.rules_version, again.state_version, again.supports) == (2, 2, world.state.supports)
    assert snapshot.digest(again) == snapshot.digest(world.state)


def test_without_a_switch_nothing_differs() -> None:
    assert (State().rules_version, State().state_version) == (1, 1)
