"""Seed 002, Data-Structure: a Strict gang's schedule cycles, by the events that begin, spoil and end them."""

import events as ev
from events.objects import ClassRoom, Declaration
from tests.world import World, of_type, refusals

KOORDINATOR = "koordinator/v1alpha1"


def child(world: World, number: int, *, total: int = 0, mode: str = "Strict", cpu: float = 4, priority: int = 0) -> str:
    said = ("min_member", "mode", "total_member")
    declared = Declaration(min_member=2, waiting_time_ms=0, total_member=total, mode=mode, said=said)
    return world.pod(f"train-{number}", "train", dialect=KOORDINATOR, declared=declared, cpu=cpu, priority=priority)


def crowded(total: int = 0) -> World:
    """A gang with two children that has no room, and whose backoff is over."""
    world = World()
    world.node("n0", cpu=4)
    for number in range(2):
        child(world, number, total=total)
    assert refusals(world.plan()) == ["InsufficientRoom"]
    world.pass_s(2)
    return world


def test_each_child_is_scheduled_once_in_a_cycle() -> None:
    """If result is negative, means the pod has been scheduled in this cycle, so we should reject it."""
    world = World()
    world.node("n0", cpu=8)
    uids = [child(world, number) for number in range(2)]
    (placed,) = of_type(world.plan(), ev.GangPlaced)
    assert sorted(uid for one in placed.required for uid in one.pods) == uids
    assert not world.plan_would()


def test_a_failed_child_makes_the_cycle_invalid_and_the_remaining_are_rejected() -> None:
    """When a pod failed at Filter stage, we will set ScheduleCycleValid to false: any pod in this Gang shouldn't be
    scheduled until it is set to "true"."""
    world = crowded()
    assert not world.plan_would()
    assert not world.state.claims


def test_a_failed_child_releases_all_assumed_pods() -> None:
    """PostFilter: if `Strict`, we will set `scheduleCycleValid` to false and release all assumed pods."""
    world = World()
    world.node("n0", cpu=4)
    uids = [child(world, number) for number in range(2)]
    world.propose("default/train", {uids[0]: "n0"})
    assert of_type(world.judge(), ev.GangHeld)
    assert refusals(world.plan()) == ["InsufficientRoom"]
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["LeftQueue"]
    assert not world.state.claims


def test_after_permit_said_wait_the_rest_is_scheduled_at_once() -> None:
    """Permit: we will run the `ActiveGang` method, so that the pod of Gang can be continuously scheduled."""
    world = World()
    world.node("n0", cpu=8)
    uids = [child(world, number) for number in range(2)]
    world.propose("default/train", {uids[0]: "n0"})
    assert of_type(world.judge(), ev.GangHeld)
    (placed,) = of_type(world.plan(), ev.GangPlaced)
    assert [uid for one in placed.required for uid in one.pods] == [uids[1]]


def test_a_new_cycle_is_valid_again() -> None:
    """Only When `scheduleCycle` added by 1, we will reset the `scheduleCycleValid` to true: room begins one."""
    world = crowded()
    world.node("n1", cpu=4)
    world.settle()
    assert len(world.bound()) == 2


def test_when_all_children_came_the_next_begins_a_new_cycle() -> None:
    """Default equals to `min-available`: the two that there are were all; the third is in a new cycle."""
    world = crowded()
    child(world, 2, cpu=0)
    world.settle()
    assert len(world.bound()) == 2


def test_a_child_that_comes_into_an_invalid_cycle_is_rejected() -> None:
    """With `totalChildrenNum`'s help: as long as not all came, the cycle is the same."""
    world = crowded(total=4)
    child(world, 2, total=4, cpu=0)
    assert not world.plan_would()
    world.pass_s(30)
    assert not world.plan_would(), "nor when the backoff is over"


def test_the_last_child_ends_the_cycle() -> None:
    """When the last pod comes to make all values equal to `scheduleCycle`, Gang's `scheduleCycle` will be added by 1."""
    world = crowded(total=4)
    child(world, 2, total=4, cpu=0)
    child(world, 3, total=4, cpu=4)
    world.settle()
    assert len(world.bound()) == 2


def test_a_later_pod_of_a_gang_that_runs_is_not_rejected_with_the_others() -> None:
    """After Gang: when once Gang has been satisfied, all subsequent resource allocations are no longer constrained."""
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 1, 1)
    world.settle()
    groups = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 1, 1, groups)
    world.koordinator("default/b", 2, 2, groups | {"total_member": 4})
    assert refusals(world.plan()) == ["InsufficientRoom"]
    world.pass_s(2)
    runs = world.state.pods["a-0"].fact.gang
    assert runs is not None
    world.pod("a-1", "a", dialect=KOORDINATOR, declared=runs.declared)
    world.settle()
    assert world.bound() == ["a-0", "a-1"]


