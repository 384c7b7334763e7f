"""What wakes whom: cohorts of one reason, and backoff."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.policy import DEFAULT_POLICY
from services.state.records import AWAITING, IDLE, PARKED, READY
from tests.state.parked import full, phase, refused
from tests.world import SECOND_NS, World, of_type


def test_what_was_refused_for_room_waits_for_room() -> None:
    world = full()
    world.pod("alone")
    assert refused(world.plan()) == [("InsufficientRoom", 1)]
    world.pass_s(20)
    assert world.plan() == []
    world.pod("other", cpu=8)
    assert [event.groups for event in of_type(world.plan(), ev.GroupsRefused)] == [("pod/default/other",)]
    world.deleted("wedge")
    world.settle()
    assert world.where("alone") == ["n0"]


@pytest.mark.parametrize("fact", ["pod finished", "node added", "node grew", "label edited"])
def test_room_wakes_what_was_refused_for_room(fact: str) -> None:
    world = full()
    world.pod("alone", selector={"zone": "a"} if fact == "label edited" else None)
    world.plan()
    world.pass_s(2)
    match fact:
        case "pod finished":
            world.finished("wedge")
        case "node added":
            world.node("n1")
        case "node grew":
            world.node("n0", cpu=16)
        case "label edited":
            world.node("n0", cpu=16, labels={"zone": "a"})
    world.settle()
    assert world.where("alone") != [""]


def test_less_room_wakes_nobody() -> None:
    world = full()
    world.pod("alone")
    world.plan()
    world.pass_s(2)
    world.pod("more", node="n0", candidate=False)
    world.facts(ev.NodeDeleted(name="n0", uid="uid-n0"))
    assert world.plan() == []


def test_room_during_the_backoff_counts_when_it_is_over() -> None:
    world = full()
    world.pod("alone")
    world.plan()
    world.deleted("wedge")
    assert world.plan() == []
    world.pass_s(0.5)
    assert world.plan() == []
    world.pass_s(1)
    world.settle()
    assert world.where("alone") == ["n0"]


def test_backoff_starts_at_a_second_and_doubles_to_ten() -> None:
    """Backoff as Kubernetes does it (1 s doubling to 10 s), in log time."""
    world = full()
    world.pod("alone")
    waited = []
    for attempt in range(1, 7):
        assert refused(world.plan()) == [("InsufficientRoom", attempt)]
        start_ns = world.now_ns
        for _ in range(200):
            world.pod("stir", node="n0", candidate=False, cpu=0.5)
            world.deleted("stir")
            if world.plan_would():
                break
            world.pass_s(0.1)
        waited.append(round((world.now_ns - start_ns) / SECOND_NS, 1))
    assert waited == [1.1, 2.1, 4.1, 8.1, 10.1, 10.1]


def test_a_permit_ends_what_was_counted_against_the_group() -> None:
    """Its last failure, by which the queue is ordered, and the proposals that it lost to others."""
    world = World()
    world.node("n0", cpu=1)
    world.gang("train", 2, 2)
    world.plan()
    world.pass_s(2)
    world.node("n1", cpu=0)
    world.plan()
    assert world.state.groups["default/train"].failed_ns
    world.node("n0", cpu=2)
    world.pass_s(3)
    world.plan()
    world.pod("thief", node="n0", candidate=False, cpu=1)
    world.judge()
    assert world.state.groups["default/train"].conflicts == 1
    world.deleted("thief")
    world.plan()
    world.judge()
    group = world.state.groups["default/train"]
    assert (group.failed_ns, group.conflicts) == (0, 0)


def test_a_refused_group_is_tried_again_every_five_minutes() -> None:
    world = full()
    world.pod("alone")
    world.plan()
    world.pass_s(299)
    assert world.plan() == []
    world.pass_s(2)
    assert refused(world.plan()) == [("InsufficientRoom", 2)]


def test_groups_that_were_refused_together_wake_together() -> None:
    world = full()
    for i in range(3):
        world.pod(f"p{i}")
    (event,) = of_type(world.plan(), ev.GroupsRefused)
    assert event.groups == ("pod/default/p0", "pod/default/p1", "pod/default/p2")
    assert len(world.state.cohorts) == 1
    world.pass_s(2)
    world.deleted("wedge")
    world.settle()
    assert world.where("p0", "p1", "p2") == ["n0"] * 3
    assert not world.state.cohorts


def test_a_changed_policy_wakes_everybody() -> None:
    world = full()
    world.pod("alone")
    world.plan()
    world.pass_s(2)
    assert world.plan() == []
    assert world.state.policy is not None
    world.append("admin", [ev.PolicyChanged(policy=world.state.policy)], cause="admin")
    assert refused(world.plan()) == [("InsufficientRoom", 2)]


def test_a_fact_between_basis_and_refusal_is_not_lost() -> None:
    """Too few pods at the basis, enough at the refusal's own place."""
    world = World()
    world.node("n0")
    uids = world.gang("train", 1, 2)
    world.pod("other-0", "other", minimum=2)
    basis, late = world.state.sequence, world.plan_without_appending()
    uids.append(world.pod("train-1", "train", minimum=2))
    world.append("planner.a", late, cause="decide", basis=basis)
    assert phase(world) == READY
    assert phase(world, "default/other") == PARKED
    world.settle()
    assert world.where(*uids) == ["n0", "n0"]


