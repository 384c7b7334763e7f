"""An order of the nodes that depends on their names alone: that of the names' hashes."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections.abc import Generator, Mapping

import numpy as np
import numpy.typing as npt

SLICE_NAMES = 8_192
"""Hashed between two yields: some 7 ms."""


class Rank:
    """Of a table's nodes. Kept up from its first use on: to sort all of them for one that came, or went, would take
    longer than to plan."""

    def __init__(self) -> None:
        self._order: list[tuple[bytes, str]] | None = None
        self._numbers: npt.NDArray[np.uint32] | None = None

    def came(self, name: str) -> None:
        self._numbers = None
        if self._order is not None:
            insort(self._order, _hash(name))

    def went(self, name: str) -> None:
        self._numbers = None
        if self._order is not None:
            del self._order[bisect_left(self._order, _hash(name))]

    def first_in_slices(self, rows: Mapping[str, int], size: int) -> Generator[None, None, None]:
        """The first use, if there was none yet, with a yield now and then."""
        if self._order is not None:
            return
        order = []
        for number, name in enumerate(rows, 1):
            order.append(_hash(name))
            if number % SLICE_NAMES == 0:
                yield
        order.sort()
        self._order = order
        yield
        self.numbers(rows, size)
        yield

    def numbers(self, rows: Mapping[str, int], size: int) -> npt.NDArray[np.uint32]:
        """For each of so many rows its node's number in the order, from 1; empty rows have 0."""
        if self._numbers is None:
            if self._order is None:
                self._order = sorted(map(_hash, rows))
            self._numbers = np.zeros(size, np.uint32)
            self._numbers[[rows[name] for _, name in self._order]] = np.arange(1, len(rows) + 1, dtype=np.uint32)
        return self._numbers


def _hash(name: str) -> tuple[bytes, str]:
    return hashlib.blake2b(name.encode(), digest_size=8).digest(), name
