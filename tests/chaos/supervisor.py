"""Keeps services running, as a kubelet does: started again when they end, with a backoff; exit codes are counted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.e2e.processes import Process
from tests.chaos import isolation

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 4.0
WELL_AFTER_S = 6.0
"""A process that lived so long begins with the first pause again."""
POLL_S = 0.05
ENDS_WITHIN_S = 30.0
KILLED, TERMINATED = -9, -15


class Slot:
    """One place for a process of a service. `wanted` is whether there should be one."""

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str], group: int
    ) -> None:
        self.name, self.log = name, log
        self.wanted = asyncio.Event()
        self.process: Process | None = None
        self.exits: Counter[int] = Counter()
        self.starts = 0
        self._command, self._environment, self._group = command, environment, group

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    async def keep(self) -> None:
        """For ever."""
        pause_s = FIRST_PAUSE_S
        while True:
            await self.wanted.wait()
            began_s = time.monotonic()
            process = self._start()
            await ended(process)
            self.exits[process.popen.returncode] += 1
            pause_s = FIRST_PAUSE_S if time.monotonic() - began_s > WELL_AFTER_S else min(pause_s * 2, LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    def kill(self) -> bool:
        """kill -9; whether there was somebody to kill."""
        if self.process is None or not self.process.alive:
            return False
        self.process.popen.kill()
        return True

    async def end(self) -> None:
        """SIGTERM, and waits. Raises TimeoutError."""
        process = self.process
        if process is None or not process.alive:
            return
        process.resume()
        process.popen.terminate()
        async with asyncio.timeout(ENDS_WITHIN_S):
            await ended(process)

    def _start(self) -> Process:
        """In this thread, which stays: the process dies with it."""
        self.starts += 1
        if self._group:
            with isolation.group(self._group):
                self.process = Process(self.name, self._command, self.log, self._environment)
        else:
            self.process = Process(self.name, self._command, self.log, self._environment)
        return self.process


async def ended(process: Process) -> None:
    """Waits for its end, and reaps it."""
    while process.alive:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(POLL_S)
