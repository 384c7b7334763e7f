"""Seed 002, GangGroup, before anything is placed: gangs that are planned together, and gangs that are waited for."""

import msgspec
import pytest

import events as ev
from events.objects import Declaration, NodeAssignment
from services.state import queueing
from services.state.partitions import partition_of
from tests.facts import pod_group
from tests.world import SECOND_NS, World, of_type

ROLES = ("a/role-a", "b/role-b")


def refusals(events: list[ev.Event]) -> list[tuple[str, str]]:
    return [(event.reason, event.detail) for event in of_type(events, ev.GroupsRefused)]


def group_of(world: World, gang: str) -> tuple[str, ...]:
    return world.state.groups[world.state.gangs[gang].group].gangs


def test_roles_of_several_namespaces_are_placed_together() -> None:
    """The gangs in one gangGroup can from different namespaces."""
    world = World()
    world.node("n0", cpu=4)
    world.koordinator("b/role-b", 2, 2, {"groups": ROLES})
    world.koordinator("a/role-a", 2, 2, {"groups": ROLES})
    [placed] = world.plan()
    pods = ("role-a-0", "role-a-1"), ("role-b-0", "role-b-1")
    required = tuple(NodeAssignment("n0", some) for some in pods)
    partition = partition_of("a/role-a")
    assert placed == ev.GangPlaced(group="a/role-a", partition=partition, required=required, optional=())


def test_a_role_that_does_not_fit_keeps_all_roles_from_being_placed() -> None:
    """All pods in a GangGroup can trigger the bind process only after all roles in a GangGroup meet their Gang
    conditions."""
    world = World()
    world.node("n0", cpu=3)
    world.koordinator("a/role-a", 2, 2, {"groups": ROLES})
    world.koordinator("b/role-b", 2, 2, {"groups": ROLES})
    detail = "gang group a/role-a, b/role-b: 3 of the 4 pods that must start together have a node."
    assert refusals(world.plan()) == [("InsufficientRoom", detail)]
    world.node("n1", cpu=1)
    world.pass_s(2)
    world.settle()
    assert world.bound() == ["role-a-0", "role-a-1", "role-b-0", "role-b-1"]


def test_a_role_that_runs_is_none_of_what_must_start_together() -> None:
    """After Gang: it needs no minimum any more, whatever it lost."""
    world = World()
    world.node("n0", cpu=3)
    world.koordinator("a/role-a", 3, 3)
    world.settle()
    for uid in ("role-a-1", "role-a-2"):
        world.facts(ev.PodDeleted(uid=uid, namespace="a", name=uid))
    world.node("n0", cpu=2)
    world.koordinator("a/role-a", 1, 3, {"groups": ROLES})
    world.koordinator("b/role-b", 1, 2, {"groups": ROLES})
    assert [reason for reason, _ in refusals(world.plan())] == ["TooFewPods"]
    world.koordinator("b/role-b", 2, 2, {"groups": ROLES})
    detail = "gang group a/role-a, b/role-b: 1 of the 2 pods that must start together have a node."
    assert refusals(world.plan()) == [("InsufficientRoom", detail)]


def test_a_role_that_waits_with_its_minimum_is_none_either() -> None:
    world = World()
    world.node("n0", cpu=2)
    loose = {"groups": ROLES, "mode": "NonStrict"}
    world.koordinator("a/role-a", 1, 1, loose)
    world.koordinator("b/role-b", 2, 2, loose)
    world.settle()
    (cohort,) = world.state.cohorts.values()
    assert cohort.needed == 1
    assert len(world.state.groups["a/role-a"].held) == 2


def test_what_is_beyond_a_minimum_takes_no_room_from_another_role() -> None:
    """The minimum of each gang first; the text is silent on further pods."""
    world = World()
    world.node("n0", cpu=3)
    world.koordinator("a/role-a", 3, 1, {"groups": ROLES})
    world.koordinator("b/role-b", 2, 2, {"groups": ROLES})
    world.settle()
    assert world.bound() == ["role-a-0", "role-b-0", "role-b-1"]


