"""A cycle is one message, and so is the permit for each of its proposals: what is more is planned in the next ones."""

from __future__ import annotations

import re
from bisect import bisect_left

import msgspec
import pytest

import events as ev
from events.policy import DEFAULT_POLICY
from services.console.verify import verify
from services.planner import limits
from services.planner.attempt import name_of
from services.state import commits
from services.state.partitions import partition_of
from services.state.records import Group
from tests.bounds import bound, largest
from tests.world import World, of_type


def pods_of(event: ev.GangPlaced) -> list[str]:
    return [uid for one in (*event.required, *event.optional) for uid in one.pods]


async def test_a_cycle_that_is_too_large_goes_on_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """In queue order, and nobody is left out: single pods, gangs, and those that find no room."""
    bound(monkeypatch, 1_000)
    world = World()
    world.node("n", cpu=60, memory_gi=60)
    first = [world.pod(f"p{i:02}", created_s=i) for i in range(20)]
    gangs = [world.gang(f"train{i}", 3, 3, created_s=100 + i)[0] for i in range(5)]
    large = [world.pod(f"large{i}", created_s=200 + i, cpu=50 + i) for i in range(10)]
    said: list[ev.Event] = []
    cycles = 0
    while decided := world.plan():
        cycles += 1
        said += decided
    order = [uid for event in of_type(said, ev.GangPlaced) for uid in pods_of(event)]
    assert [uid for uid in order if uid in first] == first
    assert [uid for uid in order if uid in gangs] == gangs
    refused = [key for event in of_type(said, ev.GroupsRefused) for key in event.groups]
    assert sorted(refused) == [f"pod/default/{uid}" for uid in large]
    assert cycles >= 5
    assert largest(world.log) <= 1_000
    world.settle()
    assert len(world.bound()) == 35
    assert (await verify(world.log)).exit_code == 0


def test_another_shards_groups_are_no_part_of_the_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard looks ahead at others' groups. That it is left with those alone would be no decision at all."""
    bound(monkeypatch, 700)
    world = World(shards=("a", "b"))
    world.node("n", cpu=60, memory_gi=60)
    pods = [f"p{i:02}" for i in range(40)]
    mine = [uid for uid in pods if world.state.owners[partition_of(f"pod/default/{uid}")] == "a"]
    for uid in pods:
        world.pod(uid, priority=0 if uid in mine else 10)
    said: list[ev.Event] = []
    while decided := world.plan("a"):
        said += decided
    assert sorted(uid for event in of_type(said, ev.GangPlaced) for uid in pods_of(event)) == mine
    assert len(mine) > 10
    assert largest(world.log) <= 700


def test_what_is_optional_and_does_not_fit_is_placed_in_later_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch, 1_500)
    world = World()
    for i in range(60):
        world.node(f"n{i:02}", cpu=1)
    uids = world.gang("train", 60, 5)
    (proposal,) = world.plan()
    assert isinstance(proposal, ev.GangPlaced)
    placed = len(pods_of(proposal))
    assert 5 < placed < 40
    assert sum(len(one.pods) for one in proposal.required) == 5
    world.settle()
    assert world.bound() == sorted(uids)
    assert largest(world.log) <= 1_500


def gang_and_late(*, room: int, minimum: int) -> tuple[World, str]:
    """A gang of 60, and a pod behind it."""
    world = World()
    world.node("n", cpu=room, memory_gi=room)
    world.gang("train", 60, minimum, created_s=1)
    return world, world.pod("late", created_s=2)


def test_the_room_of_what_does_not_fit_is_for_those_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same cycle: it would be refused for lack of it, and nothing would wake it."""
    bound(monkeypatch, 1_200)
    world, late = gang_and_late(room=60, minimum=5)
    events = world.plan()
    assert [event.group for event in of_type(events, ev.GangPlaced)] == ["default/train", f"pod/default/{late}"]
    assert not of_type(events, ev.GroupsRefused)


def test_the_only_further_pod_is_left_for_a_later_cycle_where_the_minimum_alone_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, more = World(), World()
    for each, pods in ((world, 20), (more, 21)):
        each.node("n", cpu=60, memory_gi=60)
        each.gang("train", pods, 20)

    def fits(size: int) -> bool:
        bound(monkeypatch, size)
        return bool(of_type(world.plan_without_appending(), ev.GangPlaced))

    bound(monkeypatch, 500 + bisect_left(range(500, 5_000), True, key=fits))
    (proposal,) = more.plan()
    assert isinstance(proposal, ev.GangPlaced)
    assert (len(pods_of(proposal)), proposal.optional) == (20, ())
    more.settle()
    assert len(more.bound()) == 21


def test_a_minimum_that_no_commit_takes_is_refused_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch, 1_000)
    world, late = gang_and_late(room=60, minimum=60)
    events = world.plan()
    (refused,) = of_type(events, ev.GroupsRefused)
    assert (refused.reason, refused.needed) == ("GangTooLarge", 60)
    assert refused.detail.startswith("a permit for 60 pods of gang default/train is ")
    assert refused.detail.endswith(" bytes too large for a commit")
    assert [event.group for event in of_type(events, ev.GangPlaced)] == [f"pod/default/{late}"]
    assert world.plan() == []


def test_nor_is_a_single_further_pod_that_no_commit_takes_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What must start together runs; of what came later not even one pod can be permitted."""
    world = World()
    world.node("n", cpu=60, memory_gi=60)
    world.gang("train", 2, 2)
    world.settle()
    world.pod("late", "train", minimum=2)
    bound(monkeypatch, 100)
    (refused,) = world.plan()
    assert isinstance(refused, ev.GroupsRefused)
    assert (refused.reason, refused.needed) == ("GangTooLarge", 1)
    assert refused.detail.startswith("a permit for 1 pods of gang default/train is ")


