"""The room of failed members (design, section 4): held for a replacement, for a bounded time."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.objects import ClassRoom, HostPort, NodeAssignment
from events.policy import DEFAULT_POLICY
from services.binder import core as binder
from services.state.nominations import replacement_key
from services.state.records import NOMINATED
from tests.binder.failing import FAILURES, fail, running
from tests.world import World, of_type, refusals

WEB = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)


@pytest.mark.parametrize("how", FAILURES)
def test_a_failed_members_room_is_nominated(how: str) -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    fail(world, uids[1], how)
    expected = ev.RoomNominated(gang="default/train", pod=uids[1], node=node, waiting_ms=30_000)
    assert world.judge() == [expected]
    claim = world.state.claims[replacement_key(uids[1])]
    assert (claim.stage, claim.node) == (NOMINATED, node)
    assert world.judge() == []


@pytest.mark.parametrize("how", FAILURES)
def test_a_stranger_cannot_take_it_and_the_replacement_can(how: str) -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    fail(world, uids[1], how)
    world.judge()
    world.pod("stranger", priority=100)
    world.settle()
    assert world.where("stranger") == [""]
    world.pod("train-new", "train", minimum=3)
    world.plan()
    ended, permit = world.judge()
    assert ended == ev.NominationEnded(gang="default/train", pod=uids[1], reason="Taken")
    assert isinstance(permit, ev.GangPermitted)
    world.settle()
    assert world.where("train-new", "stranger") == [node, ""]
    assert not world.state.nominations


def test_the_binder_keeps_strangers_out_whatever_planners_propose() -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    world.pod("stranger")
    basis = world.state.sequence
    fail(world, uids[1], "OutOfcpu")
    world.propose("pod/default/stranger", {"stranger": node}, basis=basis)
    verdicts = world.judge()
    assert [type(event) for event in verdicts] == [ev.RoomNominated, ev.ProposalRefused]
    assert of_type(verdicts, ev.DisagreementDetected) == []


def test_another_gang_does_not_spend_the_room() -> None:
    """It is nominated for its own: who goes there besides finds it taken, be it a gang whose pods are like the failed."""
    world, uids = running()
    (node,) = world.where(uids[1])
    others = world.gang("other", 1, 1)
    basis = world.state.sequence
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.propose("default/other", {others[0]: node}, basis=basis)
    assert [type(event) for event in world.judge()] == [ev.ProposalRefused]
    assert uids[1] in world.state.nominations


def test_nor_does_another_gang_of_the_same_group() -> None:
    world = World()
    for node in ("n0", "n1"):
        world.node(node, cpu=2)
    group = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 2, 2, group)
    world.koordinator("default/b", 2, 2, group)
    world.settle()
    (node,) = world.where("a-0")
    world.deleted("a-0")
    assert of_type(world.judge(), ev.RoomNominated)
    world.koordinator("default/b", 3, 2, group)
    assert refusals(world.plan()) == ["InsufficientRoom"]
    world.koordinator("default/a", 1, 2, group)
    world.pass_s(2)
    world.settle()
    assert world.where("a-0", "b-2") == [node, ""]


def test_nor_one_that_finds_a_place_beside_it_on_the_same_node() -> None:
    """The room counted as taken, and was a stranger's before the replacement came."""
    world = World()
    world.node("n0", cpu=5)
    group = {"groups": ("default/a", "default/b")}
    world.koordinator("default/a", 2, 2, group)
    world.koordinator("default/b", 2, 2, group)
    world.settle()
    world.deleted("a-0")
    world.judge()
    world.koordinator("default/b", 3, 2, group)
    world.settle()
    assert world.where("b-2") == ["n0"]
    assert list(world.state.nominations) == ["a-0"]
    world.pod("stranger", priority=1)
    world.settle()
    world.koordinator("default/a", 1, 2, group)
    world.pass_s(2)
    world.settle()
    assert world.where("a-0") == ["n0"]


