"""Host ports within one cycle: where a class finds its ports free, also of what this cycle opened for other classes."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from services.state import fits
from services.state.nodes import ClassInfo, Mask, NodeTable

Rows = npt.NDArray[np.intp]


class Ports:
    """A cycle's working copy of the ports that are held on the nodes."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._free: dict[str, tuple[ClassInfo, Mask]] = {}
        self._opened: dict[int, list[ClassInfo]] = {}
        """row → the classes, once for each pod, whose ports this cycle opened there."""

    def free(self, info: ClassInfo) -> Mask:
        """Rows whose ports are free for one pod of the class, which asks for some. Do not write to it."""
        known = self._free.get(info.fact.digest)
        if known is None:
            mask = cast(Mask, fits.ports_mask(self._table, info))
            for row, opened in self._opened.items():
                if any(fits.classes_collide(info, other) for other in opened):
                    mask[row] = False
            known = self._free[info.fact.digest] = (info, mask)
        return known[1]

    def open(self, info: ClassInfo, rows: Rows) -> None:
        """One pod of the class is on each of the rows."""
        for row in rows.tolist():
            self._opened.setdefault(row, []).append(info)
        for other, mask in self._free.values():
            if fits.classes_collide(info, other):
                mask[rows] = False

    def close(self, info: ClassInfo, rows: Rows) -> None:
        """It is not there after all."""
        for row in rows.tolist():
            self._opened[row].remove(info)
        self._free.clear()
