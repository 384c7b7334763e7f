"""Seed 002, GangPlugin, Permit and Un-reserve: what it means that a gang ran out of waiting time."""

import msgspec
import pytest

import events as ev
from services.binder import core as binder
from services.state import commits, timeouts
from services.state.snapshot import decode, digest, encode
from services.state.validate import validate_state
from tests.binder.rules.koordinator.timed_out import KOORDINATOR, TRAIN, ended, member, over, waiting
from tests.world import World, of_type, refusals

# ----------------------------------------------------------------------------------------------------- when it is over


def test_all_held_pods_are_released_and_all_pods_are_to_say_so() -> None:
    """If `WaitTime` is timeout, scheduler will roll back all assumed pods, update each pod's annotation."""
    world, uids = waiting()
    versions = [world.state.pods[uid].resource_version for uid in uids]
    world.pass_s(6)
    over, released = world.judge()
    assert over == ev.GangTimedOut(group="default/train", pods=tuple(zip(uids, versions, strict=True)))
    assert released == ev.GangReleased(group="default/train", reason="Timeout", pods=(uids[0], uids[1]))
    assert not world.state.claims
    assert list(world.state.marks) == uids


def test_the_time_runs_from_the_first_pod_in_permit() -> None:
    """`WaitTime` is the max wait time since first pod comes to permit stage: also when that one waits no longer."""
    world, uids = waiting(held=1, pods=4)
    world.pass_s(3)
    world.propose("default/train", {uids[1]: "n0"})
    assert of_type(world.judge(), ev.GangHeld)
    world.deleted(uids[0])
    assert of_type(world.judge(), ev.GangReleased) == []
    world.pass_s(1.5)
    assert world.judge() == []
    world.pass_s(1)
    assert [type(event) for event in world.judge()] == [ev.GangTimedOut, ev.GangReleased]


@pytest.mark.parametrize("pause_s", [0, 3])
def test_a_hold_that_ended_and_began_again_has_all_of_its_time(pause_s: int) -> None:
    """Since first pod comes to permit stage: of the pods that are assumed now, not of some that were, also where the time
    of those was over in between."""
    world, uids = waiting(held=1)
    world.pass_s(3)
    world.deleted(uids[0])
    world.judge()
    assert not world.state.holding
    world.pass_s(pause_s)
    member(world, 7)
    world.propose("default/train", {uids[1]: "n0"})
    world.judge()
    world.pass_s(4)
    assert world.judge() == []
    world.pass_s(2)
    assert of_type(world.judge(), ev.GangTimedOut)


def test_a_gang_that_becomes_koordinators_while_it_waits_has_its_time_all_the_same() -> None:
    """Its first pod's time ran out by coscheduling's rules, under which the others had theirs left (design, 7.4)."""
    world = World()
    world.node("n0")
    uids = world.gang("train", 4, 3)
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    world.pass_s(3)
    world.propose("default/train", {uids[1]: "n0"})
    world.judge()
    world.deleted(uids[0])
    world.pass_s(8)
    assert world.judge() == []
    for number in (1, 2, 3):
        member(world, number)
    validate_state(world.state)
    world.pass_s(6)
    assert [type(event) for event in world.judge()] == [ev.GangTimedOut, ev.GangReleased]


def test_a_pod_that_runs_says_so_as_those_that_wait() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.koordinator("default/a", 3, 3, {"mode": "NonStrict", "match_policy": "waiting-and-running"})
    world.assigned("a-0", "n0")
    world.plan()
    world.judge()
    assert list(world.state.groups["default/a"].held) == ["a-1"]
    world.pass_s(11)
    world.judge()
    assert list(world.state.marks) == ["a-0", "a-1", "a-2"]


def test_pods_that_are_on_their_way_out_say_nothing() -> None:
    """To all the pods belong to the Gang: those that still are."""
    world, uids = waiting(pods=5)
    world.terminating(uids[3])
    world.pass_s(6)
    (event,) = of_type(world.judge(), ev.GangTimedOut)
    assert [uid for uid, _ in event.pods] == [uids[0], uids[1], uids[2], uids[4]]


