"""Seed 004, Coscheduling, binpack: a node's resources are filled up first, then the next node is scheduled."""

import msgspec

import events as ev
from events.policy import DEFAULT_POLICY
from tests.world import World, of_type

PROFILE = msgspec.structs.replace(DEFAULT_POLICY.profile, node_score="binpack")
POLICY = msgspec.structs.replace(DEFAULT_POLICY, profile=PROFILE)


def two_nodes() -> World:
    """Of two GPUs each, all free."""
    world = World(POLICY)
    for name in ("n0", "n1"):
        world.node(name, gpu=2)
    return world


def test_a_nodes_resources_are_filled_up_first() -> None:
    world = two_nodes()
    for number in range(4):
        world.pod(f"p{number}", gpu=1)
        world.settle()
    first, second, third, fourth = world.where("p0", "p1", "p2", "p3")
    assert first == second
    assert third == fourth
    assert {first, third} == {"n0", "n1"}


def test_the_fragmentation_of_resources_can_be_solved() -> None:
    """Two nodes with one free GPU each cannot take a job that asks for two; one with both can."""
    world = two_nodes()
    for number in range(2):
        world.pod(f"small-{number}", gpu=1)
        world.settle()
    world.pod("large", gpu=2)
    assert of_type(world.plan(), ev.GroupsRefused) == []
    world.settle()
    assert world.bound() == ["large", "small-0", "small-1"]
