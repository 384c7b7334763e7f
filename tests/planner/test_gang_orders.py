"""In which order the pods of one gang are placed: by class and by priority."""

from __future__ import annotations

import pytest

import events as ev
from services.planner import demand
from tests.world import World, of_type


def test_the_classes_of_a_gang_are_placed_together() -> None:
    """A launcher that needs little and workers that need much: the largest first, so that they find their gaps."""
    world = World()
    world.node("n0", cpu=4)
    world.node("n1", cpu=5)
    uids = [world.pod("train-0", "train", minimum=3, cpu=1)]
    uids += [world.pod(f"train-{i}", "train", minimum=3, cpu=4) for i in (1, 2)]
    world.settle()
    assert world.where(*uids)[0] == "n1"
    assert sorted(world.where(*uids)) == ["n0", "n1", "n1"]


def test_the_largest_class_is_placed_first_whichever_pods_came_first() -> None:
    world = World()
    world.node("n0", cpu=8)
    for name, cpu in (("middle", 2), ("small", 1), ("large", 3)):
        world.pod(name, "train", minimum=3, cpu=cpu)
    [placed] = of_type(world.plan(), ev.GangPlaced)
    assert [uid for one in placed.required for uid in one.pods] == ["large", "middle", "small"]


def test_the_task_of_the_largest_class_has_its_minimum_first() -> None:
    """Not the one that the job names first."""
    world = World()
    world.node("n0", cpu=8)
    world.pod_group("job", 2, dialect="volcano/v1beta1", task_minimums={"launcher": 1, "worker": 1})
    world.volcano("launcher", "job", "launcher", cpu=1)
    world.volcano("worker", "job", "worker", cpu=4)
    [placed] = of_type(world.plan(), ev.GangPlaced)
    assert [uid for one in placed.required for uid in one.pods] == ["worker", "launcher"]


def test_a_class_is_as_large_as_the_largest_share_of_a_node_that_its_pod_takes() -> None:
    """Half of its cpu is more than a quarter of its memory, whatever the units are."""
    world = World()
    world.node("n0", cpu=8, memory_gi=64)
    world.pod("memory", "train", minimum=2, cpu=1, memory_gi=16)
    world.pod("cpu", "train", minimum=2, cpu=4, memory_gi=1)
    [placed] = of_type(world.plan(), ev.GangPlaced)
    assert [uid for one in placed.required for uid in one.pods] == ["cpu", "memory"]


def test_the_other_order_of_classes_is_tried_too() -> None:
    """Largest first is a heuristic: here the larger class would take the only node of the other."""
    world = World()
    world.node("n0", cpu=6, labels={"zone": "a"})
    world.node("n1", cpu=4)
    picky = world.pod("train-0", "train", minimum=2, cpu=3, selector={"zone": "a"})
    easy = world.pod("train-1", "train", minimum=2, cpu=4)
    world.settle()
    assert world.where(picky, easy) == ["n0", "n1"]


@pytest.mark.parametrize(
    ("most", "found"), [(demand.SORTED_BY_NODES, ["n1", "n0", "n2"]), (3, ["n1", "n0", "n2"]), (2, ["", "", ""])]
)
def test_the_class_that_the_fewest_nodes_take_goes_first_where_nothing_else_helps(
    monkeypatch: pytest.MonkeyPatch, most: int, found: list[str]
) -> None:
    """Here the larger class takes the only node of the picky one, and so does the smaller. Of so many classes at most."""
    monkeypatch.setattr(demand, "SORTED_BY_NODES", most)
    world = World()
    world.node("n0", cpu=6, labels={"zone": "a"})
    world.node("n1", cpu=5)
    world.node("n2", cpu=3)
    large = world.pod("large", "train", minimum=3, cpu=5)
    picky = world.pod("picky", "train", minimum=3, cpu=4, selector={"zone": "a"})
    small = world.pod("small", "train", minimum=3, cpu=3)
    world.settle()
    assert world.where(large, picky, small) == found


