"""Seed 002, NonStrict: gangs that hold room and block each other.

"The quota of the quota group is 10, and the user submits three Gangs with 5 pods. Due to various plugin constraints,
Gang1\\2\\3 may allocate resources of 3\\3\\4 respectively. Since the quota group's quota is full, there will be no new
resource scheduling. We call this is resource deadlock of resource Gang."
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from events.objects import ClassRoom, Declaration
from services.binder import core as binder
from services.binder.rules.koordinator import deadlock
from services.state import commits
from tests.walk.checks import refold
from tests.why import why_waiting
from tests.world import World, of_type


def submit(
    world: World,
    gang: str,
    *,
    pods: int = 5,
    minimum: int = 5,
    mode: str = "NonStrict",
    created_s: int = 0,
    **facts: Any,
) -> list[str]:
    says = {"mode": mode, "waiting_time_ms": 600_000}
    uids = world.koordinator(f"default/{gang}", pods, minimum, says, created_s=created_s)
    if facts:
        for uid in uids:
            fact = world.state.pods[uid].fact
            world.facts(msgspec.structs.replace(fact, resource_version=world.version(), **facts))
    return uids


def allocate(world: World, gang: str, nodes: Sequence[str]) -> None:
    """So many of the gang's pods get these nodes, and wait at permit."""
    world.propose(f"default/{gang}", {}, {f"{gang}-{i}": node for i, node in enumerate(nodes)})
    assert [type(event) for event in world.judge()] == [ev.GangHeld]


def held(world: World) -> dict[str, int]:
    return {key.removeprefix("default/"): len(world.state.groups[key].held) for key in world.state.holding}


def the_texts_example(oldest_first: Sequence[str] = ("gang1", "gang2", "gang3"), **facts: dict[str, Any]) -> World:
    """Room for ten, three gangs of five that hold 3, 3 and 4 of it."""
    world = World()
    world.node("quota", cpu=10)
    for age, gang in enumerate(oldest_first, start=1):
        submit(world, gang, created_s=age, **facts.get(gang, {}))
    for gang, pods in (("gang1", 3), ("gang2", 3), ("gang3", 4)):
        allocate(world, gang, ["quota"] * pods)
    assert held(world) == {"gang1": 3, "gang2": 3, "gang3": 4}
    return world


def released(world: World) -> list[tuple[str, str]]:
    """(gang, reason) of what is given back now."""
    return [(event.group.removeprefix("default/"), event.reason) for event in of_type(world.judge(), ev.GangReleased)]


def test_gangs_that_lack_pods_of_a_class_each_are_asked_in_slices() -> None:
    """Of 2,500 such pods the answer took more than half a second, of 20,000 five; of eight gangs in one decision."""
    world, lacking = World(), 20
    world.node("quota", cpu=10)
    for age, gang in enumerate(("gang1", "gang2")):
        submit(world, gang, pods=5, minimum=5 + lacking, created_s=age)
        allocate(world, gang, ["quota"] * 5)
        declares = world.state.pods[f"{gang}-0"].fact.gang
        for number in range(lacking):
            uid = world.pod(f"{gang}-more{number}", gang, cpu=1 / (2 + number))
            fact = world.state.pods[uid].fact
            world.facts(msgspec.structs.replace(fact, resource_version=world.version(), gang=declares))
    world.plan()
    assert sum(1 for _ in binder.decide(world.state)) > lacking / 2
    assert released(world) == [("gang2", "Deadlock")]


def test_the_youngest_of_the_lowest_priority_gives_its_room_back() -> None:
    world = the_texts_example()
    assert [event.reason for event in of_type(world.plan(), ev.GroupsRefused)] == ["InsufficientRoom"] * 3
    pods = ("gang3-0", "gang3-1", "gang3-2", "gang3-3")
    assert world.judge() == [
        ev.DeadlockFound(group="default/gang3", blocked=("default/gang1", "default/gang2")),
        ev.GangReleased(group="default/gang3", reason="Deadlock", pods=pods),
    ]
    assert held(world) == {"gang1": 3, "gang2": 3}


def test_the_others_get_it_before_it_is_tried_again() -> None:
    world = the_texts_example()
    world.settle()
    assert len(world.bound()) == 10
    assert not any(uid.startswith("gang3") for uid in world.bound())
    why = why_waiting(world.state, world.state.pods["gang3-0"])
    assert why == "4 pods were given back: Deadlock with default/gang1, default/gang2. Tried again in 2 s."
    for uid in world.bound():
        world.finished(uid)
    world.pass_s(11)
    world.settle()
    assert len([uid for uid in world.bound() if uid.startswith("gang3")]) == 5
    refold(world)


