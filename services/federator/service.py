"""The federator as a process: requests in, the core's decisions into the log, effects and observations on clusters.

One commit at a time (`Federator.say`): what is to be said is made from the state and appended before anything else is,
and folded here as soon as it is acknowledged; nobody else writes into a federation's log. Outcomes that come meanwhile
share the next commit. Effects are read from the
state, never from a decision in memory: whatever is intended and not settled is on the agenda of its account, from where
it is tried, one attempt at a time, until the log has its outcome. A start puts all of it there again.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec

import events as ev
from events import Event
from events.log import EventLog
from events.micro import Unfit
from events.wire import UNDECODABLE
from services.decider import LogTime
from services.federator import core, mcc, observing, requests, telling
from services.federator.backends import (
    Absent,
    Accepted,
    Backend,
    Described,
    Holding,
    Limited,
    Listing,
    NotSent,
    Owner,
    Reach,
    Refused,
    Silent,
    Stopped,
    Submission,
    Taken,
    Unchanged,
)
from services.federator.bodies import Bodies, BodyGone
from services.federator.records import RACING, SETTLED, Job, Key, Place, account_of
from services.federator.snapshot import FORM
from services.federator.specialize import specialize, to_yaml
from services.federator.state import WRITER, State
from services.snapshots import SnapshotKeeper, Taking
from services.start import state_at
from services.state.clock import HEARTBEAT_NS
from services.writer import Writer

WORKERS = 8
"""Effects in flight on one account."""
SWEEP_S = 3_600.0
"""Between two lists of a cluster that gives names away again, where no job is open; the first is at the start."""
PARSED = 64
AGAIN_S, SELDOM_S = 1.0, 60.0
"""After an attempt that settled nothing: from … to …, doubling."""
log = logging.getLogger("muster.federator")
T = TypeVar("T", bound=msgspec.Struct)


@dataclass(slots=True)
class Agenda:
    """What is to be tried on one account, and when: seconds of the loop's clock."""

    due: list[tuple[float, int, Key]] = field(default_factory=list)
    there: set[Key] = field(default_factory=set)
    tries: dict[Key, int] = field(default_factory=dict)
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    submits_from_s: float = float("-inf")
    """No submission before that: the cluster said so."""
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    locks: WeakValueDictionary[Key, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def add(self, key: Key, due_s: float) -> None:
        """Once, however often."""
        if key not in self.there:
            self.there.add(key)
            self._push(key, due_s)

    def again(self, key: Key, now_s: float, at_least_s: float = 0.0) -> None:
        """Of a key that `next` gave: later, and each time later still."""
        tries = self.tries[key] = self.tries.get(key, 0) + 1
        pause_s = min(SELDOM_S, AGAIN_S * 2.0 ** min(tries - 1, 10)) * random.uniform(0.5, 1.0)
        self._push(key, now_s + max(at_least_s, pause_s))

    def done(self, key: Key) -> None:
        self.there.discard(key)
        self.tries.pop(key, None)

    def alone(self, key: Key) -> asyncio.Lock:
        """Held while anything is tried of this key."""
        return self.locks.setdefault(key, asyncio.Lock())

    async def next(self) -> Key:
        """The first that is due; waits for one."""
        loop = asyncio.get_running_loop()
        while True:
            wait_s = self.due[0][0] - loop.time() if self.due else None
            if wait_s is not None and wait_s <= 0:
                return heapq.heappop(self.due)[2]
            self.grown.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self.grown.wait()
            except TimeoutError:
                continue

    def _push(self, key: Key, due_s: float) -> None:
        heapq.heappush(self.due, (due_s, next(self.numbers), key))
        self.grown.set()


class Federator:
    """The one writer of a federation's log. `reaches`: by account, as jobs name it (`account_of`)."""

    def __init__(
        self,
        event_log: EventLog,
        reaches: Mapping[str, Reach],
        bodies: Bodies,
        *,
        holder: str,
        clock_offset_ms: int = 0,
        snapshots: Taking | None = None,
    ) -> None:
        """`snapshots` None: none are taken."""
        self.log, self.bodies, self.holder = event_log, bodies, holder
        self.state = State()
        self.tail_bytes = 0
        """What was folded since the snapshot from which the state was restored."""
        self.active = False
        """Whether everything up to the subject's taking is folded: the log may be told things."""
        self.writer = Writer(event_log, WRITER)
        self.ready = asyncio.Event()
        """Set when the subject is taken and everything is folded: requests may come."""
        self._reaches = dict(reaches)
        self._clock = LogTime(clock_offset_ms)
        self._snapshots = snapshots
        self._saying = asyncio.Lock()
        self._stirred = asyncio.Event()
        self._agendas: dict[str, Agenda] = {}
        self._tried: set[Key] = set()
        """Where an attempt of this process may have reached the cluster."""
        self._answered: dict[str, int] = {}
        """By account: the log time of the question that was answered last."""
        self._outcomes: list[tuple[Key, Callable[[], Event | None]]] = []
        """Of effects, and not in the log yet."""
        self._parsed: dict[str, mcc.MultiClusterJob] = {}
        """The last `PARSED` jobs of which something was submitted, by their bodies' digests: most have many clusters."""
        self._settled: list[str] = []
        """Digests of bodies that nobody needs any more."""
        self._reports: list[Event] = []

    async def run(self) -> None:
        """Until cancelled. Raises SteppedDown when another process took over, LogError."""
        taken = await self.writer.take(ev.FederatorTaken(holder=self.holder))
        started = await state_at(self.log, taken, form=FORM)
        self.state, self.tail_bytes, self.active = started.state, started.tail_bytes, True
        self._clock.start(self.state.clock.time_ns)
        needed = frozenset(job.digest for job in self.state.jobs.values() if job.phase != SETTLED)
        cleared = await self.bodies.forget_all_but(needed)
        log.info("taken", extra={"sequence": taken, "jobs": len(self.state.jobs), "bodies_cleared": cleared})
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.writer.renew())
                if self._snapshots is not None:
                    tasks.create_task(SnapshotKeeper(self, lambda: False, self._snapshots).run())
                for account, reach in self._reaches.items():
                    self._agendas[account] = Agenda()
                    tasks.create_task(self._poll(account, reach))
                    if reach.log is not None:
                        tasks.create_task(reach.log.follow())
                    for _ in range(WORKERS):
                        tasks.create_task(self._work(account, reach))
                self._schedule(self.state.intents())
                self.ready.set()
                await self._decide()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None  # the first is what the others were cancelled for
        finally:
            self.ready.clear()

    # -------------------------------------------------------------------------------------------------------- requests

    async def federate(self, text: str) -> str:
        """Accept the multi-cluster job in this YAML; its UID. Raises InvalidJob, with all that is wrong."""
        job = mcc.load(text)
        unknown = [
            f"clusters.{choice.alias}: {account_of(choice.user, choice.uri)}: expected user and uri of the clusters file"
            for choice in job.clusters
            if account_of(choice.user, choice.uri) not in self._reaches
        ]
        if unknown:
            raise mcc.InvalidJob(unknown)
        uid = str(uuid.uuid4())
        core.federated(self.state, job, uid, "")  # what is refused anyway needs no body
        digest = await self.bodies.keep(text.encode())
        try:
            await self.say(lambda: [core.federated(self.state, job, uid, digest)], "request")
        except mcc.InvalidJob:
            await self.bodies.forget(digest)
            raise
        return uid

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[Any]]]:
        """By verb, for `events.micro`."""

        async def submit(data: bytes) -> Any:
            asked = _asked(data, requests.Submit)
            try:
                uid = await self.federate(asked.document)
            except mcc.InvalidJob as error:
                raise Unfit(400, "; ".join(error.problems)) from error
            return {"job": uid, "name": self.state.jobs[uid].name}

        async def status(data: bytes) -> Any:
            return requests.shown(self._named(data))

        async def listed(data: bytes) -> Any:
            return requests.listed(self.state, _asked(data, requests.Listed).offset)

        async def cancel(data: bytes) -> Any:
            return {"cancelled": await self.cancel(self._named(data))}

        async def give_up(data: bytes) -> Any:
            asked = _asked(data, requests.GiveUp)
            job = self._job(asked.name)
            if asked.cluster not in job.places:
                raise Unfit(
                    404, f"{asked.name} has no cluster {asked.cluster!r}: expected one of {', '.join(job.places)}"
                )
            try:
                await self.give_up(job, job.places[asked.cluster], asked.by, asked.reason)
            except core.KeptUp as error:
                raise Unfit(409, f"{asked.name} on {asked.cluster} cannot be given up: {error}") from error
            return {"given_up": True}

        return {"submit": submit, "status": status, "list": listed, "cancel": cancel, "give-up": give_up}

    def _named(self, data: bytes) -> Job:
        """Raises Unfit."""
        return self._job(_asked(data, requests.Named).name)

    def _job(self, name: str) -> Job:
        """Raises Unfit."""
        job = requests.by_name(self.state, name)
        if job is None:
            raise Unfit(404, f"there is no job {name!r}")
        return job

    async def cancel(self, job: Job) -> bool:
        """Whether there was something left to cancel."""

        def said() -> list[Event]:
            event = core.cancelled(job)
            return [] if event is None else [event]

        return await self.say(said, "request")

    async def give_up(self, job: Job, place: Place, by: str, reason: str) -> None:
        """R21. No attempt of this process is under way when it is declared, and none begins behind it. Raises KeptUp."""
        agenda = self._agendas.get(place.account)
        async with agenda.alone((job.uid, place.cluster)) if agenda is not None else nullcontext():
            await self.say(lambda: [core.given_up(self.state, job, place, by, reason)], "request")

    # ------------------------------------------------------------------------------------------------------ the log

    async def say(self, make: Callable[[], Sequence[Event]], cause: str) -> bool:
        """Append what `make` says of the state as it is then, and fold it; whether that was anything."""
        async with self._saying:
            said = make()
            if not said:
                return False
            sequence = await self.writer.append(said, basis=self.state.sequence, cause=cause)
            self.state.apply(sequence, said)
            if (own := self.writer.stored) is not None:
                self.tail_bytes += len(own.header) + len(own.payload)
        self._schedule(itertools.chain.from_iterable(map(self._keys, said)))
        self._settled += [self.state.jobs[event.job].digest for event in said if isinstance(event, ev.JobSettled)]
        self._stirred.set()
        return True

    def report(self, outcome: Event) -> None:
        """Append it soon."""
        self._reports.append(outcome)
        self._stirred.set()

    async def _decide(self) -> None:
        """For ever: what the core says, whenever something changed."""
        while True:
            while await self.say(lambda: core.decide(self.state), "decide"):
                pass
            while self._reports:
                reported = self._reports.pop(0)
                await self.say(lambda: [reported], "outcome")  # noqa: B023
            while self._settled:
                await self.bodies.forget(self._settled.pop())
            await self._stirred.wait()
            self._stirred.clear()

    # -------------------------------------------------------------------------------------------------------- effects

    def _schedule(self, keys: Iterable[Key]) -> None:
        """Put what is intended on the agenda of its account, unless it is there."""
        now_s = asyncio.get_running_loop().time()
        for uid, alias in keys:
            if self.state.intends((uid, alias)):
                agenda = self._agendas.get(self.state.jobs[uid].places[alias].account)
                if agenda is not None:  # else the clusters file has lost it; it waits for a start with it
                    agenda.add((uid, alias), now_s)

    async def _work(self, account: str, reach: Reach) -> None:
        agenda, loop = self._agendas[account], asyncio.get_running_loop()
        while True:
            key = await agenda.next()
            async with agenda.alone(key):
                at_least_s, before = 0.0, self._intent(key)
                if key in self.state.submitting:
                    at_least_s = await self._submit(key, reach.backend, agenda)
                elif key in self.state.stopping:
                    at_least_s = await self._stop(key, reach)
                elif self.state.intends(key) and isinstance(reach.backend, Holding):
                    at_least_s = await (self._release if key in self.state.releasing else self._clear)(
                        key, reach.backend
                    )
                else:
                    agenda.done(key)
                    self._tried.discard(key)
                    continue
            if self._intent(key) != before:
                agenda.done(key)
                agenda.add(key, loop.time())
            else:
                agenda.again(key, loop.time(), at_least_s)

    def _intent(self, key: Key) -> tuple[object, ...]:
        place = self.state.jobs[key[0]].places[key[1]]
        return place.phase, place.name, place.held, place.remains

    async def _submit(self, key: Key, backend: Backend, agenda: Agenda) -> float:
        """One attempt; the seconds before which there should be no other."""
        job, loop = self.state.jobs[key[0]], asyncio.get_running_loop()
        place = job.places[key[1]]
        if core.is_withdrawn(place, key in self._tried):
            await self._settle(key, lambda: ev.SubmissionWithdrawn(job=job.uid, cluster=place.cluster))
            return 0.0
        if agenda.submits_from_s > loop.time():
            return agenda.submits_from_s - loop.time()
        try:
            submission = await self._special(job, place)
        except (BodyGone, mcc.InvalidJob) as error:
            log.error("cannot be submitted", extra={"job": job.name, "cluster": place.cluster, "reason": str(error)})
            return SELDOM_S
        answer = await backend.submit(submission)
        if not isinstance(answer, NotSent):
            self._tried.add(key)
        if isinstance(answer, Limited):
            agenda.submits_from_s = loop.time() + answer.retry_after_ms / 1000
            return answer.retry_after_ms / 1000
        if isinstance(answer, Taken):
            return await self._identify(key, backend)
        await self._settle(key, lambda: core.submission_answered(job, place, answer, key in self._tried))
        return 0.0

    async def _identify(self, key: Key, backend: Backend) -> float:
        """Whose the job of our name is."""
        job = self.state.jobs[key[0]]
        place = job.places[key[1]]
        described = await backend.describe(place.name)
        if isinstance(described, Described):
            found = described
            await self._settle(key, lambda: core.name_described(job, place, self._owner(key), found))
        return described.retry_after_ms / 1000 if isinstance(described, Silent) else 0.0

    async def _stop(self, key: Key, reach: Reach) -> float:
        """One attempt; the seconds before which there should be no other."""
        job = self.state.jobs[key[0]]
        place = job.places[key[1]]
        answer = await reach.backend.stop(place.name, place.uid)
        if isinstance(answer, Limited):
            return answer.retry_after_ms / 1000
        if isinstance(answer, Accepted):
            return reach.poll_s  # before the next list nobody can see whether it is stopped
        if not isinstance(answer, Absent):
            await self._settle(key, lambda: core.stop_answered(job, place, answer))
        return 0.0

    async def _release(self, key: Key, backend: Holding) -> float:
        """One attempt; the seconds before which there should be no other. R16: its acceptance is in the log by now."""
        job = self.state.jobs[key[0]]
        place = job.places[key[1]]
        try:
            submission = await self._special(job, place)
        except (BodyGone, mcc.InvalidJob) as error:
            log.error("cannot be released", extra={"job": job.name, "cluster": place.cluster, "reason": str(error)})
            return SELDOM_S
        answer = await backend.release(submission, place.uid)
        if isinstance(answer, Refused):
            await self._settle(key, lambda: core.release_refused(job, place, answer))
            return 0.0
        return await self._ended(key, answer, lambda: ev.RunReleased(job=job.uid, cluster=place.cluster))

    async def _clear(self, key: Key, backend: Holding) -> float:
        """One attempt; the seconds before which there should be no other."""
        job = self.state.jobs[key[0]]
        name, uid = job.places[key[1]].remains
        answer = await backend.clear(name, uid)
        return await self._ended(key, answer, lambda: ev.RemainsCleared(job=job.uid, cluster=key[1], uid=uid))

    async def _ended(self, key: Key, answer: Stopped, outcome: Callable[[], Event]) -> float:
        if isinstance(answer, Accepted | Absent):
            await self._settle(key, outcome)
        return answer.retry_after_ms / 1000 if isinstance(answer, Limited) else 0.0

    async def _settle(self, key: Key, outcome: Callable[[], Event | None]) -> None:
        """Append an outcome, unless the intent is settled already. It is in the log when this returns, be it in the
        commit of another one that came first."""
        self._outcomes.append((key, outcome))
        await self.say(self._gathered, "outcome")

    def _gathered(self) -> list[Event]:
        """The outcomes so far. No key has two of them: each is tried by one worker at a time."""
        gathered, self._outcomes = self._outcomes, []
        return [event for key, outcome in gathered if self.state.intends(key) and (event := outcome()) is not None]

    async def _special(self, job: Job, place: Place) -> Submission:
        """Raises BodyGone, InvalidJob."""
        parsed = self._parsed.get(job.digest) or mcc.load((await self.bodies.read(job.digest)).decode())
        self._parsed[job.digest] = parsed
        if len(self._parsed) > PARSED:
            self._parsed.pop(next(iter(self._parsed)))
        special = specialize(parsed, place.cluster, self._owner((job.uid, place.cluster)), place.number)
        return Submission(name=place.name, body=to_yaml(special).encode())

    def _owner(self, key: Key) -> Owner:
        return Owner(federation=self.log.cluster, job=key[0], cluster=key[1])

    # --------------------------------------------------------------------------------------------------- observations

    async def _poll(self, account: str, reach: Reach) -> None:
        """For ever: one list of the account's jobs every `poll_s`, while it has any; where the cluster's own log is
        heard, one when something happened."""
        swept_s = float("-inf")
        while True:
            pause_s = reach.poll_s * random.uniform(0.9, 1.0)
            if isinstance(reach.backend, Holding) and asyncio.get_running_loop().time() >= swept_s + SWEEP_S:
                swept_s = asyncio.get_running_loop().time()
                await self._sweep(reach.backend)
            if self.state.open.get(account):
                asked_ns = observing.log_time_ns(self.state, self._clock.now_ns())
                answer = await self._ask(account, reach, asked_ns)
                absent = await self._absent(account, reach.backend, answer)
                await self.say(lambda: self._seen(account, answer, asked_ns, absent), "outcome")  # noqa: B023
                if isinstance(answer, Silent):
                    await asyncio.sleep(max(pause_s, answer.retry_after_ms / 1000))
                    continue
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await (reach.log.stirred() if reach.log is not None else asyncio.sleep(pause_s + 1.0))

    async def _ask(self, account: str, reach: Reach, asked_ns: int) -> Listing | Unchanged | Silent:
        """The cluster's log where that can say it, else the cluster."""
        if reach.log is None:
            return await reach.backend.observe()
        cluster = self.state.clusters[account]
        if telling.needs_list(self.state, cluster, asked_ns):
            return await reach.log.listed(reach.backend)
        vouched = await reach.log.vouches(telling.watched(self.state, cluster, self.log.cluster))
        return Unchanged() if vouched else await reach.log.listed(reach.backend)

    async def _sweep(self, backend: Backend) -> None:
        """Submissions that come late are found even where no job is open."""
        answer = await backend.observe()
        if isinstance(answer, Listing) and answer.held:
            await self.say(lambda: observing.remains(self.state, self.log.cluster, answer), "outcome")

    async def _absent(self, account: str, backend: Backend, answer: Listing | Unchanged | Silent) -> list[Key]:
        """R20: a list may lack what is there; of what it lacks the cluster is asked by name and UID."""
        if not isinstance(answer, Listing) or not isinstance(backend, Holding):
            return []
        lacking = [
            (uid, alias, self.state.jobs[uid].places[alias])
            for uid, alias in observing.missing(self.state, account, answer)
        ]
        return [(uid, alias) for uid, alias, place in lacking if await backend.is_gone(place.name, place.uid)]

    def _seen(
        self, account: str, answer: Listing | Unchanged | Silent, asked_ns: int, absent: Collection[Key]
    ) -> list[Event]:
        """What an answer, or none, adds to the log."""
        state, before_ns = self.state, self._answered.get(account, -1)
        clock_ns = max(self._clock.now_ns(), state.clock.time_ns)
        said: Event | None
        found: list[ev.RemainsFound] = []
        if isinstance(answer, Listing):
            now_ns = observing.log_time_ns(state, clock_ns)
            said = observing.observed(
                state, account, answer, asked_ns=asked_ns, now_ns=now_ns, before_ns=before_ns, absent=absent
            )
            self._answered[account] = asked_ns
            found = observing.remains(state, self.log.cluster, answer)
        elif isinstance(answer, Unchanged):
            said = None
            self._answered[account] = asked_ns
        else:
            said = observing.silent(state, account, answer.reason, before_ns=before_ns)
        if said is not None:
            return [observing.ticked(state, clock_ns), said, *found]
        overdue = clock_ns - state.clock.time_ns >= HEARTBEAT_NS
        if overdue and any(state.jobs[uid].phase == RACING for keys in state.open.values() for uid, _ in keys):
            return [observing.ticked(state, clock_ns), *found]
        return list(found)

    def _keys(self, event: Event) -> list[Key]:
        """The places that an event is about."""
        if isinstance(event, ev.JobFederated | ev.JobSettled):
            return [(event.job, alias) for alias in self.state.jobs[event.job].places]
        job, cluster = getattr(event, "job", ""), getattr(event, "cluster", "")
        return [(job, cluster)] if job and cluster else []


def _asked(data: bytes, of: type[T]) -> T:
    """Raises Unfit."""
    try:
        return msgspec.json.decode(data, type=of)
    except UNDECODABLE as error:
        raise Unfit(400, f"expected {', '.join(of.__struct_encode_fields__)} as JSON: {error}") from error
