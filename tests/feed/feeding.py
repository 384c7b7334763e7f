"""A feed over a server, what it is given, and what a subscriber gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from events import GangPermitted, GroupsRefused, Ticked
from events.cloudevents import FeedMessage
from events.feed import Feed
from events.log import EventLog
from events.subscription import subscribe
from services.feed import core, service
from tests.events.samples import sample
from tests.feed.commits import append

DAY_S = 24 * 3600
KEEP_ALL_S = 100 * 365 * DAY_S


def tick(number: int) -> Ticked:
    return Ticked(time_ns=number, jumped_ns=0)


def permit(group: str) -> GangPermitted:
    return GangPermitted(group=group, proposals=(), bindings=(), dropped=())


def refuse(*groups: str) -> GroupsRefused:
    refusal: GroupsRefused = sample(GroupsRefused)
    return type(refusal)(**{name: getattr(refusal, name) for name in refusal.__struct_fields__} | {"groups": groups})


async def fill(log: EventLog, commits: int, events: int = 3) -> None:
    for number in range(commits):
        await append(log, "binder", [tick(number * events + index) for index in range(events)])


@asynccontextmanager
async def feeding(
    log: EventLog, url: str, max_age_s: int = KEEP_ALL_S, **options: str
) -> AsyncIterator[asyncio.Task[None]]:
    """The service, until the block ends."""
    feed = await Feed.open(url, log.cluster, **options)  # type: ignore[arg-type]
    task = asyncio.create_task(service.run(log, feed, max_age_s=max_age_s))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        await feed.close()


async def take(url: str, cluster: str, count: int, pattern: str = ">", **options: str) -> list[FeedMessage]:
    """The first `count` messages of a new subscriber."""
    taken: list[FeedMessage] = []
    messages = subscribe(url, cluster, pattern, **options)  # type: ignore[arg-type]
    async for message in messages:
        taken.append(message)
        if len(taken) == count:
            break
    await messages.aclose()
    return taken


async def expected(log: EventLog) -> list[FeedMessage]:
    return [message async for batch in log.read() for stored in batch for message in core.messages(stored, log.cluster)]


async def kept(url: str, cluster: str) -> int:
    """Messages in the feed's stream."""
    feed = await Feed.open(url, cluster)
    try:
        await feed.position()
        return feed.sequence
    finally:
        await feed.close()