def test_a_fact_about_one_of_those_that_are_refused_together_wakes_that_alone() -> None:
    world = World()
    for name in ("one", "two", "three"):
        world.pod(name, unsupported=("volumes",))
    basis, late = world.state.sequence, world.plan_without_appending()
    world.pod("one", unsupported=("volumes",), priority=1)
    world.append("planner.a", late, cause="decide", basis=basis)
    phases = [phase(world, f"pod/default/{name}") for name in ("one", "two", "three")]
    assert phases == [READY, PARKED, PARKED]


def test_a_fact_between_basis_and_a_refusal_for_room_counts_when_its_backoff_is_over() -> None:
    world = full()
    world.pod("alone")
    basis, late = world.state.sequence, world.plan_without_appending()
    world.pod("alone", cpu=0)
    world.append("planner.a", late, cause="decide", basis=basis)
    assert phase(world, "pod/default/alone") == PARKED
    world.pass_s(2)
    world.settle()
    assert world.where("alone") == ["n0"]


def test_a_shard_tries_its_own_groups_alone() -> None:
    world = World(shards=("a", "b"))
    world.node("n0")
    groups = {f"pod/default/{world.pod(f'p{number}', cpu=0.1)}" for number in range(8)}
    of_a, of_b = ({placed.group for placed in of_type(world.plan(shard), ev.GangPlaced)} for shard in ("a", "b"))
    assert of_a
    assert of_b
    assert (of_a | of_b, of_a & of_b) == (groups, set())


