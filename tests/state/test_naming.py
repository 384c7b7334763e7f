"""Gangs that name each other: who belongs together, and what it costs to find out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import events as ev
from events.objects import Declaration
from services.state import groups, membership, snapshot
from services.state.fold import State
from services.state.naming import component
from services.state.partitions import partition_of
from services.state.records import Gang
from tests.state.looks import Counting
from tests.world import World

NAMES = [f"a/g{i}" for i in range(6)]


def reaches(state: State, key: str) -> set[str]:
    """The gangs that are there and that this one names, directly or through others; itself among them."""
    found: set[str] = set()
    todo = [key]
    while todo:
        one = todo.pop()
        if one in state.gangs and one not in found:
            found.add(one)
            declared = state.gangs[one].declaration
            todo += declared.groups if declared is not None else ()
    return found


@given(st.dictionaries(st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES)), min_size=1))
def test_those_belong_together_that_name_each_other_directly_or_through_others(named: dict[str, set[str]]) -> None:
    state = State()
    for key, names in named.items():
        declared = Declaration(min_member=1, waiting_time_ms=0, groups=tuple(sorted(names))) if names else None
        state.gangs[key] = Gang(key=key, declaration=declared)
    for key in named:
        together = {other for other in reaches(state, key) if key in reaches(state, other)}
        assert component(state, key) == tuple(sorted(together))


@pytest.mark.parametrize("gangs", [60])
def test_a_gang_of_a_large_group_comes_and_goes_without_all_names_being_gone_through(gangs: int) -> None:
    """Each names all: there are as many names as the square of the gangs."""
    world = World()
    keys = tuple(sorted(f"default/g{i:02}" for i in range(gangs)))
    for key in keys:
        world.koordinator(key, 1, 1, {"groups": keys})
    world.plan()
    state = snapshot.decode(snapshot.encode(world.state))
    state.gangs = Counting(state.gangs)
    begin = len(world.log.commits)
    last = keys[-1].partition("/")[2]
    fact = world.state.pods[f"{last}-0"].fact
    world.facts(ev.PodDeleted(uid=fact.uid, namespace="default", name=fact.name))
    world.facts(world.classes[fact.scheduling_class], fact)
    for stored in world.log.commits[begin:]:
        state.apply_stored(stored)
    assert snapshot.digest(state) == snapshot.digest(world.state)
    assert [len(group.gangs) for group in state.groups.values()] == [gangs]
    assert state.gangs.looks < 40 * gangs


@pytest.mark.parametrize("frozen", [False, True])
def test_of_gangs_that_name_each_other_in_one_commit_the_names_are_gone_through_once(frozen: bool) -> None:
    """Each names all but one: so they are not found to belong together at one look."""
    world = World()
    world.node("n0", cpu=1)
    keys = [f"default/g{number:02}" for number in range(40)]
    if frozen:
        world.koordinator(keys[0], 2, 2, {"mode": "NonStrict"})
        world.settle()
        assert world.state.groups[keys[0]].held
    for key in keys[1:]:
        world.koordinator(key, 1, 1, {})
    again = []
    for number, key in enumerate(keys):
        names = tuple(one for one in keys if one != keys[number - 1])
        pods = (
            [world.state.pods[uid].fact for uid in world.state.gangs[key].members] if key in world.state.gangs else []
        )
        for fact in pods:
            assert fact.gang is not None
            assert fact.gang.declared is not None
            said = replace(fact.gang.declared, groups=names, said=(*fact.gang.declared.said, "groups"))
            again.append(replace(fact, resource_version=world.version(), gang=replace(fact.gang, declared=said)))
    state = snapshot.decode(snapshot.encode(world.state))
    state.gangs = Counting(state.gangs)
    world.facts(*again)
    state.apply_stored(world.log.commits[-1])
    assert bool(state.regrouping) == frozen
    assert state.gangs.looks < 10 * len(keys) ** 2


@pytest.mark.parametrize("names_first", [False, True], ids=["its own group", "another's"])
def test_a_gang_that_waits_to_be_planned_with_another_keeps_no_others_waiting(names_first: bool) -> None:
    """Of a gang that holds room the membership is frozen: it names the other itself, or did before that came."""
    world, names = World(), {"mode": "NonStrict", "groups": ("default/a", "default/b")}
    world.node("n0", cpu=1)
    world.koordinator("default/a", 2, 2, names if names_first else {"mode": "NonStrict"})
    world.propose("default/a", {"a-0": "n0"})
    world.judge()
    assert world.state.groups["default/a"].held
    world.koordinator("default/b", 1, 1, {"groups": ("default/a", "default/b")})
    if not names_first:
        world.koordinator("default/a", 2, 2, names)
    assert world.state.regrouping
    for key in ("default/c", "default/d"):
        world.koordinator(key, 1, 1, {"groups": ("default/c", "default/d")})
    assert world.state.groups["default/c"].gangs == ("default/c", "default/d")


def test_gangs_that_their_pod_groups_put_together_before_they_have_pods_are_one_group_of_their_priority() -> None:
    world, names = World(), ("default/a", "default/b")
    for name in ("a", "b"):
        world.pod_group(name, 1, dialect="koordinator/v1alpha1", groups=names)
    world.pod("b-0", "b", dialect="koordinator/v1alpha1", priority=5)
    assert [(group.gangs, group.priority) for group in world.state.groups.values()] == [(names, 5)]


def test_gangs_that_stay_together_keep_their_place_also_when_one_names_another_that_is_not_there() -> None:
    """But for one whose name is the smallest: it says to which partition they belong."""
    world, names = World(), ("default/b", "default/c")
    for key in names:
        world.koordinator(key, 1, 1, {"groups": names})
    world.plan()
    group = world.state.groups["default/b"]
    since = group.since
    world.koordinator("default/c", 1, 1, {"groups": (*names, "default/d")})
    assert (group, since) == (world.state.groups["default/b"], group.since)
    world.koordinator("default/c", 1, 1, {"groups": ("default/a", *names)})
    formed = world.state.groups["default/b"]
    assert (formed.since, formed.partition) == (world.state.sequence, partition_of("default/a"))


def test_a_fact_about_a_gang_that_many_name_asks_each_for_one_gang_that_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each names thirty that run, and one that is not there."""
    world, many = World(), 20
    world.node("n0", cpu=100, memory_gi=100)
    running = [f"default/a{number:02}" for number in range(30)]
    for key in running:
        world.koordinator(key, 1, 1, {})
    world.settle()
    for number in range(many):
        key = f"default/b{number:02}"
        world.koordinator(key, 1, 1, {"groups": (*running, key, "default/c")})
    world.plan()
    assert {cohort.reason for cohort in world.state.cohorts.values()} == {"WaitingForGang"}
    asked: list[str] = []
    reached = membership.reached
    monkeypatch.setattr(membership, "reached", lambda state, key: asked.append(key) or reached(state, key))
    for most in (100 * many, 3 * many):
        asked.clear()
        world.koordinator("default/a00", 1, 1, {})
        assert many <= len(asked) < most
    world.koordinator("default/c", 1, 1, {})
    world.settle()
    assert len(world.bound()) == len(running) + many + 1


