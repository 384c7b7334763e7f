"""Host ports within one cycle: where a class finds its ports free, given those this cycle opened for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import cast

import numpy as np
import numpy.typing as npt

from events.objects import HostPort
from services.state import fits
from services.state.class_info import ClassInfo
from services.state.nodes import Mask, NodeTable

Rows = npt.NDArray[np.intp]
Port = tuple[str, int]
"""Protocol and number, whatever the address."""


class Ports:
    """A cycle's working copy of the ports that are held on the nodes.

    Only who asks for the same port of the same protocol can collide: so both are kept by port, and a thousand pods that
    ask for a port of their own each look at nobody else's.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._free: dict[str, tuple[ClassInfo, Mask]] = {}
        self._asking: dict[Port, list[str]] = {}
        """The classes in `_free` that ask for it."""
        self._opened: dict[Port, dict[int, list[ClassInfo]]] = {}
        """row → the classes, once for each pod, for whose pods this cycle opened it there."""
        self._besides: dict[int, list[HostPort]] = {}
        """row, of which some are lent for now → ports that the state counts there besides."""

    def free(self, info: ClassInfo) -> Mask:
        """Rows whose ports are free for one pod of the class, which asks for some. Do not write to it."""
        known = self._free.get(info.fact.digest)
        if known is None:
            mask = cast(Mask, fits.ports_mask(self._table, info))
            for row, besides in self._besides.items():
                mask[row] = not any(fits.is_taken(port, info) for port in besides)
            for port in info.ports:
                for row, opened in self._opened.get(port, {}).items():
                    if any(fits.ports_collide(info, other, port) for other in opened):
                        mask[row] = False
                self._asking.setdefault(port, []).append(info.fact.digest)
            known = self._free[info.fact.digest] = (info, mask)
        return known[1]

    def open(self, info: ClassInfo, rows: Rows) -> None:
        """One pod of the class is on each of the rows."""
        for port in info.ports:
            opened = self._opened.setdefault(port, {})
            for row in rows.tolist():
                opened.setdefault(row, []).append(info)
            for digest in self._asking.get(port, ()):
                other, mask = self._free[digest]
                if fits.ports_collide(info, other, port):
                    mask[rows] = False

    def close(self, info: ClassInfo, rows: Rows) -> None:
        """It is not there after all."""
        for port in info.ports:
            for row in rows.tolist():
                self._opened[port][row].remove(info)
        self._forget()

    def lend(self, kept: Mapping[ClassInfo, Iterable[tuple[int, int]]]) -> None:
        """Ports that the state counts on rows for so many pods of these classes are free, until they are kept again."""
        lent: dict[int, Counter[HostPort]] = {}
        for info, placed in kept.items():
            for port in info.fact.host_ports:
                for row, pods in placed:
                    lent.setdefault(row, Counter())[port] += pods
        if lent:
            held = self._table.ports
            self._besides = {row: list(Counter(held.get(row, {})) - ports) for row, ports in lent.items()}
            self._forget()

    def keep_again(self) -> None:
        if self._besides:
            self._besides = {}
            self._forget()

    def _forget(self) -> None:
        self._free.clear()
        self._asking.clear()