def test_one_replacement_spends_the_room_of_one() -> None:
    world = World()
    world.node("n0", cpu=4)
    world.gang("train", 4, 4)
    world.settle()
    for uid in ("train-0", "train-1"):
        world.deleted(uid)
    world.judge()
    world.pod("train-4", "train", minimum=4)
    world.propose("default/train", {"train-4": "n0"})
    assert [event.pod for event in of_type(world.judge(), ev.NominationEnded)] == ["train-0"]
    assert list(world.state.nominations) == ["train-1"]


def test_a_refused_replacement_leaves_its_room_to_nobody() -> None:
    """Neither to those whose proposals are judged by the same decision, behind its own."""
    world, uids = running()
    (node,) = world.where(uids[1])
    fail(world, uids[1], "deleted")
    world.judge()
    for uid in ("train-new", "train-more"):
        world.pod(uid, "train", minimum=3)
    world.pod("stranger")
    world.propose("default/train", {"train-new": node, "train-more": "gone"})
    world.propose("pod/default/stranger", {"stranger": node})
    assert [event.reason for event in of_type(world.judge(), ev.ProposalRefused)] == ["NodeGone", "NoRoom"]


def test_a_refused_replacement_takes_no_more_than_the_room_that_was_kept_for_it() -> None:
    """What is free beside that is free for those whose proposals are judged by the same decision."""
    world = World()
    world.node("n0", cpu=3)
    world.gang("train", 2, 2)
    world.settle()
    world.deleted("train-1")
    world.judge()
    for uid in ("train-new", "train-more"):
        world.pod(uid, "train", minimum=2)
    world.pod("stranger")
    world.propose("default/train", {"train-new": "n0", "train-more": "gone"})
    world.propose("pod/default/stranger", {"stranger": "n0"})
    world.judge()
    assert "train-1" in world.state.nominations
    world.bind()
    assert world.where("stranger") == ["n0"]


def test_a_replacement_that_its_gang_lacks_is_required() -> None:
    """As any pod of a minimum is: the gang's minimum starts together, or not at all."""
    world, uids = running()
    (node,) = world.where(uids[1])
    fail(world, uids[1], "deleted")
    world.judge()
    for uid in ("train-new", "train-more"):
        world.pod(uid, "train", minimum=3)
    world.node("spare", cpu=1)
    [placed] = of_type(world.plan(), ev.GangPlaced)
    assert placed.required == (NodeAssignment(node, ("train-new",)),)
    assert placed.optional == (NodeAssignment("spare", ("train-more",)),)


def test_of_two_replacements_one_is_required_where_the_gang_lacks_one() -> None:
    """Its minimum was lowered since: the other is beyond it, and keeps nobody waiting."""
    world, uids = running()
    nodes = world.where(*uids)
    for uid in uids[1:]:
        fail(world, uid, "deleted")
    world.judge()
    world.pod(uids[0], "train", minimum=2, node=nodes[0])
    for uid in ("train-new", "train-more"):
        world.pod(uid, "train", minimum=2)
    [placed] = of_type(world.plan(), ev.GangPlaced)
    assert placed.required == (NodeAssignment(nodes[1], ("train-new",)),)
    assert placed.optional == (NodeAssignment(nodes[2], ("train-more",)),)


def test_room_that_is_taken_already_is_not_kept() -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    world.pod("stranger", node=node, candidate=False)
    fail(world, uids[1], "deleted")
    assert world.judge() == [ev.NominationEnded(gang="default/train", pod=uids[1], reason="GangGone")]
    assert not world.state.lost


def test_a_node_that_is_gone_has_no_room_to_keep() -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    world.facts(ev.NodeDeleted(name=node, uid=f"uid-{node}"))
    fail(world, uids[1], "deleted")
    assert [event.reason for event in of_type(world.judge(), ev.NominationEnded)] == ["GangGone"]


