"""What a group has on the bench while it is judged: what of it stands, and what was given back or taken for that.

`Judge` has the steps. Each of them leaves here what it found, and the next one asks for it: does what is held stand, is
the minimum reached, is it room alone that lacks. If it comes to nothing, the bench is as it was (`withdraw`,
`keep_nominated`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from itertools import chain

from events.objects import NodeAssignment
from services.binder import pace, quorum
from services.binder.bench import Bench, Fault, Wanted
from services.binder.pace import Pace
from services.binder.reserved import ReservedRoom
from services.state import fits, nominations
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nominations import claims_of, only_task
from services.state.records import HELD, PENDING, PROPOSED, Claim, Group, Nomination, Proposal
from services.state.tallies import task_of
from services.state.verdicts import ABOUT_ROOM


class Standing:
    """A group, with a proposal of it or without."""

    required: Sequence[NodeAssignment] = ()
    """Proposed: these stand together, or the proposal is refused."""
    optional: Sequence[NodeAssignment] = ()
    """Proposed: each pod stands alone."""
    place = 0
    """The proposal's, which the claims of its pods name."""
    spent: Sequence[Nomination] = ()
    """Room of failed members that is given back for the proposal."""
    nominated: Sequence[Claim] = ()
    """Room that is given back for it since the group lost proposals to other shards."""
    good: Sequence[NodeAssignment] = ()
    """Held, and still standing."""
    broken: Sequence[Claim] = ()
    """Held, and not standing any more: its room is given back."""
    lost: tuple[str, ...] = ()
    """UIDs of what is broken."""
    accepted: Sequence[NodeAssignment] = ()
    """Proposed, and standing: its room is taken."""
    dropped: Sequence[str] = ()
    """UIDs of optional pods that cannot stand."""
    fault: Fault | None = None
    """Why the first of what is not accepted cannot stand."""

    def __init__(
        self,
        state: State,
        bench: Bench,
        pace: Pace,
        group: Group,
        proposal: Proposal | None = None,
        reserved: ReservedRoom | None = None,
        beyond: ReservedRoom | None = None,
    ) -> None:
        """`reserved`: room that is kept for others, and that the group must leave alone; `beyond`: that its pods must
        which need not start with the others."""
        self.state = state
        self.bench = bench
        self.group = group
        self._pace = pace
        self._reserved, self._beyond = reserved, beyond
        if proposal is not None:
            self.required, self.optional, self.place = proposal.required, proposal.optional, proposal.place

    # ------------------------------------------------------------------------------------------------------- questions

    def reached(self) -> bool:
        """Whether each gang of the group has its minimum with all that stands."""
        return quorum.reached(self.state, self.group, chain(self.good, self.accepted))

    def would_reach(self) -> bool:
        """Whether each would have it with what stands of what is held, and all that is required."""
        return quorum.reached(self.state, self.group, chain(self.good, self.required))

    def has_minimums(self) -> bool:
        """Whether each has its minimum then, also one whose rules are off: nothing need be kept for it any more."""
        return self.would_reach() and quorum.whole(
            self.state, self.group, chain(self.good, self.required, self.optional)
        )

    def failure(self) -> Fault | None:
        """Why the whole proposal is refused; None where it is not: some of it stands, or only optional pods do not, and
        the group starts without them."""
        if self.accepted or (not self.required and self.reached()):
            return None
        return self.fault

    def is_kept(self, node: str) -> bool:
        """Whether room there is kept for the group that it gets no more: for one task of it, as room that was for any of
        the gang's pods may be when a member fails elsewhere; or because it would lack its minimum with these, as when
        something that it held elsewhere is broken."""
        there = [one for one in nominations.of_failed_members(self.state, self.group) if one.node == node]
        return any(only_task(self.state, one) for one in there) or (bool(there) and not self.has_minimums())

    # -------------------------------------------------------------------------------------------------- nominated room

    def spend_nominations(self) -> None:
        """Give the proposal the room kept for its gang where it goes there; one nomination for one pod."""
        ours = nominations.of_failed_members(self.state, self.group)
        if not ours:
            return
        arriving = self._arriving()
        meant = [(only_task(self.state, one), one) for one in ours if _whose(one) in arriving]
        spent = []
        for only, nomination in sorted(meant, key=lambda one: not one[0]):  # first what is one task's alone
            of_class = arriving[_whose(nomination)]
            task = next((task for task, pods in of_class.items() if pods and only in ("", task)), None)
            if task is not None:
                of_class[task] -= 1
                self.bench.give_back(nomination)
                spent.append(nomination)
        self.spent = spent

    def _arriving(self) -> dict[tuple[str, str, str], Counter[str]]:
        """The proposal's pods: (gang, node, class) → task → how many. Another gang of the group may have some there."""
        arriving: dict[tuple[str, str, str], Counter[str]] = {}
        for assignment in chain(self.required, self.optional):
            for uid in assignment.pods:
                pod = self.state.pods.get(uid)
                if pod is not None:
                    of_class = arriving.setdefault((pod.gang, assignment.node, pod.fact.scheduling_class), Counter())
                    of_class[task_of(pod.fact)] += 1
        return arriving

    def spend_for_others(self) -> bool:
        """Give pods of another class the rest of the room that is kept for their gang where they go: replacements may ask
        for something else, as in a rollout. Only where all of the group has its minimum then: nothing need be kept for it
        any more. Whether room is what the first of them lacks, and there was any."""
        if self.fault is None or self.fault.reason not in ABOUT_ROOM or not self.has_minimums():
            return False
        nodes, known = {one.node for one in chain(self.required, self.optional)}, {one.uid for one in self.spent}
        ours = nominations.of_failed_members(self.state, self.group)
        others = [one for one in ours if one.node in nodes and one.uid not in known]
        for nomination in others:
            self.bench.give_back(nomination)
        self.spent = [*self.spent, *others]
        return bool(others)

    def spend_group_nomination(self) -> None:
        """Give the group the room that was nominated for it, wherever its proposal goes: that room has no other use."""
        nomination = self.state.group_nominations.get(self.group.key)
        if nomination is None:
            return
        self.nominated = claims_of(self.state, nomination)
        for claim in self.nominated:
            self.bench.give_back(claim)

    def keep_nominated(self) -> None:
        """What was nominated for the group stays so."""
        for claim in self.nominated:
            self.bench.take_again(claim)

    def withdraw(self) -> None:
        """Nothing of it stands: failed members' room stays kept, and what is held stays held."""
        for nomination in self.spent:
            self.bench.take_again(nomination)
        for claim in self.broken:
            self.bench.take_again(claim)

    # -------------------------------------------------------------------------------------------------- what is judged

    def judge_held(self) -> Generator[None, None, None]:
        """Find what stands of what is held, by the state at this place (design, rule 4): node there, untainted, large
        enough; pod there, ungated. The room of the rest is given back."""
        good: list[NodeAssignment] = []
        broken: list[Claim] = []
        for uid in self.group.held:
            claim = self.state.claims[uid]
            info = self.state.table.classes[claim.scheduling_class]
            if self._pace.over_before_class() or self._pace.over_before_pods(len(info.ports)):
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
        self.good, self.broken, self.lost = good, broken, tuple([claim.uid for claim in broken])

    def require_quorum(self) -> None:
        """If what is required does not reach the quorum, what is optional is required, too, except for pods without which
        the others may still start."""
        if self.optional and not self.would_reach():
            loose, rest = quorum.split_loose(self.state, self.group, self.optional)
            self.required, self.optional = (*self.required, *rest), loose

    def take(self) -> Generator[None, None, None]:
        """Take what is required as a whole, and then of what is optional each pod that stands. If the former does not
        stand, nothing is accepted."""
        self.accepted, self.dropped = (), ()
        self.fault = (yield from self._accept(self.required, self._reserved)) if self.required else None
        if self.fault is not None:
            return
        self.accepted = self.required
        if self.optional:
            yield from self._take_optional()

    def _take_optional(self) -> Generator[None, None, None]:
        accepted, dropped = list(self.accepted), list[str]()
        had = {one.node for one in self.spent} | {claim.node for claim in self.nominated}
        for assignment in self.optional:
            reserved = self._reserved if assignment.node in had else self._beyond
            for uid in assignment.pods:
                alone = NodeAssignment(assignment.node, (uid,))
                fault = yield from self._accept((alone,), reserved)
                if fault is None:
                    accepted.append(alone)
                else:
                    dropped.append(uid)
                    self.fault = self.fault or fault
        self.accepted, self.dropped = accepted, dropped

    def take_one_by_one(self) -> Generator[None, None, list[NodeAssignment]]:
        """Take those of the required assignments that stand alone; which these are."""
        standing = []
        for one in self.required:
            if (yield from self._accept((one,), self._reserved)) is None:
                standing.append(one)
        return standing

    def _accept(
        self, assignments: Sequence[NodeAssignment], reserved: ReservedRoom | None
    ) -> Generator[None, None, Fault | None]:
        """Take the room of all of them beside what is `reserved`, or none and say why."""
        claims, table = self.state.claims, self.state.table
        wanted: Wanted = {}
        for assignment in assignments:
            if self._pace.over_before_pods(len(assignment.pods)):
                yield
            node = assignment.node
            row = table.rows.get(node)
            for uid in assignment.pods:
                fault = self._pod_fault(uid, node, PROPOSED, self.place)
                if fault is not None:
                    return fault
                if row is None:
                    return Fault("NodeGone", node, uid)
                of_class = wanted.setdefault(claims[uid].scheduling_class, {})
                of_class[row] = of_class.get(row, 0) + 1
        for digest, of_class in wanted.items():
            info = table.classes[digest]
            if self._pace.over_before_class():
                yield
            if not table.filtered.known(table, info):  # asked here, too: a generator costs each single pod
                yield from fits.filtered_in_slices(table, info)
            unfit = self._unfit(info, of_class)
            if unfit:
                return Fault("NodeUnfit", unfit, "")
        if len(assignments) >= pace.MANY:  # their rows are what is gone through, however many pods
            yield
        return (yield from self.bench.take(wanted, self._pace, reserved))

    def _unfit(self, info: ClassInfo, rows: Iterable[int]) -> str:
        """The first of the nodes in these rows that does not take pods of the class; empty: all do."""
        table = self.state.table
        filtered = fits.filtered(table, info)
        for row in rows:
            if filtered[row]:
                return table.names[row]
        return table.names[next(iter(rows))] if info.fact.unsupported else ""

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


def _whose(nomination: Nomination) -> tuple[str, str, str]:
    """Of which gang's pods it is, where, and of which class."""
    return nomination.gang, nomination.node, nomination.scheduling_class