def test_a_lower_priority_gives_back_before_a_younger_one() -> None:
    world = the_texts_example(gang1={"priority": -1})
    world.plan()
    assert released(world) == [("gang1", "Deadlock")]


def test_the_youngest_is_who_was_created_last_whatever_its_name_is() -> None:
    world = the_texts_example(("gang3", "gang2", "gang1"))
    world.plan()
    assert released(world) == [("gang1", "Deadlock")]


def test_one_at_a_time_and_only_while_one_is_blocked() -> None:
    """Three hold a third of what each needs: the third gives back, and as that is not enough, the second."""
    world = World()
    world.node("n0", cpu=6)
    for age, gang in enumerate(("a", "b", "c"), start=1):
        submit(world, gang, pods=6, minimum=6, created_s=age)
        allocate(world, gang, ["n0"] * 2)
    world.plan()
    assert released(world) == [("c", "Deadlock")]
    world.plan()
    assert released(world) == []
    assert held(world) == {"a": 4, "b": 2}, "what c gave back goes to the first"
    world.plan()
    assert released(world) == [("b", "Deadlock")]
    world.settle()
    assert sorted(world.bound()) == [f"a-{i}" for i in range(6)]


def test_nobody_gives_back_for_a_gang_that_would_not_fit_all_the_same() -> None:
    world = World()
    world.node("n0", cpu=10)
    world.pod("other", node="n0", cpu=4, candidate=False)
    for age, (gang, holds) in enumerate((("a", 3), ("b", 3)), start=1):
        submit(world, gang, pods=9, minimum=9, created_s=age)
        allocate(world, gang, ["n0"] * holds)
    world.plan()
    assert released(world) == []
    assert held(world) == {"a": 3, "b": 3}


def test_pods_beyond_its_minimum_need_no_room_of_others() -> None:
    """Of whatever class they are."""
    world = World()
    world.node("n0", cpu=2)
    uids = submit(world, "a", pods=3, minimum=2, created_s=1)
    fact = world.state.pods[uids[2]].fact
    other = world.scheduling_class(memory_gi=2)
    world.facts(msgspec.structs.replace(fact, resource_version=world.version(), scheduling_class=other))
    submit(world, "b", pods=9, minimum=9, created_s=2)
    allocate(world, "a", ["n0"])
    allocate(world, "b", ["n0"])
    world.plan()
    assert released(world) == [("b", "Deadlock")]


def test_for_one_in_the_middle_of_the_line_as_for_the_first() -> None:
    """The first would not fit all the same; the second would."""
    world = World()
    world.node("n0", cpu=10)
    for age, (gang, pods, holds) in enumerate((("a", 20, 3), ("b", 5, 3), ("c", 5, 4)), start=1):
        submit(world, gang, pods=pods, minimum=pods, created_s=age)
        allocate(world, gang, ["n0"] * holds)
    world.plan()
    assert released(world) == [("c", "Deadlock")]


def test_what_one_class_of_its_pods_would_take_the_other_cannot() -> None:
    world = World()
    world.node("n0", cpu=3)
    uids = submit(world, "a", pods=4, minimum=4, created_s=1)
    other = world.scheduling_class(memory_gi=2)
    fact = world.state.pods[uids[3]].fact
    world.facts(msgspec.structs.replace(fact, resource_version=world.version(), scheduling_class=other))
    submit(world, "b", pods=2, minimum=2, created_s=2)
    allocate(world, "a", ["n0"] * 2)
    allocate(world, "b", ["n0"])
    world.plan()
    assert released(world) == [], "one cpu for two pods of one cpu"


@pytest.mark.parametrize(("large", "small"), [("n0", "n1"), ("n1", "n0")])
def test_the_largest_of_its_pods_have_the_first_choice(large: str, small: str) -> None:
    """As when they are placed: the small one would fit where the large one must go."""
    world = World()
    for node in (large, small):
        world.node(node, cpu=2)
    uids = submit(world, "a", pods=3, minimum=3, created_s=1)
    fact = world.state.pods[uids[2]].fact
    of_two = world.scheduling_class(cpu=2)
    world.facts(msgspec.structs.replace(fact, resource_version=world.version(), scheduling_class=of_two))
    submit(world, "b", pods=9, minimum=9, created_s=2)
    allocate(world, "a", [small])
    allocate(world, "b", [large, large, small])
    world.plan()
    assert released(world) == [("b", "Deadlock")]
    world.settle()
    assert world.where(*uids) == [small, small, large]


