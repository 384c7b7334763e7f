"""A log and its retention, as a CronJob runs it: one at a time, and some are killed.

Its clock is a day ahead of whose clock is furthest ahead, but for `YOUNG_S`: what in earnest is kept for days goes within
a minute, as far as the older of the last two snapshots. What is gone the archive has, and nothing else has it any more.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, Protocol

from events.envelope import Stored
from events.homes import open_log
from events.log import EventLog, LogError

YOUNG_S = 30
DAY_S = 86_400
AGAIN_S = 1.0
VERIFIES_WITHIN_S = 900.0
VERIFY_EXITS = (0, 1, 5)


class Command(Protocol):
    """Runs a command of Muster's, as `Field.muster` does."""

    def __call__(
        self, *words: str, role: str, within_s: float = ..., clock_offset_ms: int = ..., cluster: str = ...
    ) -> Awaitable[tuple[int, str, str]]: ...


class KeptLog:
    """The log `cluster`. What cannot be read just now raises LogError."""

    def __init__(
        self,
        muster: Command,
        url: str,
        cluster: str,
        archive: Path,
        *,
        reader: str,
        login: Mapping[str, Any],
        keeper: str,
        furthest_ms: int,
    ) -> None:
        """`login`: of the user `reader`; `keeper`: as whom it is purged; `furthest_ms`: how far the clock of those who
        write is ahead."""
        self.archive = archive
        self.violations: list[str] = []
        self._muster, self._url, self._cluster = muster, url, cluster
        self._reader, self._login, self._keeper = reader, login, keeper
        self._clock_offset_ms = furthest_ms + (DAY_S - YOUNG_S) * 1000

    # --------------------------------------------------------------------------------------------------------- reading

    async def open(self) -> EventLog:
        """As who only reads."""
        return await open_log(self._url, self._cluster, **self._login)

    async def purged(self) -> int:
        """How many commits the log has no more."""
        log = await self.open()
        try:
            return (await log.bounds()).first - 1
        finally:
            await log.close()

    async def commits(self) -> list[Stored]:
        """The whole log as it is now: what was purged is the archive's."""
        purged, log = await self.purged(), await self.open()
        try:
            found = await self._archived(purged) if purged else []
            return found + [stored async for batch in log.read(purged) for stored in batch]
        finally:
            await log.close()

    async def _archived(self, until: int) -> list[Stored]:
        """The first commits of the log, up to that one."""
        archive = await open_log(str(self.archive))
        try:
            return [stored async for batch in archive.read(0, until) for stored in batch]
        finally:
            await archive.close()

    async def verify(self) -> dict[str, Any]:
        """What is left of the log, and all of it, which the archive has in the end: what ``muster verify`` says of that.
        What it finds is a violation."""
        said: dict[str, Any] = {}
        for location in (self._url, str(self.archive)):
            words = ("verify", location, "--strict", "50", "--json")
            code, out, err = await self._muster(
                *words, role=self._reader, cluster=self._cluster, within_s=VERIFIES_WITHIN_S
            )
            lines = out.strip().splitlines()
            if code not in VERIFY_EXITS or not lines:
                raise LogError(f"muster verify: exit {code}\n{out}\n{err}")
            said = json.loads(lines[-1])
            if not said["verified"]:
                why = said["difference"] or said["violation"] or said["why_unverifiable"]
                self.violations.append(f"verify {location}: {why}")
        return said

    # ------------------------------------------------------------------------------------------------------- retention

    async def purge(self, seconds: float) -> bool:
        """One run; whether it was killed, as it took longer than that. Where it fails, the next one goes on."""
        try:
            code, _, err = await self._retention("1", seconds)
        except TimeoutError:
            return True
        if code not in (0, 2):
            self.violations.append(f"retention: exit {code}, {err.strip()}")
        return False

    async def archive_all(self, seconds: float) -> None:
        """Nothing is purged. Raises TimeoutError, which says why."""
        deadline_s = time.monotonic() + seconds
        while (found := await self._retention("0", seconds))[0]:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"retention: exit {found[0]}, {found[2].strip()}")
            await asyncio.sleep(AGAIN_S)

    async def _retention(self, days: str, seconds: float) -> tuple[int, str, str]:
        words = ("retention", self._url, "--archive", str(self.archive), "--days", days, "--json")
        found = await self._muster(
            *words,
            role=self._keeper,
            cluster=self._cluster,
            within_s=seconds,
            clock_offset_ms=self._clock_offset_ms,
        )
        if "Traceback" in found[2]:
            self.violations.append(f"retention: {found[2]}")
        return found
