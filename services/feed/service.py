"""The feed as a process: follows the log and publishes what `core` makes of it, behind what was published last.

Muster never reads the feed, and the feed writes nothing into the log: however slow it or its readers are, no decision
waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing

from events.cloudevents import FeedMessage
from events.envelope import Stored
from events.feed import Feed, Interrupted
from events.log import EventLog
from services import telemetry
from services.feed import core

PAUSE_S = 0.5
"""After an interruption; another feed of the same cluster would interrupt for ever."""
log = logging.getLogger(__name__)


async def run(events: EventLog, feed: Feed, *, max_age_s: int, clock_ns: Callable[[], int] = time.time_ns) -> None:
    """Publishes for ever. Raises LogError, and MalformedCommit for a writer's commit that this version cannot read."""
    while True:
        try:
            await _publish(events, feed, max_age_s, clock_ns)
        except Interrupted as interruption:
            log.warning("interrupted", extra={"reason": str(interruption)})
            await asyncio.sleep(PAUSE_S)


async def _publish(events: EventLog, feed: Feed, max_age_s: int, clock_ns: Callable[[], int]) -> None:
    """From the last place that the feed's stream holds. Ends only by an exception.

    A feed that holds nothing begins with what is young enough to be kept: it is new, or all of it has grown too old.
    """
    last = await feed.position()
    after = core.BEGINNING if last is None else core.place_of(last)
    oldest_ns = clock_ns() - max_age_s * 1_000_000_000 if last is None else 0
    log.info("publishing", extra={"after": last or "the oldest event that is kept"})
    async with aclosing(events.follow(max(0, after[0] - 1))) as batches:  # type: ignore[type-var]
        async for batch in batches:
            await feed.publish([message for stored in batch for message in _messages(stored, feed, after, oldest_ns)])
            telemetry.FEED_PLACE.set(batch[-1].sequence)


def _messages(stored: Stored, feed: Feed, after: core.Place, oldest_ns: int) -> list[FeedMessage]:
    if core.is_foreign(stored):
        log.warning("set aside", extra={"place": stored.sequence, "subject": stored.subject})
        return []
    if oldest_ns and core.appended_ns(stored) < oldest_ns:
        return []
    return core.messages(stored, feed.cluster, after)