def test_a_gang_whose_minimum_is_broken_did_not_time_out() -> None:
    """Both permit stage is timeout and binding failed will lead the pod to un-reserve stage: so will a member that goes,
    and the gang is tried again."""
    world, uids = waiting()
    world.deleted(uids[2])
    assert [event.reason for event in of_type(world.judge(), ev.GangReleased)] == ["MemberDeleted"]
    assert not world.state.marks
    member(world, 8)
    world.pass_s(2)
    world.settle()
    assert len(world.bound()) == 3


def test_a_gang_of_coscheduling_is_released_and_tried_again() -> None:
    """Seed 000, Unreserve, has no such annotation: only Koordinator's gangs are not scheduled anymore."""
    world = World()
    world.node("n0")
    uids = world.gang("train", 3, 3)
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    world.pass_s(11)
    assert [type(event) for event in world.judge()] == [ev.GangReleased]
    world.pass_s(2)
    world.settle()
    assert world.where(*uids) == ["n0"] * 3


def test_the_gangs_of_a_group_that_the_pod_group_makes_koordinators_time_out() -> None:
    """By the CRD way the PodGroup's annotations say whose gang it is."""
    world = World()
    world.node("n0")
    world.pod_group("train", 2, 5_000, dialect=KOORDINATOR)
    uids = [world.pod(f"train-{i}", "train", dialect="coscheduling/v0.19") for i in range(2)]
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    world.pass_s(6)
    assert of_type(world.judge(), ev.GangTimedOut)


# ----------------------------------------------------------------------------------------- it is not scheduled any more


def test_the_gang_is_refused_once_and_never_tried_by_time() -> None:
    """The Gang will not be scheduled anymore, user should manually handle the timeout event."""
    world, _ = ended()
    assert refusals(world.plan()) == ["GangTimedOut"]
    world.mark()
    world.node("n1")
    world.pass_s(700)
    assert not world.plan_would()
    assert world.bound() == []


def test_its_refusal_names_what_its_user_may_do() -> None:
    """A refused pod has a reason that names what is missing (design, 7.9)."""
    world, _ = ended()
    (refused,) = of_type(world.plan(), ev.GroupsRefused)
    assert refused.detail == (
        "gang default/train: the waiting time is over; to have it tried again, delete its pods, remove their annotation "
        "gang.scheduling.koordinator.sh/timeout, or declare it otherwise"
    )


def test_a_pod_that_comes_later_waits_with_the_others() -> None:
    """Where the text is silent: it has no annotation, and its gang is planned as a whole."""
    world, _ = over()
    late = member(world, 9)
    assert not world.plan_would()
    assert world.where(late) == [""]


def test_what_waits_for_its_user_alone_is_told_so_whatever_its_gang_group_lacks() -> None:
    """Somebody bound a pod of one gang, whose others are free since and have timed out; the other gang is short."""
    world = World()
    world.node("n0")
    groups = {"groups": ("default/a", "default/b")}
    for gang in groups["groups"]:
        world.koordinator(gang, 2, 2, groups)
    world.propose("default/a", {"a-0": "n0"})
    world.judge()
    world.pass_s(600)
    assert of_type(world.judge(), ev.GangTimedOut)
    world.mark()
    world.deleted("b-1")
    assert refusals(world.plan()) == ["TooFewPods"]
    world.assigned("a-1", "n0")
    assert refusals(world.plan()) == ["GangTimedOut"]
    for uid in ("a-0", "b-0"):
        world.says(uid, timed_out=False)
    world.settle()
    assert world.where("a-0", "b-0") == ["n0", ""]


