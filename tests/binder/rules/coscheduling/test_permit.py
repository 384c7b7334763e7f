"""Seed 000, Extension points, Permit: quorum, and waiting for it."""

import events as ev
from events.objects import NodeAssignment, NodeBindings
from services.state.records import HELD
from tests.world import World, of_type


def world_with(pods: int, minimum: int, cpu: int = 8) -> tuple[World, list[str]]:
    world = World()
    world.node("n0", cpu=cpu)
    return world, world.gang("train", pods, minimum)


def bound_pods(event: ev.GangPermitted) -> list[str]:
    return [binding.uid for assignment in event.bindings for binding in assignment.pods]


def test_below_the_minimum_a_pod_waits_with_a_timeout() -> None:
    """Otherwise, put the pod into WaitingPods and set the timeout (eg: 10s)."""
    world, uids = world_with(3, 3)
    place = world.propose("default/train", {uids[0]: "n0"})
    assert world.judge() == [ev.GangHeld(group="default/train", proposal=place, waiting_ms=10_000)]
    assert world.state.claims[uids[0]].stage == HELD
    assert world.judge() == []


def test_the_gangs_own_waiting_time_goes_before_the_policys() -> None:
    """Set the timeout (eg: 10s): a declaration may say another."""
    world = World()
    world.node("n0")
    uids = [world.pod(f"train-{i}", "train") for i in range(2)]
    world.pod_group("train", 2, waiting_time_ms=2_500)
    world.propose("default/train", {uids[0]: "n0"})
    assert [event.waiting_ms for event in of_type(world.judge(), ev.GangHeld)] == [2_500]


def test_running_and_waiting_and_the_pod_itself_reach_the_minimum() -> None:
    """If Running + WaitingPods + 1 >= min-available (1 means the pod itself), approve the waiting pods."""
    world, uids = world_with(3, 3)
    for uid in uids[:2]:
        world.propose("default/train", {uid: "n0"})
        assert of_type(world.judge(), ev.GangHeld)
    world.propose("default/train", {uids[2]: "n0"})
    (permitted,) = world.judge()
    assert isinstance(permitted, ev.GangPermitted)
    assert bound_pods(permitted) == uids
    assert sorted(world.state.permitted) == uids
    assert not world.state.holding


def test_nothing_is_bound_one_short_of_the_minimum() -> None:
    """If Running + WaitingPods + 1 >= min-available: three of four are not enough."""
    world, uids = world_with(4, 4)
    world.propose("default/train", {uids[0]: "n0", uids[1]: "n0"})
    world.judge()
    world.propose("default/train", {uids[2]: "n0"})
    assert [type(event) for event in world.judge()] == [ev.GangHeld]
    assert not world.state.permitted


def test_running_pods_count() -> None:
    """Get the number of Running pods that belong to the same PodGroup: three are bound, one more is enough."""
    world, uids = world_with(4, 4)
    world.settle()
    world.deleted(uids[3])
    late = world.pod("train-late", "train", minimum=4)
    world.propose("default/train", {late: "n0"})
    (permitted,) = of_type(world.judge(), ev.GangPermitted)
    assert bound_pods(permitted) == [late]


def test_a_permitted_pod_counts_before_the_kubelet_runs_it() -> None:
    """Get the number of Running pods: from its permit on, or the pod behind it would wait in vain."""
    world, uids = world_with(3, 2)
    world.propose("default/train", {uids[0]: "n0", uids[1]: "n0"})
    world.judge()
    world.propose("default/train", {uids[2]: "n0"})
    (permitted,) = world.judge()
    assert isinstance(permitted, ev.GangPermitted)
    assert bound_pods(permitted) == [uids[2]]


def test_finished_pods_do_not_run() -> None:
    """Get the number of Running pods: a failed one is none, so the next of two waits."""
    world, uids = world_with(2, 2)
    world.settle()
    for uid in uids:
        world.finished(uid, succeeded=False)
    late = world.pod("train-late", "train", minimum=2)
    world.propose("default/train", {late: "n0"})
    assert of_type(world.judge(), ev.GangHeld)


