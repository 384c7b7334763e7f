"""Shards that join and leave: who lives, and what a change of hands does to what waits."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from events.policy import DEFAULT_POLICY
from services.state.fold import State
from services.state.partitions import PARTITIONS, partition_of
from services.state.records import AWAITING, PARKED, READY
from services.state.validate import Violated, validate_state
from tests.state.parked import refused
from tests.world import World, of_type

GANG = "default/train"


def owner(world: World, key: str = GANG) -> str:
    return world.state.owners[partition_of(key)]


def other(world: World, key: str = GANG) -> str:
    (shard,) = set(world.state.shards) - {owner(world, key)}
    return shard


def parked() -> World:
    """A gang of one of two shards that was refused three times, and once more."""
    world = World(shards=("a", "b"))
    world.node("n0", cpu=1)
    world.gang("train", 2, 2)
    for attempt in range(1, 4):
        assert refused(world.plan(owner(world))) == [("InsufficientRoom", attempt)]
        world.node("n0", cpu=1)
        world.pass_s(11)
    world.plan(owner(world))
    assert world.state.groups[GANG].phase == PARKED
    return world


# ------------------------------------------------------------------------------------------------------------ who lives


def test_a_shard_joins_when_its_subject_is_taken_and_leaves_with_its_last_commit() -> None:
    world = World(shards=("a",))
    first = world.state.shards["a"]
    world.join("b")
    assert world.state.shards == {"a": first, "b": world.state.sequence}
    world.leave("a")
    assert list(world.state.shards) == ["b"]
    world.leave("a")
    assert list(world.state.shards) == ["b"]


def test_a_shard_whose_lease_ran_out_is_lost() -> None:
    world = World(shards=("a", "b"))
    world.lose("a")
    assert list(world.state.shards) == ["b"]


def test_a_loss_that_means_the_process_before_is_ignored_and_counted() -> None:
    world = World(shards=("a", "b"))
    taken = world.state.shards["a"]
    world.join("a")
    world.append("binder", [ev.ShardLost(shard="a", taken=taken)], cause="outcome")
    world.append("binder", [ev.ShardLost(shard="z", taken=taken)], cause="outcome")
    assert sorted(world.state.shards) == ["a", "b"]
    assert world.state.ignored == {"ShardLost": 2}


def test_only_the_binder_says_that_a_shard_is_lost() -> None:
    world = World(shards=("a", "b"))
    lost = ev.ShardLost(shard="b", taken=world.state.shards["b"])
    world.append("planner.a", [lost], cause="outcome")
    assert sorted(world.state.shards) == ["a", "b"]
    assert world.state.ignored == {"ShardLost": 1}


# ------------------------------------------------------------------------------------------------------ change of hands


@pytest.mark.parametrize("how", ["leave", "lose"])
def test_a_parked_gang_is_ready_at_once_for_its_new_owner_with_its_attempts(how: str) -> None:
    """The old owner's clock may never tick again."""
    world = parked()
    before, after = owner(world), other(world)
    getattr(world, how)(before)
    world.judge()
    assert owner(world) == after
    assert world.state.groups[GANG].phase == READY
    assert refused(world.plan(after)) == [("InsufficientRoom", 5)]
    world.node("n1", cpu=1)
    world.pass_s(11)
    world.settle((after,))
    assert all(world.where("train-0", "train-1"))


def test_a_gang_whose_owner_stays_goes_on_waiting() -> None:
    """What doesn't move is not disturbed."""
    world = World(shards=("a",))
    world.node("n0", cpu=1)
    names = [f"gang-{i}" for i in range(40)]
    for name in names:
        world.gang(name, 2, 2)
    world.plan()
    world.join("b")
    world.judge()
    phases = {world.state.groups[f"default/{name}"].phase: owner(world, f"default/{name}") for name in names}
    assert phases == {PARKED: "a", READY: "b"}
    assert {key for cohort in world.state.cohorts.values() for key in cohort.groups} == {
        f"default/{name}" for name in names if owner(world, f"default/{name}") == "a"
    }


def test_a_proposal_that_stands_is_judged_whoever_owns_the_gang_now() -> None:
    world = World(shards=("a", "b"))
    world.node("n0", cpu=2)
    world.gang("train", 2, 2)
    world.plan(owner(world))
    world.lose(owner(world))
    assert [type(event) for event in world.judge()] == [ev.PartitionsAssigned, ev.GangPermitted]
    assert world.state.groups[GANG].phase != AWAITING


def test_what_a_lost_shard_still_says_is_ignored_and_counted() -> None:
    """A zombie: it decided before the loss and appends after it."""
    world = World(shards=("a", "b"))
    world.node("n0", cpu=2)
    world.gang("train", 2, 2)
    before, after = owner(world), other(world)
    late, basis, epoch = world.plan_without_appending(before), world.state.sequence, world.state.epoch
    world.lose(before)
    world.judge()
    world.append(f"planner.{before}", late, cause="decide", basis=basis, epoch=epoch)
    assert world.state.ignored == {"GangPlaced": 1}
    assert not world.state.claims
    assert world.plan_without_appending(before) == []
    world.settle((after,))
    assert all(world.where("train-0", "train-1"))


