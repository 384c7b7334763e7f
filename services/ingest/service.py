"""The ingest process: lists and watches in, facts out.

1. The log is read: who cannot, as a newer version goes on there, has said nothing.
2. `IngestTaken` is acknowledged: whoever was ingest before can write no more. What the log says up to there is what the
   lists are compared with.
3. Every kind is listed by a consistent read; what differs goes to the log, missed deletions included.
4. `ClusterSynced`: from here on others may decide.
5. Watches go on from the lists' resourceVersions. One that ends, however it ends, is resumed from the last
   resourceVersion seen; only a 410, an error with which the server ends watch after watch, or a watch that says nothing
   for its whole time costs another list of its kind. Before each watch of pods the server is asked for its version: one
   that counts otherwise what they request costs a list, too.

A cluster may lack the kinds in which gangs are declared, get them and lose them again. One request asks for all of them
every now and then (`Client.discover`). It only says what may be asked for; a kind is gone only when its own list
answers 404, as an API server that starts may not know all of its kinds yet, and this request does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from itertools import chain
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from events import Event, IngestTaken, VersionsAnnounced
from events.log import EventLog
from services import telemetry
from services.ingest.decoding import NODE, OFFERED, POD, PRIORITY_CLASS, WORKLOAD, Kind, Unreadable, WatchEnded
from services.ingest.differ import Ingest, Observed
from services.kubernetes.client import Client
from services.kubernetes.discovery import Served
from services.kubernetes.errors import ApiError, Expired, Forbidden, NoCredentials, NotFound, Unauthorized, Unreachable
from services.kubernetes.transport import heeding
from services.start import fold, in_slices, state_at
from services.state.fold import FOLDS
from services.writer import Gather, Writer

logger = logging.getLogger("muster.ingest")
SLICE = 200
"""Objects taken in between two yields to the loop: about 10 ms."""
BEHIND = 20_000
"""Facts that may wait for the log before reading from the cluster pauses."""
_growing = wait_random_exponential(multiplier=0.05, max=10.0)
"""The pause before a failed request is repeated."""
SHORT_S = 5.0
"""A watch that ends sooner counts as failed. Where a list takes longer than the server's history reaches back, each watch
ends at once, and costs another list."""
ERRORS = 3
"""Watches in a row that may end in an error of the server's. Then the kind is listed: the server may be unable to go on
from there."""
SILENT_S = 150.0
"""A watch that ends later without a word, however it ends, costs a list. A server sends a bookmark of a quiet kind after
two minutes, as its version moves, and ends watches after five; something between may end them sooner. Kubernetes 1.30 and
1.33 may send none: there quiet kinds, which are mostly small, are listed every five minutes."""
SILENT = (
    "nothing came for its whole time, not even a bookmark: as of a quiet kind before Kubernetes 1.35, or where etcd was "
    "restored from a backup"
)
"""A server waits without a word for a resourceVersion that is yet to come, and what happens until then is not said."""
SET_BACK = "etcd was restored from a backup, or a server answers for another; what the list says counts"
DISCOVERY_S = 15.0
"""How often it is asked which kinds the cluster has."""
TRIES = 12
"""How often a kind that a cluster may lack is listed at the start while the server answers with errors: within a minute.
Then the others go on without it: what one kind has in etcd may not be readable any more, or its conversion webhook be
away."""
VERSION_S, VERSION_AGAIN_S = 10.0, 2.0
"""How long the server has to tell its version: at the start, where others may decide by what is counted; and before a
watch of pods, which is not there meanwhile."""


async def run(
    log: EventLog,
    client: Client,
    *,
    holder: str,
    scheduler_names: Sequence[str] = ("muster",),
    discovery_s: float = DISCOVERY_S,
    clock_offset_ms: int = 0,
) -> None:
    """Be the ingest of a cluster until cancelled. What was seen and not yet written then, the next start finds again.

    `holder` names this process. Pods with one of `scheduler_names` are candidates.
    Raises SteppedDown when another process took over, LogError, and ApiError where repeating is of no use: it names the
    verb and the resource that this service account lacks.
    """
    writer = Writer(log, "ingest", clock_offset_ms=clock_offset_ms)
    state, base, *_ = await state_at(log)
    writer.rules, writer.state = state.rules_version, state.state_version
    taken = await writer.take(IngestTaken(holder=holder), VersionsAnnounced(rules=(), state=tuple(FOLDS)))
    logger.info("taken", extra={"sequence": taken, "holder": holder})
    await fold(log, state, taken, of=base)
    writer.rules, writer.state = state.rules_version, state.state_version
    core = await in_slices(Ingest.of_in_slices(state, scheduler_names))
    del state  # which may be large, and is not needed any more
    gather = _gather(writer, core)
    await _together([gather.run(), writer.renew(), Reader(core, client, gather, discovery_s).run()])


def _gather(writer: Writer, core: Ingest) -> Gather:
    if not telemetry.is_on():
        return Gather(writer)
    from services.tracing import TracedGather

    return TracedGather(writer, core.pods.values())


class Reader:
    """Lists and watches of one API server, given to the core; its facts go to `gather`."""

    def __init__(self, core: Ingest, client: Client, gather: Gather, discovery_s: float) -> None:
        self.core, self.client, self.gather = core, client, gather
        self._discovery_s = discovery_s
        self._served = Served({})
        self._asked = asyncio.Event()
        """Set, and replaced, when the server has said anew what it serves."""
        self._versions: dict[str, str] = {}
        """Of each kind, by name, the resourceVersion up to which it was seen."""
        self._errors: Counter[str] = Counter()
        """Of each kind, by name, the watches in a row that ended in an error of the server's before anything came."""
        self._unread: dict[str, list[str]] = {}
        """Of each kind that is not there in a version that is read, by name, those in which it is, as was told last."""
        self._uncounted = ""
        """Why the server's version is not known, as was told last."""
        self._failing: list[Sequence[Kind[Any]]] = []
        """The kinds that the start does without, as the server failed at them."""

    async def run(self) -> None:
        """List, sync, watch; for ever. Raises ApiError where repeating is of no use.

        What is named is listed before what names it: else it would be written without, and then again. What the server
        failed at is listed once more behind all else: it may have failed at everything until then.
        """
        await _patiently("discover")(self._discover)
        await self._count_anew(VERSION_S)
        listed: dict[str, Kind[Any] | None] = {}

        async def offered(versions: Sequence[Kind[Any]], tries: int = TRIES) -> None:
            listed[versions[0].name] = await self._list_offered(versions, tries)

        workloads = next(versions for versions in OFFERED if WORKLOAD in versions)
        await _together([self._list(PRIORITY_CLASS), offered(workloads)])
        groups = [offered(versions) for versions in OFFERED if versions is not workloads]
        await _together([self._list(NODE), self._list(POD), *groups])
        await _together([offered(versions, tries=1) for versions in self._failing])
        self._synced()
        following = [self._follow_offered(versions, listed[versions[0].name]) for versions in OFFERED]
        always = [self._follow(NODE), self._follow(PRIORITY_CLASS), self._follow(POD)]
        await _together([*always, *following, self._discover_forever()])

    def _synced(self) -> None:
        synced = self.core.synced()
        self.gather.add([synced])
        logger.info("synced", extra={"nodes": synced.nodes, "pods": synced.pods, "counted_as": f"1.{self.core.minor}"})

    # ----------------------------------------------------------------------------------------------------- discovery

    async def _discover(self) -> None:
        self._served = await self.client.discover()
        self._asked.set()
        self._asked = asyncio.Event()

    async def _discover_forever(self) -> None:
        while True:
            await asyncio.sleep(self._discovery_s)
            await _patiently("discover", granted=True)(self._discover)

    async def _count_anew(self, within_s: float) -> bool:
        """Whether the server has become one that counts otherwise what pods request. Who does not tell in time has not:
        a pod that is being resized may be counted wrongly then, but all others are followed."""
        try:
            async with asyncio.timeout(within_s):
                minor = await self.client.minor()
        except (ApiError, TimeoutError) as error:
            why = str(error) or f"get /version: no answer within {within_s:g} s"
            if why != self._uncounted:
                logger.warning("%s: what pods request is counted as by Kubernetes 1.%d", why, self.core.minor)
            self._uncounted = why
            return False
        self._uncounted = ""
        return self.core.count_by(minor)

    # --------------------------------------------------------------------------------------------------------- lists

    async def _list(self, kind: Kind[Any], *, granted: bool = False, tries: int = 0) -> None:
        """Observe everything of a kind; what the log knows and the list lacks was deleted. `granted`: once before.
        `tries`: raises the server's error after so many; 0: never."""
        await _patiently(f"list {kind.resource.name}", granted=granted, tries=tries)(self._list_once, kind)

    async def _list_once(self, kind: Kind[Any]) -> None:
        listed: set[str] = set()
        version, undone_before = "", self.core.undone
        async with contextlib.aclosing(self.client.pages(kind.resource)) as pages:
            async for page in pages:
                of_page, objects = kind.page(page)
                version = version or of_page  # all have the first one's; a later one would skip what came in between
                listed.update(seen.metadata.uid for seen in objects)
                await self._take_in(objects)
        await self._add(self.core.missing_in_slices(kind.name, listed))
        if undone := self.core.undone - undone_before:
            logger.warning("list %s: the log was ahead of %d objects: %s", kind.resource.name, undone, SET_BACK)
        self._versions[kind.name] = version
        self._errors[kind.name] = 0

    async def _list_offered(self, versions: Sequence[Kind[Any]], tries: int = 0) -> Kind[Any] | None:
        """List a kind that the cluster may lack, in the best version that it has; None where it has none.

        What the log knows of is asked for even if the server does not name it: only a 404 says that it is gone. Who
        starts does without a kind that is not granted, or that the server fails at in so many `tries`. Of who runs (0)
        all else was granted: whatever is answered about this kind, it is asked for again.
        """
        name = versions[0].name
        served = [kind for kind in versions if self._served.has(kind.resource)]
        for kind in served or (versions if self.core.knows(name) else ()):
            try:
                await self._list(kind, tries=tries)
                return kind
            except NotFound:
                continue
            except (ApiError, Unreadable) as error:
                failing = _is_failing(error)
                if tries and not (failing or isinstance(error, Forbidden)):
                    raise
                if failing:
                    self._failing.append(versions)
                until = "answered" if failing else "granted"
                logger.warning("%s: gangs declared there wait until it is %s", error, until)
                return None
        self._tell_unread(versions)
        await self._vanished(versions)
        return None

    async def _vanished(self, versions: Sequence[Kind[Any]]) -> None:
        """A kind is not there any more, if the API server itself says so: a gateway that has lost its way to it may have
        its very words, and has them for all that is asked, also for what is there; or for some of it, where one of
        several servers behind it is not ready. Where the kind is named it is asked for again soon."""
        name = versions[0].name
        if self.core.knows(name):
            served: Served = await _patiently("discover", granted=True)(self.client.discover)
            if any(served.tells(kind.resource) and served.has(kind.resource) for kind in versions):
                logger.warning("%s are named, and were not found: asked for again", versions[0].resource.name)
            else:
                await self._add(self.core.vanished_in_slices(name))

    def _tell_unread(self, versions: Sequence[Kind[Any]]) -> None:
        """Once of each: gangs of a definition that has only other versions wait, and nothing else says why.

        Not of Workloads, which declare gangs in one version alone; in later ones PodGroups do.
        """
        name, resource = versions[0].name, versions[0].resource
        read = [kind.resource.api_version for kind in versions]
        unread = [one for one in self._served.versions(resource) if one not in read and name != WORKLOAD.name]
        if unread and unread != self._unread.get(name):
            names = resource.name, " and ".join(unread), " or ".join(read)
            logger.warning("%s are served as %s, and read as %s: gangs declared there wait until they are", *names)
        self._unread[name] = unread

    async def _add(self, slices: Iterable[list[Event]]) -> None:
        for events in slices:
            self.gather.add(events)
            await asyncio.sleep(0)

    async def _take_in(self, objects: Sequence[Observed]) -> None:
        for start in range(0, len(objects), SLICE):
            events: list[Event] = []
            for seen in objects[start : start + SLICE]:
                events += self.core.observe(seen, listed=True)
            await self._add(chain((events,), self.core.rest_in_slices()))
        if self.gather.pending > BEHIND:
            await self.gather.flush(left=BEHIND)

    # ------------------------------------------------------------------------------------------------------- watches

    async def _follow(self, kind: Kind[Any]) -> None:
        """Watch a kind for ever, from the last resourceVersion seen; slower while watches end as soon as they begin."""
        clock, short = asyncio.get_running_loop().time, 0
        while True:
            began_s, why = clock(), ""
            try:
                await _patiently(f"watch {kind.resource.name}", granted=True)(self._watch, kind)
            except (Expired, NotFound) as error:
                why = str(error)
            short = short + 1 if clock() - began_s < SHORT_S else 0
            if short > 1:  # one is a connection that was cut
                await asyncio.sleep(_pause_s(short))
            if why:
                logger.info("list again", extra={"kind": kind.name, "because": why})
                await self._list(kind, granted=True)
                self._synced()

    async def _follow_offered(self, versions: Sequence[Kind[Any]], kind: Kind[Any] | None) -> None:
        """Watch a kind whenever the cluster has it; `kind` is the version that was listed."""
        name = versions[0].name
        while True:
            if kind is not None:
                try:
                    await self._follow(kind)
                except NotFound as error:
                    logger.info("gone", extra={"kind": name, "because": str(error)})
                    await self._vanished(versions)
            await self._asked.wait()
            kind = await self._list_offered(versions)
            if kind is not None:
                logger.info("there", extra={"kind": name, "api_version": kind.resource.api_version})

    async def _watch(self, kind: Kind[Any]) -> None:
        """One watch until it ends. Raises Unreachable or Unreadable when nothing of it could be read; Expired where it
        cannot go on from there; NotFound, ApiError."""
        request = f"watch {kind.resource.name}"
        if kind is POD and await self._count_anew(VERSION_AGAIN_S):
            raise Expired(request, 0, "Upgraded", "this version of Kubernetes counts otherwise what pods request")
        clock, seen_any = asyncio.get_running_loop().time, False
        began_s = clock()
        try:
            async with contextlib.aclosing(self.client.watch(kind.resource, self._versions[kind.name])) as batches:
                async for lines in batches:
                    await self._take_in_lines(kind, lines)
                    seen_any = True
                    self._errors[kind.name] = 0
        except (Unreachable, Unreadable) as error:
            if seen_any:
                logger.info("watch resumed", extra={"kind": kind.name, "because": str(error)})
            elif isinstance(error, Unreadable) and self._is_stuck(kind):
                raise Expired(request, 0, "Unreadable", str(error)) from error
            elif clock() - began_s <= SILENT_S:
                raise
        except WatchEnded as ended:
            status = ended.status
            list_again = self._is_stuck(kind) or ended.expired
            refusal = Expired if list_again else ApiError
            raise refusal(request, status.code, status.reason, status.message) from ended
        if not seen_any and clock() - began_s > SILENT_S:
            raise Expired(request, 0, "Silent", SILENT)
        if not seen_any:
            raise Unreachable(request, "Ended", "the server ended the watch at once", sent=True)

    def _is_stuck(self, kind: Kind[Any]) -> bool:
        """Whether what its watches begin with was an error, or could not be read, so often that it is to be listed."""
        self._errors[kind.name] += 1
        return self._errors[kind.name] > ERRORS

    async def _take_in_lines(self, kind: Kind[Any], lines: Sequence[bytes]) -> None:
        for start in range(0, len(lines), SLICE):
            events: list[Event] = []
            try:
                for line in lines[start : start + SLICE]:
                    events += self._take_in_line(kind, line)
            finally:
                await self._add(chain((events,), self.core.rest_in_slices()))
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


