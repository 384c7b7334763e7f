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
answer that is wrong costs a hold, never more.
"""

from __future__ import annotations

from collections.abc import Collection, Generator

import numpy as np
import numpy.typing as npt

from events import DeadlockFound, GangReleased
from services.state import cohorts, commits, fits, membership, queueing, reasons, reservations
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nodes import Ints
from services.state.records import PARKED, Group

ASKED = 8
"""Holders that may be found blocked, from the head of the line: bounds the work of a decision."""
NAMED = 10_000
"""Holders that are named as blocked, from the head of the line: 3 MB of keys at most."""


def release(state: State, given_back: Collection[str]) -> Generator[None, None, list[DeadlockFound | GangReleased]]:
    """The room that is given back now so that others get theirs, found in slices. `given_back`: groups that lose their
    hold already."""
    holders = [group for key in state.holding if key not in given_back and _waits(state, group := state.groups[key])]
    if len(holders) < 2:
        return []
    line = sorted(holders, key=lambda group: _place(state, group))
    last = line[-1]
    free = state.table.allocatable - state.table.held
    for group in line:
        _count_held(state, group, free, 1)
    for group in line[:-1][:ASKED]:
        _count_held(state, group, free, -1)
        if (yield from _fits(state, group, free.copy())):
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


def _count_held(state: State, group: Group, free: Ints, sign: int) -> None:
    """What the group holds, given back (1) or taken again (-1)."""
    table = state.table
    for uid in group.held:
        claim = state.claims[uid]
        row = table.rows.get(claim.node)
        if row is not None:
            free[row] += sign * table.requests[table.classes[claim.scheduling_class].number]


def _fits(state: State, group: Group, free: Ints) -> Generator[None, None, bool]:
    """Whether what each gang of the group lacks has a place in `free`, which is used up, beside what is reserved."""
    table = state.table
    for one in reservations.against(state, group):
        for digest, node, pods in reservations.rooms(one):
            if node in table.rows:
                free[table.rows[node]] -= pods * table.requests[table.classes[digest].number]
    yield from table.rank_in_slices()
    rows = np.argsort(table.rank(), kind="stable")
    for key in group.gangs:
        gang = state.gangs[key]
        lacks = membership.lacks(state, gang)
        placeable = membership.census(state, gang.members).placeable
        for _, digest in sorted(fits.sizes(table, [table.classes[digest] for digest in placeable]), reverse=True):
            lacks -= _fill(state, table.classes[digest], min(lacks, len(placeable[digest])), free, rows)
            yield
        if lacks > 0:
            return False
    return True


def _fill(state: State, info: ClassInfo, pods: int, free: Ints, rows: npt.NDArray[np.intp]) -> int:
    """Take the room of up to so many pods, node after node in this order; of how many."""
    if pods <= 0:
        return 0
    most = 1 if info.fact.host_ports else pods
    deep = np.where(fits.feasible(state.table, info), np.minimum(fits.capacity(free, info), most), 0)[rows]
    counts = np.clip(pods - (np.cumsum(deep) - deep), 0, deep)
    for column, amount in info.columns:
        free[rows, column] -= counts * amount
    return int(counts.sum())