def test_a_nomination_on_a_node_that_goes_meanwhile_keeps_no_room() -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    fail(world, uids[1], "deleted")
    from services.binder.core import decide_now

    basis, decided = world.state.sequence, list(decide_now(world.state))
    world.facts(ev.NodeDeleted(name=node, uid=f"uid-{node}"))
    world.append("binder", decided, cause="decide", basis=basis)
    assert replacement_key(uids[1]) not in world.state.claims
    assert (world.state.lost, world.judge()) == ({}, [])
    world.pass_s(31)
    assert [event.reason for event in of_type(world.judge(), ev.NominationEnded)] == ["Expired"]


def test_a_replacement_goes_where_a_node_is_left() -> None:
    """Of two rooms that are kept for its gang."""
    world, uids = running()
    nodes = world.where(*uids)
    for uid in uids[:2]:
        fail(world, uid, "deleted")
    world.judge()
    world.facts(ev.NodeDeleted(name=nodes[0], uid=f"uid-{nodes[0]}"))
    world.node("spare", cpu=1)
    for uid in ("train-new", "train-more"):
        world.pod(uid, "train", minimum=3)
    world.settle()
    assert sorted(world.where("train-new", "train-more")) == [nodes[1], "spare"]


def test_a_gang_that_still_has_its_minimum_loses_nothing_that_is_kept() -> None:
    world, uids = running(pods=3, minimum=2)
    fail(world, uids[0], "deleted")
    assert world.judge() == []
    fail(world, uids[1], "deleted")
    assert [event.pod for event in of_type(world.judge(), ev.RoomNominated)] == [uids[1]]


def test_succeeded_members_count_and_lose_nothing() -> None:
    world, uids = running()
    for uid in uids[:2]:
        world.finished(uid)
        assert world.judge() == []
    fail(world, uids[2], "OutOfcpu")
    assert world.judge() == []


def test_nor_do_they_where_another_has_failed() -> None:
    world, uids = running()
    fail(world, uids[0], "deleted")
    assert [event.pod for event in of_type(world.judge(), ev.RoomNominated)] == [uids[0]]
    world.finished(uids[1])
    assert world.judge() == []
    assert list(world.state.nominations) == [uids[0]]


def test_a_gang_whose_last_member_fails_keeps_nothing() -> None:
    world, uids = running()
    for uid in uids:
        world.deleted(uid)
    assert {event.reason for event in of_type(world.judge(), ev.NominationEnded)} == {"GangGone"}
    assert of_type(world.judge(), ev.RoomNominated) == []
    assert not world.state.claims
    assert not world.state.lost


def test_a_gang_that_goes_one_by_one_keeps_nothing_in_the_end() -> None:
    world, uids = running()
    for uid in uids:
        world.terminating(uid)
    for uid in uids:
        world.deleted(uid)
        world.judge()
    assert not world.state.claims
    assert not world.state.nominations


def test_a_gang_that_is_deleted_while_its_room_is_kept_gives_it_back() -> None:
    world, uids = running()
    fail(world, uids[0], "OutOfcpu")
    world.judge()
    for uid in uids:
        world.deleted(uid)
    world.judge()
    world.judge()
    assert not world.state.claims
    assert not world.state.nominations