def test_a_role_that_is_short_of_pods_is_named_and_all_wait() -> None:
    """Check whether childes in Gang has met the requirements of minimum number under each Gang."""
    world = World()
    world.node("n0")
    world.koordinator("a/role-a", 2, 2, {"groups": ROLES})
    world.koordinator("b/role-b", 1, 2, {"groups": ROLES})
    detail = "gang b/role-b has 1 of its minimum of 2 pods: less than minAvailable"
    assert refusals(world.plan()) == [("TooFewPods", detail)]
    world.koordinator("b/role-b", 2, 2, {"groups": ROLES})
    world.settle()
    assert len(world.bound()) == 4


def test_while_a_role_is_short_of_pods_nothing_is_tried_for_more_pods_of_another() -> None:
    """What came could not change the verdict."""
    world = World()
    world.node("n0")
    world.koordinator("a/role-a", 2, 2, {"groups": ROLES})
    world.koordinator("b/role-b", 1, 2, {"groups": ROLES})
    assert [reason for reason, _ in refusals(world.plan())] == ["TooFewPods"]
    world.koordinator("a/role-a", 3, 2, {"groups": ROLES})
    assert world.plan() == []


def test_a_role_that_is_not_there_yet_is_named_and_all_wait() -> None:
    world = World()
    world.node("n0")
    world.koordinator("a/role-a", 2, 2, {"groups": ROLES})
    detail = "gang a/role-a names b/role-b in its gang group, which is not there yet"
    assert refusals(world.plan()) == [("WaitingForGang", detail)]
    world.koordinator("a/role-a", 3, 2, {"groups": ROLES})
    assert world.plan() == [], "nothing that came could change the verdict"
    world.koordinator("b/role-b", 2, 2, {"groups": ROLES})
    world.settle()
    assert len(world.bound()) == 5


def test_a_role_that_has_its_pods_is_told_of_the_role_that_is_not_there_yet() -> None:
    """Its controller makes the pods one by one: what it lacks after the last is not what it lacked after the first."""
    world = World()
    world.node("n0")
    world.koordinator("a/role-a", 1, 2, {"groups": ROLES})
    assert [reason for reason, _ in refusals(world.plan())] == ["TooFewPods"]
    world.koordinator("a/role-a", 2, 2, {"groups": ROLES})
    detail = "gang a/role-a names b/role-b in its gang group, which is not there yet"
    assert refusals(world.plan()) == [("WaitingForGang", detail)]
    world.koordinator("a/role-a", 3, 2, {"groups": ROLES})
    assert world.plan() == []


def test_the_partition_is_that_of_the_smallest_gang_of_the_declared_group() -> None:
    """Whether that is there or not, so that a group seldom changes hands while its gangs come."""
    world = World()
    world.koordinator("b/role-b", 1, 1, {"groups": ROLES})
    group = world.state.groups["b/role-b"]
    assert (group.gangs, group.partition) == (("b/role-b",), partition_of("a/role-a"))
    world.koordinator("a/role-a", 1, 1, {"groups": ROLES})
    group = world.state.groups["a/role-a"]
    assert (group.gangs, group.partition) == (ROLES, partition_of("a/role-a"))
    assert "b/role-b" not in world.state.groups


def test_the_partition_is_that_of_what_a_pod_group_names_that_was_there_before_its_pods() -> None:
    """The CRD way. Nobody names the gang itself, and what it names is not there."""
    world = World()
    world.pod_group("b", 1, dialect="koordinator/v1alpha1", groups=("default/a",))
    world.pod("b-0", "b", dialect="koordinator/v1alpha1")
    assert world.state.groups["default/b"].partition == partition_of("default/a")


