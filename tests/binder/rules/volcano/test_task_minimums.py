"""Volcano's minTaskMember at permit: the quorum of each task."""

import events as ev
from tests.world import World, of_type


def world_with() -> World:
    """Two workers and a ps; one of each and three in all must start together."""
    world = World()
    world.node("n0")
    world.pod_group("job", 2, dialect="volcano/v1beta1", task_minimums={"ps": 1, "worker": 1})
    for name, task in (("w-0", "worker"), ("w-1", "worker"), ("ps-0", "ps")):
        world.volcano(name, "job", task)
    return world


def test_the_minimum_of_the_whole_without_that_of_a_task_waits() -> None:
    world = world_with()
    world.propose("default/job@batch", {"w-0": "n0", "w-1": "n0"})
    assert [type(event) for event in world.judge()] == [ev.GangHeld]
    world.propose("default/job@batch", {"ps-0": "n0"})
    [permit] = of_type(world.judge(), ev.GangPermitted)
    assert sorted(one.uid for assignment in permit.bindings for one in assignment.pods) == ["ps-0", "w-0", "w-1"]


def test_what_is_optional_is_required_while_a_task_lacks_it() -> None:
    world = world_with()
    world.propose("default/job@batch", {"w-0": "n0", "w-1": "n0"}, {"ps-0": "n1"})
    assert [event.reason for event in of_type(world.judge(), ev.ProposalRefused)] == ["NodeGone"]


def test_a_deletion_that_breaks_a_tasks_minimum_releases_all() -> None:
    world = world_with()
    world.propose("default/job@batch", {"w-0": "n0", "w-1": "n0"})
    world.judge()
    world.deleted("ps-0")
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["MemberDeleted"]


def test_members_that_run_count_for_their_task() -> None:
    world = world_with()
    world.settle()
    world.deleted("w-1")
    world.volcano("w-2", "job", "worker")
    world.propose("default/job@batch", {"w-2": "n0"})
    assert [type(event) for event in world.judge()] == [ev.GangPermitted]