def test_so_does_one_that_nobody_declares_any_more() -> None:
    """Whatever its policy is: no minimum is left that it could be below."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, replacement_policy="evict", replacement_hold_ms=30_000))
    world.node("n0", cpu=3)
    world.pod_group("train", 3)
    uids = [world.pod(f"train-{i}", "train") for i in range(3)]
    world.settle()
    world.deleted(uids[0])
    assert [event.pod for event in of_type(world.judge(), ev.RoomNominated)] == [uids[0]]
    world.pod_group_deleted("train")
    assert world.judge() == [ev.NominationEnded(gang="default/train", pod=uids[0], reason="GangGone")]


def test_nothing_is_kept_where_the_gang_has_its_minimum_when_that_is_decided() -> None:
    world = World()
    world.node("n0", cpu=3)
    world.pod_group("train", 3)
    uids = [world.pod(f"train-{i}", "train") for i in range(3)]
    world.settle()
    world.deleted(uids[0])
    world.pod_group("train", 2)
    assert world.judge() == [ev.NominationEnded(gang="default/train", pod=uids[0], reason="GangGone")]


def test_a_second_failure_is_kept_as_well() -> None:
    world, uids = running()
    for uid in uids[:2]:
        fail(world, uid, "OutOfcpu")
        world.judge()
    assert sorted(world.state.nominations) == uids[:2]
    news = [world.pod(f"train-new-{i}", "train", minimum=3) for i in range(2)]
    world.settle()
    assert sorted(world.where(*news, uids[2])) == ["n0", "n1", "n2"]
    assert not world.state.nominations


def test_the_room_includes_host_ports() -> None:
    world, uids = running(ports=WEB)
    (node,) = world.where(uids[1])
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.pod("train-new", "train", minimum=3, ports=WEB)
    world.settle()
    assert world.where("train-new") == [node]


def test_a_replacement_is_not_sent_where_the_node_has_shrunk() -> None:
    world, uids = running()
    (node,) = world.where(uids[1])
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.node(node, cpu=0)
    world.pod("train-new", "train", minimum=3)
    refused = of_type(world.plan(), ev.GroupsRefused)
    assert [event.reason for event in refused] == ["InsufficientRoom"]
    world.node("n9", cpu=1)
    world.pass_s(1.5)
    world.settle()
    assert world.where("train-new") == ["n9"]


def test_a_replacement_of_another_class_does_not_spend_the_room() -> None:
    world, uids = running()
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.node("n9", cpu=4)
    world.pod("train-big", "train", minimum=3, cpu=2)
    world.plan()
    world.judge()
    world.settle()
    assert world.where("train-big") == ["n9"]
    assert not world.state.nominations


def test_a_member_that_goes_between_permit_and_binding_is_lost_too() -> None:
    """From its permit on a pod counts: the others will be bound."""
    world = World()
    for i in range(2):
        world.node(f"n{i}", cpu=1)
    uids = world.gang("train", 2, 2)
    world.plan()
    world.judge()
    node = world.state.claims[uids[0]].node
    world.deleted(uids[0])
    assert [(event.pod, event.node) for event in of_type(world.judge(), ev.RoomNominated)] == [(uids[0], node)]
    world.bind()
    world.pod("stranger")
    world.settle()
    world.pod("train-new", "train", minimum=2)
    world.settle()
    assert world.where("stranger", "train-new") == ["", node]


def test_a_member_that_was_lost_twice_before_that_is_decided_leaves_the_room_of_one() -> None:
    """Its binding was refused, somebody else bound it all the same, and then it went: where it was last counts."""
    world = World()
    for i in range(2):
        world.node(f"n{i}")
    kept, lost = world.gang("train", 2, 2)
    world.propose("default/train", {kept: "n0", lost: "n0"})
    world.judge()
    about = {"uid": lost, "namespace": "default", "name": lost, "node": "n0"}
    refused = ev.BindingFailed(**about, reason="Rejected", message="no", assigned_node="")
    world.append("binder", [refused], cause="outcome")
    assert list(world.state.lost) == [lost]
    world.assigned(lost, "n1")
    world.deleted(lost)
    assert [(event.pod, event.node) for event in of_type(world.judge(), ev.RoomNominated)] == [(lost, "n1")]


def test_a_waiting_members_room_is_nobodys() -> None:
    """Before its permit a pod is not running: its gang is released, nothing is kept."""
    world = World()
    world.node("n0")
    uids = world.gang("train", 3, 3)
    world.propose("default/train", dict.fromkeys(uids[:2], "n0"))
    world.judge()
    world.deleted(uids[0])
    assert of_type(world.judge(), ev.RoomNominated) == []
    assert not world.state.lost


def test_a_spare_member_that_a_reservation_kept_off_takes_the_room_that_is_kept_for_it() -> None:
    """Planner and binder hear of the failure at the same time: when the planner refuses the spare, the room is not kept
    for it yet. No room is given back when it is."""
    world, uids = running()
    (node,) = world.where(uids[1])
    spare = world.pod("train-new", "train", minimum=3)
    world.gang("big", 3, 3)
    world.plan()
    room = (ClassRoom(world.scheduling_class(), dict.fromkeys(world.where(*uids), 1)),)
    world.append("planner.a", [ev.RoomRequested(group="default/big", room=room)], cause="by hand")
    assert [type(event) for event in world.judge()] == [ev.RoomReserved]
    world.pass_s(2)
    fail(world, uids[1], "OutOfcpu")
    assert {event.reason for event in of_type(world.plan(), ev.GroupsRefused)} == {"InsufficientRoom"}
    assert [type(event) for event in world.judge()] == [ev.RoomNominated]
    world.pass_s(5)
    world.settle()
    assert world.where(spare) == [node]


def test_it_passes_a_reservation_where_its_room_was_kept_and_no_further_pod_does_anywhere() -> None:
    """The binder, whatever planners propose."""
    world = World()
    world.node("n0", cpu=2)
    loose = {"mode": "NonStrict", "match_policy": "waiting-and-running"}
    world.koordinator("default/elastic", 2, 2, loose)
    world.settle()
    world.node("n1", cpu=6)
    world.gang("train", 2, 2)
    room = (ClassRoom(world.scheduling_class(), {"n0": 1, "n1": 6}),)
    world.append("planner.a", [ev.RoomRequested(group="default/train", room=room)], cause="by hand")
    granted = ev.RoomReserved(group="default/train", priority=0, room=room, waiting_ms=600_000)
    world.append("binder", [granted], cause="by hand")
    world.deleted("elastic-0")
    assert of_type(world.judge(), ev.RoomNominated)
    declared = world.state.gangs["default/elastic"].declaration
    for number in (2, 3):
        world.pod(f"elastic-{number}", "elastic", dialect="koordinator/v1alpha1", declared=declared)
    world.propose("default/elastic", {}, {"elastic-2": "n0", "elastic-3": "n1"})
    [permitted] = of_type(world.judge(), ev.GangPermitted)
    assert [(one.node, [pod.uid for pod in one.pods]) for one in permitted.bindings] == [("n0", ["elastic-2"])]
    assert permitted.dropped == ("elastic-3",)


def test_room_that_is_kept_wakes_nobody_whom_no_reservation_kept_off() -> None:
    """It is no more than what the spare was refused with."""
    world, uids = running()
    world.pod("train-new", "train", minimum=3, cpu=2)
    fail(world, uids[1], "OutOfcpu")
    assert {event.reason for event in of_type(world.plan(), ev.GroupsRefused)} == {"InsufficientRoom"}
    assert [type(event) for event in world.judge()] == [ev.RoomNominated]
    world.pass_s(5)
    assert not world.plan_would()


@pytest.mark.parametrize("declared", ["by its pods", "by a PodGroup"])
def test_room_may_be_kept_for_a_gang_that_went_meanwhile(declared: str) -> None:
    """The binder decides before it hears of it, while room is reserved for another."""
    world, uids = running()
    if declared == "by a PodGroup":
        world.pod_group("train", 3)
    world.gang("big", 3, 3)
    world.plan()
    room = (ClassRoom(world.scheduling_class(), dict.fromkeys(world.where(*uids), 1)),)
    world.append("planner.a", [ev.RoomRequested(group="default/big", room=room)], cause="by hand")
    assert [type(event) for event in world.judge()] == [ev.RoomReserved]
    fail(world, uids[1], "OutOfcpu")
    basis, late = world.state.sequence, binder.decide_now(world.state)
    assert [type(event) for event in late] == [ev.RoomNominated]
    for uid in uids:
        world.deleted(uid)
    world.append("binder", list(late), cause="decide", basis=basis)
    assert ("default/train" in world.state.gangs) == (declared == "by a PodGroup")
    assert ev.NominationEnded(gang="default/train", pod=uids[1], reason="GangGone") in world.judge()