def test_gangs_that_do_not_name_each_other_nobody_waits_for_being_named() -> None:
    """Each waits for those that it names itself: what it names must run before it is placed."""
    world = World()
    world.node("n0")
    world.koordinator("default/a", 1, 1, {"groups": ("default/a", "default/b")})
    [b] = world.koordinator("default/b", 1, 1)
    assert (group_of(world, "default/a"), group_of(world, "default/b")) == (("default/a",), ("default/b",))
    planned = world.plan()
    assert [event.group for event in of_type(planned, ev.GangPlaced)] == ["default/b"]
    detail = "gang default/a names default/b in its gang group, which does not run with its minimum yet"
    assert refusals(planned) == [("WaitingForGang", detail)]
    world.judge()
    assert world.state.claims[b].stage == "permitted"
    assert [event.group for event in of_type(world.plan(), ev.GangPlaced)] == ["default/a"], "as soon as b may start"
    world.settle()
    assert world.bound() == ["a-0", "b-0"]


def test_gangs_that_name_each_other_through_others_are_one_group() -> None:
    """Otherwise they could wait for each other for ever."""
    world = World()
    world.node("n0")
    world.koordinator("default/a", 1, 1, {"groups": ("default/a", "default/b")})
    world.koordinator("default/b", 1, 1, {"groups": ("default/b", "default/c")})
    world.koordinator("default/c", 1, 1, {"groups": ("default/a", "default/c")})
    assert group_of(world, "default/b") == ("default/a", "default/b", "default/c")
    world.settle()
    assert world.bound() == ["a-0", "b-0", "c-0"]


def test_gangs_that_become_one_group_bring_the_best_place_in_the_queue_that_one_had() -> None:
    """Who was created first, and failed longest ago; their backoff is the longest."""
    world = World()
    world.node("n0", cpu=1)
    world.koordinator("a/role-a", 2, 2, created_s=1)
    for _ in range(3):
        world.node("n1", cpu=0)
        world.plan()
        world.pass_s(5)
    world.koordinator("b/role-b", 2, 2, created_s=2)
    world.plan()
    world.pass_s(5)
    first, second = (world.state.groups[key] for key in ROLES)
    assert 0 < first.failed_ns < second.failed_ns
    assert first.attempts > second.attempts
    world.koordinator("a/role-a", 2, 2, {"groups": ROLES}, created_s=1)
    world.koordinator("b/role-b", 2, 2, {"groups": ROLES}, created_s=2)
    both = world.state.groups["a/role-a"]
    assert both.gangs == ROLES
    assert (both.failed_ns, both.attempts) == (first.failed_ns, first.attempts)
    assert queueing.created_ns(world.state, both) == SECOND_NS


def test_a_gang_of_the_group_without_pods_is_waited_for() -> None:
    """The CRD way: PodGroups may be there long before their pods."""
    world = World()
    world.node("n0")
    groups = ("default/a", "default/b")
    world.koordinator("default/a", 1, 1, {"groups": groups})
    fact = pod_group("b", world.version(), 1)
    declaration = msgspec.structs.replace(fact.declaration, groups=groups)
    world.facts(msgspec.structs.replace(fact, dialect="koordinator/v1alpha1", declaration=declaration))
    assert group_of(world, "default/b") == groups
    assert refusals(world.plan()) == [
        ("TooFewPods", "gang default/b has 0 of its minimum of 1 pods: less than minAvailable")
    ]
    world.koordinator("default/b", 1, 1, {"groups": groups})
    world.settle()
    assert world.bound() == ["a-0", "b-0"]


def test_gangs_whose_pods_were_all_made_anew_are_one_group_again() -> None:
    """The CRD way: their PodGroups are there all the time, and declare what they declared."""
    world = World()
    world.node("n0")
    groups = ("default/a", "default/b")
    for name in ("a", "b"):
        world.pod_group(name, 1, dialect="koordinator/v1alpha1", groups=groups)
    for turn in ("first", "anew"):
        pods = [world.pod(f"{name}-{turn}", name, dialect="koordinator/v1alpha1") for name in ("a", "b")]
        assert group_of(world, "default/a") == groups
        world.settle()
        assert world.bound() == pods
        for uid in pods:
            world.deleted(uid)


