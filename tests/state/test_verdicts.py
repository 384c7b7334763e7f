"""Verdicts whose cluster went on between the decision and its place in the log: facts come in between, and win."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

import events as ev
from events.objects import Declaration, Place
from events.policy import DEFAULT_POLICY
from services.binder import core as binder
from services.state import membership
from services.state.records import AWAITING, BOUND_CLAIM, IDLE, PARKED, PROPOSED, READY
from tests.world import World, of_type, refusals

GANG = "default/train"
OTHER = "default/other"
KOORDINATOR = "koordinator/v1alpha1"


def decided(world: World, kind: type) -> list[ev.Event]:
    """What the binder says of the state as it stands, not appended yet; `kind` is what this is about."""
    found: list[ev.Event] = list(binder.decide_now(world.state))
    assert of_type(found, kind)
    return found


def placed(pods: int = 3) -> World:
    """A gang of three on a node with room for all; `pods` of them are proposed."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, nominate_after_refusals=1))
    world.node("n0")
    uids = world.gang("train", 3, 3)
    world.propose(GANG, dict.fromkeys(uids[:pods], "n0"))
    return world


def crowded() -> World:
    """A proposal for two nodes, of which a stranger took one."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, nominate_after_refusals=1))
    world.node("n0", cpu=2)
    world.node("n1", cpu=1)
    uids = world.gang("train", 3, 3)
    world.propose(GANG, dict(zip(uids, ("n0", "n0", "n1"), strict=True)))
    world.pod("stranger", node="n1", candidate=False)
    return world


def timed_out() -> World:
    """A Koordinator gang whose waiting time is over."""
    world = World()
    world.node("n0")
    declared = Declaration(min_member=3, waiting_time_ms=1_000, said=("min_member", "waiting_time_ms"))
    uids = [world.pod(f"train-{i}", "train", dialect=KOORDINATOR, declared=declared) for i in range(3)]
    world.propose(GANG, {uids[0]: "n0"})
    world.judge()
    world.pass_s(2)
    return world


SAID: dict[type, Callable[[], World]] = {
    ev.GangPermitted: placed,
    ev.GangHeld: lambda: placed(2),
    ev.ProposalRefused: crowded,
    ev.GroupNominated: crowded,
    ev.GangTimedOut: timed_out,
    ev.GangReleased: timed_out,
}


@pytest.mark.parametrize("kind", SAID)
def test_of_a_group_that_is_gone_it_leaves_nothing(kind: type) -> None:
    world = SAID[kind]()
    said = decided(world, kind)
    uids = [f"train-{i}" for i in range(3)]
    for uid in uids:
        world.deleted(uid)
    world.append("binder", said, cause="decide")
    world.settle()
    state = world.state
    assert (state.groups, state.proposals, state.permitted, state.holding, state.marks) == ({}, {}, {}, {}, {})
    assert (state.group_nominations, [uid for uid in uids if uid in state.claims]) == ({}, [])


@pytest.mark.parametrize("kind", [ev.GangPermitted, ev.GangHeld, ev.ProposalRefused])
def test_of_what_was_judged_already_it_changes_nothing(kind: type) -> None:
    world = SAID[kind]()
    said = of_type(decided(world, kind), kind)
    world.append("binder", said, cause="decide")
    before = phases_and_stages(world)
    world.append("binder", said, cause="by hand")
    assert phases_and_stages(world) == before


def phases_and_stages(world: World) -> tuple[dict[str, str], dict[str, str]]:
    phases = {key: group.phase for key, group in world.state.groups.items()}
    return phases, {uid: claim.stage for uid, claim in world.state.claims.items()}


def test_nor_does_a_disagreement() -> None:
    world = placed()
    (proposal,) = world.state.proposals.values()
    for i in range(3):
        world.deleted(f"train-{i}")
    place = Place(proposal.sequence, proposal.index)
    world.append("binder", [ev.DisagreementDetected(group=GANG, proposal=place, node="n0")])
    assert (world.state.groups, world.state.cohorts) == ({}, {})


def test_a_pod_that_is_on_its_way_out_before_its_permit_counts_as_leaving() -> None:
    world = placed()
    said = decided(world, ev.GangPermitted)
    world.terminating("train-0")
    world.append("binder", said, cause="decide")
    gang = world.state.gangs[GANG]
    assert (membership.running(world.state, gang), membership.total(world.state, gang)) == (2, 2)


def test_room_is_nominated_for_those_that_are_left() -> None:
    world = crowded()
    said = decided(world, ev.GroupNominated)
    world.deleted("train-0")
    world.append("binder", said, cause="decide")
    assert [uid for uid in world.state.claims if uid.startswith("nominated/")] == ["nominated/train-1"]


@pytest.mark.parametrize("kind", [ev.GangPermitted, ev.GangHeld, ev.ProposalRefused])
def test_a_group_of_the_same_name_waits_for_its_own_verdict(kind: type) -> None:
    world = SAID[kind]()
    said = decided(world, kind)
    for i in range(3):
        world.deleted(f"train-{i}")
    world.node("n2", cpu=3)
    anew = [world.pod(f"anew-{i}", "train", minimum=3) for i in range(3)]
    assert of_type(world.plan(), ev.GangPlaced)
    world.append("binder", said, cause="decide")
    assert world.state.groups[GANG].phase == AWAITING
    assert world.state.groups[GANG].conflicts == 0
    assert not world.plan_would()
    world.settle()
    assert all(world.where(*anew))


@pytest.mark.parametrize("kind", SAID)
def test_of_a_pod_that_was_taken_back_and_is_proposed_anew_it_says_nothing(kind: type) -> None:
    """etcd was restored from a backup by which the pod is of another gang."""
    world = SAID[kind]()
    world.node("n2")
    said = decided(world, kind)
    world.deleted("train-0")
    world.pod("train-0", "other", minimum=1)
    world.propose(OTHER, {"train-0": "n2"})
    world.append("binder", said, cause="decide")
    claim = world.state.claims["train-0"]
    assert (claim.node, claim.stage, world.state.groups[OTHER].phase) == ("n2", PROPOSED, AWAITING)
    world.settle()
    assert world.where("train-0") == ["n2"]


@pytest.mark.parametrize(
    "given_back",
    [
        ev.GangPermitted(group=GANG, proposals=(), bindings=(), dropped=("train-0", "train-1")),
        ev.GangReleased(group=GANG, reason="HoldBroken", pods=("train-0", "train-1")),
    ],
)
def test_what_was_to_be_given_back_is_kept_where_its_pod_runs_by_now(given_back: ev.Event) -> None:
    """Somebody else bound one of the pods whose hold does not stand, and another is gone."""
    world = placed(2)
    world.judge()
    world.assigned("train-0", "n0")
    world.deleted("train-1")
    world.append("binder", [given_back], cause="decide")
    assert {uid: claim.stage for uid, claim in world.state.claims.items()} == {"train-0": BOUND_CLAIM}


def test_a_permit_for_what_waited_leaves_the_proposal_for_the_rest_to_its_own_verdict() -> None:
    world = World()
    world.node("n0")
    world.pod_group("train", 2)
    uids = [world.pod(f"train-{i}", "train", dialect="coscheduling/v1alpha1") for i in range(2)]
    world.propose(GANG, {uids[0]: "n0"})
    world.judge()
    world.pod_group("train", 1)
    said = decided(world, ev.GangPermitted)
    world.propose(GANG, {uids[1]: "n0"})
    world.append("binder", said, cause="decide")
    assert list(world.state.permitted) == uids[:1]
    assert world.state.groups[GANG].phase == AWAITING
    assert not world.plan_would()
    world.settle()
    assert world.where(*uids) == ["n0", "n0"]


def test_a_proposal_for_a_pod_that_somebody_else_bound_is_ignored_and_counted() -> None:
    world = World()
    world.node("n0")
    world.node("n1")
    uids = world.gang("train", 3, 2)
    basis = world.state.sequence
    world.assigned(uids[0], "n1")
    world.propose(GANG, dict.fromkeys(uids, "n0"), basis=basis)
    assert world.state.ignored == {"GangPlaced": 1}
    assert {uid: claim.node for uid, claim in world.state.claims.items()} == {uids[0]: "n1"}
    world.settle()
    assert all(world.where(*uids))


def test_a_second_proposal_of_a_group_before_the_verdict_is_ignored_and_counted() -> None:
    """Also where it is for other pods."""
    world = placed(2)
    world.propose(GANG, {"train-2": "n0"})
    assert world.state.ignored == {"GangPlaced": 1}
    assert "train-2" not in world.state.claims


def test_a_pod_that_somebody_else_bound_meanwhile_has_no_intent() -> None:
    world = placed()
    said = decided(world, ev.GangPermitted)
    world.assigned("train-0", "n0")
    world.append("binder", said, cause="decide")
    assert list(world.state.permitted) == ["train-1", "train-2"]
    assert world.state.claims["train-0"].stage == BOUND_CLAIM


def test_an_intent_has_the_precondition_that_was_decided() -> None:
    """The pod changed meanwhile: the API server refuses the binding, and it is decided anew whether it may stand."""
    world = placed()
    said = decided(world, ev.GangPermitted)
    known = world.state.pods["train-0"].resource_version
    world.pod("train-0", "train", minimum=3, priority=1)
    world.append("binder", said, cause="decide")
    assert world.state.pods["train-0"].resource_version != known
    assert world.state.claims["train-0"].resource_version == known


def test_a_pod_that_was_given_another_gang_while_it_waited_goes_there_when_it_is_given_back() -> None:
    world = placed(2)
    world.judge()
    world.pod("train-1", "other", minimum=1)
    assert world.state.pods["train-1"].gang == GANG
    dropped = ev.GangPermitted(group=GANG, proposals=(), bindings=(), dropped=("train-1",))
    world.append("binder", [dropped], cause="decide")
    assert world.state.pods["train-1"].gang == "default/other"


def declared(minimum: int) -> World:
    """A gang of two by its PodGroup; the first waits at permit."""
    world = World()
    world.node("n0", cpu=1)
    world.pod_group("train", minimum)
    uids = [world.pod(f"train-{i}", "train", dialect="coscheduling/v1alpha1") for i in range(2)]
    world.propose(GANG, {uids[0]: "n0"})
    assert of_type(world.judge(), ev.GangHeld)
    return world


def test_a_group_is_tried_at_once_when_what_waited_is_permitted() -> None:
    """Also while the rest of it backs off: what is lacking now is less."""
    world = declared(2)
    world.plan()
    assert world.state.groups[GANG].phase == PARKED
    world.pod_group("train", 1)
    assert not world.plan_would()
    assert of_type(world.judge(), ev.GangPermitted)
    assert world.state.groups[GANG].phase == READY


def test_a_release_leaves_a_proposal_to_its_own_verdict() -> None:
    """It was proposed when the binder had decided already that what waits has waited long enough."""
    world = declared(2)
    world.node("n1")
    world.pass_s(11)
    said = decided(world, ev.GangReleased)
    world.propose(GANG, {"train-1": "n1"})
    world.append("binder", said, cause="decide")
    assert world.state.groups[GANG].phase == AWAITING
    world.settle()
    world.pass_s(2)
    world.settle()
    assert all(world.where("train-0", "train-1"))


def test_a_release_of_what_is_on_its_way_out_leaves_nothing_to_be_tried() -> None:
    world = declared(2)
    world.deleted("train-1")
    world.terminating("train-0")
    assert of_type(world.judge(), ev.GangReleased)
    assert world.state.groups[GANG].phase == IDLE
    assert world.state.cohorts == {}


def test_a_timeout_tries_nobody_elses_gang_at_once() -> None:
    """Only what gave its room for a deadlock does; others that hold room and lack more have their backoff."""
    world = declared(2)
    other_holds(world)
    world.plan()
    world.append("binder", [ev.GangReleased(group=OTHER, reason="Timeout", pods=("other-0",))])
    assert list(world.state.holding) == [GANG]
    assert world.state.groups[GANG].phase == PARKED
    assert message_of(world, OTHER) == "1 pods were given back: Timeout"


def other_holds(world: World) -> None:
    """One of another gang's two pods waits at permit, on a node that is full with it."""
    world.node("n1", cpu=1)
    world.propose(OTHER, {world.gang("other", 2, 2)[0]: "n1"})
    assert of_type(world.judge(), ev.GangHeld)


