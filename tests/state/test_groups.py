"""Gangs and groups: phases, declarations and membership."""

from __future__ import annotations

import msgspec
import pytest

import events as ev
from events.objects import Declaration, Membership
from services.state.partitions import PARTITIONS, partition_of
from services.state.records import AWAITING, IDLE, PARKED, READY
from tests.state.parked import full, phase, refused
from tests.world import World, of_type

# -------------------------------------------------------------------------------------------------------------- phases


def test_a_groups_life_in_phases() -> None:
    world = World()
    uids = world.gang("train", 2, 2)
    assert phase(world) == READY
    world.plan()
    assert phase(world) == PARKED
    world.node("n0")
    world.pass_s(1.5)
    world.plan()
    assert phase(world) == AWAITING
    assert world.plan() == []
    world.judge()
    assert phase(world) == IDLE
    world.settle()
    assert phase(world) == IDLE
    for uid in uids:
        world.deleted(uid)
    assert not world.state.groups
    assert not world.state.gangs


def test_a_refused_proposal_makes_the_group_ready_at_once() -> None:
    world = World()
    world.node("n0")
    world.gang("train", 2, 2)
    world.plan()
    world.facts(ev.NodeDeleted(name="n0", uid="uid-n0"))
    assert [event.reason for event in of_type(world.judge(), ev.ProposalRefused)] == ["NodeGone"]
    assert phase(world) == READY
    assert not world.state.nodes


def test_a_bound_pods_edit_does_not_make_its_group_ready() -> None:
    world = World()
    world.node("n0")
    world.pod("alone")
    world.settle()
    world.pod("alone", priority=3, node="n0")
    assert phase(world, "pod/default/alone") == IDLE
    assert world.plan() == []


def test_a_pod_that_was_recreated_under_its_name_is_a_new_group() -> None:
    world = World()
    world.node("n0")
    world.pod("web")
    first = world.state.groups["pod/default/web"].since
    fact = msgspec.structs.replace(world.state.pods["web"].fact, uid="web-again", resource_version=world.version())
    world.facts(fact)
    world.deleted("web")
    group = world.state.groups["pod/default/web"]
    assert (group.pod, group.since > first) == ("web-again", True)
    world.settle()
    assert world.where("web-again") == ["n0"]


def test_also_when_it_is_seen_before_the_end_of_the_one_before() -> None:
    """Nothing is left of the group that was refused, neither before its pod's end nor after."""
    world = World()
    uid = world.pod("alone", cpu=2)
    world.plan()
    assert len(world.state.cohorts) == 1
    fact = world.state.pods[uid].fact
    world.facts(msgspec.structs.replace(fact, uid="again", resource_version=world.version()))
    assert not world.state.cohorts
    world.facts(ev.PodDeleted(uid=uid, namespace="default", name="alone"))
    world.node("n0")
    world.settle()
    assert world.where("again") == ["n0"]


def test_also_when_it_is_gone_before_the_end_of_the_one_before_is_seen() -> None:
    world = World()
    uid = world.pod("alone")
    world.facts(msgspec.structs.replace(world.state.pods[uid].fact, uid="again", resource_version=world.version()))
    for gone in ("again", uid):
        world.facts(ev.PodDeleted(uid=gone, namespace="default", name="alone"))
    assert not world.state.groups
    assert not world.state.pods


def test_a_proposal_for_an_earlier_group_of_that_name_means_nobody() -> None:
    world = World()
    world.node("n0")
    world.gang("train", 1, 1)
    basis = world.state.sequence
    world.deleted("train-0")
    world.pod("train-1", "train", minimum=1)
    world.propose("default/train", {"train-1": "n0"}, basis=basis)
    assert world.state.ignored == {"GangPlaced": 1}
    assert phase(world) == READY


def test_partitions_are_fnv_1a_of_the_key() -> None:
    """The reference values of FNV-1a-32 for '', 'a' and 'foobar'."""
    assert [partition_of(text) for text in ("", "a", "foobar")] == [
        value % PARTITIONS for value in (0x811C9DC5, 0xE40C292C, 0xBF9CF968)
    ]


