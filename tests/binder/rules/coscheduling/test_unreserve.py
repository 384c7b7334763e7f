"""Seed 000, Extension points, UnReserve: waiting pods are rejected together."""

import msgspec
import pytest

import events as ev
from events.policy import DEFAULT_POLICY
from services.binder import core as binder
from tests.world import World, of_type


def waiting(minimum: int = 3, held: int = 2, pods: int = 3, cpu: int = 8) -> tuple[World, list[str]]:
    """A gang of which `held` pods wait at permit."""
    world = World()
    world.node("n0", cpu=cpu)
    uids = world.gang("train", pods, minimum)
    world.propose("default/train", dict.fromkeys(uids[:held], "n0"))
    assert of_type(world.judge(), ev.GangHeld)
    return world, uids


def test_a_timeout_releases_all_pods_of_the_group() -> None:
    """After a pod which belongs to a PodGroup times out in the permit phase. We will release the pods belongs to the
    same PodGroup to avoid long-term invalid occupy of resources."""
    world, uids = waiting()
    world.pass_s(9)
    assert world.judge() == []
    world.pass_s(2)
    assert world.judge() == [ev.GangReleased(group="default/train", reason="Timeout", pods=(uids[0], uids[1]))]
    assert not world.state.claims
    assert not world.state.holding


def test_one_pods_timeout_releases_those_that_came_later() -> None:
    """We will release the pods belongs to the same PodGroup: also one whose own time is not over."""
    world, uids = waiting(minimum=4, held=1, pods=4)
    world.pass_s(8)
    world.propose("default/train", {uids[1]: "n0"})
    world.judge()
    world.pass_s(3)
    assert world.judge() == [ev.GangReleased(group="default/train", reason="Timeout", pods=(uids[0], uids[1]))]


def test_a_released_group_is_tried_again_after_its_backoff() -> None:
    """LastFailureTimestamp is updated every time the PodGroup fails to schedule; backoff as Kubernetes does it."""
    world, uids = waiting()
    world.pass_s(11)
    world.judge()
    assert world.plan() == []
    world.pass_s(1.5)
    world.settle()
    assert world.where(*uids) == ["n0"] * 3


def test_a_hold_after_a_timeout_has_its_own_time() -> None:
    """The time of waiting begins when a pod begins to wait."""
    world, uids = waiting()
    world.pass_s(11)
    world.judge()
    world.pass_s(2)
    world.propose("default/train", {uids[0]: "n0"})
    assert of_type(world.judge(), ev.GangHeld)
    world.pass_s(9)
    assert world.judge() == []
    world.pass_s(2)
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["Timeout"]


def test_what_a_verdict_says_of_a_hold_is_all_that_its_decision_says_of_it() -> None:
    """A held pod is on its way out when the verdict gives its room back: it is released once."""
    world, uids = waiting(minimum=4, pods=5)
    world.terminating(uids[0])
    world.propose("default/train", {uids[2]: "n0"})
    released, held = world.judge()
    assert released == ev.GangReleased(group="default/train", reason="HoldBroken", pods=(uids[0],))
    assert isinstance(held, ev.GangHeld)


def test_quorum_in_the_log_goes_before_a_late_tick() -> None:
    """Proposals are judged before timeouts (design, section 3)."""
    world, uids = waiting()
    world.pass_s(11)
    world.propose("default/train", {uids[2]: "n0"})
    assert [type(event) for event in world.judge()] == [ev.GangPermitted]


@pytest.mark.parametrize("dialect", ["coscheduling", "koordinator"])
def test_a_quorum_that_a_full_decision_leaves_to_the_next_goes_before_a_late_tick_as_well(dialect: str) -> None:
    """Proposals are judged before timeouts, however many there are."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, cycle_pods=1))
    world.node("n0")
    uids = world.gang("train", 2, 2) if dialect == "coscheduling" else world.koordinator("default/train", 2, 2)
    world.pod("other")
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    world.pass_s(11)
    world.propose("pod/default/other", {"other": "n0"})
    world.propose("default/train", {uids[1]: "n0"})
    assert [(type(event), event.group) for event in world.judge()] == [(ev.GangPermitted, "pod/default/other")]
    assert [(type(event), event.group) for event in world.judge()] == [(ev.GangPermitted, "default/train")]


def test_a_proposal_that_does_not_reach_the_quorum_ends_no_waiting_time() -> None:
    """It is judged first, and then the time is over all the same."""
    world, uids = waiting(minimum=4, held=1, pods=4)
    world.pass_s(11)
    world.propose("default/train", {uids[1]: "n0"})
    assert [type(event) for event in world.judge()] == [ev.GangHeld]
    assert world.judge() == [ev.GangReleased(group="default/train", reason="Timeout", pods=(uids[0], uids[1]))]


def test_the_deadline_of_a_hold_that_is_over_does_not_end_the_next() -> None:
    """A pod […] times out: only its own time counts against it."""
    world, uids = waiting()
    world.pass_s(2)
    world.deleted(uids[2])
    assert of_type(world.judge(), ev.GangReleased)
    world.pod("train-3", "train", minimum=3)
    world.pass_s(5)
    world.propose("default/train", {uids[0]: "n0"})
    assert of_type(world.judge(), ev.GangHeld)
    world.pass_s(5)
    assert of_type(world.judge(), ev.GangReleased) == []
    world.pass_s(6)
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["Timeout"]


def test_a_waiting_pods_deletion_that_breaks_the_minimum_releases_all() -> None:
    """A waiting pod's deletion that breaks the minimum releases all (design, section 4)."""
    world, uids = waiting()
    world.deleted(uids[0])
    assert world.judge() == [ev.GangReleased(group="default/train", reason="MemberDeleted", pods=(uids[1],))]
    assert not world.state.claims