def message_of(world: World, group: str) -> str:
    return world.state.cohorts[world.state.groups[group].cohort].message


def test_a_deadlock_tries_at_once_only_who_lacks_room() -> None:
    """Not who holds room and waits for pods."""
    world = declared(2)
    other_holds(world)
    world.pod_group("train", 3)
    assert refusals(world.plan()) == ["InsufficientRoom", "TooFewPods"]
    world.append("binder", [ev.GangReleased(group=OTHER, reason="Deadlock", pods=("other-0",))])
    assert world.state.groups[GANG].phase == PARKED
    assert GANG not in message_of(world, OTHER)


def test_a_proposal_takes_no_room_for_a_pod_that_went_before_its_place() -> None:
    world = World()
    world.node("n0")
    uids = world.gang("train", 3, 2)
    basis = world.state.sequence
    world.deleted(uids[0])
    world.propose(GANG, dict.fromkeys(uids, "n0"), basis=basis)
    assert list(world.state.claims) == uids[1:]
    assert [type(event) for event in world.judge()] == [ev.ProposalRefused]
    world.settle()
    assert world.where(*uids[1:]) == ["n0", "n0"]


def test_the_waiting_time_of_a_group_that_is_gone_ends_nothing() -> None:
    world = placed(2)
    world.judge()
    for i in range(3):
        world.deleted(f"train-{i}")
    clock = world.state.clock("binder")
    assert clock.unarmed
    world.pass_s(11)
    assert (clock.unarmed, clock.armed, world.judge()) == ([], [], [])


def test_a_user_who_removes_the_annotation_of_a_timeout_that_a_new_declaration_ended_ends_nothing() -> None:
    world = timed_out()
    world.judge()
    uids = world.mark()
    world.koordinator(GANG, 3, 2)
    gang = world.state.gangs[GANG]
    assert (gang.timed_out, len(uids)) == ({}, 3)
    for uid in uids:
        world.says(uid)
        world.says(uid, timed_out=False)
    assert gang.timed_out == {}
    world.settle()
    assert all(world.where(*uids))
