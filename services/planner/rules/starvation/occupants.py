"""Starvation: who is on the nodes in one cycle, as columns of numbers.

A cycle that has to know when each node may be free goes through all claims once, in slices; each starving gang of it asks
these columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator
from typing import NamedTuple

import numpy as np

from services.state import fits, queueing, reservations
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nodes import Ints, NodeTable
from services.state.records import TERMINATING, Group

STAYS, LEAVES, MAY_LEAVE = range(3)
"""When a claim's room may be given back: never, as far as anybody knows; soon, as its pod is on its way out; one day."""
SLICE_CLAIMS = 8_192
"""Claims that are gone through between two yields: some 10 ms."""


class Sums(NamedTuple):
    """What claims take, by when they leave: rows × resources each."""

    leaving: Ints
    """Of those who are on their way out."""
    lower: Ints
    """Of those who may leave one day, and are of the same priority or a lower one."""
    higher: Ints
    """And of those of a higher one."""


class Occupants:
    """A column for each claim on a node that is there."""

    def __init__(self, table: NodeTable, found: array[int], groups: dict[str, int]) -> None:
        """`found`: of each claim the row, the class, when it leaves, and of those who may leave one day the priority and
        the number of the group. `groups`: key → that number."""
        self._table, self._groups = table, groups
        self._columns = np.array(np.array(found, np.int64).reshape(-1, 5).T, order="C")
        self._asked = np.flatnonzero(table.requests.any(axis=0))
        """Resources that some class asks for."""
        self._sums: dict[int, Sums] = {}
        """By priority: of all, whoever asks."""

    def sums(self, group: Group, priority: int) -> Generator[None, None, Sums]:
        """As a group of that priority sees them: its own stay, as that they leave would be no help. In slices."""
        if priority not in self._sums:
            self._sums[priority] = yield from self._sum(priority)
        of_all, (rows, classes, when, _, of) = self._sums[priority], self._columns
        own = (of == self._groups.get(group.key, -1)) & (when == MAY_LEAVE)
        lower = of_all.lower.copy()
        np.subtract.at(lower, rows[own], self._table.requests[classes[own]])
        return of_all._replace(lower=lower)

    def opened(self, group: Group, classes: dict[int, ClassInfo]) -> list[tuple[int, ClassInfo]]:
        """(row, class) of those who stay there with a host port; `classes`: those that have one, by number."""
        rows, numbers, when, _, of = self._columns
        stays = (when == STAYS) | ((when == MAY_LEAVE) & (of == self._groups.get(group.key, -1)))
        there = np.flatnonzero(stays & np.isin(numbers, list(classes)))
        found = zip(rows[there].tolist(), numbers[there].tolist(), strict=True)
        return [(row, classes[number]) for row, number in found]

    def _sum(self, priority: int) -> Generator[None, None, Sums]:
        sums = Sums(*(np.zeros(self._table.allocatable.shape, np.int64, order="F") for _ in Sums._fields))
        for start in range(0, self._columns.shape[1], SLICE_CLAIMS):
            rows, classes, when, priorities, _ = self._columns[:, start : start + SLICE_CLAIMS]
            above, asked = priorities > priority, self._table.requests[classes]
            may_leave = when == MAY_LEAVE
            for taken, of in zip(sums, (when == LEAVES, may_leave & ~above, may_leave & above), strict=True):
                if of.any():
                    for column in self._asked:
                        np.add.at(taken[:, column], rows[of], asked[of, column])
            yield
        return sums


def occupants(state: State) -> Generator[None, None, Occupants]:
    """All claims, in slices."""
    table, pods, groups = state.table, state.pods, dict[str, int]()
    priorities: list[int | None] = []
    """Of each group; None: that of each pod, as nobody plans them as one any more."""
    names_nodes = {digest: fits.nodes_named(info) is not None for digest, info in table.classes.items()}
    found = array("q")
    for count, claim in enumerate(state.claims.values(), 1):
        if count % SLICE_CLAIMS == 0:
            yield
        row, digest = table.rows.get(claim.node), claim.scheduling_class
        if row is None:
            continue
        number = table.classes[digest].number
        if reservations.stays(state, claim, names_nodes[digest]):
            found.extend((row, number, STAYS, 0, -1))
            continue
        pod = pods[claim.uid]
        if pod.status == TERMINATING:
            found.extend((row, number, LEAVES, 0, -1))
            continue
        of = groups.get(pod.group)
        if of is None:
            of = groups[pod.group] = len(groups)
            group = state.groups.get(pod.group)
            priorities.append(None if group is None else queueing.priority(state, group))
        priority = priorities[of]
        found.extend((row, number, MAY_LEAVE, pod.fact.priority if priority is None else priority, of))
    return Occupants(table, found, groups)
