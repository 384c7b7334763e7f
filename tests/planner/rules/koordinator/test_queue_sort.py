"""Seed 002, QueueSortPlugin: the order in which a shard tries its groups."""

import msgspec

import events as ev
from events.objects import Declaration
from events.policy import DEFAULT_POLICY, Profile
from tests.world import World, of_type, tried

POLICY = msgspec.structs.replace(
    DEFAULT_POLICY, profile=Profile(name="koordinator", queue_order="koordinator", node_score="least-allocated")
)


def roomy() -> World:
    world = World(POLICY)
    for i in range(4):
        world.node(f"n{i}")
    return world


def test_the_higher_priority_is_at_the_front() -> None:
    """Firstly, compare the priorities of the two pods, the higher priority is at the front of the queue."""
    world = roomy()
    world.pod("old", created_s=1)
    world.gang("train", 2, 2, priority=10, created_s=2)
    world.pod("urgent", priority=20, created_s=3)
    assert tried(world) == ["pod/default/urgent", "default/train", "pod/default/old"]


def test_the_one_created_first_is_at_the_front() -> None:
    """Secondly, compare creationTimestamp of two pods."""
    world = roomy()
    world.pod("second", created_s=2)
    world.pod("first", created_s=1, cpu=2)
    assert tried(world) == ["pod/default/first", "pod/default/second"]


def test_a_gang_has_the_creation_of_its_pod_group() -> None:
    """If pod belongs to a Gang, then we compare creationTimestamp of the Gang: by the CRD way, that of the CRD."""
    world = roomy()
    for name, created_s in (("late", 3), ("early", 1)):
        world.pod_group(name, 1, dialect="koordinator/v1alpha1", created_s=created_s)
        world.pod(f"{name}-0", name, dialect="koordinator/v1alpha1", created_s=10)
    world.pod("alone", created_s=2)
    assert tried(world) == ["default/early", "pod/default/alone", "default/late"]


def test_a_gang_of_the_annotation_way_has_that_of_its_first_pod() -> None:
    """If pod belongs to a Gang, then we compare creationTimestamp of the Gang: without a CRD, its first pod's."""
    world = roomy()
    world.pod("train-0", "train", minimum=2, created_s=1)
    world.pod("train-1", "train", minimum=2, created_s=9)
    world.pod("alone", created_s=5)
    assert tried(world) == ["default/train", "pod/default/alone"]


def test_a_gang_group_is_as_old_as_the_oldest_of_its_gangs_whenever_pods_of_a_pod_group_came() -> None:
    """Then we compare creationTimestamp of the Gang: one by the CRD way, its pods before it, one by annotations."""
    world = roomy()
    groups = ("default/a", "default/b")
    world.pod("a-0", "a", dialect="koordinator/v1alpha1", created_s=1)
    world.pod("alone", created_s=4)
    world.pod_group("a", 1, dialect="koordinator/v1alpha1", created_s=8, groups=groups)
    by_annotations = Declaration(min_member=1, waiting_time_ms=0, groups=groups, said=("groups", "min_member"))
    world.pod("b-0", "b", dialect="koordinator/v1alpha1", created_s=5, declared=by_annotations)
    world.pod("between", created_s=6)
    assert tried(world) == ["pod/default/alone", "default/a", "pod/default/between"]


def test_equal_ones_are_ordered_by_namespace_and_name() -> None:
    """Finally, compare pod's namespace, if pod belongs to a Gang, then we compare Gang name."""
    world = roomy()
    world.pod("z", namespace="a")
    world.pod("m-0", "m", minimum=1, namespace="b")
    world.pod("c-0", "c", minimum=1, namespace="b")
    world.pod("a", namespace="b")
    assert tried(world) == ["pod/a/z", "pod/b/a", "b/c", "b/m"]


def test_a_failure_moves_nobody() -> None:
    """The specific queuing rule has no time of a failure: who failed keeps its place."""
    world = World(POLICY)
    world.gang("first", 2, 2, created_s=1)
    world.plan()
    world.pass_s(2)
    world.gang("second", 2, 2, created_s=2)
    world.node("n0")
    assert tried(world) == ["default/first", "default/second"]


def test_pods_of_one_gang_are_gathered() -> None:
    """We implement the Less function to gather pods belong to same Gang."""
    world = roomy()
    for i in range(3):
        for gang in "ba":
            world.pod(f"{gang}-{i}", gang, minimum=3, created_s=7)
    placed = of_type(world.plan(), ev.GangPlaced)
    assert [uid[0] for event in placed for one in event.required for uid in one.pods] == list("aaabbb")