def test_a_refusal_that_comes_late_parks_nothing() -> None:
    world = World(shards=("a", "b"))
    world.gang("train", 2, 2)
    before = owner(world)
    late, basis, epoch = world.plan_without_appending(before), world.state.sequence, world.state.epoch
    world.leave(before)
    world.judge()
    world.append(f"planner.{before}", late, cause="decide", basis=basis, epoch=epoch)
    assert world.state.ignored == {"GroupsRefused": 1}
    assert world.state.groups[GANG].phase == READY


def test_what_was_set_aside_stays_so() -> None:
    """No clock runs for it: it waits for a fact about itself."""
    world = World(shards=("a", "b"))
    world.node("n0", cpu=2)
    world.gang("train", 2, 2)
    place = world.propose(GANG, {"train-0": "n0", "train-1": "n0"}, shard=owner(world))
    refused = ev.ProposalRefused(group=GANG, proposal=place, reason="NoRoom", node="n0", pod="")
    world.append("binder", [refused, ev.DisagreementDetected(group=GANG, proposal=place, node="n0")], cause="by hand")
    world.leave(owner(world))
    world.judge()
    assert world.state.groups[GANG].phase == PARKED
    world.pod("train-2", "train")
    assert world.plan_would(owner(world))


def test_the_deadlines_of_a_shard_that_owns_nothing_any_more_are_gone() -> None:
    world = parked()
    before = owner(world)
    assert world.state.clocks[f"planner.{before}"].armed
    world.leave(before)
    world.judge()
    clock = world.state.clocks[f"planner.{before}"]
    assert not clock.armed
    assert not clock.unarmed


def test_the_binders_own_go_on() -> None:
    """It owns no partition: who waits at permit does so on its clock, whoever plans the gang."""
    world = World()
    world.node("n0")
    world.pod_group("train", 2, 5_000)
    uids = [world.pod(f"train-{i}", "train") for i in range(2)]
    world.propose(GANG, {uids[0]: "n0"})
    world.judge()
    world.pass_s(1)
    world.join("b")
    assert [type(event) for event in world.judge()] == [ev.PartitionsAssigned]
    world.pass_s(5)
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["Timeout"]


def test_waiting_on_a_clock_that_is_not_the_owners_is_a_violation() -> None:
    world = parked()
    world.state.owners = (other(world),) * PARTITIONS
    with pytest.raises(Violated, match="which does not own it"):
        validate_state(world.state)


def test_a_log_in_which_nobody_leaves_folds_its_owners_as_before() -> None:
    world = World(shards=("a",))
    assert world.state.owners == ("a",) * PARTITIONS
    assert world.state.epoch == 1


# ------------------------------------------------------------------------------------------------- nothing waits for ever

STEP = st.one_of(
    st.tuples(st.sampled_from(["join", "leave", "lose", "plan"]), st.sampled_from("abc")),
    st.tuples(st.sampled_from(["zombie", "judge", "time", "room"]), st.just("")),
)


def go_on(world: World) -> None:
    for _ in range(15):
        world.settle(tuple(sorted(world.state.shards)))
        world.pass_s(1)


@given(st.lists(STEP, min_size=10, max_size=25))
@settings(deadline=None, max_examples=60)
def test_after_any_joins_and_leaves_nothing_waits_for_ever(steps: list[tuple[str, str]]) -> None:
    """Far less log time than a retry's five minutes passes before everything that fits is bound."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, retry_ms=300_000)
    world = World(policy, shards=("a",))
    world.node("small", cpu=1)
    for i in range(6):
        world.gang(f"gang-{i}", 2, 2)
    late: dict[str, tuple[int, int, list[ev.Event]]] = {}
    rooms = 0
    for step, shard in steps:
        match step:
            case "join" | "leave" | "lose":
                getattr(world, step)(shard)
            case "plan" if shard in world.state.shards:
                basis, epoch = world.state.sequence, world.state.epoch
                if decided := world.plan(shard):
                    late[shard] = basis, epoch, decided
            case "zombie" if late:
                of, (basis, epoch, decided) = late.popitem()
                world.append(f"planner.{of}", decided, "by hand", basis, epoch)
            case "judge":
                world.judge()
            case "time":
                world.pass_s(1.5)
            case "room" if rooms < 3:
                rooms += 1
                world.node(f"large-{rooms}", cpu=2)
    world.join("c")
    for fit in (rooms, 6):
        for i in range(rooms, fit):
            world.node(f"more-{i}", cpu=2)
        go_on(world)
        assert len(world.bound()) == 2 * fit
    assert not world.state.cohorts
    again = State()
    for stored in world.log.commits:
        again.apply_stored(stored)
    assert again.owners == world.state.owners
