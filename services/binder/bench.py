"""The room on which a decision of the binder judges: what its verdicts so far leave of what the state counts.

The binder counts what is permitted, bound, nominated and held. A verdict takes room here, or gives some back, and the
next one finds what is left. The state stays as it is until the verdicts are folded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import NamedTuple

from events.objects import HostPort
from services.binder.pace import Pace
from services.binder.reserved import ReservedRoom
from services.state import fits
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nodes import Ints
from services.state.open_ports import OpenPorts, bits_of
from services.state.records import Claim, Nomination
from services.state.slices import at_once

Wanted = dict[str, dict[int, int]]
"""Scheduling class → row → pods of it that go there."""


class Fault(NamedTuple):
    """Why an assignment cannot be accepted: the code that `ProposalRefused` gives, with the node and the pod."""

    reason: str
    node: str
    pod: str


class Bench:
    """One decision's working copy of room and host ports, by row of the table of nodes."""

    def __init__(self, state: State) -> None:
        self.touched: set[int] = set()
        """Rows whose room these verdicts took."""
        self._table = state.table
        self._free: Ints = state.table.allocatable - state.table.held
        """As the state says, before any verdict."""
        self._left: dict[int, list[int]] = {}
        """row → what these verdicts leave of each resource; from `_free` when one first asks."""
        self._opened = OpenPorts()
        """By these verdicts."""
        self._spare: dict[int, Counter[HostPort]] = {}
        """row → ports that the state counts and these verdicts give back."""

    # ---------------------------------------------------------------------------------------------------------- taking

    def take(
        self, wanted: Wanted, pace: Pace, reserved: ReservedRoom | None = None
    ) -> Generator[None, None, Fault | None]:
        """Take room and ports of all of it, or none and say where they lack. `reserved` is to be left alone."""
        lacking = self._take(wanted, 1)
        node = min(self._table.names[row] for row in lacking) if lacking else ""
        kept = "" if node or reserved is None else self._kept_from(wanted, reserved)
        node = node or kept or (yield from self._ports_taken(wanted, pace))
        if node:
            self._take(wanted, -1)
            return Fault("RoomKept" if kept else "NoRoom", node, "")
        self.touched.update(*wanted.values())
        return None

    def take_one(self, node: str, info: ClassInfo) -> bool:
        """Take room and ports of one pod of the class, if they are there; whether they are."""
        row = self._table.rows.get(node)
        return row is not None and at_once(self.take({info.fact.digest: {row: 1}}, Pace())) is None

    def _take(self, wanted: Wanted, sign: int) -> list[int]:
        """Take the room (1) or give it back (-1); the rows that have too little."""
        lacking = []
        for digest, of_class in wanted.items():
            info = self._table.classes[digest]
            for row, pods in of_class.items():
                if not fits.take(self._room(row), info, sign * pods):
                    lacking.append(row)
        return lacking

    def _room(self, row: int) -> list[int]:
        left = self._left.get(row)
        if left is None:
            left = self._left[row] = self._free[row].tolist()
        return left

    def _kept_from(self, wanted: Wanted, reserved: ReservedRoom) -> str:
        """The first node, by name, on which these would take room that is reserved for others; empty: none."""
        classes, names = self._table.classes, self._table.names
        places = [(row, classes[digest]) for digest, of_class in wanted.items() for row in of_class]
        held_off = [names[row] for row, info in places if reserved.keeps(row, info, self._room(row))]
        return min(held_off, default="")

    # ------------------------------------------------------------------------------------------- claims of the state's

    def give_back(self, claimed: Nomination | Claim) -> None:
        """Its room and ports, which the state counts, are there for others."""
        self._move(claimed, 1)

    def take_again(self, claimed: Nomination | Claim) -> None:
        """It keeps its room and ports after all."""
        self._move(claimed, -1)

    def _move(self, claimed: Nomination | Claim, sign: int) -> None:
        row = self._table.rows.get(claimed.node)
        if row is None:
            return
        info = self._table.classes[claimed.scheduling_class]
        fits.take(self._room(row), info, -sign)
        if info.ports:
            self._spare_ports(row, info, sign)

    def _spare_ports(self, row: int, info: ClassInfo, pods: int) -> None:
        spare = self._spare.setdefault(row, Counter())
        for port in info.fact.host_ports:
            spare[port] += pods

    def crowded(self, node: str, info: ClassInfo) -> bool:
        """Whether the node, which is there, has less than its claims hold of something that the class asks for, its
        ports included."""
        row = self._table.rows[node]
        left = self._room(row)
        if any(left[column] < 0 for column, _ in info.columns):
            return True
        if not info.ports:
            return False
        self._spare_ports(row, info, 1)
        others = fits.where_held(self._table, info, (row,), self._spare)
        self._spare_ports(row, info, -1)
        return bool(others)

    # ----------------------------------------------------------------------------------------------------------- ports

    def _ports_taken(self, wanted: Wanted, pace: Pace) -> Generator[None, None, str]:
        """Take the host ports of these pods on their nodes; if one is taken already, none, and the node's name."""
        classes = self._table.classes
        opening = [(classes[digest], rows) for digest, rows in wanted.items() if classes[digest].ports]
        taken = 0
        for info, rows in opening:
            if pace.over_before_pods(len(info.ports)):
                yield
            here, crowd = bits_of(list(rows)), [row for row, pods in rows.items() if pods > 1]
            held = fits.where_held(self._table, info, rows, self._spare)
            taken |= here & self._opened.where(info) | bits_of([*held, *crowd])
            self._opened.open(info, here)
        if not taken:
            return ""
        for info, rows in opening:
            self._opened.close(info, bits_of(list(rows)))
        return next(self._table.names[row] for _, rows in opening for row in rows if taken >> row & 1)
