"""Starvation: who is on the nodes in one cycle, as columns of numbers.

A cycle that has to know when each node may be free goes through all claims once, in slices; each starving gang of it asks
these columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator

import numpy as np

from services.state import fits, queueing, reservations
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nodes import Ints, Mask, NodeTable
from services.state.records import TERMINATING, Group

STAYS, LEAVES, MAY_LEAVE = range(3)
"""When a claim's room may be given back: never, as far as anybody knows; soon, as its pod is on its way out; one day."""
SLICE_CLAIMS = 8_192
"""Claims that are gone through between two yields: some 10 ms."""


class Occupants:
    """A column for each claim on a node that is there."""

    def __init__(self, table: NodeTable, found: array[int], groups: dict[str, int]) -> None:
        """`found`: of each claim the row, the class, when it leaves, and of those who may leave one day the priority and
        the number of the group. `groups`: key → that number."""
        self._table, self._groups = table, groups
        columns = np.array(found, np.int64).reshape(-1, 5).T
        self._rows, self._classes, self._when, self._priorities, self._of = columns

    def leaving(self) -> Ints:
        """What those take who are on their way out: rows × resources."""
        return self._sum(self._when == LEAVES)

    def lower(self, group: Group, priority: int) -> Ints:
        """What those take who may leave one day, of this priority or a lower one, and not of the group."""
        return self._sum(self._others(group) & (self._priorities <= priority))

    def higher(self, group: Group, priority: int) -> Ints:
        """And those of a higher one."""
        return self._sum(self._others(group) & (self._priorities > priority))

    def opened(self, group: Group, classes: dict[int, ClassInfo]) -> list[tuple[int, ClassInfo]]:
        """(row, class) of those who stay there with a host port; `classes`: those that have one, by number."""
        stays = (self._when == STAYS) | ((self._when == MAY_LEAVE) & ~self._others(group))
        there = np.flatnonzero(stays & np.isin(self._classes, list(classes)))
        rows, numbers = self._rows[there].tolist(), self._classes[there].tolist()
        return [(row, classes[number]) for row, number in zip(rows, numbers, strict=True)]

    def _others(self, group: Group) -> Mask:
        """Those who may leave one day, without the group's own, for whom that would be no help."""
        mask: Mask = (self._when == MAY_LEAVE) & (self._of != self._groups.get(group.key, -1))
        return mask

    def _sum(self, of: Mask) -> Ints:
        taken = np.zeros_like(self._table.allocatable)
        np.add.at(taken, self._rows[of], self._table.requests[self._classes[of]])
        return taken


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
