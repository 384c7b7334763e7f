"""What a group of gangs asks for: its pods in parts, how many of them must have a node, and the room kept for them.

A *part* is those pods of one gang, class and priority that may be proposed now. A *need* is how many pods of some parts
must have a node before any of the group is bound. Each `attempt` places the same demand, in another order of its parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from services.planner.placement import Places
from services.planner.roll import Quota, Roll
from services.state import fits
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nodes import NodeTable
from services.state.nominations import claims_of, only_task
from services.state.records import Group

if TYPE_CHECKING:
    from services.planner.core import Cycle

SORTED_BY_NODES = 16
"""Classes, at most, that are put in an order by how many nodes take them: all nodes are looked at, in one piece."""


class Part(NamedTuple):
    """Pods of one gang, one scheduling class and one priority that may be proposed now, in the order in which the log saw
    them."""

    gang: str
    info: ClassInfo
    uids: list[str]
    free: bool
    """Whether its gang's rules are off: it is placed whatever others lack."""
    task: str = ""
    """That its pods are of, where tasks of the gang have minimums."""
    priority: int = 0


class Need(NamedTuple):
    """So many pods of these parts (by index) must have a node: `together` now, or as they find one."""

    parts: tuple[int, ...]
    pods: int
    together: bool
    of_task: bool = False


Order = list[int]
"""In which parts, by index, have their turn."""
Taken = list[tuple[str, int, str]]
"""(node, part, UID) of pods that go where room is nominated for them."""


class Demand(NamedTuple):
    """What is to be placed, whatever the order."""

    parts: list[Part]
    needs: list[Need]
    orders: list[Order]
    """That are tried first."""
    taken: Taken
    left: Places
    """Nominated room that no pod of its class is there for."""

    @property
    def together(self) -> bool:
        """Whether the group needs all that it needs together."""
        return all(need.together for need in self.needs)

    def tried(self, table: NodeTable) -> Iterator[Order]:
        """The orders, and where none of them will do that in which those go first that the fewest nodes take: neither the
        large nor the small are before them there. Found out only then, as it looks at all nodes for each class."""
        yield from self.orders
        if 1 < len({part.info for part in self.parts}) <= SORTED_BY_NODES:
            nodes = {part.info: fits.takers(table, part.info) for part in self.parts}
            order = sorted(self.orders[0], key=lambda index: nodes[self.parts[index].info])
            if order not in self.orders:
                yield order


def demand_of(cycle: Cycle, group: Group, rolls: list[Roll]) -> Generator[None, None, Demand | None]:
    """What these gangs of the group ask for. None: all of their pods ask for what no rule here does yet. In slices, as
    room may be nominated for each of its pods.

    Classes with such a constraint are left out: a gang that needs them was refused before.
    """
    state = cycle.state
    parts: list[Part] = []
    needs: list[Need] = []
    for roll in rolls:
        first = len(parts)
        for quota in roll.tasks or (roll.whole,):
            before = len(parts)
            parts += _parts(state, roll, quota)
            if roll.tasks and roll.constrained and quota.lacks > 0:
                needs.append(Need(tuple(range(before, len(parts))), quota.lacks, roll.together, of_task=True))
        if roll.constrained and roll.whole.lacks > 0:
            needs.append(Need(tuple(range(first, len(parts))), roll.whole.lacks, roll.together))
    if not parts:
        return None
    taken, left = yield from _take_nominated(cycle, group, parts)
    return Demand(parts, needs, _orders(state.table, parts), taken, left)


def _parts(state: State, roll: Roll, quota: Quota) -> Iterator[Part]:
    for digest, of_class in quota.census.placeable.items():
        info = state.table.classes[digest]
        if not info.fact.unsupported:
            for priority, uids in _by_priority(state, of_class):
                yield Part(roll.gang.key, info, uids, not roll.constrained, quota.task, priority)


def _by_priority(state: State, uids: list[str]) -> list[tuple[int, list[str]]]:
    """Pods of one class by priority, the highest first: of equal ones those first that the log saw first."""
    pods = state.pods
    priorities = dict.fromkeys(pods[uid].fact.priority for uid in uids)
    if len(priorities) == 1:  # as nearly always: they need not be gone through again
        return [(priority, uids) for priority in priorities]
    found: dict[int, list[str]] = {priority: [] for priority in priorities}
    for uid in uids:
        found[pods[uid].fact.priority].append(uid)
    return sorted(found.items(), reverse=True)


