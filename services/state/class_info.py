"""A scheduling class as the arithmetic of placement needs it: columns of the table of nodes instead of names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from events.facts import SchedulingClassObserved
from events.objects import Toleration
from services.state.resources import NOWHERE
from services.state.tolerations import Tolerations


class Constraint:
    """What classes say of the nodes that they may go to, and how many say it."""

    __slots__ = ("classes", "said", "tolerations")

    def __init__(self, said: tuple[Any, ...], tolerations: Iterable[Toleration]) -> None:
        self.said = said
        self.tolerations = Tolerations(tolerations)
        self.classes = 0


class ClassInfo:
    """A scheduling class, ready for arithmetic."""

    __slots__ = ("amounts", "asked", "columns", "constraint", "fact", "number", "ports", "unoffered")

    def __init__(
        self, fact: SchedulingClassObserved, columns: dict[str, int], constraint: Constraint, number: int
    ) -> None:
        self.fact = fact
        self.asked = {name: amount for name, amount in fact.requests.items() if amount}
        """resource → amount; never 0."""
        self.find_columns(columns)
        self.constraint = constraint
        """Classes with an equal constraint share it, and its masks."""
        self.number = number
        """Its row in the table's `requests`, from 1; another's when it is gone."""
        self.ports: dict[tuple[str, int], set[str]] = {}
        """(protocol, port) → the addresses at which its pods open it."""
        for port in fact.host_ports:
            self.ports.setdefault((port.protocol, port.port), set()).add(port.host_ip)

    def find_columns(self, of: dict[str, int]) -> None:
        """Given the columns of resources that there are."""
        self.columns = [(of[name], amount) for name, amount in self.asked.items() if name in of]
        """(column, amount), in order of the columns."""
        self.unoffered: dict[str, int] = {}
        """What is asked for and has no column."""
        if len(self.columns) < len(self.asked):
            self.unoffered = {name: amount for name, amount in self.asked.items() if name not in of}
            self.columns.append((NOWHERE, 1))
        self.columns.sort()
        self.amounts = dict(self.columns)
        """column → amount."""
