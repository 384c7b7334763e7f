"""One attempt to place a group of gangs: the pods of its parts in one order, as far as they find a node.

Needs are placed first, so that pods beyond a minimum take no room from another gang's minimum. An attempt that is not
enough is undone; else it becomes a proposal, without those optional pods that do not fit a commit (`limits`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from events import GangPlaced
from events.objects import NodeAssignment
from services.planner import limits
from services.planner.demand import Demand, Need, Order, Part
from services.planner.placement import Placed, split
from services.state import commits
from services.state.records import Gang, Group, Reservation

if TYPE_CHECKING:
    from services.planner.core import Cycle


SLICE_PARTS = 500
"""Whose room is given back between two yields: some milliseconds."""


class Refusal(NamedTuple):
    """Why the group is not placed now, as `GroupsRefused` says it."""

    reason: str
    detail: str
    needed: int = 0
    placeable: int = 0
    node_reasons: dict[str, int] | None = None


def name_of(group: Group) -> str:
    shown = ", ".join(group.gangs[:3])
    more = len(group.gangs) - 3
    return f"gang {shown}" if len(group.gangs) == 1 else f"gang group {shown}{f' and {more} more' if more > 0 else ''}"


class Attempt:
    """The demand's pods in one order of its parts, as far as they found a node."""

    def __init__(
        self, cycle: Cycle, group: Group, demand: Demand, order: Order, reservation: Reservation | None = None
    ) -> None:
        """`reservation`: what the group needs goes where room is kept for it, and nowhere else."""
        self.cycle, self.group, self.demand, self.order = cycle, group, demand, order
        self._reserved = None if reservation is None else cycle.reserved.rows_of(reservation)
        self.parts = demand.parts
        self.used = [0] * len(self.parts)
        """Of each part, how many pods have a node."""
        for _, index, _ in demand.taken:
            self.used[index] += 1
        self.full = [False] * len(self.parts)
        """Of each part, whether one of its pods found none."""
        self.complete = True
        """Whether all needs are met."""
        self._comes_again = group.key in cycle.begun
        self._turns = {index: turn for turn, index in enumerate(order)}
        """Of each part."""
        self._at = 0
        """Its proposal's place among the cycle's."""
        self._placed: list[tuple[int, Placed, bool]] = []
        """(part, where, whether they are required), step by step."""
        self._compact = False
        """Whether the required pods of a node are named together, whatever step placed them."""

    @property
    def found(self) -> int:
        """Pods that have a node."""
        return sum(self.used)

    def placed_of(self, gang: Gang, task: str) -> int:
        """Pods of the gang, or of a task of it, that have a node."""
        of = (index for index, part in enumerate(self.parts) if part.gang == gang.key and task in ("", part.task))
        return sum(self.used[index] for index in of)

    @property
    def unplaced(self) -> Part:
        """The first part of which a pod found no node; where none was tried in vain, the first."""
        return self.parts[next((index for index in self.order if self.full[index]), self.order[0])]

    def place(self) -> Generator[None, None, bool]:
        """Place the needs first, those of tasks before their gang's; then pods beyond them that may start without others.

        Returns whether all needs of pods that start together are met, and at least one pod has a node.
        """
        unmet: set[int] = set()
        broken = False
        for need in sorted(self.demand.needs, key=self._turn):
            if not unmet.isdisjoint(need.parts):
                continue  # a task of the gang lacks what its other pods cannot stand in for
            if (yield from self._meet(need)) > 0:
                unmet.update(need.parts)
                self.complete = False
                broken = broken or need.together
        if broken:
            return False
        if not (self._comes_again and self.complete and any(self.used)):
            yield from self._put_rest()
        return any(self.used)

    def _turn(self, need: Need) -> tuple[bool, int]:
        return not need.of_task, min(map(self._turns.__getitem__, need.parts), default=0)

    def _meet(self, need: Need) -> Generator[None, None, int]:
        """Place what the need lacks, as far as there is room; how many pods it lacks still."""
        left = need.pods - sum(self.used[index] for index in need.parts)
        for index in sorted(need.parts, key=self._turns.__getitem__):
            left -= yield from self._put(index, left, required=need.together)
            if self.cycle.slice_over():
                yield
        return left

    def _put_rest(self) -> Generator[None, None, None]:
        for index in self.order:
            if self.complete or self.parts[index].free:
                yield from self._put(index, len(self.parts[index].uids), required=False)
                if self.cycle.slice_over():
                    yield

    def _put(self, index: int, pods: int, *, required: bool) -> Generator[None, None, int]:
        """Up to so many more pods of the part; how many found a node."""
        part = self.parts[index]
        pods = min(pods, len(part.uids) - self.used[index])
        if pods <= 0 or self.full[index]:
            return 0
        self.cycle.reserved.show(self.group, beyond=not required)
        if self._reserved is not None and required:
            rows = self.cycle.room.place_within(part.info, pods, self._reserved.get(part.info.fact.digest, {}))
        else:
            rows = yield from self.cycle.place_in_slices(part.info, pods, self.group)
        done = sum(count for _, count in rows)
        self.full[index] = done < pods
        self.used[index] += done
        self._placed.append((index, rows, required))
        return done

    def undo(self) -> Generator[None, None, None]:
        for number, (index, rows, _) in enumerate(self._placed, 1):
            self.cycle.room.undo(self.parts[index].info, rows)
            if self.cycle.slice_over() or number % SLICE_PARTS == 0:
                yield

    def propose(self) -> Generator[None, None, Refusal | None]:
        """Propose what was placed; or else why it is not proposed."""
        excess = yield from self._fit()
        if excess:
            yield from self.undo()
            detail = f"a permit for {self.found} pods of {name_of(self.group)} is {excess} bytes too large for a commit"
            return Refusal("GangTooLarge", detail, self.found)
        if self._comes_again:
            self.cycle.begun[self.group.key] = self
        if self.cycle.silent:
            self.cycle.left = True
        else:
            self._at = len(self.cycle.placed)
            self.cycle.placed.append((yield from self._proposal()))
        return None

    def _fit(self) -> Generator[None, None, int]:
        """Say each node once; of what is optional, keep for another cycle what a commit does not take. The bytes that are
        too many still."""
        while True:
            few = self.found + len(self.group.held) <= commits.PODS_SURELY_FIT
            excess = 0 if few else limits.excess(self.cycle.state, self.group, (yield from self._proposal()))
            if excess and not self._compact:
                self._compact = True
            elif not excess or not self._halve_optional():
                return excess

    def _halve_optional(self) -> bool:
        """Give back the room of the last half of the optional pods; whether there were any, besides the last of all."""
        optional = sum(pods for _, rows, required in self._placed if not required for _, pods in rows)
        if optional == self.found == 1:
            return False
        left = optional // 2
        for at, (index, rows, required) in enumerate(self._placed):
            if not required:
                kept, given_back = split(rows, left)
                left -= sum(pods for _, pods in kept)
                self.used[index] -= sum(pods for _, pods in given_back)
                self.cycle.room.undo(self.parts[index].info, given_back)
                self._placed[at] = (index, kept, required)
        return optional > 0

    def go_on(self) -> Generator[None, None, None]:
        """The group's second turn in the queue: what it has beyond its minimum, as far as those who came in between left
        room, goes into the same proposal."""
        before = self.found
        yield from self._put_rest()
        yield from self._fit()
        if self.found > before and not self.cycle.silent:
            self.cycle.placed[self._at] = yield from self._proposal()

    def _proposal(self) -> Generator[None, None, GangPlaced]:
        """What must be together is required; the rest is optional, one by one."""
        self.cycle.pods_named += self.found
        if self.cycle.slice_over():
            yield
        must: list[NodeAssignment] = []
        may: list[NodeAssignment] = []
        needs = self.demand.needs
        left = [need.pods for need in needs]
        needs_of = self._needs_of() if self.demand.taken else []
        done = [0] * len(self.parts)
        for node, index, uid in self.demand.taken:
            wanted = [at for at in needs_of[index] if left[at] > 0]
            for at in wanted:
                left[at] -= 1
            together = any(needs[at].together for at in wanted)
            (must if together else may).append(NodeAssignment(node, (uid,)))
            done[index] += 1
        names = self.cycle.state.table.names
        for index, rows, required in self._placed:
            uids = self.parts[index].uids
            for row, pods in rows:
                end = done[index] + pods
                (must if required else may).append(NodeAssignment(names[row], tuple(uids[done[index] : end])))
                done[index] = end
        group = self.group
        whole = limits.by_node(must) if self._compact else tuple(must)
        return GangPlaced(group=group.key, partition=group.partition, required=whole, optional=tuple(may))

    def _needs_of(self) -> list[list[int]]:
        """For each part the needs that its pods count for."""
        found: list[list[int]] = [[] for _ in self.parts]
        for at, need in enumerate(self.demand.needs):
            for index in need.parts:
                found[index].append(at)
        return found
