"""Room reserved for starving gangs, subtracted from a cycle's room while a group that must leave it alone is placed.

Groups see different reservations (`services.state.reservations.against`), so what is taken off changes with the group.
While nobody has room reserved, nothing here costs anything.
"""

from __future__ import annotations

import numpy as np

from services.planner.placement import Placed, Room
from services.state import fits, reservations
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nodes import Ints
from services.state.records import Group, Reservation


class ReservedRoom:
    """The reservations that are taken off the cycle's room now, for the group that is being placed."""

    def __init__(self, state: State, room: Room) -> None:
        self._state = state
        self._room = room
        self._shown: tuple[Reservation, ...] = ()

    def show(self, group: Group) -> None:
        """The room as the group sees it."""
        seen = reservations.against(self._state, group)
        if seen == self._shown:
            return
        for one in self._shown:
            for info, placed in self._places(one):
                self._room.undo(info, placed)
        for one in seen:
            for info, placed in self._places(one):
                self._room.take(info, placed)
        self._shown = seen
        self._room.kept = self._sum() if seen else None

    def why_not(self, info: ClassInfo) -> dict[str, int]:
        """As `fits.why_not`; a node that would have room but for reservations is counted under the gang they are for."""
        table, free, kept = self._state.table, self._room.free, self._room.kept
        ports = self._room.ports_free(info)
        if kept is None:
            return fits.why_not(table, free, info, ports)
        held_off = fits.feasible(table, info) & fits.has_room(free + kept, info) & ~fits.has_room(free, info)
        if ports is not None:
            held_off &= ports
        counts = fits.why_not(table, np.where(held_off[:, None], free + kept, free), info, ports)
        for one in self._shown:
            rows = [row for row in self._rows(one) if held_off[row]]
            held_off[rows] = False
            if rows:
                counts[reservations.KEEPS + one.group] = len(rows)
        return dict(sorted(counts.items()))

    def _rows(self, one: Reservation) -> list[int]:
        rows = self._state.table.rows
        return sorted({rows[node] for _, node, _ in reservations.rooms(one) if node in rows})

    def _places(self, one: Reservation) -> list[tuple[ClassInfo, Placed]]:
        """Of each class, on the nodes that are there."""
        table = self._state.table
        return [
            (
                table.classes[of_class.scheduling_class],
                [(table.rows[node], pods) for node, pods in of_class.nodes.items() if node in table.rows],
            )
            for of_class in one.room
        ]

    def _sum(self) -> Ints:
        taken = np.zeros_like(self._room.free)
        for one in self._shown:
            for info, placed in self._places(one):
                for row, pods in placed:
                    for column, amount in info.columns:
                        taken[row, column] += pods * amount
        return taken
