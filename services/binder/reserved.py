"""Room reserved for starving gangs, while a proposal that must leave it alone is judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.state import reservations
from services.state.class_info import ClassInfo
from services.state.nodes import NodeTable
from services.state.open_ports import Bits, OpenPorts, bits_of
from services.state.records import Reservation


class ReservedRoom:
    """What some reservations keep, summed by row of the table of nodes."""

    def __init__(self, table: NodeTable, reserved: Iterable[Reservation]) -> None:
        self._amounts: dict[int, dict[int, int]] = {}
        self._ports = OpenPorts()
        self._taken: dict[ClassInfo, Bits] = {}
        """Where their ports keep pods of a class away."""
        for info, row, pods in reservations.rows(table, reserved):
            self._add(row, info, pods)

    def _add(self, row: int, info: ClassInfo, pods: int) -> None:
        amounts = self._amounts.setdefault(row, {})
        for column, amount in info.columns:
            amounts[column] = amounts.get(column, 0) + pods * amount
        if info.fact.host_ports:
            self._ports.open(info, bits_of((row,)))

    def keeps(self, row: int, info: ClassInfo, left: Sequence[int]) -> bool:
        """Whether pods of the class take reserved room or ports of this row; `left` is what it has with them there."""
        amounts = self._amounts.get(row)
        if amounts is None:
            return False
        if any(left[column] < amounts.get(column, 0) for column, _ in info.columns):
            return True
        if not info.ports:
            return False
        if info not in self._taken:
            self._taken[info] = self._ports.where(info)
        return bool(self._taken[info] >> row & 1)