def test_a_child_that_declares_the_gang_otherwise_begins_a_cycle() -> None:
    """Its annotation overwrites what the PodGroup says: fewer must start together, and more are to come."""
    world = World()
    world.node("n0", cpu=8)
    world.pod_group("train", 3, dialect="koordinator/v1alpha1")
    uids = [world.pod(f"train-{number}", "train", dialect=KOORDINATOR, cpu=4) for number in range(3)]
    assert refusals(world.plan()) == ["InsufficientRoom"]
    world.pass_s(2)
    child(world, 3, total=5)
    world.settle()
    assert world.where(*uids[:2]) == ["n0", "n0"]


def test_a_child_that_raises_the_gangs_priority_begins_a_cycle() -> None:
    """The room that is reserved for a gang of a lower priority is for it now."""
    world = World()
    world.node("n0", cpu=8)
    world.gang("big", 2, 2, cpu=8)
    world.plan()
    room = (ClassRoom(world.scheduling_class(cpu=8), {"n0": 1}),)
    world.append("planner.a", [ev.RoomRequested(group="default/big", room=room)], cause="by hand")
    assert [type(event) for event in world.judge()] == [ev.RoomReserved]
    uids = [child(world, number, total=5) for number in range(2)]
    assert refusals(world.plan()) == ["InsufficientRoom"]
    world.pass_s(2)
    world.plan()  # the gang for which room is reserved now
    child(world, 2, total=5)
    assert not world.plan_would()
    uids.append(child(world, 3, total=5, priority=1))
    world.settle()
    assert sorted(world.where(*uids)) == ["", "n0", "n0"]


def test_room_begins_a_cycle_before_all_children_came() -> None:
    """Where the text would never have another: a gang with fewer children than total-number whose minimum fits by now."""
    world = crowded(total=4)
    world.node("n1", cpu=4)
    world.settle()
    assert len(world.bound()) == 2


def test_so_does_the_retry() -> None:
    """A refused group is tried again every five minutes (design, section 3)."""
    world = crowded(total=4)
    child(world, 2, total=4, cpu=0)
    world.pass_s(301)
    world.settle()
    assert len(world.bound()) == 2


def test_the_refusal_says_who_is_yet_to_come() -> None:
    """A refused pod has a reason that names what is missing (design, 7.9)."""
    world = World()
    world.node("n0", cpu=4)
    for number in range(2):
        child(world, number, total=4)
    (refused,) = of_type(world.plan(), ev.GroupsRefused)
    assert refused.detail.endswith(
        "Of gang default/train 2 more pods are to come; before, only room has it tried again."
    )


def test_a_minimum_that_is_there_is_enough_for_the_first_cycle() -> None:
    """Total-number helps to calculate the cycle; PreFilter asks for the minimum alone."""
    world = World()
    world.node("n0", cpu=8)
    uids = [child(world, number, total=4) for number in range(2)]
    world.settle()
    assert world.where(*uids) == ["n0", "n0"]


def test_in_a_gang_group_the_cycle_goes_on_while_one_gang_misses_children() -> None:
    """The text has a cycle for each gang, and a group's gangs start together: one of them tried anew would be in vain."""
    world = World()
    world.node("n0", cpu=3)

    def comes(gang: str, number: int, total: int) -> None:
        said = ("groups", "min_member", "total_member")
        groups = ("default/a", "default/b")
        declared = Declaration(min_member=2, waiting_time_ms=0, total_member=total, groups=groups, said=said)
        world.pod(f"{gang}-{number}", gang, dialect=KOORDINATOR, declared=declared)

    for number in range(2):
        comes("a", number, 2)
        comes("b", number, 3)
    assert refusals(world.plan()) == ["InsufficientRoom"]
    world.pass_s(2)
    comes("a", 2, 2)
    assert not world.plan_would(), "a has all of its children, and b has not"
    comes("b", 2, 3)
    assert world.plan_would()


def test_a_child_that_says_that_the_gang_timed_out_has_it_told_so() -> None:
    """Check whether the Gang has been timeout (check the pod's annotation): another scheduler wrote it. The gang was told
    that it lacks room, on which an autoscaler acts, and more room would have been in vain."""
    world = crowded(total=4)
    said = world.state.pods["train-0"].fact.gang
    assert said is not None
    world.pod("train-2", "train", dialect=KOORDINATOR, declared=said.declared, cpu=4, timed_out=True)
    assert refusals(world.plan()) == ["GangTimedOut"]
    assert not world.plan_would()
