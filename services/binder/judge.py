"""Judging proposals: whole, in log order, against the room that the verdicts before them left (`bench`).

Judging changes the bench, never the state. If a proposal is refused although since its basis nothing touched its node,
in the log or on the bench, and no fact came about its group, planner and binder disagree about the same room: a bug,
and reported as one.

In slices: a gang may have 50,000 pods, and each may be of another class, which is compared with every node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from itertools import chain

import events as ev
from events.objects import Binding, NodeAssignment, NodeBindings, Place
from services.binder import quorum
from services.binder.bench import Bench, Fault, Wanted
from services.binder.reserved import ReservedRoom
from services.binder.rules.coscheduling import permit
from services.state import fits, nominations, reservations, timeouts
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nominations import claim_key, only_task
from services.state.records import HELD, PENDING, PROPOSED, Claim, Group, Nomination, Proposal
from services.state.tallies import task_of
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


SLICE_CLASSES = 64
"""Compared with the nodes between two yields, which takes milliseconds."""
SLICE_PODS = 8_192
"""Of proposals, looked at between two yields: some 10 ms."""
MANY = 512
"""Pods. A verdict about so many pauses between its steps."""


class Judge:
    """The verdicts of one decision."""

    def __init__(self, state: State, bench: Bench) -> None:
        self.state = state
        self.bench = bench
        self._reserved: ReservedRoom | None = None
        """What is reserved for others than the group that is being judged; None: nothing."""
        self._reserved_for: dict[tuple[str, ...], ReservedRoom] = {}
        """By the groups for which it is."""
        self._compared = 0
        """Classes that were compared with the nodes."""
        self._looked_at = 0
        """Pods, in this slice."""

    # ------------------------------------------------------------------------------------------------------- proposals

    def judge(self, proposal: Proposal, pods: int) -> Generator[None, None, list[Verdict]]:
        """The events of the verdict: what becomes of the proposal of so many pods, and of room that was kept for its
        group."""
        group = self.state.groups.get(proposal.group)
        place = Place(proposal.sequence, proposal.index)
        if group is None or group.since > proposal.basis:
            return [refusal(proposal, Fault("PodGone", "", ""))]
        if timeouts.stands(self.state, group):
            return [refusal(proposal, Fault("GangTimedOut", "", ""))]
        self._reserved = self._kept_from(group) if self.state.reservations else None
        spent = self._spend_nominations(group, proposal)
        nominated = self._spend_group_nomination(group)
        good, broken = (yield from self._held_again(group)) if group.held else ([], [])
        required, optional = proposal.required, proposal.optional
        if optional and not quorum.reached(self.state, group, (*good, *required)):
            loose, together = quorum.split_loose(self.state, group, optional)
            required, optional = (*required, *together), tuple(loose)
        accepted, dropped, fault = yield from self._take_what_stands(proposal, required, optional)
        if fault is not None and fault.reason in ABOUT_ROOM and not accepted:
            others = self._spend_for_others(group, proposal, chain(good, required), spent)
            spent += others
            if others:
                accepted, dropped, fault = yield from self._take_what_stands(proposal, required, optional)
        if fault is not None and not accepted and (required or not quorum.reached(self.state, group, good)):
            for nomination in spent:
                self.bench.take_again(nomination)
            for claim in broken:
                self.bench.take_again(claim)
            refused = self._refuse(group, proposal, place, fault, chain(good, required))
            others_were_faster = fault.reason in ABOUT_ROOM and len(refused) == 1
            standing = required if others_were_faster else ()
            return refused + (yield from self._nominate(group, proposal, standing, nominated))
        taken, together = self._taken(group, spent), [*good, *accepted]
        many = pods + len(good) >= MANY
        if many:
            yield
        if not quorum.reached(self.state, group, together):
            return taken + self._hold(group, place, good, accepted, dropped, broken)
        if many:
            yield
        lost = (*dropped, *[claim.uid for claim in broken])
        bindings = self._bindings(together)
        if many:
            yield
        return [*taken, ev.GangPermitted(group=group.key, proposals=(place,), bindings=bindings, dropped=lost)]

    def _take_what_stands(
        self, proposal: Proposal, required: tuple[NodeAssignment, ...], optional: tuple[NodeAssignment, ...]
    ) -> Generator[None, None, tuple[list[NodeAssignment], list[str], Fault | None]]:
        """(assignments that stand, UIDs of optional pods that cannot, the first fault).

        Required assignments stand together: if one cannot, nothing is accepted. Optional pods are tried one by one.
        """
        fault = (yield from self._accept(proposal, required)) if required else None
        if fault is not None:
            return [], [], fault
        accepted, dropped = list(required), []
        for assignment in optional:
            for uid in assignment.pods:
                alone = NodeAssignment(assignment.node, (uid,))
                lacks = yield from self._accept(proposal, (alone,))
                if lacks is None:
                    accepted.append(alone)
                else:
                    dropped.append(uid)
                    fault = fault or lacks
        return accepted, dropped, fault

    def _taken(self, group: Group, spent: list[Nomination]) -> list[Verdict]:
        """The group has a place, so that nothing need be kept for it any more: what ends."""
        taken: list[Verdict] = []
        for nomination in spent:
            taken.append(ev.NominationEnded(gang=nomination.gang, pod=nomination.uid, reason="Taken"))
        if group.key in self.state.group_nominations:
            taken.append(ev.GroupNominationEnded(group=group.key, reason="Taken"))
        if group.key in self.state.reservations:
            taken.append(ev.ReservationEnded(group=group.key, reason="Taken"))
        return taken

    def _hold(
        self,
        group: Group,
        place: Place,
        good: list[NodeAssignment],
        accepted: list[NodeAssignment],
        dropped: list[str],
        broken: list[Claim],
    ) -> list[Verdict]:
        """Seeds 000 and 002, Permit, where the quorum is not there. `dropped`: UIDs that were proposed and cannot stand;
        `broken`: what was held, and cannot."""
        fallen = tuple([claim.uid for claim in broken])
        verdicts: list[Verdict] = []
        if fallen:
            verdicts.append(ev.GangReleased(group=group.key, reason="HoldBroken", pods=fallen))
        if dropped:
            verdicts.append(ev.GangReleased(group=group.key, reason="NotTaken", pods=tuple(dropped)))
        free, waiting = quorum.split_free(self.state, group, accepted)
        free += quorum.split_free(self.state, group, good)[0]
        if free or not waiting:
            settles = () if waiting else (place,)
            bindings = self._bindings(free)
            verdicts.append(ev.GangPermitted(group=group.key, proposals=settles, bindings=bindings, dropped=()))
        if waiting:
            waiting_ms = permit.waiting_ms(self.state, group)
            verdicts.append(ev.GangHeld(group=group.key, proposal=place, waiting_ms=waiting_ms))
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
        good, broken = yield from self._held_again(group)
        if not everybody or not quorum.reached(self.state, group, good):
            good = quorum.split_free(self.state, group, good)[0]
        if not good:
            for claim in broken:
                self.bench.take_again(claim)
            return None
        lost = tuple(claim.uid for claim in broken)
        return ev.GangPermitted(group=group.key, proposals=(), bindings=self._bindings(good), dropped=lost)

    def _held_again(self, group: Group) -> Generator[None, None, tuple[list[NodeAssignment], list[Claim]]]:
        """Held assignments that still stand, and the claims of the rest, whose room is given back on the bench.

        Judged by the state at this place (design, rule 4): node there, untainted, large enough; pod there, ungated.
        """
        good: list[NodeAssignment] = []
        broken: list[Claim] = []
        for uid in group.held:
            claim = self.state.claims[uid]
            info = self.state.table.classes[claim.scheduling_class]
            if self._is_slice_over():
                yield
            if (
                self._pod_fault(uid, claim.node, HELD, claim.proposal)
                or not self._node_takes(claim.node, info)
                or self.bench.crowded(claim.node, info)
            ):
                broken.append(claim)
                self.bench.give_back(claim)
            else:
                good.append(NodeAssignment(claim.node, (uid,)))
        return good, broken

    def _bindings(self, assignments: Iterable[NodeAssignment]) -> tuple[NodeBindings, ...]:
        pods, bindings = self.state.pods, []
        for assignment in assignments:
            here = [Binding(uid, pods[uid].resource_version) for uid in assignment.pods]
            bindings.append(NodeBindings(assignment.node, tuple(here)))
        return tuple(bindings)

    # ----------------------------------------------------------------------------------------------------- assignments

    def _accept(
        self, proposal: Proposal, assignments: tuple[NodeAssignment, ...]
    ) -> Generator[None, None, Fault | None]:
        """Take the room of all of them, or none and say why."""
        claims, table = self.state.claims, self.state.table
        wanted: Wanted = {}
        for assignment in assignments:
            self._looked_at += len(assignment.pods)
            if self._looked_at >= SLICE_PODS:
                self._looked_at = 0
                yield
            node = assignment.node
            row = table.rows.get(node)
            for uid in assignment.pods:
                fault = self._pod_fault(uid, node, PROPOSED, proposal.place)
                if fault is not None:
                    return fault
                if row is None:
                    return Fault("NodeGone", node, uid)
                of_class = wanted.setdefault(claims[uid].scheduling_class, {})
                of_class[row] = of_class.get(row, 0) + 1
        for digest, of_class in wanted.items():
            info = table.classes[digest]
            if self._is_slice_over():
                yield
            if info.constraint not in table.filtered:  # asked here, too: a generator costs each single pod
                yield from fits.columns_in_slices(table, info)
            filtered = fits.filtered(table, info)
            for row in of_class:
                if filtered[row]:
                    return Fault("NodeUnfit", table.names[row], "")
            if info.fact.unsupported:
                return Fault("NodeUnfit", table.names[next(iter(of_class))], "")
        if len(assignments) >= MANY:  # their rows are what is gone through, however many pods
            yield
        return self.bench.take(wanted, self._reserved)

    def _is_slice_over(self) -> bool:
        """Before a class is compared: whether enough were in this slice."""
        self._compared += 1
        return self._compared % SLICE_CLASSES == 0

    def _kept_from(self, group: Group) -> ReservedRoom | None:
        """The room that is reserved for others and that the group must leave alone."""
        against = reservations.against(self.state, group)
        if not against:
            return None
        key = tuple(one.group for one in against)
        if key not in self._reserved_for:
            self._reserved_for[key] = ReservedRoom(self.state.table, against)
        return self._reserved_for[key]

    def _pod_fault(self, uid: str, node: str, stage: str, proposal: int) -> Fault | None:
        pod = self.state.pods.get(uid)
        if pod is None or pod.status != PENDING:
            return Fault("PodGone", node, uid)
        if pod.fact.gated:
            return Fault("PodGated", node, uid)
        claim = self.state.claims.get(uid)
        if claim is None or claim.stage != stage or claim.proposal != proposal or claim.node != node:
            return Fault("PodClaimed", node, uid)
        return None

    def _node_takes(self, node: str, info: ClassInfo) -> bool:
        row = self.state.table.rows.get(node)
        return row is not None and not info.fact.unsupported and fits.admits(self.state.table, info, row)

    # ---------------------------------------------------------------------------------------------------- nominated room

    def _spend_nominations(self, group: Group, proposal: Proposal) -> list[Nomination]:
        """Give the proposal the room kept for its gang where it goes there; one nomination for one pod."""
        state = self.state
        spent: list[Nomination] = []
        ours = nominations.of_failed_members(state, group)
        if not ours:
            return spent
        arriving: dict[tuple[str, str], Counter[str]] = {}
        """(node, class) → task → pods."""
        for assignment in (*proposal.required, *proposal.optional):
            for uid in assignment.pods:
                pod = state.pods.get(uid)
                if pod is not None:
                    of_class = arriving.setdefault((assignment.node, pod.fact.scheduling_class), Counter())
                    of_class[task_of(pod.fact)] += 1
        meant = [(only_task(state, one), one) for one in ours if (one.node, one.scheduling_class) in arriving]
        for only, nomination in sorted(meant, key=lambda one: not one[0]):  # first what is one task's alone
            of_class = arriving[nomination.node, nomination.scheduling_class]
            task = next((task for task, pods in of_class.items() if pods and only in ("", task)), None)
            if task is not None:
                of_class[task] -= 1
                self.bench.give_back(nomination)
                spent.append(nomination)
        return spent

    def _spend_for_others(
        self, group: Group, proposal: Proposal, required: Iterable[NodeAssignment], spent: list[Nomination]
    ) -> list[Nomination]:
        """Give pods of another class the rest of the room that is kept for their gang where they go: replacements may ask
        for something else, as in a rollout. Only where all of the group has its minimum then: nothing need be kept for it
        any more."""
        if not quorum.reached(self.state, group, required):
            return []
        nodes, known = {one.node for one in chain(proposal.required, proposal.optional)}, {one.uid for one in spent}
        ours = nominations.of_failed_members(self.state, group)
        others = [one for one in ours if one.node in nodes and one.uid not in known]
        for nomination in others:
            self.bench.give_back(nomination)
        return others

    def _spend_group_nomination(self, group: Group) -> list[Claim]:
        """Give the group the room that was nominated for it, wherever its proposal goes: that room has no other use."""
        nomination = self.state.group_nominations.get(group.key)
        if nomination is None:
            return []
        keys = [claim_key(uid) for assignment in nomination.assignments for uid in assignment.pods]
        nominated = [claim for key in keys if (claim := self.state.claims.get(key)) is not None]
        for claim in nominated:
            self.bench.give_back(claim)
        return nominated

    def _nominate(
        self, group: Group, proposal: Proposal, required: Iterable[NodeAssignment], before: list[Claim]
    ) -> Generator[None, None, list[Verdict]]:
        """Fairness between shards: a gang that others were faster than, time and again, gets what still stands of its
        proposal nominated. Until then, and when nothing stands, it has what was nominated `before`."""
        policy = self.state.policy
        if policy and group.gangs and 0 < policy.nominate_after_refusals <= group.conflicts + 1:
            standing = []
            for one in required:
                if (yield from self._accept(proposal, (one,))) is None:
                    standing.append(one)
            if standing:
                waiting_ms = policy.nomination_hold_ms
                return [ev.GroupNominated(group=group.key, assignments=tuple(standing), waiting_ms=waiting_ms)]
        for claim in before:
            self.bench.take_again(claim)
        return []

    # -------------------------------------------------------------------------------------------------------- refusals

    def _refuse(
        self, group: Group, proposal: Proposal, place: Place, fault: Fault, required: Iterable[NodeAssignment]
    ) -> list[Verdict]:
        verdicts: list[Verdict] = [refusal(proposal, fault)]
        node = self.state.nodes.get(fault.node)
        here = self.state.table.rows.get(fault.node) in self.bench.touched
        untouched = node is not None and max(node.touched, group.changed) <= proposal.basis and not here
        if fault.reason in ABOUT_ROOM and untouched and not self._kept_there(group, fault.node, required):
            verdicts.append(ev.DisagreementDetected(group=proposal.group, proposal=place, node=fault.node))
        return verdicts

    def _kept_there(self, group: Group, node: str, required: Iterable[NodeAssignment]) -> bool:
        """Whether room there is kept for the group that it gets no more: for one task of it, as room that was for any of
        the gang's pods may be when a member fails elsewhere; or because it would lack its minimum with these, as when
        something that it held elsewhere is broken."""
        there = [one for one in nominations.of_failed_members(self.state, group) if one.node == node]
        return any(only_task(self.state, one) for one in there) or (
            bool(there) and not quorum.reached(self.state, group, required)
        )


def refusal(proposal: Proposal, fault: Fault) -> ev.ProposalRefused:
    place = Place(proposal.sequence, proposal.index)
    return ev.ProposalRefused(group=proposal.group, proposal=place, reason=fault.reason, node=fault.node, pod=fault.pod)
