"""A cluster's own Muster log over a leaf node: whether a list of the cluster could show anything new.

The log is followed by its JetStream domain, from its end as of now on. It *vouches* for the last list when all of this
holds at the moment of the question:

- the cluster was listed after following began, no longer than five minutes ago, and no run of ours was then between
  having a node and running;
- no event since then told of a pod of ours (`services.federator.cluster_log`);
- the log's end was asked for just now, over the leaf node, and everything up to there is read;
- ingest is alive, by its lease, and not about to compare the cluster with its log: what it does not see it cannot tell.

Otherwise the cluster is listed, as if it had no log: a leaf that is cut, a server that restarts, an ingest that is gone
cost nothing but lists. An event asks for one at once. Nothing that comes while the leaf is cut is missed: reading goes on
behind the last commit that was read. If that is impossible, as the log was purged or is another, it begins anew at its
end, and vouches for nothing before the next list.

Five minutes, as no event tells of a run without pods: a quota of pods is used up, say, and somebody deletes its Jobs.

What must be trusted: that an ingest which holds its lease still hears from its API server; and, until its next word, that
it had compared the cluster when following began: which of its commits said so last, no question over a leaf node tells.
What happens meanwhile is seen with its comparison, or when the five minutes are over. Hence no decision rests on the log
(`cluster_log.needs_list`).
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

from events import ClusterSynced, IngestTaken, envelope, lease, subjects
from events.connection import Connection
from events.envelope import MalformedCommit, Stored
from events.jetstream import JetStreamLog
from events.log import LogError
from services.federator.backends import RUNNING, TERMINAL, WAITING, Backend, Listing, Run, Silent, Watched
from services.federator.cluster_log import job_of, runs_of

ANSWER_S = 1.0
"""How long the log's end, ingest's lease, and what is missing up to the end may take to come."""
AGAIN_S = 1.0
LIST_S = 300.0
"""For so long a list may be vouched for."""
GATHER_S = 0.1
"""What an event asks for waits so long for others of the same gang."""
MOST_JOBS = 10_000
"""Jobs in the log's events since the last list; with more, a list is due, whoever owns them."""
logger = logging.getLogger("muster.federator")


class Leaf:
    """The log of `cluster` in a JetStream domain that `connection` reaches. Its runs are in `namespace`."""

    def __init__(self, connection: Connection, domain: str, cluster: str, namespace: str) -> None:
        self._log = JetStreamLog(connection, cluster, domain=domain)
        self._facts = subjects.subject(cluster, "ingest")
        self._namespace = namespace
        self._beginnings = 0
        self._place = -1
        """The last commit that was read; -1 while nothing is followed."""
        self._read, self._stirred = asyncio.Event(), asyncio.Event()
        self._synced = True
        self._is_listed = False
        """Whether the cluster was, since the log is followed."""
        self._listed_s = 0.0
        """When it was asked for that list, by a clock that never goes back."""
        self._told: dict[str, int] = {}
        """Job → the last commit that told something of it, since the last list."""
        self._unsettled: set[str] = set()
        """Runs that the last list did not show in a state that only events end."""
        self._silent: set[str] = set()
        """What failed last, of following and asking; people were told that the log is not heard."""

    async def follow(self) -> None:
        while True:
            try:
                await self._follow()
            except LogError as error:
                self._fails("following", error)
            self._place = -1
            await asyncio.sleep(AGAIN_S)
            before = self._log  # it remembers an end, which another log of this name may not have reached
            self._log = JetStreamLog(before.connection, before.cluster, domain=before.domain)

    async def stirred(self) -> None:
        await self._stirred.wait()
        self._stirred.clear()
        await asyncio.sleep(GATHER_S)

    async def vouches(self, watched: Watched) -> bool:
        if not self._is_settled(watched) or monotonic() >= self._listed_s + LIST_S:
            return False
        try:
            end = await self._log.end_now(ANSWER_S)
            ingest = await lease.holder_of(
                self._log.connection, self._log.cluster, "ingest", within_s=ANSWER_S, domain=self._log.domain
            )
            async with asyncio.timeout(ANSWER_S):
                while 0 <= self._place < end:
                    self._read.clear()
                    await self._read.wait()
        except LogError as error:
            self._fails("asking", error)
            return False
        except TimeoutError:
            return False
        self._succeeds("following", "asking")
        return bool(ingest) and self._is_settled(watched)

    async def listed(self, backend: Backend) -> Listing | Silent:
        begun, place, asked_s = self._beginnings, self._place, monotonic()
        answer = await backend.observe()
        if isinstance(answer, Listing) and place >= 0 and begun == self._beginnings:
            self._told = {job: last for job, last in self._told.items() if last > place}
            self._unsettled = {run.name for run in answer.runs if not _is_settled(run)}
            self._is_listed, self._listed_s = True, asked_s
        return answer

    def _is_settled(self, watched: Watched) -> bool:
        if self._place < 0 or not (self._is_listed and self._synced):
            return False
        return self._unsettled.isdisjoint(watched.values()) and not runs_of(self._told, watched)

    async def _follow(self) -> None:
        """Raises LogError."""
        end = await self._log.end()
        self._beginnings += 1
        self._synced, self._is_listed, self._told = True, False, {}
        self._place = end
        async for batch in self._log.follow(end):
            for stored in batch:
                if stored.subject == self._facts and envelope.header_of(stored) is not None:
                    self._hear(stored)
            self._place = batch[-1].sequence
            self._read.set()
            self._succeeds("following")

    def _fails(self, what: str, error: LogError) -> None:
        """Told once for each silence: a leaf that is cut stays so until somebody looks."""
        if not self._silent:
            logger.warning("the log of %s is not heard: %s", self._log.cluster, error)
        self._silent.add(what)

    def _succeeds(self, *what: str) -> None:
        """A commit that comes is no answer to what was asked: where only one of both works, the log is not heard."""
        if self._silent and not self._silent.difference(what):
            logger.info("the log of %s is heard again", self._log.cluster)
        self._silent.difference_update(what)

    def _hear(self, stored: Stored) -> None:
        try:
            events = envelope.decode_events(stored)
        except MalformedCommit:  # of a version to come: whatever it says, a list shows it
            self._forget()
            return
        for event in events:
            if isinstance(event, IngestTaken | ClusterSynced):
                self._synced = isinstance(event, ClusterSynced)
            elif job := job_of(event, self._namespace):
                self._told[job] = stored.sequence
                self._stirred.set()
        if len(self._told) > MOST_JOBS:
            self._forget()

    def _forget(self) -> None:
        """The last list vouches for nothing any more."""
        self._told, self._is_listed = {}, False
        self._stirred.set()


def _is_settled(run: Run) -> bool:
    return run.state == RUNNING or run.state in TERMINAL or (run.state == WAITING and not run.placed)