def test_nobody_gives_back_for_a_gang_of_which_one_pod_fits_nowhere() -> None:
    """Its other pod would have a place on either node."""
    world = World()
    for node in ("n0", "n1", "n2"):
        world.node(node, cpu=1)
    uids = submit(world, "a", pods=3, minimum=3, created_s=1)
    of_two = world.scheduling_class(cpu=2)
    fact = world.state.pods[uids[2]].fact
    world.facts(msgspec.structs.replace(fact, resource_version=world.version(), scheduling_class=of_two))
    submit(world, "b", pods=3, minimum=3, created_s=2)
    allocate(world, "a", ["n0"])
    allocate(world, "b", ["n1", "n2"])
    world.plan()
    assert released(world) == []


def test_who_waits_for_another_gang_is_no_holder() -> None:
    """Holders "were refused for lack of" room: the one behind was not, and keeps what it has for its time."""
    world = World()
    world.node("n0", cpu=4)
    submit(world, "a", pods=4, minimum=4, created_s=1)
    says = {"mode": "NonStrict", "waiting_time_ms": 600_000, "groups": ("default/b", "default/c")}
    world.koordinator("default/b", 2, 2, says, created_s=2)
    allocate(world, "a", ["n0"] * 3)
    allocate(world, "b", ["n0"])
    reasons = {event.groups: event.reason for event in of_type(world.plan(), ev.GroupsRefused)}
    assert reasons == {("default/a",): "InsufficientRoom", ("default/b",): "WaitingForGang"}
    assert released(world) == []


@pytest.mark.parametrize("unsupported", [(), ("persistentVolumeClaim",)])
def test_nobody_gives_back_for_a_pod_that_is_refused_whatever_room_there_is(unsupported: tuple[str, ...]) -> None:
    """Another of the gang's waits for room."""
    world = World()
    world.node("n0", cpu=4)
    for age, (gang, pods) in enumerate((("a", 3), ("b", 2)), start=1):
        said = Declaration(min_member=pods, waiting_time_ms=600_000, mode="NonStrict", said=("min_member", "mode"))
        of: dict[str, Any] = {"dialect": "koordinator/v1alpha1", "declared": said, "created_s": age}
        world.pod(f"{gang}-0", gang, cpu=1 if gang == "a" else 3, **of)
        world.pod(f"{gang}-1", gang, cpu=2, **of)
        if gang == "a":
            world.pod("a-2", gang, unsupported=unsupported, **of)
        world.propose(f"default/{gang}", {}, {f"{gang}-0": "n0"})
        world.judge()
    world.plan()
    assert released(world) == ([] if unsupported else [("b", "Deadlock")])


def reserve(world: World, room: tuple[ClassRoom, ...]) -> None:
    world.append("planner.a", [ev.RoomRequested(group="default/starving", room=room)], cause="by hand")
    granted = ev.RoomReserved(group="default/starving", priority=0, room=room, waiting_ms=600_000)
    world.append("binder", [granted], cause="by hand")


def test_what_is_reserved_for_a_starving_gang_is_no_room_for_those_who_wait() -> None:
    world = World()
    world.node("n0", cpu=4)
    for age, gang in enumerate(("a", "b"), start=1):
        submit(world, gang, pods=4, minimum=4, created_s=age)
        allocate(world, gang, ["n0"] * 2)
    world.gang("starving", 3, 3)
    world.plan()
    reserve(world, (ClassRoom(world.scheduling_class(), {"n0": 2}),))
    assert released(world) == []


def test_nobody_loses_his_room_to_a_gang_behind_him() -> None:
    """The second would fit if the first gave back; the first waits for a pod that runs."""
    world = World()
    world.node("n0", cpu=10)
    world.pod("other", node="n0", cpu=4, candidate=False)
    submit(world, "first", pods=9, minimum=9, created_s=1)
    allocate(world, "first", ["n0"] * 3)
    submit(world, "second", pods=5, minimum=5, created_s=2)
    allocate(world, "second", ["n0"] * 3)
    world.plan()
    assert released(world) == []


