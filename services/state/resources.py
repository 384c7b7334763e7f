"""Which resources there are: what nodes offer and classes ask for, by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

BASE_RESOURCES = ("cpu_milli", "memory_bytes", "ephemeral_storage_bytes", "pods")
NOWHERE = len(BASE_RESOURCES)
"""The column of all resources that have none."""


class Resources:
    """Each has a place in what a snapshot records, from the first mention on until nobody offers or asks for it, and from
    the first offer on a column in the table of nodes. The next one gets what is free: of places the first."""

    def __init__(self, names: Sequence[str | None] = BASE_RESOURCES) -> None:
        """`names`: as a snapshot has them. Raises LookupError."""
        if tuple(names[: len(BASE_RESOURCES)]) != BASE_RESOURCES:
            raise LookupError(f"resources begin with {names[: len(BASE_RESOURCES)]}")
        self.names = list(names)
        """The resource at each place; None: it is free."""
        self.places = {name: place for place, name in enumerate(names) if name is not None}
        self._free_places = [place for place, name in enumerate(names) if name is None]  # in order, so it is a heap
        self.columns = {name: column for column, name in enumerate(BASE_RESOURCES)}
        self._free_columns: list[int] = []
        self.width = NOWHERE + 1
        """Columns that there are, free ones included."""
        self._askers: dict[str, int] = {}
        """Resource → classes that ask for it."""

    def mention(self, names: Iterable[str]) -> None:
        """Those of these resources that have no place get one."""
        for name in names:
            if name in self.places:
                continue
            if self._free_places:
                place = heappop(self._free_places)
                self.names[place] = name
            else:
                place = len(self.names)
                self.names.append(name)
            self.places[name] = place

    def make_columns(self, names: Iterable[str]) -> None:
        """For these, which have none."""
        for name in names:
            if not self._free_columns:
                self._free_columns.append(self.width)
                self.width += 1
            self.columns[name] = self._free_columns.pop()

    def drop(self, name: str) -> None:
        """Free the resource's place and column."""
        place, column = self.places.pop(name), self.columns.pop(name, None)
        self.names[place] = None
        heappush(self._free_places, place)
        if column is not None:
            self._free_columns.append(column)

    def ask(self, amounts: dict[str, int]) -> None:
        """One more class asks for these."""
        if not amounts.keys() <= self.places.keys():
            self.mention(amounts)
        for name in amounts:
            self._askers[name] = self._askers.get(name, 0) + 1

    def unask(self, amounts: dict[str, int]) -> list[str]:
        """One class fewer asks for these; for which ones none does any more."""
        unasked = []
        for name in amounts:
            self._askers[name] -= 1
            if not self._askers[name]:
                del self._askers[name]
                unasked.append(name)
        return unasked

    def is_asked(self, name: str) -> bool:
        """Whether a class asks for it."""
        return name in self._askers

    def is_idle(self, name: str) -> bool:
        """Whether it goes unless some node offers it."""
        return self.places.get(name, 0) >= len(BASE_RESOURCES) and not self.is_asked(name)
