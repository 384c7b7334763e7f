"""Room reserved for starving gangs, while a proposal that must leave it alone is judged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from events.objects import HostPort
from services.state import fits, reservations
from services.state.class_info import ClassInfo
from services.state.nodes import NodeTable
from services.state.records import Reservation


class ReservedRoom:
    """What some reservations keep, summed by row of the table of nodes."""

    def __init__(self, table: NodeTable, reserved: Iterable[Reservation]) -> None:
        self._amounts: dict[int, dict[int, int]] = {}
        self._ports: dict[int, list[HostPort]] = {}
        for info, row, pods in reservations.rows(table, reserved):
            self._add(row, info, pods)

    def _add(self, row: int, info: ClassInfo, pods: int) -> None:
        amounts = self._amounts.setdefault(row, {})
        for column, amount in info.columns:
            amounts[column] = amounts.get(column, 0) + pods * amount
        if info.fact.host_ports:
            self._ports.setdefault(row, []).extend(info.fact.host_ports)

    def keeps(self, row: int, info: ClassInfo, left: Sequence[int]) -> bool:
        """Whether pods of the class take reserved room or ports of this row; `left` is what it has with them there."""
        amounts = self._amounts.get(row)
        if amounts is None:
            return False
        if any(left[column] < amounts.get(column, 0) for column, _ in info.columns):
            return True
        return any(fits.is_taken(port, info) for port in self._ports.get(row, ()))