def test_who_holds_what_no_other_can_use_is_in_nobodys_way() -> None:
    world = World()
    world.node("left", cpu=3)
    world.node("right", cpu=3)
    for age, (gang, node) in enumerate((("a", "left"), ("b", "right")), start=1):
        uids = submit(world, gang, pods=4, minimum=4, created_s=age)
        digest = world.scheduling_class(selector={"side": node})
        world.node(node, cpu=3, labels={"side": node})
        for uid in uids:
            fact = world.state.pods[uid].fact
            world.facts(msgspec.structs.replace(fact, resource_version=world.version(), scheduling_class=digest))
        allocate(world, gang, [node] * 3)
    world.plan()
    assert released(world) == []
    assert held(world) == {"a": 3, "b": 3}


def test_who_may_be_tried_again_is_not_in_a_deadlock_yet() -> None:
    world = the_texts_example()
    world.plan()
    world.node("more", cpu=1)
    assert released(world) == []
    world.pass_s(2)
    world.plan()
    world.judge()
    world.pass_s(2)
    world.settle()
    assert len(world.bound()) >= 5


def test_one_holder_alone_blocks_nobody() -> None:
    world = World()
    world.node("n0", cpu=3)
    submit(world, "a")
    allocate(world, "a", ["n0"] * 3)
    world.plan()
    assert released(world) == []


def test_of_strict_gangs_the_hold_ends_with_the_refusal_as_ever() -> None:
    world = World()
    world.node("n0", cpu=6)
    for gang in ("a", "b"):
        submit(world, gang, mode="Strict")
    for gang in ("a", "b"):
        world.propose(f"default/{gang}", {f"{gang}-{i}": "n0" for i in range(3)})
        world.judge()
    world.plan()
    assert {reason for _, reason in released(world)} == {"LeftQueue"}


def test_a_deadlock_is_a_failed_attempt_and_backs_off() -> None:
    world = the_texts_example()
    world.plan()
    world.judge()
    group = world.state.groups["default/gang3"]
    cohort = world.state.cohorts[group.cohort]
    assert (cohort.reason, cohort.backing_off, group.attempts) == ("Deadlock", True, 2)


@given(
    st.lists(st.integers(2, 6), min_size=2, max_size=4),
    st.lists(st.integers(1, 6), min_size=4, max_size=4),
    st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
@settings(deadline=None, max_examples=30)
def test_gangs_that_fit_one_by_one_all_run_however_the_room_is_split(
    sizes: list[int], holds: list[int], priorities: list[int]
) -> None:
    """Long before anybody's waiting time is over: in each round somebody runs, and ends."""
    world = World()
    for node in ("n0", "n1"):
        world.node(node, cpu=3)
    room = ["n0", "n1"] * 3
    for age, (size, holding, priority) in enumerate(zip(sizes, holds, priorities, strict=False), start=1):
        submit(world, f"g{age}", pods=size, minimum=size, created_s=age, priority=priority)
        mine = [room.pop() for _ in range(min(holding, size - 1, len(room)))]
        if mine:
            allocate(world, f"g{age}", mine)
    rounds = 0
    while any(pod.status != "succeeded" for pod in world.state.pods.values()):
        world.settle()
        running = world.bound()
        assert running, "nobody goes on"
        for uid in running:
            world.finished(uid)
        world.pass_s(11)
        rounds += 1
    assert rounds <= len(sizes)
    assert not world.state.claims


def test_who_holds_room_is_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: a decision over 4,000 gangs that hold some and wait was one slice of 70 ms, whatever it was about."""
    monkeypatch.setattr(commits, "SLICE_UNITS", 1)
    monkeypatch.setattr(deadlock, "SLICE_HELD", 1)
    world, gangs = World(), 20
    world.node("n0", cpu=gangs)
    for number in range(gangs):
        submit(world, f"gang{number}", minimum=5)
        allocate(world, f"gang{number}", ["n0"])
    world.plan()
    assert held(world) == {f"gang{number}": 1 for number in range(gangs)}
    waits, seen = deadlock._waits, list[str]()
    monkeypatch.setattr(deadlock, "_waits", lambda *asked: seen.append("group") or waits(*asked))
    monkeypatch.setattr(binder, "unreserve", lambda *asked: seen.append("held"))
    turns = [len(seen) for _ in binder.decide(world.state)]
    assert len(seen) == 2 * gangs
    assert max(after - before for before, after in pairwise([0, *turns, len(seen)])) == 1
    assert (
        sum(1 for _ in deadlock._count_held(world.state, list(world.state.groups.values()), left_of(world), 1)) == gangs
    )


def left_of(world: World) -> deadlock.Left:
    return deadlock.Left(world.state.table.held.copy(), defaultdict(Counter), defaultdict(list))
