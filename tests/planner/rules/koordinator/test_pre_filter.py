"""Seed 002, GangPlugin, PreFilter: too few children, and a gang that timed out."""

from events.objects import Declaration
from tests.world import World, refusals

KOORDINATOR = "koordinator/v1alpha1"


def child(world: World, number: int, **of: bool) -> str:
    declared = Declaration(min_member=2, waiting_time_ms=0, said=("min_member",))
    return world.pod(f"train-{number}", "train", dialect=KOORDINATOR, declared=declared, **of)


def test_fewer_children_than_the_minimum_are_rejected() -> None:
    """Check whether childes in Gang has met the requirements of minimum number under each Gang, and reject the pod if
    negative."""
    world = World()
    world.node("n0")
    child(world, 0)
    assert refusals(world.plan()) == ["TooFewPods"]
    child(world, 1)
    assert refusals(world.plan()) == []
    assert world.state.proposals


def test_a_gang_that_has_timed_out_is_rejected() -> None:
    """Check whether the Gang has been timeout (check the pod's annotation), and reject the pod if positive."""
    world = World()
    world.node("n0")
    child(world, 0)
    child(world, 1, timed_out=True)
    assert refusals(world.plan()) == ["GangTimedOut"]
    assert not world.state.proposals


def test_the_minimum_is_checked_first() -> None:
    """First the minimum number, then the timeout."""
    world = World()
    world.node("n0")
    child(world, 0, timed_out=True)
    assert refusals(world.plan()) == ["TooFewPods"]
    child(world, 1)
    assert refusals(world.plan()) == ["GangTimedOut"]


def test_a_pod_that_has_its_node_says_nothing_of_those_that_wait() -> None:
    """The annotation of a pod that runs is past: it was bound, by whomever."""
    world = World()
    world.node("n0")
    for number in range(2):
        child(world, number, timed_out=True)
    assert refusals(world.plan()) == ["GangTimedOut"]
    for number in range(2):
        world.assigned(f"train-{number}", "n0")
    late = child(world, 2)
    world.settle()
    assert world.where(late) == ["n0"]
