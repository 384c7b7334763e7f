"""Room reserved for starving gangs, subtracted from a cycle's room while a group that must leave it alone is placed.

Groups see different reservations (`services.state.reservations.against`), so what is taken off changes with the group.
While nobody has room reserved, nothing here costs anything.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from services.planner.placement import Room, Rows
from services.state import fits, reservations
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nodes import Ints
from services.state.records import Group, Reservation


class Reserved(NamedTuple):
    """Room that is kept for pods of one class: in each of these rows so many."""

    info: ClassInfo
    rows: Rows
    counts: Ints


class ReservedRoom:
    """The reservations that are taken off the cycle's room now, for the group that is being placed."""

    def __init__(self, state: State, room: Room) -> None:
        self._state = state
        self._room = room
        self._shown: tuple[Reservation, ...] = ()
        self._places: dict[str, list[Reserved]] = {}
        """By the group for which it is: reservations are shown, and hidden, time and again in a cycle."""
        self._sums: dict[tuple[str, ...], Ints] = {}
        """By the groups for which it is kept."""

    def show(self, group: Group, *, beyond: bool = False) -> None:
        """The room as the group sees it; `beyond`: for its pods beyond what must start together."""
        seen = reservations.against(self._state, group, beyond=beyond)
        if seen == self._shown:
            return
        for one in self._shown:
            for info, rows, counts in self._of(one):
                self._room.give_back(info, rows, counts)
        for one in seen:
            for info, rows, counts in self._of(one):
                self._room.take(info, rows, counts)
        self._shown = seen
        self._room.reserved = self._sum(seen) if seen else None

    def why_not(self, info: ClassInfo) -> dict[str, int]:
        """As `fits.why_not`; a node that would have room but for reservations is counted under the gang they are for."""
        table, free, reserved = self._state.table, self._room.free, self._room.reserved
        ports = self._room.ports_free(info)
        if reserved is None:
            return fits.why_not(table, free, info, ports)
        held_off = fits.feasible(table, info) & fits.has_room(free + reserved, info) & ~fits.has_room(free, info)
        if ports is not None:
            held_off &= ports
        counts = fits.why_not(table, np.where(held_off[:, None], free + reserved, free), info, ports)
        for one in self._shown:
            here = np.zeros_like(held_off)
            for _, rows, _ in self._of(one):
                here[rows] = True
            here &= held_off
            if here.any():
                held_off &= ~here
                counts[reservations.KEEPS + one.group] = int(here.sum())
        return dict(sorted(counts.items()))

    def rows_of(self, one: Reservation) -> dict[str, dict[int, int]]:
        """scheduling class → row → pods for which there is room kept, on the nodes that are there."""
        return {
            info.fact.digest: dict(zip(rows.tolist(), counts.tolist(), strict=True))
            for info, rows, counts in self._of(one)
        }

    def _of(self, one: Reservation) -> list[Reserved]:
        """Of each class, on the nodes that are there."""
        places = self._places.get(one.group)
        if places is None:
            table, places = self._state.table, []
            for of_class in one.room:
                there = {table.rows[node]: pods for node, pods in of_class.nodes.items() if node in table.rows}
                if not there:
                    continue
                rows, counts = np.array(list(there), np.intp), np.array(list(there.values()), np.int64)
                places.append(Reserved(table.classes[of_class.scheduling_class], rows, counts))
            self._places[one.group] = places
        self._room.rows_scanned += sum(len(rows) for _, rows, _ in places)
        return places

    def _sum(self, seen: tuple[Reservation, ...]) -> Ints:
        key = tuple(one.group for one in seen)
        if key not in self._sums:
            taken = self._sums[key] = np.zeros_like(self._room.free)
            for one in seen:
                for info, rows, counts in self._of(one):
                    for column, amount in info.columns:
                        taken[rows, column] += counts * amount
        return self._sums[key]
