r"""Seed 002, NonStrict: the deadlock that the text leaves unsolved. Muster's own rule.

    the quota of the quota group is 10, and the user submits three Gangs with 5 pods. […] Gang1\2\3 may allocate resources
    of 3\3\4 respectively. Since the quota group's quota is full, there will be no new resource scheduling. We call this
    is resource deadlock of resource Gang. In future proposal, we will try to fix this problem.

*Holders* are groups that hold room at permit, were refused for lack of it, and were given no reason to be tried again:
what they wait for is not under way. They stand in line by priority, then by age. A holder is *blocked* if what it lacks
would have a place were the room of the holders behind it given back. While one is blocked, the last in the line, the
youngest of the lowest priority, gives its room back and backs off as after any failed attempt; the others are tried at
once. One at a time: with what that gave back the next may be blocked no longer.

So no gang loses its room to one behind it, nor for one that would not fit all the same: such a gang waits for pods
that run to end, or for its own time to be over. In the text's example the third gang gives its four back, and the first
two take two each. The room of the text is a quota's, Muster's is the nodes'; that changes nothing.

Whether what is lacking has a place is asked class by class, the largest first, and of the first `ASKED` in the line. An
answer that is wrong costs a hold, never more. A port has a place where nobody has it open but the holders behind; pods
that are refused whatever room there is (`unsupported`) have none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from events import DeadlockFound, GangReleased
from events.objects import HostPort
from services.state import cohorts, commits, fits, membership, queueing, reasons, reservations
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nodes import Ints, NodeTable
from services.state.open_ports import OpenPorts, bits_of, rows_of
from services.state.records import PARKED, Group


class Left(NamedTuple):
    """What there would be once holders behind have given theirs back."""

    free: Ints
    """rows × resources."""
    shut: defaultdict[int, Counter[HostPort]]
    """row → ports that these holders have open there."""
    opened: OpenPorts
    """Ports that are kept for others, or of pods that have found their place."""

    def copy(self) -> Left:
        """For one to be placed."""
        return Left(self.free.copy(), self.shut, OpenPorts())


ASKED = 8
"""Holders that may be found blocked, from the head of the line: bounds the work of a decision."""
SLICE_HELD = 2_000
"""Holders looked at, or pods counted that are held, between two yields: some 10 ms."""
NAMED = 10_000
"""Holders that are named as blocked, from the head of the line: 3 MB of keys at most."""


def release(state: State, given_back: Collection[str]) -> Generator[None, None, list[DeadlockFound | GangReleased]]:
    """The room that is given back now so that others get theirs, found in slices. `given_back`: groups that lose their
    hold already."""
    holders = []
    for number, key in enumerate(state.holding, 1):
        if number % SLICE_HELD == 0:
            yield
        if key not in given_back and _waits(state, group := state.groups[key]):
            holders.append(group)
    if len(holders) < 2:
        return []
    line = sorted(holders, key=lambda group: _place(state, group))
    last = line[-1]
    left = Left(state.table.allocatable - state.table.held, defaultdict(Counter), OpenPorts())
    yield from _count_held(state, line, left, 1)
    for group in line[:-1][:ASKED]:
        yield from _count_held(state, (group,), left, -1)
        if (yield from _fits(state, group, left.copy())):
            others = tuple(group.key for group in line[:-1][:NAMED])
            given_back = tuple(last.held)[: commits.PODS_NAMED]
            found = DeadlockFound(group=last.key, blocked=others)
            return [found, GangReleased(group=last.key, reason="Deadlock", pods=given_back)]
    return []


def _waits(state: State, group: Group) -> bool:
    if group.phase != PARKED or group.woken:
        return False
    cohort = state.cohorts[group.cohort]
    return reasons.follows(cohort.reason).for_room and not cohorts.has_reason(state, cohort)


def _place(state: State, group: Group) -> tuple[int, int, str]:
    """In the line: priority, age, key."""
    return -queueing.priority(state, group), queueing.created_ns(state, group), group.key


def _count_held(state: State, groups: Sequence[Group], left: Left, sign: int) -> Generator[None, None, None]:
    """What the groups hold, given back (1) or taken again (-1)."""
    table = state.table
    held = (state.claims[uid] for group in groups for uid in group.held)
    for number, claim in enumerate(held, 1):
        if number % SLICE_HELD == 0:
            yield
        row = table.rows.get(claim.node)
        if row is not None:
            info = table.classes[claim.scheduling_class]
            left.free[row] += sign * table.requests[info.number]
            for port in info.fact.host_ports:
                left.shut[row][port] += sign


def _fits(state: State, group: Group, left: Left) -> Generator[None, None, bool]:
    """Whether what each gang of the group lacks has a place in what is `left`, which is used up, beside what is
    reserved."""
    table = state.table
    for info, row, pods in reservations.rows(table, reservations.against(state, group)):
        left.free[row] -= pods * table.requests[info.number]
        if info.ports:
            left.opened.open(info, bits_of((row,)))
    yield from table.rank_in_slices()
    rows = np.argsort(table.rank(), kind="stable")
    for key in group.gangs:
        gang = state.gangs[key]
        lacks = membership.lacks(state, gang)
        placeable = membership.census(state, gang.members).placeable
        classes = [info for digest in placeable if not (info := table.classes[digest]).fact.unsupported]
        for _, digest in sorted(fits.sizes(table, classes), reverse=True):
            lacks -= _fill(table, table.classes[digest], min(lacks, len(placeable[digest])), left, rows)
            yield
        if lacks > 0:
            return False
    return True


def _fill(table: NodeTable, info: ClassInfo, pods: int, left: Left, rows: npt.NDArray[np.intp]) -> int:
    """Take the room of up to so many pods, node after node in this order; of how many."""
    if pods <= 0:
        return 0
    deep = fits.places(table, left.free, info, pods)
    deep[_where_ports_are_taken(table, info, left)] = 0
    deep = deep[rows]
    counts = np.clip(pods - (np.cumsum(deep) - deep), 0, deep)
    for column, amount in info.columns:
        left.free[rows, column] -= counts * amount
    if info.ports:
        left.opened.open(info, bits_of(rows[counts > 0]))
    return int(counts.sum())


def _where_ports_are_taken(table: NodeTable, info: ClassInfo, left: Left) -> list[int]:
    """Rows where somebody else has a port of the class open, and keeps it, or will have."""
    return [*fits.where_held(table, info, None, left.shut), *rows_of(left.opened.where(info))]
