"""The room on which a decision of the binder judges: what its verdicts so far leave of what the state counts.

The binder counts what is permitted, bound, nominated and held. A verdict takes room here, or gives some back, and the
next one finds what is left. The state stays as it is until the verdicts are folded.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import NamedTuple

from events.objects import HostPort
from services.binder.reserved import ReservedRoom
from services.state import fits
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.nodes import Ints
from services.state.records import Claim, Nomination

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
        self._opened: dict[str, list[HostPort]] = {}
        """node → ports that these verdicts open."""
        self._spare: dict[str, Counter[HostPort]] = {}
        """node → ports that the state counts and these verdicts give back."""

    # ---------------------------------------------------------------------------------------------------------- taking

    def take(self, wanted: Wanted, reserved: ReservedRoom | None = None) -> Fault | None:
        """Take room and ports of all of it, or none and say where they lack. `reserved` is to be left alone."""
        lacking = self._take(wanted, 1)
        node = min(self._table.names[row] for row in lacking) if lacking else ""
        kept = "" if node or reserved is None else self._kept_from(wanted, reserved)
        node = node or kept or self._ports_taken(wanted)
        if node:
            self._take(wanted, -1)
            return Fault("RoomKept" if kept else "NoRoom", node, "")
        self.touched.update(*wanted.values())
        return None

    def take_one(self, node: str, info: ClassInfo) -> bool:
        """Take room and ports of one pod of the class, if they are there; whether they are."""
        row = self._table.rows.get(node)
        return row is not None and self.take({info.fact.digest: {row: 1}}) is None

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
        for port in info.fact.host_ports:
            self._spare.setdefault(claimed.node, Counter())[port] += sign

    def crowded(self, node: str, info: ClassInfo) -> bool:
        """Whether the node, which is there, has less than its claims hold of something that the class asks for, its
        ports included."""
        left = self._room(self._table.rows[node])
        if any(left[column] < 0 for column, _ in info.columns):
            return True
        return bool(info.fact.host_ports) and fits.ports_shared(self._ports_held(node), info)

    # ----------------------------------------------------------------------------------------------------------- ports

    def _ports_held(self, node: str) -> Counter[HostPort]:
        """The ports that pods hold there by the state, less those that these verdicts give back."""
        held = Counter(self._table.ports.get(self._table.rows[node], {}))
        return held - self._spare.get(node, Counter())

    def _ports_taken(self, wanted: Wanted) -> str:
        """Take the host ports of these pods on their nodes; if one is taken already, none, and the node's name."""
        opened: dict[str, list[ClassInfo]] = {}
        for digest, of_class in wanted.items():
            info = self._table.classes[digest]
            if info.fact.host_ports:
                for row, pods in of_class.items():
                    opened.setdefault(self._table.names[row], []).extend([info] * pods)
        if not opened:
            return ""
        ports: dict[str, list[HostPort]] = {}
        for node, of_node in opened.items():
            taken = self._open_ports(node, of_node)
            if taken is None:
                return node
            ports[node] = taken
        self._opened.update(ports)
        return ""

    def _open_ports(self, node: str, opened: list[ClassInfo]) -> list[HostPort] | None:
        """The ports that verdicts of this decision open on the node, with those of these pods; None if two collide."""
        theirs = self._ports_held(node)
        mine = list(self._opened.get(node, ()))
        for info in opened:
            if any(fits.is_taken(port, info) for port in chain(theirs, mine)):
                return None
            mine += info.fact.host_ports
        return mine