def test_of_two_classes_the_one_that_fewer_nodes_take_goes_before_a_higher_priority_where_nothing_else_helps() -> None:
    """Both are as large, so that neither of the other orders puts the picky one first."""
    world = World()
    world.node("n0", cpu=1, memory_gi=64, labels={"zone": "a"})
    world.node("n1", cpu=1, memory_gi=2)
    easy = world.pod("easy", "train", minimum=2, cpu=1, priority=10)
    picky = world.pod("picky", "train", minimum=2, cpu=1, selector={"zone": "a"})
    world.settle()
    assert world.where(easy, picky) == ["n1", "n0"]


def test_a_class_that_few_nodes_have_a_resource_for_goes_first_where_nothing_else_helps() -> None:
    world = World()
    world.node("n0", cpu=10, gpu=4)
    world.node("n1", cpu=8)
    world.node("n2", cpu=4)
    large = world.pod("large", "train", minimum=3, cpu=8)
    worker = world.pod("worker", "train", minimum=3, cpu=7, gpu=1)
    small = world.pod("small", "train", minimum=3, cpu=4)
    world.settle()
    assert world.where(large, worker, small) == ["n1", "n0", "n2"]


def test_of_one_gangs_pods_those_of_a_higher_priority_come_first() -> None:
    """KEP-4671, Algorithm Limitations: "the algorithm processes higher-priority pods first"."""
    world = World()
    world.node("n0", cpu=2)
    for name, priority in (("a", 0), ("b", 10), ("c", 0), ("d", 20)):
        world.pod(name, "train", minimum=2, priority=priority)
    world.settle()
    assert world.bound() == ["b", "d"]


def test_of_two_replacements_the_one_of_a_higher_priority_has_the_room_that_was_kept() -> None:
    """Its pods of a higher priority come first, also where a member failed."""
    world = World()
    world.node("n0", cpu=2)
    world.gang("train", 2, 2)
    world.settle()
    world.deleted("train-1")
    world.judge()
    for name, priority in (("low", 0), ("high", 10)):
        world.pod(name, "train", minimum=2, priority=priority)
    world.settle()
    assert world.bound() == ["high", "train-0"]


def test_a_higher_priority_goes_before_a_larger_class_unless_the_minimum_needs_it_otherwise() -> None:
    world = World()
    world.node("n0", cpu=3)
    world.pod("large", "train", minimum=1, cpu=2, memory_gi=2)
    world.pod("small", "train", minimum=1, cpu=2, priority=10)
    world.settle()
    assert world.bound() == ["small"]
    world = World()
    world.node("n0", cpu=1)
    world.node("n1", cpu=2)
    world.pod("large", "train", minimum=2, cpu=2)
    world.pod("small", "train", minimum=2, cpu=1, priority=10)
    world.settle()
    assert world.bound() == ["large", "small"]


def test_a_larger_class_goes_before_a_higher_priority_where_the_minimum_needs_it() -> None:
    """The small one would take a node of the large ones, and as many nodes take it as them."""
    world = World()
    world.node("n0", cpu=3, labels={"zone": "a"})
    world.node("n1", cpu=3)
    world.node("n2", cpu=2, labels={"zone": "a"})
    small = world.pod("small", "train", minimum=3, cpu=2, priority=10, selector={"zone": "a"})
    large = [world.pod(f"large-{number}", "train", minimum=3, cpu=3) for number in range(2)]
    world.settle()
    assert world.where(small) == ["n2"]
    assert sorted(world.where(*large)) == ["n0", "n1"]


def test_of_one_class_a_higher_priority_comes_first_whichever_class_does() -> None:
    """Here the minimum finds room only with the small class first."""
    world = World()
    world.node("n0", cpu=4)
    for name, cpu, priority in (("low", 2, 5), ("high", 2, 9), ("small-0", 1, 0), ("small-1", 1, 0)):
        world.pod(name, "train", minimum=3, cpu=cpu, priority=priority)
    world.settle()
    assert world.bound() == ["high", "small-0", "small-1"]


def test_half_of_two_classes_is_not_the_gang() -> None:
    world = World()
    world.node("n0", cpu=4)
    world.pod("train-0", "train", minimum=2, cpu=1)
    world.pod("train-1", "train", minimum=2, cpu=1, gpu=1)
    (refused,) = of_type(world.plan(), ev.GroupsRefused)
    assert (refused.needed, refused.placeable) == (2, 1)
    assert refused.node_reasons == {"Insufficient nvidia.com/gpu": 1}
    assert not world.state.claims