@pytest.mark.parametrize(
    ("gangs", "name"),
    [("a", "gang a"), ("abc", "gang group a, b, c"), ("abcde", "gang group a, b, c and 2 more")],
)
def test_a_refusal_names_three_gangs_of_a_group(gangs: str, name: str) -> None:
    assert name_of(Group("a", 0, 0, 0, gangs=tuple(gangs))) == name


def test_a_large_minimum_names_each_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is placed some hundred pods at a time, and so on each node several times."""
    world = World()
    for i in range(3):
        world.node(f"n{i}" + "n" * 250, cpu=200, memory_gi=200, pods=200)
    uids = world.gang("train", 600, 600)
    (steps,) = world.plan_without_appending()
    assert isinstance(steps, ev.GangPlaced)
    assert len(steps.required) > 3
    bound(monkeypatch, commits.size([steps]) + len(uids) * limits.VERSION_BYTES)
    (proposal,) = world.plan()
    assert isinstance(proposal, ev.GangPlaced)
    assert sorted(one.node[:2] for one in proposal.required) == ["n0", "n1", "n2"]
    assert sorted(pods_of(proposal)) == sorted(uids)
    assert {(uid, one.node) for one in proposal.required for uid in one.pods} == {
        (uid, one.node) for one in steps.required for uid in one.pods
    }
    (permit,) = world.judge()
    assert isinstance(permit, ev.GangPermitted)
    assert commits.size([permit]) <= commits.DECISION_BYTES


def test_what_a_group_holds_already_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """NonStrict: what waits at permit is permitted together with what is proposed."""
    world = World()
    world.node("n", cpu=60, memory_gi=60)
    uids = world.koordinator("default/train", 40, 40, {"mode": "NonStrict", "waiting_time_ms": 600_000})
    world.propose("default/train", {}, dict.fromkeys(uids[:30], "n"))
    assert of_type(world.judge(), ev.GangHeld)
    bound(monkeypatch, 1_000)
    (refused,) = world.plan()
    assert isinstance(refused, ev.GroupsRefused)
    assert (refused.reason, refused.needed) == ("GangTooLarge", 1)
    told = re.fullmatch(
        r"a permit for 1 pods of gang default/train is (\d+) bytes too large for a commit", refused.detail
    )
    assert told is not None, refused.detail  # as it was: for 0 pods, and by 0 bytes
    assert int(told[1]) > 0


def test_no_room_is_asked_for_that_no_commit_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    starving = msgspec.structs.replace(DEFAULT_POLICY, reserve_after_refusals=1, reservations=1)
    for decision_bytes, requests in ((100_000, 1), (800, 0)):
        bound(monkeypatch, decision_bytes)
        world = World(starving)
        for i in range(60):
            world.node(f"n{i:02}", cpu=1)
            world.pod(f"p{i:02}", node=f"n{i:02}")
        world.gang("train", 60, 60)
        world.plan()
        world.deleted("p00")
        world.pass_s(2)
        events = world.plan()
        assert [event.reason for event in of_type(events, ev.GroupsRefused)] == ["InsufficientRoom"]
        assert len(of_type(events, ev.RoomRequested)) == requests


@pytest.mark.parametrize("minimum", [1, 20, 40])
@pytest.mark.parametrize("mode", ["Strict", "NonStrict"])
def test_the_count_is_never_less_than_the_verdict(minimum: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held and nominated, required and optional; whatever the binder says of the proposal."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, replacement_hold_ms=600_000))
    for i in range(40):
        world.node(f"n{i:02}", cpu=1)
    says = {"mode": mode, "waiting_time_ms": 600_000, "match_policy": "waiting-and-running"}
    uids = world.koordinator("default/train", 40, minimum, says)
    world.settle()
    for uid in uids[:15]:
        world.deleted(uid)
    world.judge()
    uids = world.koordinator("default/train", 40, minimum, says)
    bound(monkeypatch, 10)
    group = world.state.groups["default/train"]
    monkeypatch.setattr(limits, "excess", lambda *of: 0)
    (proposal,) = world.plan()
    monkeypatch.undo()
    assert isinstance(proposal, ev.GangPlaced)
    monkeypatch.setattr(commits, "DECISION_BYTES", 0)
    monkeypatch.setattr(limits, "AROUND_BYTES", 0)
    counted = limits.excess(world.state, group, proposal)
    monkeypatch.undo()
    verdict = [event for event in world.judge() if not isinstance(event, ev.RoomNominated)]
    assert counted >= commits.size(verdict) - 300