def test_a_gang_that_lost_its_last_pod_is_in_no_group() -> None:
    """The annotation way: it is gone with what declared it, and is waited for like one that never came."""
    world = World()
    world.node("n0")
    for name in ("a", "b"):
        world.koordinator(f"default/{name}", 1, 1, {"groups": ("default/a", "default/b")})
    world.deleted("b-0")
    assert list(world.state.gangs) == ["default/a"]
    assert group_of(world, "default/a") == ("default/a",)
    detail = "gang default/a names default/b in its gang group, which is not there yet"
    assert refusals(world.plan()) == [("WaitingForGang", detail)]


def needed(world: World, minimum: int) -> None:
    """Gang b, of two pods that find no room here. Its rules stay on when the first of them runs."""
    said = ("match_policy", "min_member")
    declared = Declaration(minimum, waiting_time_ms=0, match_policy="waiting-and-running", said=said)
    for uid in ("b-0", "b-1"):
        world.pod(uid, "b", dialect="koordinator/v1alpha1", declared=declared, cpu=9)


def waiting() -> World:
    """Gang a waits for b, which does not name it, and of which one pod runs: somebody else bound it."""
    world = World()
    world.node("n0")
    world.node("n1", unschedulable=True)
    world.koordinator("default/a", 1, 1, {"groups": ("default/a", "default/b")})
    needed(world, 2)
    world.plan()
    world.assigned("b-0", "n1")
    for _ in range(3):
        world.settle()
        world.pass_s(30)
    assert not world.plan_would()
    assert world.where("a-0") == [""]
    return world


def test_who_waits_for_a_gang_goes_on_when_somebody_else_starts_it() -> None:
    """Whoever binds its pods, they run."""
    world = waiting()
    world.assigned("b-1", "n1")
    world.settle()
    assert world.where("a-0") == ["n0"]


@pytest.mark.parametrize("seen", ["pending", "terminating", "ended"])
def test_who_waits_for_a_gang_goes_on_when_a_pod_of_it_succeeded_that_nobody_saw_run(seen: str) -> None:
    """It counts as one that runs, however little was seen of it."""
    world = waiting()
    if seen == "ended":
        fact = world.state.pods["b-1"].fact
        world.facts(msgspec.structs.replace(fact, uid="b-2", name="b-2", node="n1", status="succeeded"))
    else:
        if seen == "terminating":
            world.terminating("b-1")
        world.finished("b-1")
    world.settle()
    assert world.where("a-0") == ["n0"]


def test_who_waited_for_a_gang_that_runs_by_now_is_told_what_it_lost_meanwhile() -> None:
    world = waiting()
    world.koordinator("default/a", 2, 2, {"groups": ("default/a", "default/b")})
    world.deleted("a-1")
    assert not world.plan_would()
    world.assigned("b-1", "n1")
    detail = "gang default/a has 1 of its minimum of 2 pods: less than minAvailable"
    assert ("TooFewPods", detail) in refusals(world.plan())


@pytest.mark.parametrize(("uid", "succeeded"), [("b-0", True), ("b-1", False)])
def test_who_names_a_gang_is_not_tried_again_when_no_more_of_it_run_than_before(uid: str, succeeded: bool) -> None:
    """One ends that was seen to run, and one fails that never did. No room is given back: the node of the former is
    gone."""
    world = waiting()
    needed(world, 1)
    world.node("n0", unschedulable=True)
    assert ("InsufficientRoom", ("default/a",)) in [(event.reason, event.groups) for event in world.plan()]
    world.facts(ev.NodeDeleted(name="n1", uid="uid-n1"))
    world.pass_s(5)
    world.settle()
    world.finished(uid, succeeded=succeeded)
    assert ("default/a",) not in [event.groups for event in of_type(world.plan(), ev.GroupsRefused)]