def test_a_pod_that_has_done_its_work_started_with_its_gang() -> None:
    """Where the text is silent: the last pods of a Job come when the first are done, and would wait for ever."""
    world, uids = world_with(4, 3, cpu=3)
    world.settle()
    for uid in uids[:3]:
        world.finished(uid)
    world.propose("default/train", {uids[3]: "n0"})
    (permitted,) = of_type(world.judge(), ev.GangPermitted)
    assert bound_pods(permitted) == [uids[3]]


def test_waiting_pods_of_another_group_do_not_count() -> None:
    """WaitingPods […] that belong to the same PodGroup."""
    world, uids = world_with(2, 2)
    others = world.gang("other", 2, 2)
    world.propose("default/other", {others[0]: "n0"})
    world.judge()
    world.propose("default/train", {uids[0]: "n0"})
    assert [type(event) for event in world.judge()] == [ev.GangHeld]


def test_pods_beyond_the_minimum_are_optional_one_by_one() -> None:
    """Beyond min-available each pod stands for itself: what has no room is dropped, the rest is bound."""
    world, uids = world_with(4, 2, cpu=3)
    world.propose("default/train", {uids[0]: "n0", uids[1]: "n0"}, {uids[2]: "n0", uids[3]: "n0"})
    (permitted,) = world.judge()
    assert isinstance(permitted, ev.GangPermitted)
    assert bound_pods(permitted) == uids[:3]
    assert permitted.dropped == (uids[3],)
    assert uids[3] not in world.state.claims


def test_what_the_minimum_needs_is_not_optional() -> None:
    """Only beyond min-available is a pod optional, whatever the proposal says: the rest is judged as one."""
    world, uids = world_with(3, 3, cpu=2)
    world.propose("default/train", {uids[0]: "n0"}, {uids[1]: "n0", uids[2]: "n0"})
    assert [event.reason for event in of_type(world.judge(), ev.ProposalRefused)] == ["NoRoom"]
    assert not world.state.claims


def test_a_single_pod_needs_no_quorum() -> None:
    """A regularPod never waits at permit."""
    world = World()
    world.node("n0")
    world.pod("alone")
    place = world.propose("pod/default/alone", {"alone": "n0"})
    (permitted,) = world.judge()
    assert isinstance(permitted, ev.GangPermitted)
    assert permitted.proposals == (place,)
    assert [(b.node, [p.uid for p in b.pods]) for b in permitted.bindings] == [("n0", ["alone"])]


def test_the_intent_carries_the_pods_resource_version() -> None:
    """Permit and the intent to bind are one event (design, section 4), with the precondition of its effect (rule 5)."""
    world, uids = world_with(1, 1)
    version = world.state.pods[uids[0]].resource_version
    world.plan()
    (permitted,) = of_type(world.judge(), ev.GangPermitted)
    ((binding,),) = [assignment.pods for assignment in permitted.bindings]
    assert (binding.uid, binding.resource_version) == (uids[0], version)
    assert world.state.claims[uids[0]].resource_version == version


def test_quorum_without_a_declaration_is_never_reached() -> None:
    """The PodGroup is gone: nobody knows the minimum any more."""
    world = World()
    world.node("n0")
    uids = [world.pod(f"train-{i}", "train") for i in range(2)]
    world.pod_group("train", 2)
    world.plan()
    world.pod_group_deleted("train")
    assert [type(event) for event in world.judge()] == [ev.GangHeld]
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["MemberDeleted"]
    assert not world.state.claims
    assert world.where(*uids) == ["", ""]


def test_the_language_carries_a_permit_compactly() -> None:
    """One event with all its assignments: pods on one node share its name."""
    world, uids = world_with(3, 3)
    placed = of_type(world.plan(), ev.GangPlaced)
    assert placed[0].required == (NodeAssignment("n0", tuple(uids)),)
    (permitted,) = of_type(world.judge(), ev.GangPermitted)
    assert [type(entry) for entry in permitted.bindings] == [NodeBindings]
