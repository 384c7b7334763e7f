"""Judging proposals: whole, in log order, against the room that the verdicts before them left.

`Bench` is one decision's working copy of what the binder counts: allocatable less permitted, bound, nominated and held.
Judging changes the bench, never the state. A refusal although nothing since the proposal's basis touched its node, in the
log or on this bench, is a disagreement between planner and binder about one and the same room: a bug, and said so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

import events as ev
from events.objects import Binding, NodeAssignment, NodeBindings, Place
from services.binder.rules.coscheduling import permit
from services.state import fits
from services.state.fold import State
from services.state.nodes import ClassInfo, Ints
from services.state.records import HELD, PENDING, PROPOSED, Group, Nomination, Proposal

Verdict = ev.GangPermitted | ev.GangHeld | ev.ProposalRefused | ev.NominationEnded | ev.DisagreementDetected


class Fault(NamedTuple):
    """Why an assignment cannot stand."""

    reason: str
    node: str
    pod: str


ABOUT_ROOM = frozenset({"NodeGone", "NodeUnfit", "NoRoom"})


class Bench:
    """The room as this decision's verdicts leave it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.free: Ints = state.table.allocatable - state.table.held
        self.touched: set[str] = set()
        self.taken_ports: dict[str, list[tuple[str, int, str]]] = {}

    # ------------------------------------------------------------------------------------------------------- proposals

    def judge(self, proposal: Proposal) -> list[Verdict]:
        """The verdict, with what comes with it."""
        group = self.state.groups.get(proposal.group)
        place = Place(proposal.sequence, proposal.index)
        if group is None or group.since > proposal.basis:
            return [_refusal(proposal, place, Fault("PodGone", "", ""))]
        spent = self._spend_nominations(group, proposal)
        fault = self._accept(proposal, proposal.required)
        if fault is not None:
            self._restore(spent)
            return self._refuse(proposal, place, fault)
        accepted = list(proposal.required)
        dropped: list[str] = []
        for assignment in proposal.optional:
            for uid in assignment.pods:
                alone = NodeAssignment(assignment.node, (uid,))
                if self._accept(proposal, (alone,)) is None:
                    accepted.append(alone)
                else:
                    dropped.append(uid)
        taken: list[Verdict] = [
            ev.NominationEnded(gang=nomination.gang, pod=nomination.uid, reason="Taken") for nomination in spent
        ]
        return taken + self._permit(group, proposal, place, accepted, tuple(dropped))

    def _permit(
        self, group: Group, proposal: Proposal, place: Place, accepted: list[NodeAssignment], dropped: tuple[str, ...]
    ) -> list[Verdict]:
        """Seed 000, Permit; what was held before is judged again at quorum (design, rule 4)."""
        state = self.state
        good, broken = self._held_again(group)
        pods = sum(len(assignment.pods) for assignment in accepted)
        reached = True
        for key in group.gangs:
            held = sum(state.pods[uid].gang == key for assignment in good for uid in assignment.pods)
            reached = reached and permit.quorum(state, state.gangs[key], held, pods)
        if not reached:
            return [ev.GangHeld(group=group.key, proposal=place, waiting_ms=permit.waiting_ms(state, group))]
        return [
            ev.GangPermitted(
                group=group.key,
                proposals=(place,),
                bindings=self._bindings([*good, *accepted]),
                dropped=(*dropped, *broken),
            )
        ]

    def _held_again(self, group: Group) -> tuple[list[NodeAssignment], tuple[str, ...]]:
        """Held assignments that still stand (node there, untainted; pod there, ungated), and the UIDs of the rest."""
        good: list[NodeAssignment] = []
        broken: list[str] = []
        for uid in group.held:
            claim = self.state.claims[uid]
            info = self.state.table.classes[claim.scheduling_class]
            if self._pod_fault(uid, claim.node, HELD, claim.proposal) or self._node_fault(claim.node, info):
                broken.append(uid)
            else:
                good.append(NodeAssignment(claim.node, (uid,)))
        return good, tuple(broken)

    def _bindings(self, assignments: Iterable[NodeAssignment]) -> tuple[NodeBindings, ...]:
        pods = self.state.pods
        return tuple(
            NodeBindings(assignment.node, tuple(Binding(uid, pods[uid].resource_version) for uid in assignment.pods))
            for assignment in assignments
        )

    # ----------------------------------------------------------------------------------------------------- assignments

    def _accept(self, proposal: Proposal, assignments: tuple[NodeAssignment, ...]) -> Fault | None:
        """Take the room of all of them, or none and say why."""
        state, table = self.state, self.state.table
        rows: dict[str, list[int]] = {}
        for assignment in assignments:
            row = table.rows.get(assignment.node)
            for uid in assignment.pods:
                fault = self._pod_fault(uid, assignment.node, PROPOSED, proposal.place)
                if fault is not None:
                    return fault
                if row is None:
                    return Fault("NodeGone", assignment.node, uid)
                rows.setdefault(state.pods[uid].fact.scheduling_class, []).append(row)
        infos = [(table.classes[digest], of_class) for digest, of_class in rows.items()]
        for info, of_class in infos:
            good = fits.feasible(table, info)[of_class]
            if info.fact.unsupported or not good.all():
                return Fault("NodeUnfit", self._name(of_class[int(good.argmin())]), "")
        fault = self._no_room(infos)
        if fault is None:
            self.touched.update(assignment.node for assignment in assignments)
        return fault

    def _no_room(self, infos: list[tuple[ClassInfo, list[int]]]) -> Fault | None:
        """Take the classes' room on their rows (one pod for each entry), or say where it lacks."""
        index = np.unique(np.concatenate([of_class for _, of_class in infos])) if infos else np.zeros(0, np.int64)
        need = np.zeros((len(index), self.free.shape[1]), np.int64)
        for info, of_class in infos:
            pods = np.bincount(of_class, minlength=self.state.table.size)[index]
            need += pods[:, None] * info.request
        good = fits.fits(self.free[index], need)
        if not good.all():
            return Fault("NoRoom", self._name(int(index[int(np.argmin(good))])), "")
        opened: dict[str, list[ClassInfo]] = {}
        for info, of_class in infos:
            if info.fact.host_ports:
                for row in of_class:
                    opened.setdefault(self._name(row), []).append(info)
        for node, of_node in opened.items():
            if not self._open_ports(node, of_node):
                return Fault("NoRoom", node, "")
        self.free[index] -= need
        return None

    def _open_ports(self, node: str, opened: list[ClassInfo]) -> bool:
        """Open the host ports of several pods on one node, or none."""
        row = self.state.table.rows[node]
        mine = list(self.taken_ports.get(node, ()))
        for info in opened:
            wanted = info.fact.host_ports
            if not fits.ports_free(self.state.table, row, wanted):
                return False
            if any(fits.ports_collide(port, held) for port in wanted for held in mine):
                return False
            mine += [(port.protocol, port.port, port.host_ip) for port in wanted]
        self.taken_ports[node] = mine
        return True

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

    def _node_fault(self, node: str, info: ClassInfo) -> str | None:
        row = self.state.table.rows.get(node)
        if row is None:
            return "NodeGone"
        if info.fact.unsupported or not fits.feasible(self.state.table, info)[row]:
            return "NodeUnfit"
        return None

    def _name(self, row: int) -> str:
        fact = self.state.table.facts[row]
        return fact.name if fact is not None else ""

    # ---------------------------------------------------------------------------------------------------- nominated room

    def has_room(self, row: int, info: ClassInfo) -> bool:
        return bool(fits.fits(self.free[row : row + 1], info.request[None, :])[0])

    def nominate(self, node: str, info: ClassInfo) -> None:
        """Room that this decision keeps for a replacement."""
        row = self.state.table.rows.get(node)
        if row is not None:
            self.free[row] -= info.request
            self.touched.add(node)

    def _spend_nominations(self, group: Group, proposal: Proposal) -> list[Nomination]:
        """Give the proposal the room kept for its gang where it goes there; one nomination for one pod."""
        state = self.state
        spent: list[Nomination] = []
        if not state.nominations or not group.gangs:
            return spent
        arriving: dict[tuple[str, str], int] = {}
        for assignment in (*proposal.required, *proposal.optional):
            for uid in assignment.pods:
                pod = state.pods.get(uid)
                if pod is not None:
                    key = (assignment.node, pod.fact.scheduling_class)
                    arriving[key] = arriving.get(key, 0) + 1
        for nomination in state.nominations.values():
            key = (nomination.node, nomination.scheduling_class)
            if nomination.gang in group.gangs and arriving.get(key, 0):
                arriving[key] -= 1
                self._move(nomination, 1)
                spent.append(nomination)
        return spent

    def _restore(self, spent: list[Nomination]) -> None:
        for nomination in spent:
            self._move(nomination, -1)

    def _move(self, nomination: Nomination, sign: int) -> None:
        row = self.state.table.rows.get(nomination.node)
        if row is not None:
            self.free[row] += sign * self.state.table.classes[nomination.scheduling_class].request

    # -------------------------------------------------------------------------------------------------------- refusals

    def _refuse(self, proposal: Proposal, place: Place, fault: Fault) -> list[Verdict]:
        verdicts: list[Verdict] = [_refusal(proposal, place, fault)]
        node = self.state.nodes.get(fault.node)
        untouched = node is not None and node.touched <= proposal.basis and fault.node not in self.touched
        if fault.reason in ABOUT_ROOM and untouched:
            verdicts.append(ev.DisagreementDetected(group=proposal.group, proposal=place, node=fault.node))
        return verdicts


def _refusal(proposal: Proposal, place: Place, fault: Fault) -> ev.ProposalRefused:
    return ev.ProposalRefused(group=proposal.group, proposal=place, reason=fault.reason, node=fault.node, pod=fault.pod)
