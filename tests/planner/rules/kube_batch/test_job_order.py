"""Seed 004, kube-batch: the order of jobs."""

import msgspec

import events as ev
from events.objects import Declaration
from events.policy import DEFAULT_POLICY, Profile
from services.state.partitions import partition_of
from tests.world import World, of_type, tried

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


def test_a_job_of_which_a_task_is_done_is_ready_still() -> None:
    """Job ready: kube-batch counts tasks that have succeeded."""
    world = roomy()
    ready_job(world)
    world.finished("ready-0")
    job(world, "other", 2, 2, created_s=50)
    assert tried(world) == ["default/other@batch", "default/ready@batch"]


def test_a_job_that_lost_the_minimum_of_a_task_is_not_ready() -> None:
    """Volcano's minimums of tasks: it has minMember without its ps, and cannot work."""
    world = roomy()
    minimums = {"ps": 1, "worker": 1}
    world.pod_group("job", 2, dialect="volcano/v1beta1", task_minimums=minimums, created_s=1)
    for name in ("ps-0", "worker-0", "worker-1"):
        world.volcano(name, "job", name.partition("-")[0])
    world.settle()
    world.volcano("worker-2", "job", "worker")
    job(world, "other", 2, 2, created_s=50)
    assert tried(world) == ["default/other@batch", "default/job@batch"]
    world.deleted("ps-0")
    world.volcano("ps-1", "job", "ps")
    assert tried(world) == ["default/job@batch", "default/other@batch"]


def proposed(world: World) -> dict[str, tuple[int, int]]:
    """Group → how many pods the next cycle places of it: required, optional."""
    return {
        event.group: (sum(len(one.pods) for one in event.required), sum(len(one.pods) for one in event.optional))
        for event in of_type(world.plan_without_appending(), ev.GangPlaced)
    }


def test_a_job_that_is_in_the_queue_twice_is_of_the_cycle_once() -> None:
    """`Policy.cycle_pods` counts its pods once."""
    world = World(msgspec.structs.replace(POLICY, cycle_pods=9))
    world.node("n0")
    for name in ("a", "b"):
        job(world, name, 4, 2)
    assert proposed(world) == {"default/a@batch": (2, 2), "default/b@batch": (2, 2)}


def test_each_job_gets_its_minimum_before_one_gets_the_tasks_beyond() -> None:
    """If JobReady and tasks are left: the job is put at the end, the scheduling of this job is suspended."""
    world = World(POLICY)
    world.node("n0", cpu=6)
    job(world, "first", 10, 2, created_s=1)
    job(world, "second", 3, 3, created_s=2)
    assert proposed(world) == {"default/first@batch": (2, 1), "default/second@batch": (3, 0)}


def test_pods_alone_go_before_the_tasks_beyond_a_minimum() -> None:
    """The pods that are left have no high priority for scheduling: a pod alone is a job that is not ready."""
    world = World(POLICY)
    world.node("n0", cpu=4)
    job(world, "first", 5, 2, created_s=1)
    world.pod("alone", created_s=9)
    assert proposed(world) == {"default/first@batch": (2, 1), "pod/default/alone": (1, 0)}


def test_of_ready_jobs_the_older_gets_all_its_tasks_first() -> None:
    """Queues and jobs are both priority queues: a job that is pushed back comes out at its place."""
    world = World(POLICY)
    world.node("n0", cpu=7)
    job(world, "younger", 4, 2, created_s=2)
    job(world, "older", 4, 2, created_s=1)
    assert proposed(world) == {"default/older@batch": (2, 2), "default/younger@batch": (2, 1)}


def test_tasks_beyond_a_minimum_go_before_jobs_of_a_lower_priority() -> None:
    """Jobs are a priority queue: in one cycle as over many."""
    world = World(POLICY)
    world.node("n0", cpu=5)
    job(world, "high", 4, 2, own=5, created_s=9)
    job(world, "low", 2, 2, own=1, created_s=1)
    assert proposed(world) == {"default/high@batch": (2, 2)}


def test_pods_alone_of_a_lower_priority_come_behind_what_is_left_of_a_higher_one() -> None:
    """They are of one class, which alone would place them in one step."""
    world = World(POLICY)
    world.node("n0", cpu=4)
    job(world, "high", 4, 2, priority=5, created_s=1)
    world.pod("high-alone", priority=5)
    world.pod("low-alone")
    assert proposed(world) == {"default/high@batch": (2, 1), "pod/default/high-alone": (1, 0)}


