"""Volcano's minTaskMember: what is proposed reaches the minimum of each task."""

import msgspec

import events as ev
from events.policy import DEFAULT_POLICY
from services.binder.report import condition
from tests.world import World, of_type


def job(world: World, minimum: int, minimums: dict[str, int], **tasks: int) -> None:
    """The PodGroup ``default/job`` and pods of so many of each task: ``ps-0`` …"""
    world.pod_group("job", minimum, dialect="volcano/v1beta1", task_minimums=minimums)
    for task, pods in tasks.items():
        for i in range(pods):
            world.volcano(f"{task}-{i}", "job", task)


def refusal(world: World) -> tuple[str, str]:
    [event] = of_type(world.plan(), ev.GroupsRefused)
    return event.reason, event.detail


def test_each_task_reaches_its_minimum_before_others_get_more() -> None:
    world = World()
    world.node("n0", cpu=3)
    job(world, 3, {"ps": 1, "worker": 2}, worker=4, ps=2)
    world.settle()
    assert world.bound() == ["ps-0", "worker-0", "worker-1"]


def test_beyond_the_tasks_any_pod_reaches_the_minimum_of_the_whole() -> None:
    world = World()
    world.node("n0", cpu=4)
    job(world, 4, {"ps": 1}, worker=5, ps=1)
    world.settle()
    assert world.bound() == ["ps-0", "worker-0", "worker-1", "worker-2"]


def test_without_room_for_the_minimum_of_the_whole_none_of_the_tasks_starts() -> None:
    """What a task has placed of its own counts once."""
    world = World()
    world.node("n0", cpu=3)
    job(world, 4, {"ps": 1}, worker=5, ps=1)
    assert refusal(world) == (
        "InsufficientRoom",
        "gang default/job@batch: 3 of the 4 pods that must start together have a node.",
    )


def test_a_task_that_finds_no_room_keeps_the_job_from_starting() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.pod_group("job", 2, dialect="volcano/v1beta1", task_minimums={"ps": 1, "worker": 1})
    world.volcano("ps-0", "job", "ps", gpu=1)
    world.volcano("worker-0", "job", "worker")
    world.volcano("worker-1", "job", "worker")
    reason, detail = refusal(world)
    assert (reason, detail) == (
        "InsufficientRoom",
        "gang default/job@batch: 1 of the 2 pods that must start together have a node.",
    )
    world.node("n1", gpu=1)
    world.pass_s(2)
    world.settle()
    assert world.bound() == ["ps-0", "worker-0", "worker-1"]


def test_a_task_that_is_short_of_pods_is_named() -> None:
    """JobInfo.CheckTaskValid."""
    world = World()
    world.node("n0")
    job(world, 2, {"ps": 1, "worker": 1}, worker=3)
    detail = "task ps of gang default/job@batch has 0 of its minimum of 1 pods: less than minAvailable"
    assert refusal(world) == ("TooFewPods", detail)
    world.volcano("worker-9", "job", "worker")
    assert world.plan() == [], "nothing that came could change the verdict"
    world.volcano("ps-0", "job", "ps")
    world.settle()
    assert len(world.bound()) == 5


def test_a_gated_pod_of_a_task_is_named() -> None:
    world = World()
    world.node("n0")
    job(world, 2, {"ps": 1, "worker": 1}, worker=3)
    world.volcano("ps-0", "job", "ps", gated=True)
    some = "0 may be scheduled, others are gated or done"
    assert refusal(world) == ("PodsGated", f"task ps of gang default/job@batch needs 1 more pods; {some}")


def test_a_minimum_of_the_whole_below_that_of_its_tasks_alone_counts() -> None:
    """If job minAvailable is less than the sum of the tasks', their check is skipped."""
    world = World()
    world.node("n0", cpu=2)
    job(world, 2, {"ps": 1, "worker": 2}, worker=3)
    world.settle()
    assert len(world.bound()) == 2


def test_pods_without_a_task_count_for_the_whole_alone() -> None:
    world = World()
    world.node("n0", cpu=3)
    job(world, 3, {"ps": 1}, ps=2)
    world.volcano("other-0", "job")
    world.volcano("other-1", "job")
    world.settle()
    assert len(world.bound()) == 3
    assert "ps-0" in world.bound()


def test_members_that_run_count_for_their_task() -> None:
    """A replaced member of one task: the others have their minimum already."""
    world = World()
    world.node("n0", cpu=3)
    job(world, 3, {"ps": 1, "worker": 2}, worker=2, ps=1)
    world.settle()
    world.deleted("ps-0")
    world.volcano("worker-2", "job", "worker")
    assert refusal(world)[0] == "TooFewPods"
    world.volcano("ps-1", "job", "ps")
    [placed] = of_type(world.plan(), ev.GangPlaced)
    assert [one.pods for one in placed.required] == [("ps-1",)]


def test_room_that_a_starving_job_asks_for_holds_each_tasks_minimum() -> None:
    world = World(msgspec.structs.replace(DEFAULT_POLICY, reserve_after_refusals=1))
    world.node("n0", cpu=3)
    world.pod("old", cpu=3)
    world.settle()
    job(world, 3, {"ps": 1, "worker": 1}, worker=3, ps=1)
    world.plan()
    world.node("n1", cpu=2)
    world.pass_s(2)
    [request] = of_type(world.plan(), ev.RoomRequested)
    assert sum(pods for room in request.room for pods in room.nodes.values()) == 3


def test_a_job_that_has_its_pods_is_told_of_the_task_that_lacks_some() -> None:
    """Its controller makes the pods one by one: what it lacks after the last is not what it lacked after the first."""
    world = World()
    world.node("n0")
    world.pod_group("job", 3, dialect="volcano/v1beta1", task_minimums={"ps": 1, "worker": 2})
    world.volcano("worker-0", "job", "worker")
    assert refusal(world)[1].startswith("gang default/job@batch has 1 of its minimum of 3 pods")
    world.volcano("worker-1", "job", "worker")
    assert world.plan() == []
    world.volcano("worker-2", "job", "worker")
    assert refusal(world)[1].startswith("task ps of gang default/job@batch has 0 of its minimum of 1 pods")
    world.volcano("ps-0", "job", "ps")
    world.settle()
    assert len(world.bound()) == 4


def test_a_job_whose_tasks_have_numbers_for_names_is_told_which_of_them_is_gated() -> None:
    """They were left out as counts are, so that its pods went on naming the one that had come."""
    world = World()
    world.node("n0")
    job(world, 2, {"0": 1, "1": 1}, others=2)
    world.volcano("first", "job", "0", gated=True)
    world.volcano("second", "job", "1", gated=True)
    conditions: list[str] = []
    for task, pod in (("0", "first"), ("1", "second")):
        world.plan()
        [cohort] = world.state.cohorts.values()
        assert cohort.message.startswith(f"task {task} of gang default/job@batch needs 1 more pods; 0 may be scheduled")
        found = condition(world.state, "others-0")
        assert found is not None
        conditions.append(found.said)
        world.volcano(pod, "job", task)
    assert len(set(conditions)) == 2
    world.settle()
    assert len(world.bound()) == 4
