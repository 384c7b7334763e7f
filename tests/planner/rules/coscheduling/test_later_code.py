"""Seed 000, QueueSort, beside what its later code orders (kubernetes-sigs/scheduler-plugins, TestLess).

The later code's own cases stand in ``../shared/oracle`` and are run where that is there; the same sentences with data of
our own are run everywhere.
"""

import itertools
import json
from typing import Any

import pytest

import events as ev
from events.objects import Declaration
from services.planner.rules.coscheduling.queue_sort import place
from tests.shared import SHARED
from tests.world import World, of_type

ORACLE = SHARED / "oracle" / "coscheduling_queuesort_less.json"
CASES = json.loads(ORACLE.read_text())["cases"] if ORACLE.is_file() else []
START_S = 100
"""The oracle's times are relative to its test's start."""


def less(world: World, one: str, other: str) -> bool:
    """Whether the group of the pod `one` goes before that of `other`."""
    state = world.state
    first, second = (place(state, state.groups[state.pods[uid].group]) for uid in (one, other))
    assert first != second
    return first < second


def arranged(case: dict[str, Any]) -> World:
    """The oracle's PodGroups and its two pods, as ingest would write them."""
    world = World()
    for group in case["pod_groups"]:
        minimum, created_s = group.get("min_member", 2), START_S + (group["created_s"] or 0)
        world.pod_group(group["name"], minimum, namespace=group["namespace"], created_s=created_s)
    for pod in (case["p1"], case["p2"]):
        world.pod(
            pod["name"],
            pod["pod_group"] or "",
            namespace=pod["namespace"],
            priority=pod["priority"],
            created_s=START_S + (pod["initial_attempt_s"] or 0),
            dialect="coscheduling/v1alpha1",
        )
    return world


@pytest.mark.skipif(not CASES, reason="../shared is not there")
@pytest.mark.parametrize("case", [case for case in CASES if not case.get("sequence")], ids=lambda case: case["name"])
def test_it_orders_as_the_later_code_does(case: dict[str, Any]) -> None:
    """TestLess: 14 rows."""
    assert less(arranged(case), "p1", "p2") is case["less"]


@pytest.mark.skipif(not CASES, reason="../shared is not there")
def test_it_orders_as_the_later_code_does_after_a_failure() -> None:
    """TestLessAfterScheduleFailure: PodGroup pg1 fails to schedule, and then it does not."""
    (case,) = (case for case in CASES if case.get("sequence"))
    world = arranged(case)
    untouched, failed, cleared = case["steps"]
    assert less(world, "p1", "p2") is untouched["less_p1_p2"]
    fail(world, "pg1")
    assert less(world, "p1", "p2") is failed["less_p1_p2"]
    assert less(world, "p2", "p1") is failed["less_p2_p1"]
    succeed(world)
    assert less(world, "p1", "p2") is cleared["less_p1_p2"]


@pytest.mark.skipif(not CASES, reason="../shared is not there")
def test_all_of_the_later_codes_cases_are_run() -> None:
    assert len(CASES) == 15


def fail(world: World, gang: str) -> None:
    """The gang's other two pods come, and there is no room."""
    for i in range(2):
        member(world, f"{gang}-{i}", gang)
    refused = [event for event in of_type(world.plan(), ev.GroupsRefused) if event.reason == "InsufficientRoom"]
    assert [event.groups for event in refused] == [(f"ns/{gang}",)]
    world.pass_s(1)


def succeed(world: World) -> None:
    """There is room: whoever failed is bound; one more pod of it comes, whose place is looked at as that of the group."""
    world.pass_s(2)
    world.node("n0")
    world.settle()
    member(world, "late", "pg1")


def member(world: World, name: str, gang: str) -> None:
    world.pod(name, gang, namespace="ns", priority=100, created_s=START_S, dialect="coscheduling/v1alpha1")


# -------------------------------------------------------------------------------------- the same sentences, our own data


def two_gangs(first_s: int, second_s: int) -> World:
    """PodGroups of ``a`` and ``b``; a pod of each, both created later, that of ``b`` first."""
    world = World()
    world.pod_group("a", 3, created_s=first_s)
    world.pod_group("b", 3, created_s=second_s)
    world.pod("b-0", "b", created_s=60)
    world.pod("a-0", "a", created_s=70)
    return world


def test_a_pod_group_has_the_time_of_its_creation_whenever_its_pods_came() -> None:
    """The text says when PodGroupInfo is initialized, not with which time; the later code takes the PodGroup's."""
    assert less(two_gangs(10, 20), "a-0", "b-0")
    assert less(two_gangs(20, 10), "b-0", "a-0")


def test_a_pod_group_that_is_not_there_leaves_the_first_pods_time() -> None:
    """PodGroupInfo is initialized the first time the pod belongs to the PodGroup is encountered."""
    world = two_gangs(10, 20)
    world.pod_group_deleted("a")
    assert less(world, "b-0", "a-0")


def test_a_regular_pods_time_is_compared_with_the_pod_groups_creation() -> None:
    """They are compared according to podA's timestamp and podB's LastFailureTimestamp: before the first failure the
    creation stands for it."""
    world = two_gangs(10, 20)
    world.pod("between", created_s=15)
    assert less(world, "a-0", "between")
    assert less(world, "between", "b-0")


def test_a_failure_goes_before_creation_until_a_quorum_clears_it() -> None:
    """LastFailureTimestamp is updated every time the PodGroup fails to schedule; Permit: delete(cs.PodGroupInfos,
    podGroupName)."""
    world = World()
    world.pod_group("a", 2, created_s=10)
    world.pod_group("b", 2, created_s=20)
    for name in ("a-0", "a-1", "b-0"):
        world.pod(name, name[0], created_s=60)
    assert less(world, "a-0", "b-0")
    world.plan()
    world.pass_s(1)
    assert less(world, "b-0", "a-0")
    world.pass_s(2)
    world.node("n0")
    world.settle()
    world.pod("a-2", "a", created_s=70)
    assert less(world, "a-2", "b-0")


def test_a_regular_pod_that_was_refused_goes_behind() -> None:
    """It follows the same logic of default in-tree PrioritySort, whose timestamp is that of entering the queue. Here the
    later code orders otherwise, by first attempts."""
    world = World()
    world.pod("old", created_s=1, cpu=4)
    world.plan()
    world.pass_s(1)
    world.pod("young", created_s=2)
    assert less(world, "young", "old")


def test_groups_of_one_second_keep_their_pods_together() -> None:
    """We will compare the UID of PodGroup (to keep the pods of the same PodGroup together). Here the later code orders
    otherwise, by the names of the pods."""
    world = World()
    for gang in ("b", "a"):
        world.pod_group(gang, 2, created_s=5)
    names = [("z", "a"), ("m", "b"), ("c", "a"), ("n", "b")]
    for name, gang in names:
        world.pod(name, gang)
    for (one, of), (other, than) in itertools.permutations(names, 2):
        if of != than:
            assert less(world, one, other) is (of < than)


def test_a_priority_of_the_groups_own_goes_before_its_pods() -> None:
    """Priorities are compared: in the dialects whose PodGroup has one, that is the group's (services.state.queueing)."""
    world = World()
    for name, own in (("high", 50), ("low", 5), ("none", None)):
        declared = Declaration(min_member=1, waiting_time_ms=0, priority=own)
        world.pod(f"{name}-0", name, priority=10, dialect="volcano/v1beta1", declared=declared)
    assert less(world, "high-0", "none-0")
    assert less(world, "none-0", "low-0")
