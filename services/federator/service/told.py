"""A job's story for whoever asks the federator, who may not read the log: folded anew for each, in slices."""

from __future__ import annotations

import asyncio

from events.envelope import decode_events, header_of
from events.log import EventLog
from services.federator.explain import Line, Said, Story
from services.federator.snapshot import FORM
from services.federator.state import WRITER
from services.start import FOLD_BYTES, beginning, read_on


async def told(log: EventLog, name: str) -> list[Line]:
    """From where the log begins to where it ends as of now; empty where it has no such job. Raises LogError."""
    end, state = await log.end(), (await beginning(log, FORM)).state
    story, folded = Story(name, state), 0
    async for batch in read_on(log, state.sequence, end):
        for stored in batch:
            header = header_of(stored)
            if header is not None and header.writer == WRITER:
                story.add(Said(stored.sequence, header.time_ns, decode_events(stored)))
            folded += len(stored.payload)
            if folded >= FOLD_BYTES:
                folded = 0
                await asyncio.sleep(0)
    return story.lines