# -------------------------------------------------------------------------------------------------------- declarations


def test_pods_before_their_pod_group() -> None:
    world = World()
    world.node("n0")
    uids = [world.pod(f"train-{i}", "train") for i in range(2)]
    world.plan()
    world.pod_group("train", 2)
    assert phase(world) == READY
    world.settle()
    assert world.where(*uids) == ["n0"] * 2


def test_a_pod_group_before_its_pods() -> None:
    world = World()
    world.node("n0")
    world.pod_group("train", 2)
    assert not world.state.groups
    uids = [world.pod(f"train-{i}", "train") for i in range(2)]
    world.settle()
    assert world.where(*uids) == ["n0"] * 2
    for uid in uids:
        world.deleted(uid)
    assert list(world.state.gangs) == ["default/train"]
    world.pod_group_deleted("train")
    assert not world.state.gangs


def test_a_pod_group_that_goes_while_its_pods_wait_is_missed() -> None:
    world = full()
    uids = [world.pod(f"train-{i}", "train") for i in range(2)]
    world.pod_group("train", 2)
    world.plan()
    world.pod_group_deleted("train")
    world.pass_s(2)
    assert refused(world.plan()) == [("GangNotDeclared", 1)]
    world.pod_group("train", 2)
    world.deleted("wedge")
    world.settle()
    assert world.where(*uids) == ["n0"] * 2


def test_a_pod_group_goes_before_what_pods_declare() -> None:
    world = World()
    world.gang("train", 2, 2)
    world.pod_group("train", 3)
    gang = world.state.gangs["default/train"]
    assert gang.declaration is not None
    assert (gang.declaration.min_member, gang.source) == (3, "pg-train")
    world.pod("train-2", "train", minimum=5)
    assert gang.declaration.min_member == 3
    world.pod_group_deleted("train")
    assert (gang.declaration.min_member, gang.source) == (2, "train-0")


def test_when_the_declaring_pod_goes_the_oldest_member_declares() -> None:
    world = World()
    for i, minimum in enumerate((2, 3, 4)):
        world.pod(f"train-{i}", "train", minimum=minimum)
    world.deleted("train-0")
    gang = world.state.gangs["default/train"]
    assert gang.declaration is not None
    assert (gang.declaration.min_member, gang.source) == (3, "train-1")


# ---------------------------------------------------------------------------------------------------------- membership


def relabel(world: World, uid: str, gang: str) -> None:
    membership = Membership(gang=gang, dialect="coscheduling/2020", declared=None) if gang else None
    fact = msgspec.structs.replace(world.state.pods[uid].fact, gang=membership, resource_version=world.version())
    world.facts(fact)


def test_a_label_edit_moves_a_pod_that_waits() -> None:
    world = World()
    world.gang("train", 2, 2)
    world.gang("other", 1, 1)
    relabel(world, "train-1", "default/other")
    assert list(world.state.gangs["default/train"].members) == ["train-0"]
    assert list(world.state.gangs["default/other"].members) == ["other-0", "train-1"]


def test_a_pod_that_runs_and_is_moved_to_a_gang_has_started_it() -> None:
    """Koordinator's once-satisfied: the rules are off for its other pods from then on, as if it had been bound there."""
    world = World()
    world.node("n0")
    runs = world.pod("runs")
    world.settle()
    (waits,) = world.koordinator("default/train", 1, 3)
    world.settle()
    assert world.bound() == [runs]
    of = {"dialect": "koordinator/v1alpha1", "declared": world.state.gangs["default/train"].declaration}
    world.pod(runs, "train", **of)
    world.settle()
    assert world.bound() == [runs, waits]


@pytest.mark.parametrize("gang", ["", "train"])
def test_a_pod_that_is_nobodys_to_schedule_any_more_waits_for_nothing(gang: str) -> None:
    world = World()
    world.node("n0")
    world.pod("alone", gang, minimum=1 if gang else 0)
    world.pod("alone", gang, minimum=1 if gang else 0, candidate=False)
    assert not world.state.groups
    assert world.plan() == []


