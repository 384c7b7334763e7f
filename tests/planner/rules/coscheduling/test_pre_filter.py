"""Seed 000, Extension points, Pre-Filter: too few pods, and what leaving the last group means."""

import events as ev
from tests.world import World, of_type


def reasons(events: list[ev.Event]) -> list[tuple[str, int, int]]:
    return [(event.reason, event.needed, event.placeable) for event in of_type(events, ev.GroupsRefused)]


def test_less_than_min_available_terminates_scheduling_directly() -> None:
    """Calculate the total number of Pods […]. If the result is less than minAvailable, the scheduling process is
    terminated directly."""
    world = World()
    world.node("n0")
    world.gang("train", 2, 3)
    assert reasons(world.plan()) == [("TooFewPods", 3, 2)]
    assert not world.state.claims


def test_terminating_pods_do_not_count() -> None:
    """Calculate the total number of Pods excludes terminating ones belongs to the same PodGroup."""
    world = World()
    world.node("n0")
    uids = world.gang("train", 3, 3)
    world.terminating(uids[1])
    assert reasons(world.plan()) == [("TooFewPods", 3, 2)]


def test_exactly_min_available_is_enough() -> None:
    """If the result is less than minAvailable: three of three is not."""
    world = World()
    world.node("n0")
    uids = world.gang("train", 3, 3)
    world.settle()
    assert world.where(*uids) == ["n0"] * 3


def test_too_few_is_no_failure_and_ends_with_the_pod_that_makes_it_enough() -> None:
    """Where the text is silent: the termination neither backs off nor moves LastFailureTimestamp."""
    world = World()
    world.node("n0")
    uids = world.gang("train", 2, 3, created_s=7)
    world.plan()
    group = world.state.groups["default/train"]
    assert (group.attempts, group.failed_ns) == (0, 0)
    assert world.plan() == []
    uids.append(world.pod("train-2", "train", minimum=3))
    world.settle()
    assert world.where(*uids) == ["n0"] * 3


def test_another_pod_that_is_still_too_few_is_not_tried() -> None:
    """A refused group is tried again only after a fact that could change its verdict (design, section 3)."""
    world = World()
    world.gang("train", 2, 4)
    world.plan()
    world.pod("train-2", "train", minimum=4)
    assert world.plan() == []


def test_a_smaller_minimum_counts_at_once() -> None:
    """The result is compared with the minAvailable of today's declaration."""
    world = World()
    world.node("n0")
    uids = [world.pod(f"train-{i}", "train") for i in range(2)]
    world.pod_group("train", 4)
    assert reasons(world.plan()) == [("TooFewPods", 4, 2)]
    world.pod_group("train", 2)
    world.settle()
    assert world.where(*uids) == ["n0"] * 2


def test_leaving_the_last_group_rejects_its_waiting_pods() -> None:
    """If there is a pod belongs to the last podgroup is waiting and if no chance to meet minAvailable, reject it
    directly here. The purpose is to make the pod belongs to the same PodGroup fail together."""
    world = World()
    world.node("n0", cpu=2)
    uids = world.gang("train", 3, 3)
    world.propose("default/train", {uids[0]: "n0", uids[1]: "n0"})
    assert of_type(world.judge(), ev.GangHeld)
    assert reasons(world.plan()) == [("InsufficientRoom", 1, 0)]
    released = world.judge()
    assert released == [ev.GangReleased(group="default/train", reason="LeftQueue", pods=(uids[0], uids[1]))]
    assert not world.state.claims


def test_waiting_pods_stay_while_the_group_has_a_chance() -> None:
    """If so, keep it unchanged: the rest of the gang finds room, and everything starts together."""
    world = World()
    world.node("n0", cpu=3)
    uids = world.gang("train", 3, 3)
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    world.settle()
    assert world.where(*uids) == ["n0"] * 3


def test_a_gang_that_a_workload_declares_is_told_to_wait_for_that() -> None:
    """Kubernetes 1.35 has no PodGroups: a refusal names what is missing (design, 7.9)."""
    world = World()
    world.pod("train-0", "job:workers", dialect="kubernetes/v1alpha1")
    [refused] = of_type(world.plan(), ev.GroupsRefused)
    assert refused.detail == "gang default/job:workers@kubernetes waits for its Workload"


def test_a_gang_without_its_declaration_waits_for_it() -> None:
    """Pods before their PodGroup: nobody knows how many have to start together."""
    world = World()
    world.node("n0")
    uids = [world.pod(f"train-{i}", "train") for i in range(2)]
    assert reasons(world.plan()) == [("GangNotDeclared", 0, 0)]
    assert world.plan() == []
    world.pod_group("train", 2)
    world.settle()
    assert world.where(*uids) == ["n0"] * 2
