"""Where host ports are open: rows of the table of nodes by port, so that who asks looks at its own ports alone.

A set of rows is the bits of an integer. So where the ports of a class are taken is the union of a few integers for each
port that it asks for, whoever opened them, and ports that the same pods opened share one integer. A port is kept once
for each address at which it is open and once for all of them: who asks for it at `fits.EVERY_ADDRESS` meets the latter,
who names an address meets those who opened it there or at every one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from events.objects import HostPort
from services.state.class_info import ClassInfo
from services.state.fits import EVERY_ADDRESS
from services.state.nodes import Mask

Bits = int
"""A set of rows: for each of them this bit is set."""
Port = HostPort | tuple[str, int]
"""Protocol and number, at an address or, as a pair, at any."""


def bits_of(rows: Sequence[int] | npt.NDArray[np.integer]) -> Bits:
    if len(rows) == 1:  # as of single pods
        return 1 << int(rows[0])
    at = np.asarray(rows, np.intp)
    mask = np.zeros(int(at.max(initial=-1)) + 1, np.bool_)
    mask[at] = True
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def mask_of(bits: Bits, size: int) -> Mask:
    """As a mask of so many rows, which are all that there are."""
    octets = np.frombuffer(bits.to_bytes((size + 7) // 8, "little"), np.uint8)
    return np.unpackbits(octets, count=size, bitorder="little").view(np.bool_)


def rows_of(bits: Bits) -> list[int]:
    """The rows, ascending."""
    return np.flatnonzero(mask_of(bits, bits.bit_length())).tolist() if bits else []


class OpenPorts:
    """Ports that pods of classes opened."""

    def __init__(self) -> None:
        self._rows: dict[Port, Bits] = {}
        """Where it is open."""
        self._again: dict[Port, Counter[int]] = {}
        """row → how often it was opened there beside the first time."""

    def copy(self) -> OpenPorts:
        other = OpenPorts()
        other._rows = self._rows.copy()
        other._again = {port: again.copy() for port, again in self._again.items()}
        return other

    def where(self, info: ClassInfo) -> Bits:
        """The rows on which a pod of the class would not get all of its ports."""
        rows, found = self._rows, 0
        for port in info.fact.host_ports if rows else ():
            anywhere = rows.get((port.protocol, port.port), 0)
            if not anywhere or port.host_ip == EVERY_ADDRESS:
                found |= anywhere
            else:
                found |= rows.get(port, 0) | rows.get(HostPort(EVERY_ADDRESS, port.protocol, port.port), 0)
        return found

    def open(self, info: ClassInfo, rows: Bits) -> None:
        """One more pod of the class is on each of the rows."""
        before, after, twice = 0, rows, list[int]()
        for port in _ports(info):
            found = self._rows.get(port, 0)
            if found is not before:  # mostly the one before was opened by the same pods: then they go on sharing
                before, after, twice = found, found | rows, rows_of(found & rows)
            if twice:
                self._again.setdefault(port, Counter()).update(twice)
            self._rows[port] = after

    def close(self, info: ClassInfo, rows: Bits) -> None:
        """One pod of the class is on none of them any more."""
        before, last, after = 0, 0, 0
        for port in _ports(info):
            found = self._rows[port]
            gone = self._close_again(port, rows) if port in self._again else rows
            if found is not before or gone != last:
                before, last, after = found, gone, found & ~gone
            self._rows[port] = after

    def _close_again(self, port: Port, rows: Bits) -> Bits:
        """Of a port that was opened more than once somewhere: the rows where it was open for the last time."""
        again, last = self._again[port], list[int]()
        for row in rows_of(rows):
            if again[row] > 1:
                again[row] -= 1
            elif not again.pop(row, 0):
                last.append(row)
        if not again:
            del self._again[port]
        return bits_of(last)


def _ports(info: ClassInfo) -> Iterator[Port]:
    return chain(info.ports, info.fact.host_ports)
