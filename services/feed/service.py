"""The feed as a process: follows the log and publishes what `core` makes of it, behind what was published last.

Muster never reads the feed, and the feed writes nothing into the log: however slow it or its readers are, no decision
waits for them. It may be stopped and started at will, and a second one does no harm.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import aclosing
from functools import partial
from itertools import dropwhile
from typing import Any

from events.cloudevents import FeedMessage
from events.envelope import Stored
from events.feed import WINDOW, Feed, Interrupted
from events.log import EventLog, LogError
from services import telemetry
from services.feed import core
from services.settings import Settings
from services.telemetry.repeated import Repeated

PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
"""After an interruption; another feed of the same cluster would interrupt for ever, and so would a stream that takes
nothing."""
DOUBTED_S = 2.0
"""An end of before is asked for again after this: a leader that was stopped tells it until it hears of the new one."""
SETTLED_S = 15.0
"""What another feed has sent has landed by then: it waits for no answer for longer than ten seconds."""
PORTION_BYTES = 1_000_000

logger = logging.getLogger(__name__)


async def serve(log: EventLog, settings: Settings) -> None:
    """``muster feed`` of this log: runs until it is cancelled. Raises LogError and MalformedCommit."""
    feed = await Feed.open(
        settings.nats_url,
        settings.cluster,
        max_age_s=settings.feed_max_age_s,
        max_bytes=settings.feed_max_bytes,
        replicas=settings.log_replicas,
        **settings.nats_options(),
    )
    try:
        await run(log, feed, max_age_s=settings.feed_max_age_s, clock_ns=settings.now_ns)
    finally:
        await feed.close()


async def run(log: EventLog, feed: Feed, *, max_age_s: int, clock_ns: Callable[[], int] = time.time_ns) -> None:
    """Publishes for ever. Raises LogError, and MalformedCommit for a writer's commit that this version cannot read."""
    pause_s, reached = PAUSE_S, -1
    while True:
        try:
            await _until_reconnected(feed, _publish(log, feed, max_age_s, clock_ns))
        except Interrupted as interruption:
            pause_s = PAUSE_S if feed.sequence > reached else min(2 * pause_s, LONGEST_PAUSE_S)
            reached = feed.sequence
            logger.warning("interrupted; tried again in %g s", pause_s, extra={"reason": str(interruption)})
            await asyncio.sleep(pause_s)


async def _until_reconnected(feed: Feed, publishing: Coroutine[Any, Any, None]) -> None:
    """Then where the feed stands is to be asked anew. Raises what `publishing` raises."""
    published, reconnected = asyncio.create_task(publishing), asyncio.create_task(feed.reconnected())
    try:
        ended, _ = await asyncio.wait({published, reconnected}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        while left := [task for task in (published, reconnected) if not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=PAUSE_S)  # nats-py swallows a cancellation here and there
    if published in ended:
        published.result()


async def _publish(log: EventLog, feed: Feed, max_age_s: int, clock_ns: Callable[[], int]) -> None:
    """From the last place that the feed's stream holds. Ends only by an exception.

    A feed that holds nothing begins with what is young enough to be kept: it is new, or all of it has grown too old. What
    is appended from now on is young, also where this clock is far ahead of its writer's.
    """
    last, end = await feed.position(), await log.end()
    after, oldest_ns = core.BEGINNING, clock_ns() - max_age_s * 1_000_000_000 if last is None else None
    if last is not None:
        after, time = _place(feed, last)
        await _check_log(log, after, time)
    logger.info("publishing", extra={"after": last.id if last is not None else "all that is too old"})
    belongs = partial(_belongs, Repeated(logger, "set aside: %d, the last at this place"))
    async with aclosing(log.follow(await _behind(log, feed, last, after))) as batches:  # type: ignore[type-var]
        async for batch in batches:
            kept = batch if oldest_ns is None else list(dropwhile(partial(_is_too_old, oldest_ns, end), batch))
            if kept:
                oldest_ns = None  # all that follows belongs to it, whatever its writer's clock says
            await _publish_batch(feed, filter(belongs, kept), after)
            telemetry.FEED_PLACE.set(batch[-1].sequence)


async def _check_log(log: EventLog, after: core.Place, time: str) -> None:
    """Whether what was published last, at `time`, is this log's; what was purged is believed.

    Raises LogError for another log's: the feed would leave out what that one has at places which this one had.
    """
    if after[0] > (end := await log.end()):
        await asyncio.sleep(DOUBTED_S)
        end = await log.end()
    if after[0] > end:
        found = f"ends at {end}: that was another log, or this one lost its end"
    elif (there := await _time_at(log, after[0])) not in ("", time):
        found = f"has a commit of {there} there: that was another log"
    else:
        return
    held = f"the feed holds {core.identity(after)} of {time}"
    raise LogError(f"{held} and the log {found}. To begin anew, delete the feed's stream")


async def _time_at(log: EventLog, sequence: int) -> str:
    """When the commit there was appended; empty for what was purged."""
    found = await log.at(sequence)
    if found is None:
        return ""
    return "nobody we know" if core.is_foreign(found) else core.timestamp(core.appended_ns(found))


async def _behind(log: EventLog, feed: Feed, last: FeedMessage | None, after: core.Place) -> int:
    """The commit behind which to read: the one before that of `after`, as there may be more of that one.

    A feed that slept while the log was purged has a gap, and says so; every message names its place, so readers see it.
    Another feed may have read what is purged since, and be about to publish that: nobody leaves anything out before such
    a feed is done. Raises Interrupted where one goes on.
    """
    place = max(0, after[0] - 1)
    if after == core.BEGINNING or place >= (await log.bounds()).first - 1:
        return place
    await asyncio.sleep(SETTLED_S)
    if await feed.position() != last:
        raise Interrupted(f"{feed.stream}: another feed goes on behind {core.identity(after)}")
    feed.goes_alone, first = True, (await log.bounds()).first
    logger.warning("the log begins at %d: what was not published behind %s is gone", first, core.identity(after))
    return first - 1


async def _publish_batch(feed: Feed, commits: Iterable[Stored], after: core.Place) -> None:
    """In portions of about a window, or of `PORTION_BYTES` of the log if that is less, so that neither memory nor the
    loop is held for long: one message may be about a gang of 40,000 pods."""
    pending: list[FeedMessage] = []
    size = 0
    for stored in commits:
        pending += core.messages(stored, feed.cluster, after)
        size += len(stored.payload)
        if len(pending) >= WINDOW or size >= PORTION_BYTES:
            await _send(feed, pending)
            pending, size = [], 0
    await _send(feed, pending)


async def _send(feed: Feed, messages: list[FeedMessage]) -> None:
    await feed.publish(messages)
    telemetry.FEED_MESSAGES.add(len(messages))


def _place(feed: Feed, last: FeedMessage) -> tuple[core.Place, str]:
    """Of the event that was published last, and its time."""
    try:
        return core.place_of(last.id), last.event().time
    except ValueError as error:
        raise LogError(f"{feed.stream}: its last message: {error}: somebody else publishes here") from error


def _is_too_old(oldest_ns: int, end: int, stored: Stored) -> bool:
    return stored.sequence <= end and (core.is_foreign(stored) or core.appended_ns(stored) < oldest_ns)


def _belongs(set_aside: Repeated, stored: Stored) -> bool:
    """Whether this commit is a writer's."""
    if core.is_foreign(stored):
        set_aside.warn(extra={"place": stored.sequence, "subject": stored.subject})
        telemetry.SET_ASIDE.add(1, writer="feed")
        return False
    return True
