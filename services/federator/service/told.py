"""Jobs' stories for whoever asks the federator, who may not read the log: folded anew for each, in slices."""

from __future__ import annotations

import asyncio

from events.envelope import decode_events, header_of
from events.log import EventLog
from services.federator.explain import Line, Said, Story
from services.federator.snapshot import FORM
from services.federator.state import WRITER
from services.start import FOLD_BYTES, beginning, in_slices, read_on


class Stories:
    """One at a time: each folds the log, and several would take that much from everything else."""

    def __init__(self, log: EventLog) -> None:
        self._log, self._one = log, asyncio.Lock()
        self._name, self._lines = "", list[Line]()
        """The last that was told: whoever asks for it page by page has one story, and the log is folded once for it."""

    async def of(self, name: str, behind: int) -> list[Line]:
        """All lines of the job's story for whoever was told so many of them; empty where the log has no such job. As of
        now, unless there are more than those in what was told last. Raises LogError."""
        async with self._one:
            if name != self._name or not 0 < behind < len(self._lines):
                self._name, self._lines = name, await _told(self._log, name)
            return self._lines


async def _told(log: EventLog, name: str) -> list[Line]:
    """From where the log begins to where it ends as of now."""
    end, state = await log.end(), (await beginning(log, FORM)).state
    story, folded = Story(name, state), 0
    async for batch in read_on(log, state.sequence, end):
        for stored in batch:
            header = header_of(stored)
            if header is not None and header.writer == WRITER:
                await in_slices(story.add_in_slices(Said(stored.sequence, header.time_ns, decode_events(stored))))
            folded += len(stored.payload)
            if folded >= FOLD_BYTES:
                folded = 0
                await asyncio.sleep(0)
    return story.lines