# -------------------------------------------------------------------------------------------------------------- orders


def _orders(table: NodeTable, parts: Sequence[Part]) -> list[Order]:
    """The orders in which the parts are tried: the largest class first, and then the other way round.

    Before that, where pods have different priorities, the highest first, as the kube-scheduler goes through its own gangs
    (KEP-4671, Algorithm Limitations). If the minimum finds no room like this, it may in the other orders. Of one class
    the highest come first in these, too.
    """
    if len({part.info.fact.digest for part in parts}) == 1:
        return [_highest_first(parts, range(len(parts)))]
    sizes = fits.sizes(table, [part.info for part in parts])
    largest_first = sorted(range(len(parts)), key=sizes.__getitem__, reverse=True)
    smallest_first = largest_first[::-1]
    if len({part.priority for part in parts}) == 1:
        return [largest_first, smallest_first]
    highest_first = _highest_first(parts, largest_first)
    smallest_first = sorted(_highest_first(parts, smallest_first), key=sizes.__getitem__)
    return [highest_first, sorted(highest_first, key=sizes.__getitem__, reverse=True), smallest_first]


def _highest_first(parts: Sequence[Part], order: Iterable[int]) -> Order:
    return sorted(order, key=lambda index: -parts[index].priority)


# ------------------------------------------------------------------------------------------------------ nominated room


class Nominated(NamedTuple):
    """Room that is nominated for one pod of a class."""

    gang: str
    """Whose pods may have it; empty: any of the group, of whatever task."""
    task: str
    """Of the gang; empty: any."""
    node: str
    scheduling_class: str


class Meant:
    """Parts by the room that may be nominated for them, and how many of their pods took some.

    Each nomination is looked up: a gang that lost thousands of pods has as many nominations, and may have as many parts.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._used = [0] * len(parts)
        self._left: dict[tuple[str, str, str], deque[int]] = {}
        """(class, gang, task), as a nomination says them → its parts in order. A part whose pods are used up goes when it
        comes first."""
        for index, part in enumerate(parts):
            for whose in {(part.gang, part.task), (part.gang, ""), ("", "")}:
                self._left.setdefault((part.info.fact.digest, *whose), deque()).append(index)

    def first(self, one: Nominated) -> int | None:
        """The first part that the room is for and has a pod that took none."""
        left = self._left.get((one.scheduling_class, one.gang, one.task), ())
        while left and self._used[left[0]] == len(self._parts[left[0]].uids):
            left.popleft()
        return left[0] if left else None

    def use(self, index: int) -> str:
        """The part's next pod takes some."""
        self._used[index] += 1
        return self._parts[index].uids[self._used[index] - 1]


def _nominated(state: State, group: Group) -> Iterator[Nominated]:
    """The room that failed members left (design, section 4), and what is kept for a group that lost its proposals to
    other shards."""
    for key in group.gangs:
        for uid in state.kept_for.get(key, ()):
            nomination = state.nominations[uid]
            yield Nominated(key, only_task(state, nomination), nomination.node, nomination.scheduling_class)
    kept = state.group_nominations.get(group.key)
    for claim in claims_of(state, kept) if kept is not None else ():
        yield Nominated("", "", claim.node, claim.scheduling_class)


def _take_nominated(cycle: Cycle, group: Group, parts: Sequence[Part]) -> Generator[None, None, tuple[Taken, Places]]:
    """Pods go where room is nominated for them, those first that the log saw first. Room for one task alone comes first:
    any other may be for any of the pods. And the room that no pod of its class is there for."""
    taken: Taken = []
    left: Places = {}
    nominated: list[Nominated] = []
    for one in _nominated(cycle.state, group):
        nominated.append(one)
        cycle.pods_named += 1
        if cycle.slice_over():
            yield
    table, meant = cycle.state.table, Meant(parts if nominated else ())
    for one in sorted(nominated, key=lambda one: not one.task):
        cycle.pods_named += 1
        if cycle.slice_over():
            yield
        row = table.rows.get(one.node)
        if row is None:
            continue
        index = meant.first(one)
        if index is None:
            left.setdefault(table.classes[one.scheduling_class], []).append((row, 1))
            continue
        info = parts[index].info
        yield from fits.filtered_in_slices(table, info)
        if fits.admits(table, info, row) and not cycle.room.overdrawn(info, row):
            taken.append((one.node, index, meant.use(index)))
    return taken, left