def _pause_s(attempt: int) -> float:
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempt
    return _growing(state)


def _is_failing(error: BaseException | None) -> bool:
    """Whether the server answers, and cannot do what it is asked for, or not so that it can be read."""
    return isinstance(error, Unreadable) or (isinstance(error, ApiError) and error.code >= 500)


def _error_of(state: RetryCallState) -> BaseException | None:
    return None if state.outcome is None else state.outcome.exception()


def _patiently(request: str, *, granted: bool = False, tries: int = 0) -> AsyncRetrying:
    """Repeats a request as long as that may help: the API server may be gone for minutes.

    401, 403, 404 and a missing token are raised, as people must mend them. Of a request that was `granted` before only a
    404 is raised: an API server that restarts refuses everybody until it has read its roles, and a proxy in front of it
    may answer anything. What the server fails at so many `tries` in a row is raised, if that is not 0: not that it is
    away.
    """
    in_a_row = 0

    def fails_again(state: RetryCallState) -> bool:
        nonlocal in_a_row
        in_a_row = in_a_row + 1 if _is_failing(_error_of(state)) else 0
        return in_a_row == tries > 0

    def worth_repeating(error: BaseException) -> bool:
        if isinstance(error, Expired):
            return request.startswith("list")
        if isinstance(error, (Unauthorized, Forbidden, NoCredentials)):
            return granted
        if granted and isinstance(error, ApiError) and not isinstance(error, NotFound):
            return True  # it was answered otherwise before: something between answers now
        return isinstance(error, Unreadable) or (isinstance(error, ApiError) and error.retryable)

    def warn(state: RetryCallState) -> None:
        logger.warning("%s: attempt %d: %s", request, state.attempt_number, _error_of(state))

    return AsyncRetrying(
        retry=retry_if_exception(worth_repeating),
        stop=fails_again,
        wait=heeding(_growing),
        before_sleep=warn,
        reraise=True,
    )
