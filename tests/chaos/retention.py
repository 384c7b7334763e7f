"""The log's retention, as a CronJob runs it: one at a time, and some are killed.

Its clock is a day ahead of whose clock is furthest ahead, but for `YOUNG_S`: what in earnest is kept for days goes within
a minute, as far as the older of the last two snapshots. What is gone the archive has, and nothing else has it any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Protocol

from events.envelope import Stored
from events.homes import open_log
from events.permissions import KEEPER

YOUNG_S = 30
DAY_S = 86_400
AGAIN_S = 1.0


class Command(Protocol):
    """Runs a command of Muster's, as `Field.muster` does."""

    def __call__(
        self, *words: str, role: str, within_s: float = ..., clock_offset_ms: int = ...
    ) -> Awaitable[tuple[int, str, str]]: ...


class Retention:
    def __init__(self, muster: Command, url: str, archive: Path, furthest_ms: int) -> None:
        """`furthest_ms`: how far the clock of those who write is ahead."""
        self.archive = archive
        self.violations: list[str] = []
        self._muster, self._url = muster, url
        self._clock_offset_ms = furthest_ms + (DAY_S - YOUNG_S) * 1000

    async def purge(self, seconds: float) -> bool:
        """One run; whether it was killed, as it took longer than that. Where it fails, the next one goes on."""
        try:
            code, _, err = await self._run("1", seconds)
        except TimeoutError:
            return True
        if code not in (0, 2):
            self.violations.append(f"retention: exit {code}, {err.strip()}")
        return False

    async def archive_all(self, seconds: float) -> None:
        """Nothing is purged. Raises TimeoutError, which says why."""
        deadline_s = time.monotonic() + seconds
        while (found := await self._run("0", seconds))[0]:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"retention: exit {found[0]}, {found[2].strip()}")
            await asyncio.sleep(AGAIN_S)

    async def archived(self, until: int) -> list[Stored]:
        """The first commits of the log, up to that one. Raises LogError."""
        archive = await open_log(str(self.archive))
        try:
            return [stored async for batch in archive.read(0, until) for stored in batch]
        finally:
            await archive.close()

    async def _run(self, days: str, seconds: float) -> tuple[int, str, str]:
        words = ("retention", self._url, "--archive", str(self.archive), "--days", days, "--json")
        found = await self._muster(*words, role=KEEPER, within_s=seconds, clock_offset_ms=self._clock_offset_ms)
        if "Traceback" in found[2]:
            self.violations.append(f"retention: {found[2]}")
        return found