def test_also_when_its_proposal_is_refused_after_that() -> None:
    world = World()
    world.node("n0")
    world.pod("alone")
    world.plan()
    world.pod("alone", candidate=False)
    world.node("n0", cpu=0)
    assert of_type(world.judge(), ev.ProposalRefused)
    assert not world.state.groups
    assert world.plan() == []


@pytest.mark.parametrize("to", ["default/other", ""])
@pytest.mark.parametrize("verdict", ["permitted", "refused", "released", "failed"])
def test_membership_is_frozen_from_proposal_to_settlement_and_edits_count_afterwards(verdict: str, to: str) -> None:
    world = World()
    world.node("n0")
    uids = world.gang("train", 3 if verdict == "released" else 2, 3 if verdict == "released" else 2)
    if verdict == "released":
        world.propose("default/train", {uids[1]: "n0"})
    else:
        world.plan()
    relabel(world, uids[1], to)
    assert world.state.pods[uids[1]].gang == "default/train"
    match verdict:
        case "refused":
            world.node("n0", cpu=0)
            assert of_type(world.judge(), ev.ProposalRefused)
        case "released":
            world.judge()
            world.pass_s(11)
            assert of_type(world.judge(), ev.GangReleased)
        case "failed":
            world.judge()
            failed = ev.BindingFailed(
                uid=uids[1],
                namespace="default",
                name=uids[1],
                node="n0",
                reason="Forbidden",
                message="",
                assigned_node="",
            )
            world.append("binder", [failed], cause="outcome")
        case "permitted":
            world.judge()
            assert world.state.pods[uids[1]].gang == "default/train"
            world.bind()
    assert world.state.pods[uids[1]].gang == to
    assert uids[1] not in world.state.gangs["default/train"].members
    assert world.state.pods[uids[1]].group == (to or f"pod/default/{uids[1]}")


@pytest.mark.parametrize("verdict", ["refused", "failed"])
def test_the_last_pod_may_leave_its_group_at_settlement(verdict: str) -> None:
    world = World()
    world.node("n0")
    world.pod("alone")
    world.plan()
    relabel(world, "alone", "default/train")
    if verdict == "refused":
        world.node("n0", cpu=0)
        world.judge()
    else:
        world.judge()
        failed = ev.BindingFailed(
            uid="alone", namespace="default", name="alone", node="n0", reason="Forbidden", message="", assigned_node=""
        )
        world.append("binder", [failed], cause="outcome")
    assert list(world.state.groups) == ["default/train"]
    assert refused(world.plan()) == [("GangNotDeclared", 0)]


def test_a_pod_that_left_between_basis_and_proposal_is_not_claimed_for_its_old_gang() -> None:
    world = World()
    world.node("n0")
    uids = world.gang("train", 2, 2)
    basis = world.state.sequence
    relabel(world, uids[1], "default/other")
    world.propose("default/train", dict.fromkeys(uids, "n0"), basis=basis)
    assert list(world.state.claims) == [uids[0]]
    assert [(event.reason, event.pod) for event in of_type(world.judge(), ev.ProposalRefused)] == [
        ("PodClaimed", uids[1])
    ]
    assert not world.state.claims


@pytest.mark.parametrize("gang", ["", "train"])
def test_a_pod_that_was_edited_and_is_being_deleted_is_not_placed(gang: str) -> None:
    """Ingest was away meanwhile: one fact says both."""
    world = World()
    world.node("n0")
    uid = world.pod("p", gang, minimum=1 if gang else 0)
    resized, version = world.scheduling_class(cpu=2), world.version()
    fact = world.state.pods[uid].fact
    said = {"scheduling_class": resized, "status": "terminating", "resource_version": version}
    world.facts(msgspec.structs.replace(fact, **said))
    assert world.state.groups[world.state.pods[uid].group].phase == IDLE
    assert not world.plan()


