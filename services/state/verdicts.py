"""Proposals, and the binder's verdicts on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from events.objects import Place
from services.state import cohorts, groups, membership, pods, reasons, tallies, timeouts
from services.state.clock import PERMIT, group_key, of_group, runs, set_deadline
from services.state.records import (
    AWAITING,
    HELD,
    INDEX_BITS,
    PARKED,
    PERMITTED,
    PROPOSED,
    Claim,
    Group,
    Proposal,
)

if TYPE_CHECKING:
    from services.state.fold import State


ABOUT_ROOM = frozenset({"NodeGone", "NodeUnfit", "NoRoom"})
"""Refusals of a proposal because somebody else was faster: the room is not as the planner saw it."""


def place_of(place: Place) -> int:
    """The place as `State.place` has it."""
    return place.sequence << INDEX_BITS | place.index


def placed(state: State, event: ev.GangPlaced) -> None:
    """A proposal takes its room for every planner. Not current at its own place: ignored and counted.

    What it does not take, because pods are gone, is there for those whom its cycle refused.
    """
    group = groups.meant(state, event.group)
    wanted = {uid: assignment.node for assignment in (*event.required, *event.optional) for uid in assignment.pods}
    if group is None or group.phase == AWAITING or not state.claims.keys().isdisjoint(wanted):
        state.kept_sequence = state.sequence
        state.ignore(event)
        return
    place, shard = state.place, state.owners[group.partition]
    state.proposals[place] = Proposal(
        place, state.sequence, state.index, event.group, shard, state.basis, event.required, event.optional
    )
    claims = len(state.claims)
    pods.propose(state, wanted, event.group, place)
    if len(state.claims) < claims + len(wanted):
        state.kept_sequence = state.sequence
    groups.await_verdict(state, group)


def _own_claims(state: State, proposal: Proposal) -> list[Claim]:
    """The claims that this proposal still holds."""
    found = []
    for assignment in (*proposal.required, *proposal.optional):
        for uid in assignment.pods:
            held = state.claims.get(uid)
            if held is not None and held.stage == PROPOSED and held.proposal == proposal.place:
                found.append(held)
    return found


def _settle(state: State, place: Place) -> tuple[Group | None, list[Claim]]:
    """The proposal has its verdict: the group that it meant (None if that is gone) and the claims it still holds."""
    proposal = state.proposals.pop(place_of(place), None)
    if proposal is None:
        return None, []
    group = state.groups.get(proposal.group)
    if group is not None and group.since > proposal.basis:
        group = None
    return group, _own_claims(state, proposal)


def held(state: State, event: ev.GangHeld) -> None:
    """No quorum yet: the proposal's claims wait at permit, for the event's waiting time."""
    group, claims = _settle(state, event.proposal)
    for claim in claims:
        pods.accept(state, claim, HELD)
    if group is None:
        return
    group.conflicts = 0
    if claims:
        group.held_since = group.held_since or place_of(event.proposal)
        group.held.update((claim.uid, None) for claim in claims)
        state.holding[group.key] = None
        set_deadline(state.clock("binder"), PERMIT, group_key(place_of(event.proposal), group.key), event.waiting_ms)
    groups.make_ready(state, group)


def permitted(state: State, event: ev.GangPermitted) -> None:
    """Quorum: the claims named are permitted, with the intents' preconditions; whatever else was proposed is released."""
    permits: list[str] = []
    for assignment in event.bindings:
        for binding in assignment.pods:
            claim = state.claims.get(binding.uid)
            if claim is not None and claim.node == assignment.node and claim.stage in (PROPOSED, HELD):
                known, meant = state.pods[claim.uid].resource_version, binding.resource_version
                claim.resource_version = known if known == meant else meant  # of equal strings one is enough
                pods.accept(state, claim, PERMITTED)
                tallies.intend(state, claim.uid)
                permits.append(claim.uid)
    group = state.groups.get(event.group)
    given_back: list[str] = []
    for place in event.proposals:
        group, claims = _settle(state, place)
        given_back += [claim.uid for claim in claims]
    for uid in event.dropped:
        claim = state.claims.get(uid)
        if claim is not None and claim.stage == HELD:
            given_back.append(uid)
    _release(state, given_back)
    if group is not None:
        if group.gangs:
            _satisfied(state, permits)
        group.conflicts = group.failed_ns = 0
        if group.held:
            for uid in (*permits, *event.dropped):
                groups.let_go(state, group, uid)
        if event.proposals or group.phase != AWAITING:
            groups.make_ready(state, group)
    _settled(state, given_back)