def test_a_terminating_pod_breaks_the_minimum_too() -> None:
    """The total excludes terminating ones."""
    world, uids = waiting()
    world.terminating(uids[0])
    (released,) = of_type(world.judge(), ev.GangReleased)
    assert sorted(released.pods) == uids[:2]


def test_a_waiting_pod_that_goes_without_breaking_the_minimum_goes_alone() -> None:
    """The others wait on: they still have a chance to meet minAvailable."""
    world, uids = waiting(minimum=3, held=2, pods=4)
    world.terminating(uids[0])
    assert world.judge() == [ev.GangReleased(group="default/train", reason="MemberDeleted", pods=(uids[0],))]
    assert list(world.state.claims) == [uids[1]]
    assert world.judge() == []


def test_the_deletion_of_a_pod_that_does_not_wait_may_break_the_minimum() -> None:
    """If no chance to meet minAvailable, reject it directly."""
    world, uids = waiting()
    world.deleted(uids[2])
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["MemberDeleted"]


def test_a_group_that_left_the_queue_rejects_its_waiting_pods() -> None:
    """If there is a pod belongs to the last podgroup is waiting and if no chance to meet minAvailable, reject it."""
    world, uids = waiting(cpu=2)
    world.plan()
    assert world.judge() == [ev.GangReleased(group="default/train", reason="LeftQueue", pods=(uids[0], uids[1]))]
    world.node("n1")
    assert world.plan() == []
    world.pass_s(2.5)
    world.settle()
    assert all(world.where(*uids))


def test_released_room_is_there_for_others() -> None:
    """To avoid long-term invalid occupy of resources: a waiting pod occupies, a released one does not."""
    world, _ = waiting(cpu=2)
    world.pod("alone", cpu=2)
    assert of_type(world.plan(), ev.GangPlaced) == []
    assert of_type(world.judge(), ev.GangReleased)
    world.pass_s(1.5)
    assert of_type(world.plan(), ev.GangPlaced)[0].group == "pod/default/alone"


@pytest.mark.parametrize("fault", ["taint", "gone", "shrunk", "gated"])
def test_a_waiting_assignment_that_cannot_stand_is_given_back_when_the_next_one_waits_too(fault: str) -> None:
    """Each held assignment is judged again against the state at that place (design, rule 4)."""
    world, uids = waiting(minimum=4, held=1, pods=4)
    world.node("n1")
    spoil(world, fault, uids[0])
    world.propose("default/train", {uids[1]: "n1"})
    released, held = world.judge()
    assert released == ev.GangReleased(group="default/train", reason="HoldBroken", pods=(uids[0],))
    assert isinstance(held, ev.GangHeld)
    assert list(world.state.claims) == [uids[1]]
    assert list(world.state.groups["default/train"].held) == [uids[1]]


def spoil(world: World, fault: str, uid: str) -> None:
    match fault:
        case "taint":
            world.node("n0", unschedulable=True)
        case "gone":
            world.facts(ev.NodeDeleted(name="n0", uid="uid-n0"))
        case "shrunk":
            world.node("n0", cpu=0)
        case "gated":
            world.pod(uid, "train", minimum=4, gated=True)


@pytest.mark.parametrize("fault", ["taint", "gone", "shrunk", "gated"])
def test_a_waiting_assignment_that_cannot_stand_is_dropped_at_quorum(fault: str) -> None:
    """At quorum, each held assignment [is judged] against the state at that place (design, rule 4)."""
    world = World()
    world.node("n0")
    world.node("n1")
    uids = world.gang("train", 4, 4)
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    world.pod_group("train", 3)
    spoil(world, fault, uids[0])
    world.propose("default/train", dict.fromkeys(uids[1:], "n1"))
    (permitted,) = world.judge()
    assert isinstance(permitted, ev.GangPermitted)
    assert permitted.dropped == (uids[0],)
    assert sorted(world.state.permitted) == uids[1:]
    assert uids[0] not in world.state.claims


def test_one_that_is_dropped_may_be_gone_by_then() -> None:
    """Its deletion comes between the permit's decision and its place; of the others each is bound."""
    world = World()
    world.node("n0")
    world.node("n1")
    uids = world.gang("train", 4, 3)
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    spoil(world, "taint", uids[0])
    world.propose("default/train", dict.fromkeys(uids[1:], "n1"))
    basis, decided = world.state.sequence, binder.decide_now(world.state)
    assert [event.dropped for event in of_type(decided, ev.GangPermitted)] == [(uids[0],)]
    world.deleted(uids[0])
    world.append("binder", decided, cause="decide", basis=basis)
    assert sorted(world.state.permitted) == uids[1:]


def test_what_waits_and_cannot_stand_has_its_room_until_it_is_given_back() -> None:
    """Not by a refusal: whoever is judged behind it in the same decision finds the room taken."""
    world, uids = waiting(minimum=4, held=1, pods=4, cpu=1)
    spoil(world, "gated", uids[0])
    world.pod("stranger")
    world.propose("default/train", {uids[1]: "gone"})
    world.propose("pod/default/stranger", {"stranger": "n0"})
    assert [event.reason for event in of_type(world.judge(), ev.ProposalRefused)] == ["NodeGone", "NoRoom"]
    assert list(world.state.groups["default/train"].held) == uids[:1]


def test_the_policy_sets_the_time() -> None:
    """Set the timeout (eg: 10s): the policy's, in log time."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, permit_waiting_ms=1_000))
    world.node("n0")
    uids = world.gang("train", 2, 2)
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    world.pass_s(0.8)
    assert world.judge() == []
    world.pass_s(0.6)
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["Timeout"]
