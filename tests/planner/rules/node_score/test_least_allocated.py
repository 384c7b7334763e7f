"""Seed 004, LeastRequestedPriority, the kube-scheduler's default: use is spread evenly over the nodes."""

import events as ev
from tests.world import World, of_type


def test_the_node_of_which_the_fewest_resources_are_consumed_is_scheduled_first() -> None:
    world = World()
    for number in range(3):
        world.node(f"n{number}")
    for number, cpu in enumerate((4, 2, 1)):
        world.pod(f"runs-{number}", node=f"n{number}", cpu=cpu, candidate=False)
    world.pod("p", cpu=1)
    world.settle()
    assert world.where("p") == ["n2"]


def test_use_is_spread_evenly_over_the_nodes() -> None:
    world = World()
    for number in range(4):
        world.node(f"n{number}")
    for number in range(8):
        world.pod(f"p{number}")
        world.settle()
    places = world.where(*(f"p{number}" for number in range(8)))
    assert sorted(places) == ["n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3"]


def test_it_leaves_fragments_of_resources_on_single_nodes() -> None:
    """The text's example: one GPU is free on each of two nodes, and a job asks for two."""
    world = World()
    for name in ("n0", "n1"):
        world.node(name, gpu=2)
    for number in range(2):
        world.pod(f"small-{number}", gpu=1)
        world.settle()
    world.pod("large", gpu=2)
    [refused] = of_type(world.plan(), ev.GroupsRefused)
    assert refused.node_reasons == {"Insufficient nvidia.com/gpu": 2}