def test_a_member_that_somebody_else_binds_leaves_fewer_to_place() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.node("n1", cpu=0)
    world.gang("train", 2, 2)
    assert refused(world.plan()) == [("InsufficientRoom", 1)]
    world.assigned("train-1", "n1")
    world.pass_s(1.5)
    world.settle()
    assert world.where("train-0", "train-1") == ["n0", "n1"]


def test_room_that_a_pod_gives_back_while_it_runs_wakes_who_was_refused_for_it() -> None:
    """Pods may be resized in place (Kubernetes 1.33): a refused group is tried after a fact that could change its
    verdict, and not minutes later (design, section 3)."""
    world = World()
    world.node("n0", cpu=4)
    world.pod("large", cpu=4, node="n0")
    world.pod("waits", cpu=2)
    world.settle()
    world.pass_s(2)
    assert world.plan() == []
    world.pod("large", cpu=1, node="n0")
    world.settle()
    assert world.where("waits") == ["n0"]


def test_the_priority_is_the_highest_of_those_that_are_left() -> None:
    world = World()
    for i, priority in enumerate((3, 5, 1)):
        world.pod(f"p{i}", "train", minimum=2, priority=priority)
    assert world.state.groups["default/train"].priority == 5
    world.deleted("p1")
    assert world.state.groups["default/train"].priority == 3


@pytest.mark.parametrize("low", ["a", "b"])
def test_so_it_is_where_gangs_come_together(low: str) -> None:
    world = World()
    for names in ((), ("default/a", "default/b")):
        declared = Declaration(min_member=1, waiting_time_ms=0, groups=names, said=("min_member", "groups"))
        for gang in ("a", "b"):
            of = {"dialect": "koordinator/v1alpha1", "declared": declared, "priority": 1 if gang == low else 5}
            world.pod(f"{gang}-0", gang, **of)
    (group,) = world.state.groups.values()
    assert (group.gangs, group.priority) == (("default/a", "default/b"), 5)


def test_a_group_that_lacked_room_and_has_nothing_to_place_any_more_lacks_none() -> None:
    world = World()
    world.node("n0", cpu=1)
    uids = world.gang("train", 2, 2)
    world.settle()
    assert phase(world) == PARKED
    world.node("n1", cpu=1)
    world.pass_s(2)
    world.gang("train", 2, 2, priority=1)
    assert (phase(world), list(world.state.lacked_room)) == (READY, ["default/train"])
    for uid in uids:
        world.assigned(uid, "n1")
    assert not world.state.lacked_room


def test_a_refused_group_whose_pods_are_all_bound_elsewhere_waits_for_nothing() -> None:
    """Nor for the end of its backoff."""
    world = full()
    uids = world.gang("train", 2, 2)
    assert refused(world.plan()) == [("InsufficientRoom", 1)]
    world.node("other", unschedulable=True)
    for uid in uids:
        world.assigned(uid, "other")
    assert phase(world) == IDLE
    assert not world.state.cohorts


def test_the_end_of_an_earlier_pod_group_of_that_name_is_not_its_end() -> None:
    world = World()
    world.pod_group("train", 2)
    gone = ev.PodGroupDeleted(namespace="default", name="train", uid="before", dialect="coscheduling/v1alpha1")
    world.facts(gone)
    assert "default/train" in world.state.gangs
    world.pod_group_deleted("train")
    assert not world.state.gangs


def test_a_pod_alone_that_is_held_may_be_deleted() -> None:
    """No binder holds one; that a log says so ends no reader."""
    world = World()
    world.node("n")
    world.pod("alone")
    place = world.propose("pod/default/alone", {"alone": "n"})
    world.append("binder", [ev.GangHeld(group="pod/default/alone", proposal=place, waiting_ms=1_000)])
    assert list(world.state.holding) == ["pod/default/alone"]
    world.deleted("alone")
    assert not world.state.groups
    assert not world.state.holding
