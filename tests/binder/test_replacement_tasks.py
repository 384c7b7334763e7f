"""The room of a member that its task needs (Volcano's minimums of tasks), although its gang does not."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.objects import NodeAssignment
from events.policy import DEFAULT_POLICY
from tests.binder.failing import FAILURES, fail
from tests.world import World, of_type


def running_job() -> World:
    """A job of one ps and three workers on nodes of their own; its minimum is 3, its ps' 1, its workers' 2."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, replacement_hold_ms=30_000))
    for i in range(4):
        world.node(f"n{i}", cpu=1)
    world.pod_group("job", 3, dialect="volcano/v1beta1", task_minimums={"worker": 2, "ps": 1})
    for name in ("ps-0", "worker-0", "worker-1", "worker-2"):
        world.volcano(name, "job", name.partition("-")[0])
    world.settle()
    assert len(world.bound()) == 4
    return world


@pytest.mark.parametrize("how", FAILURES)
def test_the_room_of_a_task_below_its_minimum_is_kept_although_the_gang_has_its_own(how: str) -> None:
    world = running_job()
    (node,) = world.where("ps-0")
    fail(world, "ps-0", how)
    world.pod("stranger", priority=100)
    world.settle()
    assert world.where("stranger") == [""]
    world.volcano("ps-1", "job", "ps")
    world.settle()
    assert world.where("ps-1", "stranger") == [node, ""]
    assert not world.state.nominations


def test_a_member_that_neither_its_gang_nor_its_task_needs_leaves_its_room_to_others() -> None:
    world = running_job()
    (node,) = world.where("worker-0")
    world.deleted("worker-0")
    world.pod("stranger")
    world.settle()
    assert world.where("stranger") == [node]


def test_the_last_member_of_a_task_without_a_minimum_leaves_its_room_to_others() -> None:
    """Nothing is needed of that task: the gang has its own minimum, and the others theirs."""
    world = running_job()
    world.node("n4", cpu=1)
    world.volcano("logger-0", "job", "logger")
    world.settle()
    (node,) = world.where("logger-0")
    world.deleted("logger-0")
    world.pod("stranger")
    world.settle()
    assert world.where("stranger") == [node]


def test_only_a_pod_of_the_task_takes_the_place_that_its_task_lacks() -> None:
    """A worker is of the same class, waits longer, and its task is named first."""
    world = running_job()
    (node,) = world.where("ps-0")
    world.volcano("worker-3", "job", "worker")
    world.settle()
    world.deleted("ps-0")
    world.pass_s(2)
    world.settle()
    assert world.where("worker-3") == [""]
    world.volcano("ps-1", "job", "ps")
    world.settle()
    assert world.where("ps-1", "worker-3") == [node, ""]


def test_a_proposal_of_another_task_does_not_spend_the_room() -> None:
    """The binder, whatever planners propose."""
    world = running_job()
    (node,) = world.where("ps-0")
    world.deleted("ps-0")
    world.judge()
    world.volcano("worker-3", "job", "worker")
    world.propose("default/job@batch", {}, {"worker-3": node})
    [refused] = of_type(world.judge(), ev.ProposalRefused)
    assert refused.reason == "NoRoom"
    assert list(world.state.nominations) == ["ps-0"]


def job_on_two_nodes() -> World:
    """Both are full: n0 of ps-0 and worker-1, n1 of the other workers. One of each task is a minimum."""
    world = World(DEFAULT_POLICY)
    for node in ("n0", "n1"):
        world.node(node, cpu=2)
    world.pod_group("job", 4, dialect="volcano/v1beta1", task_minimums={"ps": 1, "worker": 1})
    for name in ("ps-0", "worker-0", "worker-1", "worker-2"):
        world.volcano(name, "job", name.partition("-")[0])
    world.propose("default/job@batch", {"ps-0": "n0", "worker-0": "n1", "worker-1": "n0", "worker-2": "n1"})
    world.judge()
    world.bind()
    return world


@pytest.mark.parametrize("first", ["ps-0", "worker-1"])
def test_the_room_of_a_task_goes_to_its_pod_and_any_other_room_to_the_rest(first: str) -> None:
    """Whichever failed first; the pod of the task that lacks its minimum would fit both rooms, the other one only one."""
    world = job_on_two_nodes()
    for name in (first, *{"ps-0", "worker-1"} - {first}):
        world.deleted(name)
        world.judge()
    world.volcano("worker-3", "job", "worker")
    world.volcano("ps-1", "job", "ps")
    world.settle()
    assert world.where("ps-1", "worker-3") == ["n0", "n0"]