def test_who_waits_for_a_gang_goes_on_when_that_needs_fewer() -> None:
    world = waiting()
    needed(world, 1)
    world.settle()
    assert world.where("a-0") == ["n0"]


def test_a_gang_that_was_satisfied_once_is_waited_for_no_more_whatever_it_lost() -> None:
    """After Gang: if some pods have been pulled up, the subsequent Gang behavior is meaningless."""
    world = World()
    world.node("n0")
    world.koordinator("default/b", 2, 2)
    world.settle()
    world.deleted("b-1")
    world.koordinator("default/a", 1, 1, {"groups": ("default/a", "default/b")})
    world.settle()
    assert world.where("a-0") == ["n0"]


def test_a_gang_without_pods_may_name_one_that_starts() -> None:
    """The CRD way: the PodGroup is there before its pods, which go on with those of the other."""
    world = World()
    world.node("n0")
    world.pod_group("a", 1, dialect="koordinator/v1alpha1", groups=("default/a", "default/b"))
    world.koordinator("default/b", 1, 1)
    world.settle()
    assert world.where("b-0") == ["n0"]
    world.pod("a-0", "a", dialect="koordinator/v1alpha1")
    world.settle()
    assert world.where("a-0") == ["n0"]


def test_when_a_role_has_its_pods_all_are_told_of_the_next_that_lacks_some() -> None:
    """Who is named, is what its user looks after. Of more pods of a role that has enough nobody is told."""
    world = World()
    world.node("n0")
    world.koordinator("a/role-a", 1, 2, {"groups": ROLES})
    world.koordinator("b/role-b", 1, 3, {"groups": ROLES})
    detail = "gang a/role-a has 1 of its minimum of 2 pods: less than minAvailable"
    assert refusals(world.plan()) == [("TooFewPods", detail)]
    world.koordinator("b/role-b", 2, 3, {"groups": ROLES})
    assert world.plan() == [], "the role that is named lacks pods still"
    world.koordinator("a/role-a", 2, 2, {"groups": ROLES})
    detail = "gang b/role-b has 2 of its minimum of 3 pods: less than minAvailable"
    assert refusals(world.plan()) == [("TooFewPods", detail)]
    world.koordinator("a/role-a", 5, 2, {"groups": ROLES})
    assert world.plan() == []
    world.koordinator("b/role-b", 3, 3, {"groups": ROLES})
    world.settle()
    assert len(world.bound()) == 8


def test_a_role_that_is_there_by_now_is_not_said_to_be_missing() -> None:
    """Its pods lack room: whoever is told that it is not there looks for a name that is misspelt."""
    world = World()
    world.node("n0")
    world.koordinator("default/a", 1, 1, {"groups": ("default/a", "default/b")})
    about = "gang default/a names default/b in its gang group, which"
    assert refusals(world.plan()) == [("WaitingForGang", f"{about} is not there yet")]
    needed(world, 2)
    assert ("WaitingForGang", f"{about} does not run with its minimum yet") in refusals(world.plan())
    world.deleted("b-0")
    world.deleted("b-1")
    assert world.plan() == [], "it does not run"


def test_when_a_gang_runs_those_that_wait_for_it_are_told_of_the_next_that_they_wait_for() -> None:
    world = World()
    world.node("n0")
    world.koordinator("default/a", 1, 1, {"groups": ("default/a", "default/b", "default/c")})
    about = "gang default/a names default/{} in its gang group, which is not there yet"
    assert refusals(world.plan()) == [("WaitingForGang", about.format("b"))]
    world.koordinator("default/b", 1, 1)
    world.settle()
    group = world.state.groups["default/a"]
    assert world.state.cohorts[group.cohort].message == about.format("c")