def _satisfied(state: State, permits: list[str]) -> None:
    """The gangs of these pods have what they need to start."""
    for key in dict.fromkeys(state.pods[uid].gang for uid in permits):
        if key:
            gang = state.gangs[key]
            gang.satisfied = gang.started = True
            groups.may_have_reached(state, gang)


def refused(state: State, event: ev.ProposalRefused) -> None:
    """The group is planned again at once; what it loses to others is counted."""
    group, claims = _settle(state, event.proposal)
    given_back = [claim.uid for claim in claims]
    _release(state, given_back)
    if group is not None:
        group.conflicts = group.conflicts + 1 if event.reason in ABOUT_ROOM else 0
        if group.phase == AWAITING:
            groups.make_ready(state, group)
    _settled(state, given_back)


def released(state: State, event: ev.GangReleased) -> None:
    """Held pods are rejected; when none is left, the group is tried again after its backoff (seed 000, Unreserve)."""
    group = state.groups.get(event.group)
    stages = (PROPOSED, HELD) if event.reason == "NotTaken" else (HELD,)
    given_back = [uid for uid in event.pods if (claim := state.claims.get(uid)) is not None and claim.stage in stages]
    _release(state, given_back)
    if group is not None:
        for uid in event.pods:
            groups.let_go(state, group, uid)
        if not group.held and group.phase != AWAITING and membership.unplaced(state, group):
            if timeouts.stands(state, group):
                groups.make_ready(state, group)  # to be refused for that, by its planner
            else:
                with_whom = f" with {', '.join(_blocked(state))}" if event.reason == "Deadlock" else ""
                text = f"{len(event.pods)} pods were given back: {event.reason}{with_whom}"
                cohorts.give_up(state, group, event.reason, text)
    _settled(state, given_back)
    if event.reason == "Deadlock":
        _try_holders(state)


def _try_holders(state: State) -> None:
    """Room was given back for those that hold some and lack more: they are tried at once, before whoever gave it."""
    for key in _blocked(state):
        groups.make_ready(state, state.groups[key])


def _blocked(state: State) -> list[str]:
    """Groups that hold room and were refused for lack of more."""
    parked = [group for key in state.holding if (group := state.groups[key]).phase == PARKED]
    return [group.key for group in parked if reasons.follows(state.cohorts[group.cohort].reason).for_room]


def _release(state: State, uids: list[str]) -> None:
    for uid in uids:
        pods.release(state, uid)


def _settled(state: State, uids: list[str]) -> None:
    """Edits of labels that came in meanwhile count now, after the group's own transition: it may lose its last pod."""
    for uid in uids:
        groups.settled(state, uid, state.pods[uid])


def permit_due(state: State, key: str) -> None:
    """The waiting time of one proposal's pods is over: the hold is due if any of them still waits. Pods of later
    proposals have time left.

    Koordinator's waiting time runs from the first pod of the hold, whether that pod still waits or not. Where the gang
    became Koordinator's meanwhile, that time may be over already, and with it everybody's.
    """
    proposal, of = of_group(key)
    group = state.groups.get(of)
    if group is None or not group.held:
        return
    if timeouts.rules_apply(state, group):
        first = group_key(group.held_since, of)
        group.permit_due = group.permit_due or key == first or not runs(state.clock("binder"), PERMIT, first)
    elif any(state.claims[uid].proposal == proposal for uid in group.held):
        group.permit_due = True


def hold_stands(state: State, key: str) -> bool:
    """Whether the deadline's proposal may belong to what the group holds now: it is not older than the hold."""
    proposal, of = of_group(key)
    group = state.groups.get(of)
    return group is not None and bool(group.held) and proposal >= group.held_since
