"""Judging proposals: whole, in log order, against the room that the verdicts before them left (`bench`).

`Judge.judge` has the steps in their order (ARCHITECTURE.md, Judging one proposal), `standing` what each of them takes and
finds; from that the verdict's events are made here. Judging changes the bench, never the state. If a proposal is refused
although since its basis nothing touched its node, in the log or on the bench, and no fact came about its group, planner
and binder disagree about the same room: a bug, and reported as one.

In slices (`pace`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

import events as ev
from events.objects import Binding, NodeAssignment, NodeBindings, Place
from services.binder import pace, quorum
from services.binder.bench import Bench, Fault
from services.binder.pace import Pace
from services.binder.reserved import ReservedRoom
from services.binder.rules.coscheduling import permit
from services.binder.standing import Standing
from services.state import membership, reservations, timeouts
from services.state.fold import State
from services.state.records import Group, Proposal
from services.state.verdicts import ABOUT_ROOM

Verdict = (
    ev.GangPermitted
    | ev.GangHeld
    | ev.GangReleased
    | ev.ProposalRefused
    | ev.NominationEnded
    | ev.GroupNominated
    | ev.GroupNominationEnded
    | ev.ReservationEnded
    | ev.DisagreementDetected
)


class Judge:
    """The verdicts of one decision."""

    def __init__(self, state: State, bench: Bench) -> None:
        self.state = state
        self.bench = bench
        self._pace = Pace()
        self._reserved_for: dict[tuple[str, ...], ReservedRoom] = {}
        """By the groups for which it is."""

    # ------------------------------------------------------------------------------------------------------- judgements

    def judge(self, proposal: Proposal, pods: int) -> Generator[None, None, list[Verdict]]:
        """The events of the verdict: what becomes of the proposal of so many pods, and of room that was kept for its
        group."""
        group = self.state.groups.get(proposal.group)
        if group is None or group.since > proposal.basis:
            return [refusal(proposal, Fault("PodGone", "", ""))]
        if timeouts.stands(self.state, group):
            return [refusal(proposal, Fault("GangTimedOut", "", ""))]
        reserved = beyond = None
        if self.state.reservations:
            reserved, beyond = self._kept_from(group), self._kept_from(group, beyond=True)
        standing = Standing(self.state, self.bench, self._pace, group, proposal, reserved, beyond)
        if group.gangs:
            standing.spend_nominations()
        standing.spend_group_nomination()
        if group.held:
            yield from standing.judge_held()
        standing.require_quorum()
        yield from standing.take()
        if not standing.accepted and standing.spend_for_others():
            yield from standing.take()
        if fault := standing.failure():
            return (yield from self._refuse(proposal, standing, fault))
        many = pods + len(standing.good) >= pace.MANY
        if many:
            yield
        reached = standing.reached()
        if many:
            yield
        verdicts = self._permit(proposal, standing) if reached else self._hold(proposal, standing)
        if many:
            yield
        return verdicts

    def permit_held(self, group: Group) -> Generator[None, None, ev.GangPermitted | None]:
        """Permit for what waits, where no proposal has to come any more: a minimum was lowered, or others run now. None
        for a gang that has timed out, and holds its room until all of its pods are named or the planner says so."""
        if timeouts.stands(self.state, group):
            return None
        held = [NodeAssignment(self.state.claims[uid].node, (uid,)) for uid in group.held]
        everybody = quorum.reached(self.state, group, held)
        if not everybody and not quorum.split_free(self.state, group, held)[0]:
            return None
        standing = Standing(self.state, self.bench, self._pace, group)
        yield from standing.judge_held()
        whole = everybody and standing.reached()
        good = standing.good if whole else quorum.split_free(self.state, group, standing.good)[0]
        if not good:
            standing.withdraw()
            return None
        bindings = self._bindings(good)
        return ev.GangPermitted(group=group.key, proposals=(), bindings=bindings, dropped=standing.lost)

    def _kept_from(self, group: Group, *, beyond: bool = False) -> ReservedRoom | None:
        """The room that is reserved for others and that the group must leave alone; None: nothing."""
        against = reservations.against(self.state, group, beyond=beyond)
        if not against:
            return None
        key = tuple(one.group for one in against)
        if key not in self._reserved_for:
            self._reserved_for[key] = ReservedRoom(self.state.table, against)
        return self._reserved_for[key]

    # ------------------------------------------------------------------------------------------------- permit and hold

    def _permit(self, proposal: Proposal, standing: Standing) -> list[Verdict]:
        """Permit for all that stands: what was held, and what is proposed."""
        place, dropped = place_of(proposal), (*standing.dropped, *standing.lost)
        bindings = self._bindings([*standing.good, *standing.accepted])
        permitted = ev.GangPermitted(group=proposal.group, proposals=(place,), bindings=bindings, dropped=dropped)
        return [*self._taken(standing, permitted=True), permitted]

    def _taken(self, standing: Standing, *, permitted: bool) -> list[Verdict]:
        """The group has a place, so that nothing need be kept for it any more: what ends. A replacement that waits may
        still be given back, and then the rest of its gang is to be evicted when the time is over."""
        key, policy = standing.group.key, self.state.policy
        evict = policy is not None and policy.replacement_policy == "evict"
        taken: list[Verdict] = []
        for nomination in standing.spent:
            waits = evict and not permitted and not membership.rules_off(self.state.gangs[nomination.gang])
            reason = "Held" if waits else "Taken"
            taken.append(ev.NominationEnded(gang=nomination.gang, pod=nomination.uid, reason=reason))
        if key in self.state.group_nominations:
            taken.append(ev.GroupNominationEnded(group=key, reason="Taken"))
        if key in self.state.reservations:
            taken.append(ev.ReservationEnded(group=key, reason="Taken"))
        return taken

    def _hold(self, proposal: Proposal, standing: Standing) -> list[Verdict]:
        """Seeds 000 and 002, Permit, where the quorum is not there."""
        group, place = standing.group, place_of(proposal)
        verdicts = self._taken(standing, permitted=False)
        if standing.broken:
            verdicts.append(ev.GangReleased(group=group.key, reason="HoldBroken", pods=standing.lost))
        if standing.dropped:
            verdicts.append(ev.GangReleased(group=group.key, reason="NotTaken", pods=tuple(standing.dropped)))
        free, waiting = quorum.split_free(self.state, group, standing.accepted)
        free += quorum.split_free(self.state, group, standing.good)[0]
        if free or not waiting:
            settles = () if waiting else (place,)
            bindings = self._bindings(free)
            verdicts.append(ev.GangPermitted(group=group.key, proposals=settles, bindings=bindings, dropped=()))
        if waiting:
            waiting_ms = permit.waiting_ms(self.state, group)
            verdicts.append(ev.GangHeld(group=group.key, proposal=place, waiting_ms=waiting_ms))
        return verdicts

    def _bindings(self, assignments: Iterable[NodeAssignment]) -> tuple[NodeBindings, ...]:
        pods, bindings = self.state.pods, []
        for assignment in assignments:
            here = [Binding(uid, pods[uid].resource_version) for uid in assignment.pods]
            bindings.append(NodeBindings(assignment.node, tuple(here)))
        return tuple(bindings)

    # -------------------------------------------------------------------------------------------------------- refusals

    def _refuse(self, proposal: Proposal, standing: Standing, fault: Fault) -> Generator[None, None, list[Verdict]]:
        """Nothing of it is taken. The group has what was nominated for it before, unless more is nominated now."""
        standing.withdraw()
        verdicts: list[Verdict] = [refusal(proposal, fault)]
        if self._disagrees(proposal, standing, fault):
            place = place_of(proposal)
            verdicts.append(ev.DisagreementDetected(group=proposal.group, proposal=place, node=fault.node))
        elif fault.reason in ABOUT_ROOM:
            nominated = yield from self._nominate(standing)
            if nominated is not None:
                return [*verdicts, nominated]
        standing.keep_nominated()
        return verdicts

    def _disagrees(self, proposal: Proposal, standing: Standing, fault: Fault) -> bool:
        """Whether the planner saw the same room, and took it for enough."""
        node = self.state.nodes.get(fault.node)
        if fault.reason not in ABOUT_ROOM or node is None:
            return False
        here = self.state.table.rows.get(fault.node) in self.bench.touched
        untouched = max(node.touched, standing.group.changed) <= proposal.basis and not here
        return untouched and not standing.is_kept(fault.node)

    def _nominate(self, standing: Standing) -> Generator[None, None, ev.GroupNominated | None]:
        """Fairness between shards: a gang that others were faster than, time and again, gets what still stands of its
        proposal nominated, if anything does."""
        policy, group = self.state.policy, standing.group
        if policy is None or not group.gangs or not 0 < policy.nominate_after_refusals <= group.conflicts + 1:
            return None
        still = yield from standing.take_one_by_one()
        if not still:
            return None
        waiting_ms = policy.nomination_hold_ms
        return ev.GroupNominated(group=group.key, assignments=tuple(still), waiting_ms=waiting_ms)


def place_of(proposal: Proposal) -> Place:
    return Place(proposal.sequence, proposal.index)


def refusal(proposal: Proposal, fault: Fault) -> ev.ProposalRefused:
    place = place_of(proposal)
    return ev.ProposalRefused(group=proposal.group, proposal=place, reason=fault.reason, node=fault.node, pod=fault.pod)
