"""Host ports within one cycle: where a class finds its ports free, given those this cycle opened for others.

Where a port is taken is kept as rows by port (`services.state.open_ports`), and put together when a class asks, of the
ports that it asks for: what it costs does not depend on how many others ask for some, nor for which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from events.objects import HostPort
from services.state import fits
from services.state.class_info import ClassInfo
from services.state.nodes import Mask, NodeTable
from services.state.open_ports import Bits, OpenPorts, bits_of, mask_of

Rows = npt.NDArray[np.intp]
PORT_ROWS = 16
"""To look up a port, or to open or to close it, takes as long as to scan so many rows."""
REMEMBERED = 64
"""Rows: where a port is held by so many is remembered, as many classes may ask for it."""


class Ports:
    """A cycle's working copy of the ports that are held on the nodes."""

    def __init__(self, table: NodeTable) -> None:
        self.rows_scanned = 0
        """Measures the work, for slicing."""
        self._table = table
        self._free: dict[str, Mask] = {}
        """By class: since a port was opened or closed last."""
        self._opened = OpenPorts()
        """By this cycle."""
        self._held: dict[HostPort, Bits] = {}
        """Where pods have it by the state, or have one that collides."""
        self._lent: dict[int, Counter[HostPort]] = {}
        """row → ports that the state counts there for so many pods, and that are free for now."""

    def free(self, info: ClassInfo) -> Mask:
        """Rows whose ports are free for one pod of the class, which asks for some. Do not write to it."""
        mask = self._free.get(info.fact.digest)
        if mask is None:
            taken = self._where_held(info) | self._opened.where(info)
            self.rows_scanned += PORT_ROWS * len(info.fact.host_ports)
            mask = self._free[info.fact.digest] = ~mask_of(taken, len(self._table.present))
        return mask

    def _where_held(self, info: ClassInfo) -> Bits:
        """The rows where pods hold by the state what one of the class cannot open beside them."""
        taken = 0
        for port in info.fact.host_ports:
            if (port.protocol, port.port) in self._table.holders:
                taken |= self._held[port] if port in self._held else self._find_held(port)
        if self._lent:
            still = fits.where_held(self._table, info, self._lent, self._lent)
            taken = taken & ~bits_of(list(self._lent)) | bits_of(list(still))
        return taken

    def _find_held(self, port: HostPort) -> Bits:
        rows = len(self._table.holders[port.protocol, port.port])
        self.rows_scanned += rows
        held = bits_of(fits.holders(self._table, port))
        if rows > REMEMBERED:
            self._held[port] = held
        return held

    def open(self, info: ClassInfo, rows: Rows) -> None:
        """One pod of the class is on each of the rows."""
        self._opened.open(info, bits_of(rows))
        self._changed(info)

    def close(self, info: ClassInfo, rows: Rows) -> None:
        """It is not there after all."""
        self._opened.close(info, bits_of(rows))
        self._changed(info)

    def _changed(self, info: ClassInfo) -> None:
        self.rows_scanned += PORT_ROWS * len(info.fact.host_ports)
        self._free.clear()

    def lend(self, kept: Mapping[ClassInfo, Iterable[tuple[int, int]]]) -> None:
        """Ports that the state counts on rows for so many pods of these classes are free, until they are kept again."""
        self._free.clear()
        self._lent = {}
        for info, placed in kept.items():
            for port in info.fact.host_ports:
                for row, pods in placed:
                    self._lent.setdefault(row, Counter())[port] += pods

    def keep_again(self) -> None:
        self._free.clear()
        self._lent = {}
