"""What is known of every node for each constraint: computed when somebody asks, and from then on kept up row by row.

A mask is an array over the table's rows, and each of its values depends on that row's node alone. So when nodes changed
since a mask was asked for last, it is evaluated anew for their rows only.

One pod may have thousands of expressions. So a mask is evaluated in slices, for those who ask for that before they use
it (`Masks.in_slices`), and else in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from services.state.slices import at_once

if TYPE_CHECKING:
    from services.state.class_info import ClassInfo, Constraint
    from services.state.nodes import NodeTable

Rows = npt.NDArray[np.intp] | slice
Evaluate = Callable[["NodeTable", "ClassInfo", Rows], Generator[None, None, npt.NDArray[Any]]]
"""What a class's constraint says of these rows, in slices."""
EVERY = slice(None)
"""All rows."""
MASKED_BYTES = 1 << 28
"""What the masks of filters may take, and those of preferences a quarter of it: at most 340 MB. At 50,000 nodes the
preferences alone of one cycle whose pods have a constraint each were 2.1 GB."""
RECENT = 16
"""Masks that were asked for last, which stay: a gang's classes take turns."""


class _Kept:
    """One mask, and how far it is kept up."""

    __slots__ = ("asked", "values", "version")

    def __init__(self, values: npt.NDArray[Any], version: int) -> None:
        self.values = values
        self.version = version
        """That of the table for which the values hold."""
        self.asked = 0
        """How many masks had been missed when this one was asked for last."""


class Masks:
    """Masks of one kind by constraint, in the order in which they were asked for last.

    A queue asks for all masks in turn. If the one that was asked for longest ago made room for the next, a queue of more
    constraints than there is room for would find none of them. So a recent one makes room, and the others are found when
    it is their turn again. Only if more masks were missed since the oldest was asked for than there are constraints does
    the oldest go: each of them had its turn, and nobody came back to it.
    """

    def __init__(self, portion: int) -> None:
        self._portion = portion
        """It has this part of `MASKED_BYTES`."""
        self._kept: dict[Constraint, _Kept] = {}
        self._missed = 0

    def __len__(self) -> int:
        return len(self._kept)

    def known(self, table: NodeTable, info: ClassInfo) -> bool:
        """Whether there is a mask of the class's constraint, as of now."""
        mask = self._kept.get(info.constraint)
        return mask is not None and mask.version == table.version

    def of(self, table: NodeTable, info: ClassInfo, evaluate: Evaluate) -> npt.NDArray[Any]:
        """The mask of the class's constraint, as of now. Do not write to it."""
        mask = self._kept.pop(info.constraint, None)
        if mask is None or mask.version != table.version:
            mask = at_once(self._renewed(mask, table, info, evaluate))
        mask.asked = self._missed
        self._kept[info.constraint] = mask
        return mask.values

    def in_slices(self, table: NodeTable, info: ClassInfo, evaluate: Evaluate) -> Generator[None, None, None]:
        """Evaluate the mask of the class's constraint where it is not known as of now: the next who asks finds it."""
        if not self.known(table, info):
            mask = yield from self._renewed(self._kept.get(info.constraint), table, info, evaluate)
            mask.asked = self._missed
            self._kept[info.constraint] = mask

    def _renewed(
        self, mask: _Kept | None, table: NodeTable, info: ClassInfo, evaluate: Evaluate
    ) -> Generator[None, None, _Kept]:
        if mask is None:
            mask = _Kept((yield from evaluate(table, info, EVERY)), table.version)
            self._missed += 1
            self._make_room(mask.values.nbytes, len(table.constraints))
        else:
            rows = table.changed_since(mask.version)
            mask.values[rows] = yield from evaluate(table, info, rows)
            mask.version = table.version
        return mask

    def _make_room(self, mask_bytes: int, constraints: int) -> None:
        if self._kept and (len(self._kept) + 1) * mask_bytes > MASKED_BYTES // self._portion:
            gone = next(iter(self._kept))
            if self._missed - self._kept[gone].asked <= constraints:
                gone = next(islice(reversed(self._kept), RECENT, None), gone)
            del self._kept[gone]

    def drop(self, constraint: Constraint) -> None:
        """Forget what no class says any more."""
        self._kept.pop(constraint, None)

    def clear(self) -> None:
        """There are more rows."""
        self._kept.clear()