def test_a_pod_that_comes_between_the_decision_and_its_place_waits_with_the_others() -> None:
    """Nobody annotates it, so that its user has nothing to take off: the others' deletion ends it."""
    world, uids = waiting()
    world.pass_s(6)
    basis, decided = world.state.sequence, binder.decide_now(world.state)
    assert of_type(decided, ev.GangTimedOut)
    late = member(world, 9)
    world.append("binder", decided, cause="decide", basis=basis)
    assert refusals(world.plan()) == ["GangTimedOut"]
    assert world.mark() == uids
    for uid in uids:
        world.deleted(uid)
    assert refusals(world.plan()) == ["TooFewPods"]
    uids = [member(world, number) for number in (10, 11)]
    world.settle()
    assert world.where(late, *uids) == ["n0"] * 3


def test_who_went_or_said_so_between_the_decision_and_its_place_is_not_annotated() -> None:
    world, uids = waiting(pods=4)
    world.pass_s(6)
    basis, decided = world.state.sequence, binder.decide_now(world.state)
    world.deleted(uids[0])
    world.terminating(uids[1])
    world.says(uids[2])
    world.append("binder", decided, cause="decide", basis=basis)
    assert list(world.state.marks) == uids[3:]


def test_a_gang_that_went_between_the_decision_and_its_place_did_not_time_out() -> None:
    world, uids = waiting()
    world.pass_s(6)
    basis, decided = world.state.sequence, binder.decide_now(world.state)
    for uid in uids:
        world.deleted(uid)
    world.append("binder", decided, cause="decide", basis=basis)
    assert not world.state.marks
    for number in range(3):
        member(world, number)
    assert of_type(world.plan(), ev.GangPlaced)


def test_a_proposal_that_was_on_its_way_comes_too_late() -> None:
    """Won't schedule these pods anymore: the binder judges by the state at its place."""
    world, uids = waiting()
    basis = world.state.sequence
    world.pass_s(6)
    world.judge()
    world.propose("default/train", dict.fromkeys(uids, "n0"), basis=basis)
    assert [event.reason for event in of_type(world.judge(), ev.ProposalRefused)] == ["GangTimedOut"]
    assert not world.state.claims


def test_it_outlives_a_start_from_a_snapshot() -> None:
    """The word stands in the log, and what follows from it in every snapshot."""
    world, _ = ended()
    again = decode(encode(world.state))
    assert digest(again) == digest(world.state)
    assert timeouts.stands(again, again.groups["default/train"])
    assert list(again.marks) == list(world.state.marks)


def test_a_log_that_begins_anew_knows_it_from_the_pods() -> None:
    """Check whether the Gang has been timeout (check the pod's annotation)."""
    world = World()
    world.node("n0")
    for number in range(3):
        member(world, number, timed_out=number == 1)
    assert refusals(world.plan()) == ["GangTimedOut"]
    world.says("train-1", timed_out=False)
    world.settle()
    assert len(world.bound()) == 3


def test_a_pod_that_says_so_may_be_seen_before_the_pod_group() -> None:
    """The fact is the annotation: that a declaration is first heard of is nobody's act."""
    world = World()
    world.node("n0")
    uids = [world.pod(f"train-{i}", "train", dialect=KOORDINATOR, timed_out=True) for i in range(2)]
    world.pod_group("train", 2, dialect=KOORDINATOR)
    assert refusals(world.plan()) == ["GangTimedOut"]
    assert world.where(*uids) == ["", ""]


def test_a_pod_that_could_not_be_read_before_says_so_as_any_other() -> None:
    """It was no member of anything while its annotation came."""
    world = World()
    world.node("n0")
    for number in range(2):
        member(world, number)
    world.pod("train-2", candidate=False)
    member(world, 2, timed_out=True)
    assert refusals(world.plan()) == ["GangTimedOut"]


# ---------------------------------------------------------------------------------------------------- the user acts


def test_deleting_the_pods_ends_it() -> None:
    """User should pay attention to this status and delete pods timely: the gang that is made anew is tried."""
    world, uids = over()
    for uid in uids:
        world.deleted(uid)
    assert "default/train" not in world.state.groups
    for number in range(3, 6):
        member(world, number)
    world.settle()
    assert len(world.bound()) == 3


