"""What is reserved for starving gangs, as one proposal is judged: it may not take what is kept from its group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.state import fits, reservations
from services.state.nodes import ClassInfo, NodeTable
from services.state.records import Reservation


class Kept:
    """The sum of some reservations, by row."""

    def __init__(self, table: NodeTable, reserved: Iterable[Reservation]) -> None:
        self._amounts: dict[int, dict[int, int]] = {}
        self._ports: dict[int, list[tuple[str, int, str]]] = {}
        for one in reserved:
            for digest, node, pods in reservations.rooms(one):
                row = table.rows.get(node)
                if row is not None:
                    self._add(row, table.classes[digest], pods)

    def _add(self, row: int, info: ClassInfo, pods: int) -> None:
        amounts = self._amounts.setdefault(row, {})
        for column, amount in info.columns:
            amounts[column] = amounts.get(column, 0) + pods * amount
        for port in info.fact.host_ports:
            self._ports.setdefault(row, []).append((port.protocol, port.port, port.host_ip))

    def keeps(self, row: int, info: ClassInfo, left: Sequence[int]) -> bool:
        """Whether pods of the class, with whom so much is `left` there, take of what is kept."""
        amounts = self._amounts.get(row)
        if amounts is None:
            return False
        if any(left[column] < amounts.get(column, 0) for column, _ in info.columns):
            return True
        kept = self._ports.get(row, ())
        return any(fits.ports_collide(port, taken) for port in info.fact.host_ports for taken in kept)