def test_a_job_whose_minimum_finds_no_room_gets_nothing_at_its_second_place() -> None:
    world = World(POLICY)
    world.node("n0", cpu=3)
    job(world, "large", 5, 4, created_s=1)
    job(world, "small", 2, 1, created_s=2)
    assert proposed(world) == {"default/small@batch": (1, 1)}
    [refused] = of_type(world.plan(), ev.GroupsRefused)
    assert refused.groups == ("default/large@batch",)


def test_a_cycle_that_is_full_with_minimums_leaves_the_rest_to_the_next() -> None:
    world = World(msgspec.structs.replace(POLICY, cycle_pods=4))
    world.node("n0")
    job(world, "first", 4, 2, created_s=1)
    job(world, "second", 2, 2, created_s=2)
    assert proposed(world) == {"default/first@batch": (2, 0)}
    world.settle()
    assert len(world.bound()) == 6


def test_what_a_job_beyond_its_minimum_takes_a_shard_that_looks_ahead_leaves_it() -> None:
    """Of other shards' jobs, too, the minimum first and the rest behind one's own minimums."""
    world = World(msgspec.structs.replace(POLICY, lookahead_pods=100), shards=("a", "b"))
    world.node("n0", cpu=5)
    world.pod("too-large", cpu=9)
    for shard in ("a", "b"):
        world.plan(shard)
    theirs = next(name for name in map("t{}".format, range(99)) if owner(world, name) == "b")
    ours = next(name for name in map("o{}".format, range(99)) if owner(world, name) == "a")
    job(world, theirs, 9, 2, priority=5, created_s=1)
    job(world, ours, 2, 2, created_s=2)
    assert proposed(world) == {}, "what is left of a higher priority goes first"
    job(world, theirs, 9, 2, priority=0, created_s=1)
    assert proposed(world) == {f"default/{ours}@batch": (2, 0)}


def owner(world: World, gang: str) -> str:
    return world.state.owners[partition_of(f"default/{gang}@batch")]


def test_a_job_that_another_scheduler_started_is_ready() -> None:
    """Job ready: as long as it has minMember, whoever bound them."""
    world = roomy()
    job(world, "started", 2, 2, created_s=1)
    for i in range(2):
        world.assigned(f"started-{i}", "n0")
    job(world, "started", 3, 2, created_s=1)
    job(world, "other", 2, 2, created_s=50)
    assert tried(world) == ["default/other@batch", "default/started@batch"]


def test_all_queues_are_alike_as_long_as_the_log_has_none() -> None:
    """Between queues priorities may be set: a declaration names its queue, of which no fact is read."""
    world = roomy()
    job(world, "second", 1, 1, queue="a", created_s=2)
    job(world, "first", 1, 1, queue="b", created_s=1)
    job(world, "third", 1, 1, queue="b", created_s=3)
    assert tried(world) == ["default/first@batch", "default/second@batch", "default/third@batch"]


def test_of_tasks_beyond_a_minimum_the_older_jobs_come_first() -> None:
    """Where the text is silent, by creation, here as well: both jobs have their minimum, and room is left for one."""
    world = World(POLICY)
    world.node("n0", cpu=6)
    job(world, "a", 4, 2, created_s=2)
    job(world, "b", 4, 2, created_s=1)
    assert proposed(world) == {"default/a@batch": (2, 0), "default/b@batch": (2, 2)}


def test_a_gang_group_is_ready_when_all_its_gangs_are() -> None:
    """A job is a group, whatever the dialect of its gangs: one of them that lacks its minimum has the group's place."""
    world = roomy()
    groups = ("default/x", "default/y")
    declared = Declaration(
        min_member=1,
        waiting_time_ms=0,
        groups=groups,
        said=("groups", "min_member"),
        match_policy="waiting-and-running",
    )
    for name in ("x", "y"):
        world.pod(f"{name}-0", name, dialect="koordinator/v1alpha1", declared=declared, created_s=1)
    world.settle()
    world.pod("x-1", "x", dialect="koordinator/v1alpha1", declared=declared, created_s=2)
    job(world, "other", 2, 2, created_s=3)
    assert tried(world) == ["default/other@batch", "default/x"], "both have their minimum"
    world.pod("y-1", "y", dialect="koordinator/v1alpha1", declared=declared, created_s=4)
    world.deleted("y-0")
    assert tried(world) == ["default/x", "default/other@batch"]
