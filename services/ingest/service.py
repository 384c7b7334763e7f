"""The ingest process: lists and watches in, facts out.

1. `IngestTaken` is acknowledged: whoever was ingest before can write no more.
2. What the log says up to there is what the lists are compared with.
3. Every kind is listed by a consistent read; what differs goes to the log, missed deletions included.
4. `ClusterSynced`: from here on others may decide.
5. Watches go on from the lists' resourceVersions. One that ends, however it ends, is resumed from the last
   resourceVersion seen; only a 410 costs another list of its kind.

The PodGroup resource may be absent: it is asked for again every now and then, and its gangs wait meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from events import ClusterSynced, Event, IngestTaken
from events.log import EventLog
from services import telemetry
from services.ingest.decoding import KINDS, NODE, POD_GROUP, Kind, Unreadable, WatchEnded
from services.ingest.differ import Ingest, Observed
from services.kubernetes.client import Client
from services.kubernetes.errors import ApiError, Expired, Forbidden, NotFound, Unauthorized, Unreachable
from services.start import state_at
from services.writer import Gather, Writer

log = logging.getLogger("muster.ingest")
SLICE = 200
"""Objects taken in between two yields to the loop: about 10 ms."""
BEHIND = 20_000
"""Facts that may wait for the log before reading from the cluster pauses."""
ABSENT_POLL_S = 30.0
"""How often an absent resource is asked for."""


async def run(
    event_log: EventLog,
    client: Client,
    *,
    holder: str,
    scheduler_names: Sequence[str] = ("muster",),
    absent_poll_s: float = ABSENT_POLL_S,
) -> None:
    """Be the ingest of a cluster until cancelled. What was seen and not yet written then, the next start finds again.

    `holder` names this process. Pods with one of `scheduler_names` are candidates.
    Raises SteppedDown when another process took over, LogError, and ApiError where repeating is of no use: it names the
    verb and the resource that this service account lacks.
    """
    writer = Writer(event_log, "ingest")
    taken = await writer.take(IngestTaken(holder=holder))
    log.info("taken", extra={"sequence": taken, "holder": holder})
    core = Ingest.of((await state_at(event_log, taken)).state, scheduler_names)
    gather = _gather(writer, core)
    await _together([gather.run(), writer.renew(), Reader(core, client, gather, absent_poll_s).run()])


def _gather(writer: Writer, core: Ingest) -> Gather:
    if not telemetry.is_on():
        return Gather(writer, "facts")
    from services.tracing import TracedGather

    return TracedGather(writer, "facts", core.pods.values())


class Reader:
    """Lists and watches of one API server, given to the core; its facts go to `gather`."""

    def __init__(self, core: Ingest, client: Client, gather: Gather, absent_poll_s: float) -> None:
        self.core, self.client, self.gather = core, client, gather
        self._absent_poll_s = absent_poll_s
        self._versions: dict[str, str] = {}
        """Of each kind, the resourceVersion up to which it was seen; empty while its resource is absent."""

    async def run(self) -> None:
        """List, sync, watch; for ever. Raises ApiError where repeating is of no use."""
        await _together(self._list(kind) for kind in KINDS)
        self._synced()
        await _together(self._follow(kind) for kind in KINDS)

    def _synced(self) -> None:
        nodes, pods = len(self.core.named[NODE.name]), len(self.core.pods)
        self.gather.add([ClusterSynced(nodes=nodes, pods=pods)])
        log.info("synced", extra={"nodes": nodes, "pods": pods})

    # --------------------------------------------------------------------------------------------------------- lists

    async def _list(self, kind: Kind[Any]) -> None:
        """Observe everything of a kind; what the log knows and the list lacks was deleted."""
        await _patiently(f"list {kind.resource.name}")(self._list_once, kind)

    async def _list_once(self, kind: Kind[Any]) -> None:
        listed: set[str] = set()
        version = ""
        try:
            async with contextlib.aclosing(self.client.pages(kind.resource)) as pages:
                async for page in pages:
                    version, objects = kind.page(page)
                    listed.update(seen.metadata.uid for seen in objects)
                    await self._take_in(objects)
        except NotFound:
            if kind is not POD_GROUP:
                raise
        self.gather.add(self.core.missing(kind.name, listed))
        self._versions[kind.name] = version

    async def _take_in(self, objects: Sequence[Observed]) -> None:
        for start in range(0, len(objects), SLICE):
            events: list[Event] = []
            for seen in objects[start : start + SLICE]:
                events += self.core.observe(seen)
            self.gather.add(events)
            await asyncio.sleep(0)
        if self.gather.pending > BEHIND:
            await self.gather.flush(left=BEHIND)

    # ------------------------------------------------------------------------------------------------------- watches

    async def _follow(self, kind: Kind[Any]) -> None:
        """Watch a kind for ever, from the last resourceVersion seen."""
        while True:
            if not self._versions[kind.name]:
                await asyncio.sleep(self._absent_poll_s)
                await self._list(kind)
                continue
            try:
                await _patiently(f"watch {kind.resource.name}")(self._watch, kind)
            except (Expired, NotFound) as error:
                log.info("list again", extra={"kind": kind.name, "because": str(error)})
                await self._list(kind)
                self._synced()

    async def _watch(self, kind: Kind[Any]) -> None:
        """One watch until it ends. Raises Unreachable when it gave nothing at all, Expired, NotFound, ApiError."""
        request = f"watch {kind.resource.name}"
        seen_any = False
        try:
            async with contextlib.aclosing(self.client.watch(kind.resource, self._versions[kind.name])) as batches:
                async for lines in batches:
                    seen_any = True
                    await self._take_in_lines(kind, lines)
        except (Unreachable, Unreadable) as error:
            if not seen_any:
                raise Unreachable(request, type(error).__name__, str(error), sent=True) from error
            log.info("watch resumed", extra={"kind": kind.name, "because": str(error)})
        except WatchEnded as ended:
            if ended.code == 410:
                raise Expired(request, 410, "Expired", str(ended)) from ended
            raise Unreachable(request, "ERROR", str(ended), sent=True) from ended
        if not seen_any:
            raise Unreachable(request, "Ended", "the server ended the watch at once", sent=True)

    async def _take_in_lines(self, kind: Kind[Any], lines: Sequence[bytes]) -> None:
        for start in range(0, len(lines), SLICE):
            events: list[Event] = []
            try:
                for line in lines[start : start + SLICE]:
                    events += self._take_in_line(kind, line)
            finally:
                self.gather.add(events)
            await asyncio.sleep(0)
        if self.gather.pending > BEHIND:
            await self.gather.flush(left=BEHIND)

    def _take_in_line(self, kind: Kind[Any], line: bytes) -> list[Event]:
        happened, seen = kind.line(line)
        if seen.metadata.resource_version:
            self._versions[kind.name] = seen.metadata.resource_version
        if happened == "DELETED":
            return self.core.deleted(kind.name, seen.metadata)
        return [] if happened == "BOOKMARK" else self.core.observe(seen)


async def _together(parts: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All at once; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(part)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _patiently(request: str) -> AsyncRetrying:
    """Repeats as long as it may help: the API server may be gone for minutes. 401, 403 and 404 are for people.

    Not so for a watch, whose list was granted: an API server that restarts refuses everybody until it has read its
    roles.
    """

    def worth_repeating(error: BaseException) -> bool:
        if isinstance(error, Expired):
            return request.startswith("list")
        if isinstance(error, (Unauthorized, Forbidden)):
            return request.startswith("watch")
        return isinstance(error, Unreadable) or (isinstance(error, ApiError) and error.retryable)

    def warn(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        log.warning("%s: attempt %d: %s", request, state.attempt_number, error)

    return AsyncRetrying(
        retry=retry_if_exception(worth_repeating),
        wait=wait_random_exponential(multiplier=0.05, max=10.0),
        before_sleep=warn,
        reraise=True,
    )
