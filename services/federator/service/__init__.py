"""The federator as a process: requests in, the core's decisions into the log, effects and observations on clusters.

`decider` is the log's one writer. Effects are read from the state, never from a decision in memory (`effects`): a start
tries everything again that is intended and not settled. What clusters answer becomes events (`polling`); what users ask
comes as a NATS micro service (`handlers`).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import events as ev
from events import Event
from events.log import EventLog
from events.micro import Handler
from services.decider import LogTime
from services.federator import core, mcc
from services.federator.backends import TERMINAL, Reach
from services.federator.bodies import Bodies, Digest
from services.federator.records import Job, Key, Place, account_of
from services.federator.service.decider import Decider
from services.federator.service.effects import Effects
from services.federator.service.handlers import handlers
from services.federator.service.polling import Polling
from services.federator.state import State
from services.snapshots import SnapshotKeeper, Taking

CLEARS_AFTER_S = 60.0
"""How long a body may lie that no job has."""
logger = logging.getLogger("muster.federator")


class Federator:
    """`reaches`: by account, as jobs name it (`account_of`)."""

    def __init__(
        self,
        log: EventLog,
        reaches: Mapping[str, Reach],
        bodies: Bodies,
        *,
        holder: str,
        clock_offset_ms: int = 0,
        snapshots: Taking | None = None,
    ) -> None:
        """`snapshots` None: none are taken."""
        self.bodies, self.holder = bodies, holder
        self.ready = asyncio.Event()
        """Set when the subject is taken and everything is folded: requests may come."""
        self.decider = Decider(log, self._told, clock_offset_ms=clock_offset_ms)
        self._reaches = dict(reaches)
        self.effects = Effects(self.decider, self._reaches, bodies)
        self._clock = LogTime(clock_offset_ms)
        self._polling = Polling(self.decider, self._clock, self.effects.agendas)
        self._snapshots = snapshots
        self._reading = asyncio.Lock()
        """One job at a time: in threads they would share one core."""
        self._unneeded: asyncio.Queue[str] = asyncio.Queue()
        """Digests of bodies that nobody needs any more."""
        self._undecided: list[asyncio.Event] = []
        """One for each body that a user has sent, until it is decided whether a job has it."""

    @property
    def state(self) -> State:
        return self.decider.state

    async def run(self) -> None:
        """Until cancelled. Raises SteppedDown when another process took over, LogError."""
        lying = await self.bodies.lying()  # what is kept behind this is not for this process to judge
        await self.decider.take(self.holder)
        self._clock.start(self.state.clock.time_ns)
        cleared = await self.bodies.forget_all_but(self._needed(), lying)
        said = {"sequence": self.state.sequence, "jobs": len(self.state.jobs), "bodies_cleared": cleared}
        logger.info("taken", extra=said)
        for account in [name for name, places in self.state.open.items() if places and name not in self._reaches]:
            await self._polling.lost(account)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.decider.renew())
                if self._snapshots is not None:
                    tasks.create_task(SnapshotKeeper(self.decider, lambda: False, self._snapshots).run())
                tasks.create_task(self._polling.beat())
                for account, reach in self._reaches.items():
                    tasks.create_task(self._polling.run(account, reach))
                    if reach.log is not None:
                        tasks.create_task(reach.log.follow())
                tasks.create_task(self.effects.run())
                tasks.create_task(self._forget())
                tasks.create_task(self._clear())
                self.ready.set()
                await self.decider.run()
        except BaseExceptionGroup as group:
            raise _first(group) from None  # the first is what the others were cancelled for
        finally:
            self.ready.clear()

    def _told(self, said: Sequence[Event]) -> None:
        """What was just folded: what it intends is to be tried."""
        self.effects.schedule(key for event in said for key in self._keys(event))
        another = (event for event in said if isinstance(event, ev.StopIntended | ev.JobSettled))
        self.effects.hasten(key for event in another for key in self._keys(event))
        for event in said:
            for uid in _may_be_done(event):
                if (job := self.state.jobs.get(uid)) is not None and not core.needs_body(job):
                    self._unneeded.put_nowait(job.digest)

    async def _forget(self) -> None:
        while True:
            await self.bodies.forget(await self._unneeded.get())

    async def _clear(self) -> None:
        """D70: what lies there for nobody, as whoever stored it was replaced, or sent it twice and was heard late.

        As long as nobody else has taken the subject, it is not a successor's: that what is said behind the list is
        acknowledged says so. Nor is it a request's of our own, once those are decided that may have stored some of it.
        """
        while True:
            await asyncio.sleep(CLEARS_AFTER_S)
            lying = await self.bodies.lying()
            for decided in tuple(self._undecided):
                await decided.wait()
            if lying.is_beyond(self._needed()):
                await self.decider.say(lambda: [ev.Renewed()], "renew")
                cleared = await self.bodies.forget_all_but(self._needed(), lying)
                logger.info("bodies of no job are cleared", extra={"bodies_cleared": cleared})

    def _needed(self) -> frozenset[Digest]:
        return frozenset(job.digest for job in self.state.jobs.values() if core.needs_body(job))

    def _keys(self, event: Event) -> list[Key]:
        """The places that an event is about."""
        if isinstance(event, ev.JobFederated | ev.JobSettled):
            return [(event.job, alias) for alias in self.state.jobs[event.job].places]
        job, cluster = getattr(event, "job", ""), getattr(event, "cluster", "")
        return [(job, cluster)] if job and cluster else []

    # -------------------------------------------------------------------------------------------------------- requests

    async def federate(self, text: str) -> str:
        """Accept the multi-cluster job in this YAML; its UID. Raises InvalidJob, with all that is wrong."""
        async with self._reading:
            job = await asyncio.to_thread(mcc.load, text)  # a second, where somebody wants it to be
        unknown = [
            f"clusters.{choice.alias}: {account_of(choice.user, choice.uri)}: expected user and uri of the clusters file"
            for choice in job.clusters
            if account_of(choice.user, choice.uri) not in self._reaches
        ]
        if wrong := [*unknown, *core.problems(self.state, job)]:  # what is refused anyway needs no body
            raise mcc.InvalidJob(wrong)
        drawn = uuid.uuid4().hex
        decided = asyncio.Event()
        self._undecided.append(decided)
        try:
            await self._accept(job, drawn, text)
        finally:
            self._undecided.remove(decided)
            decided.set()
        return core.uid_of(self.state, drawn)

    async def _accept(self, job: mcc.MultiClusterJob, drawn: str, text: str) -> None:
        digest = await self.bodies.keep(text.encode())

        def said() -> list[Event]:
            return [core.federated(self.state, job, core.uid_of(self.state, drawn), digest)]

        try:
            await self.decider.say(said, "request")
        except mcc.InvalidJob:  # any other error may hide that the log has it: then the next start knows
            await self.bodies.forget(digest)
            raise

    def handlers(self) -> dict[str, Handler]:
        """What users may ask, by verb."""
        return handlers(self)

    async def cancel(self, job: Job) -> bool:
        """Whether there was something left to cancel."""

        def said() -> list[Event]:
            event = core.cancelled(job)
            return [] if event is None else [event]

        return await self.decider.say(said, "request")

    async def give_up(self, job: Job, place: Place, by: str, reason: str) -> None:
        """R21. No attempt of this process is under way when it is declared, and none begins behind it. Raises KeptUp."""
        agenda = self.effects.agendas.get(place.account)
        async with agenda.alone((job.uid, place.cluster)) if agenda is not None else nullcontext():
            await self.decider.say(lambda: [core.given_up(self.state, job, place, by, reason)], "request")


def _may_be_done(event: Event) -> list[str]:
    """Jobs of which nothing may be left to be submitted or released, now that this is folded."""
    match event:
        case ev.JobSettled() | ev.RunGivenUp():
            return [event.job]
        case ev.ClusterObserved():
            return [seen.job for seen in event.runs if seen.state in TERMINAL]
    return []


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
