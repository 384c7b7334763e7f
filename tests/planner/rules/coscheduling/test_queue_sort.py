"""Seed 000, Extension points, QueueSort: the order in which a shard tries its groups."""

import itertools
from functools import partial
from random import Random

from hypothesis import given
from hypothesis import strategies as st

import events as ev
from services.planner.rules.coscheduling.queue_sort import place
from services.state.fold import State
from services.state.records import Group
from tests.world import SECOND_NS, World, of_type, tried


def roomy() -> World:
    world = World()
    for i in range(4):
        world.node(f"n{i}")
    return world


def failed_gang(world: World, name: str) -> None:
    """A gang that was refused for room and whose backoff then started to run."""
    world.gang(name, 2, 2)
    world.plan()
    world.pass_s(0.5)


def test_higher_priority_goes_first() -> None:
    """When priorities (i.e. .spec.priorityValue) are different, they are compared based on their priorities."""
    world = roomy()
    world.pod("old", created_s=1)
    world.gang("train", 2, 2, created_s=2)
    world.pod("urgent", priority=10, created_s=3)
    assert tried(world) == ["pod/default/urgent", "pod/default/old", "default/train"]


def test_the_highest_member_gives_a_gang_its_priority() -> None:
    """When priorities are different, they are compared based on their priorities: a group has its highest member's."""
    world = roomy()
    world.pod("alone", priority=5, created_s=1)
    world.pod("train-0", "train", minimum=2, created_s=2)
    world.pod("train-1", "train", minimum=2, priority=9, created_s=2)
    assert tried(world) == ["default/train", "pod/default/alone"]
    world.deleted("train-1")
    world.pod("train-2", "train", minimum=2, created_s=3)
    assert tried(world) == ["pod/default/alone", "default/train"]


def test_regular_pods_follow_priority_sort() -> None:
    """When podA and podB are both regularPods, it follows the same logic of default in-tree PrioritySort."""
    world = roomy()
    world.pod("third", created_s=3, cpu=2)
    world.pod("first", created_s=1)
    world.pod("second", created_s=2, cpu=3)
    assert tried(world) == ["pod/default/first", "pod/default/second", "pod/default/third"]


def test_a_regular_pod_older_than_the_groups_last_failure_goes_first() -> None:
    """They are compared according to podA's timestamp and podB's LastFailureTimestamp. If timestampA is earlier than
    LastFailureTimestampB, return true. Otherwise, return false."""
    world = World()
    failed_gang(world, "train")
    failure_s = world.state.groups["default/train"].failed_ns // SECOND_NS
    world.node("n0")
    world.pass_s(2)
    world.pod("after", created_s=failure_s + 1)
    world.pod("before", created_s=failure_s - 1)
    assert tried(world) == ["pod/default/before", "default/train", "pod/default/after"]


def test_a_group_that_never_failed_has_the_time_of_its_first_pod() -> None:
    """PodGroupInfo is initialized the first time the pod belongs to the PodGroup is encountered."""
    world = roomy()
    world.pod("train-0", "train", minimum=2, created_s=5)
    world.pod("train-1", "train", minimum=2, created_s=50)
    world.pod("before", created_s=4)
    world.pod("between", created_s=6)
    assert tried(world) == ["pod/default/before", "default/train", "pod/default/between"]


def test_of_two_groups_the_earlier_failure_goes_first() -> None:
    """If LastFailureTimestampA is earlier than LastFailureTimestampB, return true."""
    world = World()
    failed_gang(world, "zebra")
    failed_gang(world, "ant")
    world.node("n0")
    world.pass_s(2)
    assert tried(world) == ["default/zebra", "default/ant"]


def test_each_failure_updates_the_time() -> None:
    """LastFailureTimestamp is updated every time the PodGroup fails to schedule."""
    world = World()
    world.node("n0", cpu=1)
    failed_gang(world, "first")
    failed_gang(world, "second")
    world.pass_s(2)
    world.gang("third", 2, 2, created_s=1)
    world.pod("wedge", node="n0", candidate=False)
    world.deleted("wedge")
    refused = of_type(world.plan(), ev.GroupsRefused)
    assert [key for event in refused for key in event.groups] == ["default/third", "default/first", "default/second"]
    world.pass_s(5)
    groups = world.state.groups
    assert groups["default/third"].failed_ns == groups["default/first"].failed_ns > 1_000 * SECOND_NS


def test_equal_failures_are_ordered_by_the_groups_name() -> None:
    """If LastFailureTimestampA is equal to LastFailureTimestampB, we will compare the UID of PodGroup."""
    world = World()
    world.gang("b", 2, 2)
    world.gang("a", 2, 2)
    world.plan()
    world.pass_s(2)
    groups = world.state.groups
    assert groups["default/a"].failed_ns == groups["default/b"].failed_ns
    world.node("n0")
    assert tried(world) == ["default/a", "default/b"]


def test_pods_of_two_groups_never_interleave() -> None:
    """It should be always <PodGroup-A, PodGroup-B> or the other way around; but never <Pod-A1, Pod-B1, Pod-A2, ...>."""
    world = roomy()
    for i in range(3):
        for gang in "ab":
            world.pod(f"{gang}-{i}", gang, minimum=3, created_s=i)
    placed = of_type(world.plan(), ev.GangPlaced)
    order = [uid[0] for event in placed for assignment in event.required for uid in assignment.pods]
    assert order in (list("aaabbb"), list("bbbaaa"))


GROUPS = st.lists(
    st.builds(
        lambda name, priority, created: Group(f"pod/default/{name}", 0, 1, created, pod=name, priority=priority),
        st.text("abc", min_size=1, max_size=3),
        st.integers(-2, 2),
        st.integers(0, 2),
    ),
    unique_by=lambda group: group.key,
)


@given(GROUPS, st.randoms(use_true_random=False))
def test_the_order_is_total_and_does_not_depend_on_arrival(groups: list[Group], random: Random) -> None:
    """There are different LastFailureTimestamp (even if they are the same, the UID will be different)."""
    shuffled = list(groups)
    random.shuffle(shuffled)
    rank = partial(place, State())
    ordered = sorted(groups, key=rank)
    assert sorted(shuffled, key=rank) == ordered
    for one, other in itertools.pairwise(ordered):
        assert rank(one) < rank(other)
        assert one.priority >= other.priority