@pytest.mark.parametrize("goes", ["deleted", "terminating", "finished", "relabelled", "bound by somebody else"])
def test_a_member_that_goes_while_a_refusal_is_on_its_way_counts(goes: str) -> None:
    """Seed 185856: the gang that was left was not too large any more, and waited for its retry, five minutes."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, gang_pods=2))
    world.node("n0")
    uids = world.gang("train", 2, 2)
    odd = world.pod("train-2", "train", minimum=2)
    basis, late = world.state.sequence, world.plan_without_appending()
    assert [event.reason for event in late if isinstance(event, ev.GroupsRefused)] == ["GangTooLarge"]
    match goes:
        case "deleted":
            world.deleted(odd)
        case "terminating":
            world.terminating(odd)
        case "finished":
            world.finished(odd, succeeded=False)
        case "relabelled":
            world.pod(odd)
        case _:
            world.assigned(odd, "n0")
    world.append("planner.a", late, cause="decide", basis=basis)
    world.settle()
    assert world.where(*uids) == ["n0", "n0"]


@pytest.mark.parametrize("again", [False, True])
def test_a_policy_that_changes_while_a_refusal_is_on_its_way_counts(again: bool) -> None:
    """`again`: the gang was refused before, and is tried once more when the policy changes."""
    small = msgspec.structs.replace(DEFAULT_POLICY, gang_pods=1)
    world = World(small)
    world.node("n0")
    uids = world.gang("train", 2, 2)
    if again:
        world.plan()
        world.append("admin", [ev.PolicyChanged(policy=small)], cause="admin")
    basis, late = world.state.sequence, world.plan_without_appending()
    assert refused(late) == [("GangTooLarge", 0)]
    world.append("admin", [ev.PolicyChanged(policy=DEFAULT_POLICY)], cause="admin")
    world.append("planner.a", late, cause="decide", basis=basis)
    world.settle()
    assert world.where(*uids) == ["n0", "n0"]


def test_a_member_that_comes_during_the_backoff_counts_when_it_is_over() -> None:
    world = full()
    world.gang("train", 2, 2)
    world.plan()
    world.pod("train-2", "train", minimum=2)
    assert phase(world) == PARKED
    world.pass_s(1.5)
    assert phase(world) == READY


def test_a_binding_that_fails_backs_off_and_each_time_longer() -> None:
    world = World()
    world.node("n0")
    world.pod("alone")
    lengths = []
    for _ in range(5):
        world.plan()
        world.judge()
        failed = ev.BindingFailed(
            uid="alone", namespace="default", name="alone", node="n0", reason="Forbidden", message="", assigned_node=""
        )
        world.append("binder", [failed], cause="outcome")
        start_ns = world.now_ns
        for _ in range(200):
            if world.plan_would():
                break
            world.pass_s(0.1)
        lengths.append(round((world.now_ns - start_ns) / SECOND_NS, 1))
    assert lengths == [1.1, 2.1, 4.1, 8.1, 10.1]


def not_bound(world: World, uid: str, message: str = "") -> None:
    failed = ev.BindingFailed(
        uid=uid, namespace="default", name=uid, node="n0", reason="Forbidden", message=message, assigned_node=""
    )
    world.append("binder", [failed], cause="outcome")


@pytest.mark.parametrize(("message", "told"), [("", "the binding failed"), ("a webhook's no", "a webhook's no")])
def test_a_pod_whose_binding_failed_is_told_why_or_that_it_did(message: str, told: str) -> None:
    world = World()
    world.node("n0")
    world.pod("alone")
    world.plan()
    world.judge()
    not_bound(world, "alone", message)
    assert [(one.reason, one.message) for one in world.state.cohorts.values()] == [("BindingFailed", told)]


def test_a_binding_that_fails_leaves_a_proposal_for_the_rest_of_the_gang_to_its_verdict() -> None:
    """The gang backs off behind that."""
    world = World()
    world.node("n0")
    uids = world.gang("train", 1, 1)
    world.plan()
    world.judge()
    late = world.pod("train-late", "train", minimum=1)
    assert of_type(world.plan(), ev.GangPlaced)
    not_bound(world, uids[0])
    assert phase(world) == AWAITING
    assert of_type(world.judge(), ev.GangPermitted)
    world.settle()
    assert world.where(late, *uids) == ["n0", "n0"]


def test_a_binding_that_fails_of_a_pod_that_goes_leaves_nothing_that_waits() -> None:
    world = World()
    world.node("n0")
    uids = world.gang("train", 2, 1)
    world.plan()
    world.judge()
    world.terminating(uids[0])
    not_bound(world, uids[0])
    assert phase(world) == IDLE
    assert not world.state.cohorts


def test_a_pod_that_comes_back_while_a_refusal_is_on_its_way_is_not_lost() -> None:
    """The refusal is of what there was to place at its basis; no room was given back since."""
    world = World()
    world.node("n0", cpu=1)
    uids = [world.pod("train-0", "train", minimum=1), world.pod("train-1", "train", minimum=1, cpu=100)]
    world.plan()
    world.judge()
    world.node("n1", cpu=1)
    basis, late = world.state.sequence, world.plan_without_appending()
    world.facts(ev.NodeDeleted(name="n0", uid="uid-n0"))
    failed = ev.BindingFailed(
        uid=uids[0], namespace="default", name=uids[0], node="n0", reason="Rejected", message="", assigned_node=""
    )
    world.append("binder", [failed], cause="outcome")
    world.append("planner.a", late, cause="decide", basis=basis)
    assert refused(late) == [("InsufficientRoom", 1)]
    world.pass_s(5)
    world.settle()
    assert world.where(*uids) == ["n1", ""]


@pytest.mark.parametrize("goes", ["deleted", "terminating", "finished", "relabelled", "bound by somebody else"])
@pytest.mark.parametrize("gang", [False, True])
def test_who_was_refused_for_room_that_a_proposal_does_not_take_is_tried_again(goes: str, gang: bool) -> None:
    """The pod for which the room was meant goes while its proposal is on its way, in the commit with the refusal; so
    nobody takes that room, and nobody gives it back. `gang`: others of the proposal stay."""
    world = World()
    world.node("n0", cpu=2 if gang else 1)
    world.node("n1", cpu=1, unschedulable=True)
    if gang:
        world.gang("first", 2, 1, priority=5)
    first = "first-1" if gang else world.pod("first", priority=5)
    world.pod("second")
    basis, late = world.state.sequence, world.plan_without_appending()
    assert [type(event) for event in late] == [ev.GangPlaced, ev.GroupsRefused]
    match goes:
        case "deleted":
            world.deleted(first)
        case "terminating":
            world.terminating(first)
        case "finished":
            world.finished(first, succeeded=False)
        case "relabelled":
            world.pod(first, "another", priority=5)
        case _:
            world.assigned(first, "n1")
    world.append("planner.a", late, cause="decide", basis=basis)
    world.settle()
    world.pass_s(2)
    world.settle()
    assert world.where("second") == ["n0"]


def test_a_binding_that_was_intended_wakes_nobody() -> None:
    """Its room counted as taken before."""
    world = World()
    world.node("n0", cpu=1)
    world.gang("train", 2, 1)
    world.plan()
    world.judge()
    world.plan()
    assert phase(world, "default/train") == PARKED
    world.pass_s(5)
    assert world.bind()
    assert not world.plan_would()