def test_when_the_user_of_one_gang_acted_the_others_that_timed_out_are_named_alone() -> None:
    world = World()
    world.node("n0")
    group = ("default/a", "default/b")
    declared = Declaration(min_member=1, waiting_time_ms=0, groups=group, said=("groups", "min_member"))
    for name in "ab":
        world.pod(f"{name}-0", name, dialect="koordinator/v1alpha1", declared=declared, timed_out=True)
    ((reason, detail),) = refusals(world.plan())
    assert (reason, detail.partition(":")[0]) == ("GangTimedOut", "gangs default/a, default/b")
    world.pod("b-1", "b", dialect="koordinator/v1alpha1", declared=declared)
    assert world.plan() == []
    world.says("a-0", timed_out=False)
    ((reason, detail),) = refusals(world.plan())
    assert (reason, detail.partition(":")[0]) == ("GangTimedOut", "gang default/b")


def test_when_another_gang_of_the_group_names_the_one_that_is_waited_for_that_is_told() -> None:
    world = World()
    world.node("n0")
    group = ("default/a", "default/c")
    world.koordinator("default/a", 1, 1, {"groups": (*group, "default/x")})
    world.koordinator("default/c", 1, 1, {"groups": (*group, "default/x")})
    about = "gang default/{} names default/x in its gang group, which is not there yet"
    assert refusals(world.plan()) == [("WaitingForGang", about.format("a"))]
    before = world.state.cohorts[world.state.groups["default/a"].cohort].condition
    world.koordinator("default/a", 1, 1, {"groups": group})
    assert refusals(world.plan()) == [("WaitingForGang", about.format("c"))]
    assert world.state.cohorts[world.state.groups["default/a"].cohort].condition != before, "its pods are told"


def test_while_a_gang_of_the_group_is_timed_out_nothing_is_tried_for_more_pods_of_another() -> None:
    world = World()
    world.node("n0")
    declared = Declaration(
        min_member=1, waiting_time_ms=0, groups=("default/a", "default/b"), said=("groups", "min_member")
    )
    of = {"dialect": "koordinator/v1alpha1", "declared": declared}
    world.pod("a-0", "a", **of)
    world.pod("b-0", "b", timed_out=True, **of)
    ((reason, detail),) = refusals(world.plan())
    assert (reason, detail.partition(":")[0]) == ("GangTimedOut", "gang default/b")
    world.pod("a-1", "a", **of)
    assert world.plan() == []
    world.says("b-0", timed_out=False)
    world.settle()
    assert world.bound() == ["a-0", "a-1", "b-0"]


def test_a_gang_that_was_satisfied_once_and_has_nothing_to_place_has_nothing_tried_for_it() -> None:
    world = World()
    world.node("n0")
    both = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 1, 1)
    world.settle()
    world.koordinator("default/a", 1, 1, both)
    world.koordinator("default/b", 1, 3, both)
    assert [reason for reason, _ in refusals(world.plan())] == ["TooFewPods"]
    world.koordinator("default/b", 2, 3, both)
    assert world.plan() == []


def waiting_for_a_third() -> World:
    """A group of two gangs, of which one waits for a gang that is not there."""
    world = World()
    world.node("n0")
    world.koordinator("default/a", 1, 1, {"groups": ("default/a", "default/c", "default/x")})
    world.koordinator("default/c", 1, 1, {"groups": ("default/a", "default/c")})
    assert [reason for reason, _ in refusals(world.plan())] == ["WaitingForGang"]
    return world


def test_while_a_gang_of_the_group_waits_for_another_nothing_is_tried_for_one_that_does_not() -> None:
    world = waiting_for_a_third()
    world.koordinator("default/c", 2, 1, {"groups": ("default/a", "default/c")})
    assert world.plan() == []


def test_a_gang_that_somebody_else_started_keeps_its_group_waiting_for_nobody() -> None:
    world = waiting_for_a_third()
    world.assigned("a-0", "n0")
    world.settle()
    assert world.bound() == ["a-0", "c-0"]