def test_a_pod_that_succeeded_unseen_is_told_to_nobody_while_its_gang_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pod of a large gang may end like this, and thousands may wait for it."""
    world = World()
    world.koordinator("default/large", 2, 2, {})
    world.koordinator("default/waits", 1, 1, {"groups": ("default/large", "default/waits")})
    world.plan()
    woken: list[str] = []
    wake = groups.wake
    monkeypatch.setattr(groups, "wake", lambda state, group, uid="": woken.append(group.key) or wake(state, group, uid))
    for uid, told in (("large-0", 0), ("large-1", 1)):
        world.finished(uid)
        assert woken.count("default/waits") == told


def waits_for_two(a_pods: int, b_pods: int) -> World:
    """A gang c that waits for a and b, of so many pods each; one of them is enough to run."""
    world = World()
    world.node("n0")
    for key, pods in (("default/a", a_pods), ("default/b", b_pods)):
        world.koordinator(key, pods, 1, {"match_policy": "waiting-and-running"})
    world.koordinator("default/c", 1, 1, {"groups": ("default/a", "default/b", "default/c")})
    world.plan()
    assert {cohort.reason for cohort in world.state.cohorts.values()} == {"WaitingForGang"}
    return world


def test_who_waits_for_two_gangs_hears_in_one_commit_of_one_that_ran_fell_below_its_minimum_and_runs_again() -> None:
    world = waits_for_two(1, 2)
    world.facts(*on_node(world, "b-0"), going(world, "b-0"), *on_node(world, "a-0", "b-1"))
    assert world.plan_would()


def test_who_waits_for_two_gangs_hears_in_one_commit_that_the_first_goes_on_after_the_second_ended() -> None:
    world = waits_for_two(2, 1)
    ended = ev.PodFinished(
        uid="b-0", namespace="default", name="b-0", resource_version=world.version(), succeeded=True, reason=""
    )
    world.facts(*on_node(world, "a-0"), ended, *on_node(world, "a-1"))
    assert world.plan_would()


def test_a_gang_that_timed_out_hears_in_one_commit_of_others_after_its_last_pod_that_says_so_is_bound() -> None:
    world = World()
    world.node("n0")
    world.koordinator("default/a", 3, 1, {"match_policy": "waiting-and-running"})
    world.plan()
    world.judge()
    names = {"match_policy": "waiting-and-running", "groups": ("default/a", "default/b")}
    world.koordinator("default/b", 1, 1, names)
    world.plan()
    world.judge()
    assert "b-0" in world.state.permitted
    world.koordinator("default/b", 2, 1, names)
    world.says("b-0")
    world.plan()
    assert {cohort.reason for cohort in world.state.cohorts.values()} == {"GangTimedOut"}
    world.facts(*on_node(world, "a-0", "b-0", "a-1"))
    assert world.plan_would()


def on_node(world: World, *uids: str) -> list[ev.Event]:
    return [
        ev.PodAssigned(uid=uid, namespace="default", name=uid, resource_version=world.version(), node="n0")
        for uid in uids
    ]


def going(world: World, uid: str) -> ev.Event:
    return ev.PodTerminating(uid=uid, namespace="default", name=uid, resource_version=world.version())
