"""What clusters answer: one list of an account's jobs in each poll, while any is open there; where the cluster's own log
is heard, one when something happened.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Mapping
from contextlib import suppress

import events as ev
from events import Event
from services.decider import LogTime
from services.federator import cluster_log, core, observing
from services.federator.backends import (
    Absent,
    Accepted,
    Backend,
    Described,
    Holding,
    Listing,
    Owner,
    Reach,
    Silent,
    Unchanged,
)
from services.federator.records import RACING, Key, Stray
from services.federator.service.agenda import Agenda
from services.federator.service.decider import Decider
from services.federator.state import State
from services.state.clock import HEARTBEAT_NS

logger = logging.getLogger("muster.federator")
NOT_IN_FILE = "the clusters file has no cluster of this user and URI"
SWEEP_S = 3_600.0
"""Between two lists of a cluster that look for what nobody waits for; the first is at the start, and whenever the cluster
answers again."""


class Polling:
    """What is seen of each account, into the log, with the time at which it was asked for. `agendas`: by account; an
    account that answers again is tried at once."""

    def __init__(self, decider: Decider, clock: LogTime, agendas: Mapping[str, Agenda]) -> None:
        self._decider = decider
        self._clock = clock
        self._agendas = agendas
        self._answered: dict[str, int] = {}
        """By account: the log time of the question that was answered last."""
        self._silent: set[str] = set()
        """Accounts that the log reported as silent."""
        self._held: dict[str, Collection[str]] = {}
        """By account: UIDs of runs that the last list showed held, and the log had released by then."""
        self._unknown: dict[str, list[tuple[str, str]]] = {}
        """By account: names and UIDs of runs that no place has. With each poll the cluster is asked whose one is, so that
        nothing waits for it."""
        self._asked: dict[str, set[tuple[str, str]]] = {}
        """By account: those of which it has said so."""
        self._sweep_s: dict[str, float] = {}
        """By account: when it is to be listed for what nobody waits for; as soon as it may be where it is not here."""

    @property
    def _state(self) -> State:
        return self._decider.state

    async def run(self, account: str, reach: Reach) -> None:
        """For ever: one list of the account's jobs every `poll_s`, while it has any; where the cluster's own log is
        heard, one when something happened."""
        while True:
            pause_s = reach.poll_s * random.uniform(1.0, 1.1)
            asked_ns = observing.log_time_ns(self._state, self._clock.now_ns())
            swept: Listing | Silent | None = None
            if self._state.strays.get(account) or asyncio.get_running_loop().time() >= self._sweep_s.get(account, 0.0):
                swept = await self._sweep(account, reach.backend)
            answer: Listing | Unchanged | Silent | None = swept  # each counts against the cluster's limit of lists
            if self._state.open.get(account):
                if answer is None or self._is_asked_behind(answer, reach):
                    asked_ns = observing.log_time_ns(self._state, self._clock.now_ns())
                    answer = await self._ask(account, reach, asked_ns)
                absent = await self._absent(account, reach.backend, answer)
                self._tell(account, answer)
                await self._decider.say(lambda: self._seen(account, answer, asked_ns, absent), "outcome")  # noqa: B023
            if isinstance(answer, Silent):
                await asyncio.sleep(max(pause_s, answer.retry_after_ms / 1000))
                continue
            if self._unknown.get(account):
                await self._tell_whose(account, reach.backend)
            if reach.log is None:
                await asyncio.sleep(pause_s)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await reach.log.stirred()

    @staticmethod
    def _is_asked_behind(swept: Listing | Unchanged | Silent, reach: Reach) -> bool:
        """Whether a poll asks once more: what was cleared away is still in the list, and a cluster that was silent may be
        heard by its own log."""
        if not isinstance(reach.backend, Holding):
            return False
        return isinstance(swept, Listing) or reach.log is not None

    async def lost(self, account: str) -> None:
        """The clusters file has it no more, and jobs are open there: it does not answer them, until a start with it."""
        silent = Silent(reason=NOT_IN_FILE)
        self._tell(account, silent)
        await self._decider.say(lambda: self._seen(account, silent, 0, ()), "outcome")

    def _tell(self, account: str, answer: Listing | Unchanged | Silent) -> None:
        """Once for each silence: a secret that is missing looks like a cluster that is away."""
        if not isinstance(answer, Silent):
            if account in self._silent:
                self._silent.remove(account)
                self._sweep_s.pop(account, None)  # it may have been restored meanwhile
                self._agendas[account].renew(asyncio.get_running_loop().time())
                logger.info("the cluster answers again", extra={"account": account})
        elif account not in self._silent:
            self._silent.add(account)
            logger.warning("a cluster does not answer", extra={"account": account, "reason": answer.reason})

    async def beat(self) -> None:
        """For ever: log time goes on while a job races, however seldom clusters are listed, and however long they take to
        answer; else each step would be a jump, and no guard time ever end."""
        while True:
            await asyncio.sleep(HEARTBEAT_NS / 1e9)
            await self._decider.say(self._ticked, "outcome")

    def _ticked(self) -> list[Event]:
        state, clock_ns = self._state, self._clock_ns()
        overdue = clock_ns - state.clock.time_ns >= HEARTBEAT_NS
        if overdue and any(state.jobs[uid].phase == RACING for keys in state.open.values() for uid, _ in keys):
            return [observing.ticked(state, clock_ns)]
        return []

    def _clock_ns(self) -> int:
        """Never behind the log's own time."""
        return max(self._clock.now_ns(), self._state.clock.time_ns)

    async def _ask(self, account: str, reach: Reach, asked_ns: int) -> Listing | Unchanged | Silent:
        """The cluster's log where that can say it, else the cluster. Of what a list shows held again another list has to
        tell, though nothing happens there (`_held_again`)."""
        if reach.log is None:
            return await reach.backend.observe()
        cluster = self._state.clusters[account]
        if self._held.get(account) or cluster_log.needs_list(self._state, cluster, asked_ns):
            return await reach.log.listed(reach.backend)
        vouched = await reach.log.vouches(cluster_log.watched(self._state, cluster, self._decider.log.cluster))
        return Unchanged() if vouched else await reach.log.listed(reach.backend)

    async def _sweep(self, account: str, backend: Backend) -> Listing | Silent:
        """What comes late, and what a restored cluster runs again, is found even where no job is open. The list."""
        known = dict(self._state.strays.get(account, {}))
        began_s = asyncio.get_running_loop().time()
        answer = await backend.observe()
        self._tell(account, answer)
        if not isinstance(answer, Listing):
            return answer
        told = [await self._came_back(key, backend) for key in observing.back(self._state, account, answer)]
        unknown = {(run.name, run.uid): None for run in observing.unknown(self._state, account, answer)}
        self._asked[account] = self._asked.get(account, set()) & {(run.name, run.uid) for run in answer.runs}
        self._unknown[account] = [key for key in unknown if key not in self._asked[account]]
        if all(told):
            self._sweep_s[account] = began_s + SWEEP_S
        if isinstance(backend, Holding):
            await self._decider.say(lambda: self._late(account, answer), "outcome")
            await self._clear(account, backend, known, answer)
        return answer

    async def _came_back(self, key: Key, backend: Backend) -> bool:
        """R18: a list shows it, and the cluster says whose it is. Whether it did."""
        if (place := self._state.place(*key)) is None:
            return True
        described = await backend.describe(place.name)

        def said() -> list[Event]:
            job = self._state.jobs.get(key[0])
            if job is None or not isinstance(described, Described):
                return []
            owner = Owner(federation=self._decider.log.cluster, job=key[0], cluster=key[1])
            event = core.came_back(job, job.places[key[1]], owner, described)
            return [] if event is None else [event]

        await self._decider.say(said, "outcome")
        return not isinstance(described, Silent)

    async def _tell_whose(self, account: str, backend: Backend) -> None:
        """Tell of a run that bears this federation's marker, and that its log does not have: the log was set back, or
        the cluster was, and the job is forgotten. Which of a job's runs is to go on nobody knows: it is an operator's.
        """
        name, uid = self._unknown[account].pop()
        described = await backend.describe(name)
        if isinstance(described, Silent):
            self._unknown[account].insert(0, (name, uid))
            return
        self._asked[account].add((name, uid))
        owner = described.owner if isinstance(described, Described) else None
        if owner is not None and owner.federation == self._decider.log.cluster:
            about = {"account": account, "run": name, "uid": uid, "job": owner.job, "on": owner.cluster}
            logger.warning("a run goes on, and the log does not have it", extra=about)

    async def _clear(self, account: str, backend: Holding, known: Mapping[str, Stray], answer: Listing) -> None:
        """What came late of forgotten jobs, where a list from after it was found shows it held."""
        held = {one.run.uid for one in answer.held}
        for uid, stray in known.items():
            cleared = await backend.clear(stray.name, uid) if uid in held else Absent()
            if isinstance(cleared, Accepted | Absent):
                said = ev.StrayCleared(account=account, job=stray.job, cluster=stray.cluster, uid=uid)
                await self._decider.say(lambda: [said], "outcome")  # noqa: B023

    def _late(self, account: str, listing: Listing) -> list[Event]:
        """Submissions that nobody waits for any more."""
        state, federation = self._state, self._decider.log.cluster
        return [
            *observing.remains(state, account, federation, listing),
            *observing.strays(state, account, federation, listing),
        ]

    def _held_again(self, account: str, listing: Listing) -> list[Event]:
        """What this list and the one before show held, which was asked for when it was released long since."""
        found = observing.held_again(self._state, account, self._decider.log.cluster, listing)
        before, self._held[account] = self._held.get(account, ()), found.keys()
        return [found[uid] for uid in found if uid in before]

    async def _absent(self, account: str, backend: Backend, answer: Listing | Unchanged | Silent) -> list[Key]:
        """R20: a list may lack what is there; of what it lacks the cluster is asked by name and UID."""
        if not isinstance(answer, Listing) or not isinstance(backend, Holding):
            return []
        lacking = [
            (uid, alias, self._state.jobs[uid].places[alias])
            for uid, alias in observing.missing(self._state, account, answer)
        ]
        return [(uid, alias) for uid, alias, place in lacking if await backend.is_gone(place.name, place.uid)]

    def _seen(
        self, account: str, answer: Listing | Unchanged | Silent, asked_ns: int, absent: Collection[Key]
    ) -> list[Event]:
        """What an answer, or none, adds to the log."""
        state, before_ns = self._state, self._answered.get(account, -1)
        clock_ns = self._clock_ns()
        now_ns = observing.log_time_ns(state, clock_ns)
        asked_ns = min(asked_ns, now_ns)  # time jumped while the question was under way
        said: Event | None
        released: list[Event] = []
        found: list[Event] = []
        if isinstance(answer, Listing):
            said = observing.observed(
                state, account, answer, asked_ns=asked_ns, now_ns=now_ns, before_ns=before_ns, absent=absent
            )
            self._answered[account] = asked_ns
            released = [*observing.released(state, account, answer), *self._held_again(account, answer)]
            found = self._late(account, answer)
        elif isinstance(answer, Unchanged):
            said = None
            self._answered[account] = asked_ns
        else:
            said = observing.silent(state, account, answer.reason, before_ns=before_ns)
        if said is not None:
            return [observing.ticked(state, clock_ns), *released, said, *found]
        return [*released, *found]