def test_replacing_the_pods_one_by_one_ends_it_with_the_last() -> None:
    """A gang has timed out while one of its pods says so."""
    world, uids = over()
    for number, uid in enumerate(uids):
        assert world.bound() == []
        member(world, number + 3)
        world.deleted(uid)
        world.settle()
    assert world.bound() == ["train-3", "train-4", "train-5"]


def test_removing_the_annotation_from_all_pods_ends_it() -> None:
    """User should manually handle the timeout event."""
    world, uids = over()
    for uid in uids:
        assert not world.plan_would()
        world.says(uid, timed_out=False)
    world.settle()
    assert world.where(*uids) == ["n0"] * 3


def test_declaring_the_gang_otherwise_ends_it() -> None:
    """What stands on the pods already means nothing from then on, and what is added later does."""
    world, uids = over()
    fact = world.state.pods[uids[0]].fact
    assert fact.gang is not None
    smaller = msgspec.structs.replace(fact.gang, declared=msgspec.structs.replace(TRAIN, min_member=4))
    world.facts(msgspec.structs.replace(fact, gang=smaller, resource_version=world.version()))
    assert refusals(world.plan()) == ["TooFewPods"]
    member(world, 3)
    world.says("train-3")
    assert refusals(world.plan()) == ["GangTimedOut"]
    world.says("train-3", timed_out=False)
    world.settle()
    assert len(world.bound()) == 4


@pytest.mark.parametrize("who", ["outcome", "fact"])
def test_binding_the_last_pod_that_says_so_ends_it(who: str) -> None:
    """Won't schedule these pods anymore: there is none left that is to be scheduled and says so. Its binding was intended
    before somebody annotated it."""
    world = World()
    world.node("n0")
    world.koordinator("default/train", 1, 1)
    assert of_type(world.plan() + world.judge(), ev.GangPermitted)
    late = member(world, 1)
    world.says("train-0")
    assert refusals(world.plan()) == ["GangTimedOut"]
    if who == "outcome":
        assert world.bind() == ["train-0"]
    else:
        world.assigned("train-0", "n0")
    world.settle()
    assert world.where(late) == ["n0"]


def test_making_the_pod_group_anew_ends_it() -> None:
    """By the CRD way the declaration is the PodGroup."""
    world = World()
    world.node("n0")
    world.pod_group("train", 2, 5_000, dialect=KOORDINATOR)
    uids = [world.pod(f"train-{i}", "train", dialect=KOORDINATOR) for i in range(2)]
    world.propose("default/train", {uids[0]: "n0"})
    world.judge()
    world.pass_s(6)
    world.judge()
    world.plan()
    world.pod_group("train", 2, 60_000, dialect=KOORDINATOR)
    world.settle()
    assert world.where(*uids) == ["n0"] * 2


def test_of_very_many_pods_all_are_named_anew_when_the_gang_times_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user declared it otherwise while their annotations were still to be written: what was named then is not now."""
    monkeypatch.setattr(commits, "PODS_NAMED", 2)
    world, uids = waiting()
    for _ in range(2):
        world.pass_s(6)
        named = [pods for _ in range(2) for pods in (event.pods for event in of_type(world.judge(), ev.GangTimedOut))]
        assert [[uid for uid, _ in pods] for pods in named] == [uids[:2], uids[2:]]
        assert list(world.state.marks) == uids
        fact = world.state.pods[uids[0]].fact
        assert fact.gang is not None
        declared = msgspec.structs.replace(TRAIN, waiting_time_ms=5_500)
        changed = msgspec.structs.replace(fact.gang, declared=declared)
        world.facts(msgspec.structs.replace(fact, gang=changed, resource_version=world.version()))
        world.propose("default/train", dict.fromkeys(uids[:2], "n0"))
        world.judge()
