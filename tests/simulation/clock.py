"""The clocks of simulated processes, in place of the module `time` wherever the services ask it.

Every process has a monotonic clock (virtual time) and a wall clock with an offset of its own, which may jump.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tenacity
import tenacity.wait

from tests.simulation.loop import PROCESS, START_S, VirtualLoop

EPOCH_NS = 1_767_225_600_000_000_000
"""What wall clocks that are right say at the start: 2026-01-01."""


class Clock:
    """Has what the services use of `time`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.now_s

    perf_counter = monotonic

    def monotonic_ns(self) -> int:
        return round(self._loop.now_s * 1e9)

    def time_ns(self) -> int:
        process = PROCESS.get()
        wall_ns = EPOCH_NS + round((self._loop.now_s - START_S) * 1e9)
        return wall_ns if process is None else wall_ns + int(process.skew_ns)

    def time(self) -> float:
        return self.time_ns() / 1e9


@contextmanager
def virtual(loop: VirtualLoop, source: random.Random) -> Iterator[None]:
    """Services, simulator and tenacity read the loop's time, and tenacity draws its jitter from `source`."""
    clock: Any = Clock(loop)
    modules = [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith(("services.", "events.")) and getattr(module, "time", None) is time
    ]
    for module in (*modules, tenacity):
        module.time = clock  # type: ignore[attr-defined]
    tenacity.wait.random = source  # type: ignore[assignment]
    try:
        yield
    finally:
        for module in (*modules, tenacity):
            module.time = time  # type: ignore[attr-defined]
        tenacity.wait.random = random
