"""Scheduling gates: a gated pod is not planned, and does not stop whoever it belongs to."""

import events as ev
from tests.world import World, of_type


def test_a_gated_pod_is_not_tried_until_its_gates_are_gone() -> None:
    world = World()
    world.node("n0")
    world.pod("later", gated=True)
    assert world.plan() == []
    world.pod("later")
    world.settle()
    assert world.where("later") == ["n0"]


def test_a_gated_pod_without_room_is_not_refused_for_room() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.pod("later", gated=True, cpu=4)
    assert world.plan() == []


def test_a_gang_whose_minimum_needs_gated_pods_says_so() -> None:
    world = World()
    world.node("n0")
    world.gang("train", 1, 2)
    world.pod("train-late", "train", minimum=2, gated=True)
    refused = of_type(world.plan(), ev.GroupsRefused)
    assert [(event.reason, event.needed, event.placeable) for event in refused] == [("PodsGated", 2, 1)]


def test_a_gated_latecomer_of_a_running_gang_waits_and_is_placed_when_its_gates_are_gone() -> None:
    world = World()
    world.node("n0")
    world.gang("train", 2, 2)
    world.settle()
    world.pod("train-late", "train", minimum=2, gated=True)
    assert world.plan() == []
    world.pod("train-late", "train", minimum=2)
    world.settle()
    assert world.where("train-late") == ["n0"]


def test_a_gang_of_which_all_that_is_left_is_gated_again_waits() -> None:
    """No API server lets a gate be added; what the log says is planned all the same."""
    world = World()
    world.node("n0")
    world.gang("train", 2, 2)
    world.settle()
    world.pod("train-2", "train", minimum=2)
    world.pod("train-2", "train", minimum=2, gated=True)
    [refused] = world.plan()
    assert isinstance(refused, ev.GroupsRefused)
    assert (refused.reason, refused.needed, refused.placeable) == ("PodsGated", 1, 0)
