"""Seed 004, kube-batch: the order of jobs."""

import msgspec

import events as ev
from events.objects import Declaration
from events.policy import DEFAULT_POLICY, Profile
from tests.world import World, of_type

POLICY = msgspec.structs.replace(
    DEFAULT_POLICY, profile=Profile(name="kube-batch", queue_order="kube-batch", node_score="least-allocated")
)
DIALECT = "kube-batch/v1alpha1"


def roomy() -> World:
    world = World(POLICY)
    for i in range(4):
        world.node(f"n{i}")
    return world


def job(
    world: World, name: str, pods: int, minimum: int, *, own: int | None = None, queue: str = "", **more: int
) -> None:
    declared = Declaration(min_member=minimum, waiting_time_ms=0, priority=own, queue=queue)
    for i in range(pods):
        world.pod(f"{name}-{i}", name, dialect=DIALECT, declared=declared, **more)


def tried(world: World) -> list[str]:
    """The groups that the next cycle places, in its order; placing them is not appended."""
    return [event.group for event in of_type(world.plan_without_appending(), ev.GangPlaced)]


def test_jobs_are_a_priority_queue() -> None:
    """Queues and jobs are both priority queues."""
    world = roomy()
    job(world, "old", 2, 2, created_s=1)
    job(world, "urgent", 2, 2, priority=10, created_s=3)
    assert tried(world) == ["default/urgent@batch", "default/old@batch"]


def test_a_jobs_priority_is_its_pod_groups() -> None:
    """Jobs are a priority queue: a PodGroup is a JobInfo, and names a priority class."""
    world = roomy()
    job(world, "pods", 2, 2, priority=100, created_s=1)
    job(world, "low", 2, 2, own=5, priority=200, created_s=1)
    job(world, "high", 2, 2, own=500, priority=1, created_s=3)
    assert tried(world) == ["default/high@batch", "default/pods@batch", "default/low@batch"]


def test_of_equal_priority_the_older_job_goes_first() -> None:
    """Where the text is silent: by creation."""
    world = roomy()
    job(world, "b", 1, 1, created_s=1)
    job(world, "a", 1, 1, created_s=2)
    assert tried(world) == ["default/b@batch", "default/a@batch"]


def ready_job(world: World) -> None:
    """The job ``ready`` has its minimum and a pod that is left."""
    job(world, "ready", 2, 2, created_s=1)
    world.settle()
    job(world, "ready", 3, 2, created_s=1)


def test_a_ready_job_goes_behind_the_others() -> None:
    """Job ready: the job is put at the end of the jobs; the pods that are left have no high priority for scheduling."""
    world = roomy()
    ready_job(world)
    job(world, "other", 2, 2, created_s=50)
    world.pod("alone", created_s=60)
    assert tried(world) == ["default/other@batch", "pod/default/alone", "default/ready@batch"]


def test_a_ready_job_of_a_higher_priority_goes_first_all_the_same() -> None:
    """Jobs are a priority queue: the end is that of its priority."""
    world = roomy()
    ready_job(world)
    job(world, "lower", 2, 2, priority=-1, created_s=1)
    assert tried(world) == ["default/ready@batch", "default/lower@batch"]


def test_a_job_that_lost_a_member_is_not_ready() -> None:
    """Job ready: as long as it has minMember."""
    world = roomy()
    ready_job(world)
    world.deleted("ready-0")
    job(world, "other", 2, 2, created_s=50)
    assert tried(world) == ["default/ready@batch", "default/other@batch"]


def test_all_queues_are_alike_as_long_as_the_log_has_none() -> None:
    """Between queues priorities may be set: a declaration names its queue, of which no fact is read."""
    world = roomy()
    job(world, "second", 1, 1, queue="a", created_s=2)
    job(world, "first", 1, 1, queue="b", created_s=1)
    job(world, "third", 1, 1, queue="b", created_s=3)
    assert tried(world) == ["default/first@batch", "default/second@batch", "default/third@batch"]