@pytest.mark.parametrize("came", [("worker-3", "ps-1"), ("ps-1", "worker-3")], ids=["worker first", "ps first"])
@pytest.mark.parametrize(
    "lost", [("worker-0", "ps-0"), ("ps-0", "worker-0")], ids=["worker lost first", "ps lost first"]
)
def test_nobody_else_of_its_gang_takes_the_place_of_a_task(lost: tuple[str, str], came: tuple[str, str]) -> None:
    """Each node has the room of one; what was kept first, and came first, would fit both."""
    world = job_on_two_nodes()
    for name in lost:
        world.deleted(name)
        world.judge()
    for name in came:
        world.volcano(name, "job", name.partition("-")[0])
    [placed] = of_type(world.plan(), ev.GangPlaced)
    assert {one.node: one.pods for one in (*placed.required, *placed.optional)} == {
        "n0": ("ps-1",),
        "n1": ("worker-3",),
    }
    world.settle()
    assert world.where("ps-1", "worker-3") == ["n0", "n1"]


def test_the_binder_gives_the_room_of_a_task_to_its_pod_though_any_other_room_was_kept_before() -> None:
    """Whatever planners propose: of three that the gang lacks, the two that are there, the pod of the task first."""
    world = job_on_two_nodes()
    for name in ("worker-1", "ps-0", "worker-2"):
        world.deleted(name)
        world.judge()
    world.volcano("ps-1", "job", "ps")
    world.volcano("worker-3", "job", "worker")
    world.propose("default/job@batch", {"ps-1": "n0", "worker-3": "n0"})
    assert [type(said) for said in world.judge()] == [ev.NominationEnded, ev.NominationEnded, ev.GangHeld]


def test_room_that_another_failure_leaves_to_its_task_alone_is_no_disagreement() -> None:
    """What the planner saw was any pod's of the gang: the task had its minimum until a member failed elsewhere."""
    world = World(DEFAULT_POLICY)
    for i in range(4):
        world.node(f"n{i}", cpu=1)
    world.pod_group("job", 3, dialect="volcano/v1beta1", task_minimums={"worker": 2, "ps": 1})
    for name in ("ps-0", "worker-0", "worker-1"):
        world.volcano(name, "job", name.partition("-")[0])
    world.settle()
    nodes = world.where("ps-0", "worker-0", "worker-1")
    [spare] = {f"n{i}" for i in range(4)}.difference(nodes)
    world.volcano("worker-2", "job", "worker")
    world.propose("default/job@batch", {"worker-2": spare})
    world.deleted("worker-1")
    assert of_type(world.judge(), ev.RoomNominated)
    world.bind()
    world.volcano("ps-1", "job", "ps")
    [placed] = of_type(world.plan(), ev.GangPlaced)
    assert placed.optional == (NodeAssignment(nodes[2], ("ps-1",)),)
    world.finished("worker-2", succeeded=False)
    said = world.judge()
    assert [refused.reason for refused in of_type(said, ev.ProposalRefused)] == ["NoRoom"]
    assert not of_type(said, ev.DisagreementDetected)
    world.volcano("worker-3", "job", "worker")
    world.settle()
    assert world.where("worker-3") != [""]


def test_when_its_time_is_over_the_room_of_a_task_is_for_everybody() -> None:
    world = running_job()
    world.deleted("ps-0")
    world.pod("stranger")
    world.settle()
    world.pass_s(40)
    world.settle()
    assert world.where("stranger") != [""]
    assert not world.state.nominations


def test_of_a_job_that_another_scheduler_started_the_room_is_kept_that_brings_its_minimum_back() -> None:
    """Nobody permitted it, so that it counts what one pod would make of it: of its tasks, too."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, replacement_hold_ms=30_000))
    world.node("n0")
    world.pod_group("job", 3, dialect="volcano/v1beta1", task_minimums={"worker": 2, "ps": 1})
    for name in ("ps-0", "worker-0", "worker-1"):
        world.volcano(name, "job", name.partition("-")[0], node="n0")
    world.finished("ps-0", succeeded=False)
    world.finished("worker-0", succeeded=False)
    assert list(world.state.lost) == ["ps-0"]
