"""Submissions, stops, releases and clearings: from intents in the state to outcomes in the log.

Whatever is intended and not settled is on the agenda of its account, from where it is tried until the log has its
outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import events as ev
from events import Event
from services.federator import core, mcc
from services.federator.backends import (
    Absent,
    Accepted,
    Backend,
    Described,
    Holding,
    Limited,
    NotSent,
    Owner,
    Reach,
    Refused,
    Silent,
    Stopped,
    Submission,
    Submitted,
    Taken,
)
from services.federator.bodies import Bodies, BodyGone, BodyLocked
from services.federator.records import Job, Key, Place
from services.federator.service.agenda import SELDOM_S, Agenda
from services.federator.service.decider import Decider
from services.federator.specialize import specialize, to_yaml
from services.federator.state import State

WORKERS = 8
"""Effects in flight on one account."""
BELIEVED_AFTER_S = 20.0
"""From the first to the last of the same refusals."""
PARSED = 64
"""Jobs that are kept as they were parsed."""
Answer = TypeVar("Answer", Submitted, Stopped)
logger = logging.getLogger("muster.federator")


class Effects:
    """What is intended on clusters, tried. `reaches`: by account."""

    def __init__(self, decider: Decider, reaches: Mapping[str, Reach], bodies: Bodies) -> None:
        self.agendas = {account: Agenda() for account in reaches}
        self._decider = decider
        self._reaches = reaches
        self._bodies = bodies
        self._preparing = asyncio.Lock()
        self._tried: set[Key] = set()
        """Where an attempt of this process may have come to something."""
        self._refused_s: dict[Key, float] = {}
        """Since when an effect was refused, each time, for what is not its content; by the loop's clock."""
        self._outcomes: list[tuple[Key, Callable[[], Event | None]]] = []
        """Of effects, and not in the log yet."""
        self._parsed: dict[str, mcc.MultiClusterJob] = {}
        """The last `PARSED` jobs of which something was submitted, by their bodies' digests: most have many clusters."""

    @property
    def _state(self) -> State:
        return self._decider.state

    async def run(self) -> None:
        """Until cancelled, from what the state intends on."""
        self.schedule(self._state.intents())
        async with asyncio.TaskGroup() as workers:
            for account, reach in self._reaches.items():
                for _ in range(WORKERS):
                    workers.create_task(self._work(account, reach))

    def schedule(self, keys: Iterable[Key]) -> None:
        """Put what is intended on the agenda of its account, unless it is there."""
        now_s = asyncio.get_running_loop().time()
        for uid, alias in keys:
            if self._state.intends((uid, alias)):
                agenda = self.agendas.get(self._state.jobs[uid].places[alias].account)
                if agenda is not None:  # else the clusters file has lost it; it waits for a start with it
                    agenda.add((uid, alias), now_s)

    def hasten(self, keys: Iterable[Key]) -> None:
        """What was to be submitted, and is not wanted any more, does not wait for the time when it might have been; nor
        does what is left of a loser wait for that of another stop."""
        now_s = asyncio.get_running_loop().time()
        for key in keys:
            agenda = self.agendas.get(self._state.jobs[key[0]].places[key[1]].account)
            if agenda is not None:
                agenda.hasten(key, now_s)

    async def _work(self, account: str, reach: Reach) -> None:
        agenda, loop = self.agendas[account], asyncio.get_running_loop()
        while True:
            key = await agenda.next()
            async with agenda.alone(key):
                at_least_s, before = 0.0, self._intent(key)
                if key in self._state.submitting:
                    at_least_s = await self._submit(key, reach.backend, agenda)
                elif key in self._state.stopping:
                    at_least_s = await self._stop(key, reach)
                elif self._state.intends(key) and isinstance(reach.backend, Holding):
                    at_least_s = await (self._release if key in self._state.releasing else self._clear)(
                        key, reach.backend
                    )
                else:
                    agenda.done(key)
                    self._tried.discard(key)
                    self._refused_s.pop(key, None)
                    continue
            if self._intent(key) != before:
                agenda.done(key)
                agenda.add(key, loop.time())
            else:
                agenda.again(key, loop.time(), at_least_s)

    def _at(self, key: Key) -> tuple[Job, Place]:
        job = self._state.jobs[key[0]]
        return job, job.places[key[1]]

    def _intent(self, key: Key) -> tuple[object, ...]:
        """Of a job that is forgotten: none."""
        place = self._state.place(*key)
        return () if place is None else (place.phase, place.name, place.held, place.remains)

    async def _submit(self, key: Key, backend: Backend, agenda: Agenda) -> float:
        """One attempt; the seconds before which there should be no other."""
        (job, place), loop = self._at(key), asyncio.get_running_loop()
        if core.is_withdrawn(place, key in self._tried):
            await self._settle(key, lambda: ev.SubmissionWithdrawn(job=job.uid, cluster=place.cluster))
            return 0.0
        if agenda.submits_from_s > loop.time():
            return agenda.submits_from_s - loop.time()
        special = await self._special(job, place, "submitted")
        if special is None:
            return SELDOM_S
        answer: Submitted
        answer = special if isinstance(special, Refused) else self._believed(key, await backend.submit(special))
        if not isinstance(answer, NotSent | Limited):
            self._tried.add(key)
        refused = isinstance(answer, Refused) and answer.of_content
        if isinstance(answer, Taken) or (refused and place.may_be_ours):
            return await self._identify(key, backend, answer)
        await self._settle(key, lambda: core.submission_answered(job, place, answer, key in self._tried))
        if not isinstance(answer, Limited | NotSent):
            return 0.0
        pause_s = answer.retry_after_ms / 1000
        agenda.submits_from_s = max(agenda.submits_from_s, loop.time() + pause_s)
        return pause_s

    def _believed(self, key: Key, answer: Answer) -> Answer | NotSent:
        """R11: a refusal that is not about the content counts when it was repeated for a while. An API server that
        restarts refuses everybody until it has read its roles, and a token may be renewed a moment after its end."""
        if not isinstance(answer, Refused) or answer.of_content:
            self._refused_s.pop(key, None)
            return answer
        now_s = asyncio.get_running_loop().time()
        since_s = self._refused_s.setdefault(key, now_s)
        return answer if now_s - since_s >= BELIEVED_AFTER_S else NotSent(reason=answer.message)

    async def _identify(self, key: Key, backend: Backend, answer: Submitted) -> float:
        """Whose the job of our name is. A content that is refused now may have been taken before: OpenPAI validates some
        of it by what the cluster has at the time, and before it looks at names."""
        job, place = self._at(key)
        described = await backend.describe(place.name)
        if isinstance(described, Described):
            found, holds = described, isinstance(backend, Holding)
            await self._settle(key, lambda: core.name_described(job, place, self.owner(key), found, holds))
        elif isinstance(described, Absent) and isinstance(answer, Refused):
            await self._settle(key, lambda: core.submission_answered(job, place, answer, tried=True))
        return described.retry_after_ms / 1000 if isinstance(described, Silent) else 0.0

    async def _stop(self, key: Key, reach: Reach) -> float:
        """One attempt; the seconds before which there should be no other."""
        job, place = self._at(key)
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
        job, place = self._at(key)
        special = await self._special(job, place, "released")
        if special is None:
            return SELDOM_S
        answer: Stopped
        if not isinstance(special, Refused):
            answer = self._believed(key, await backend.release(special, place.uid))
        elif isinstance(described := await backend.describe(place.name), Silent):
            return described.retry_after_ms / 1000
        else:
            answer = core.released_without_body(place, described) or special
        if isinstance(answer, Refused):
            await self._settle(key, lambda: core.release_refused(job, place, answer))
            return 0.0

        def released() -> Event | None:
            """Unless a list has shown it meanwhile."""
            return ev.RunReleased(job=job.uid, cluster=key[1]) if place.held else None

        if isinstance(answer, Absent):  # what became of it instead shows in a list
            return 0.0
        return await self._ended(key, answer, released)

    async def _clear(self, key: Key, backend: Holding) -> float:
        """One attempt; the seconds before which there should be no other."""
        job, place = self._at(key)
        name, uid = place.remains
        answer = await backend.clear(name, uid)

        def cleared() -> Event | None:
            """Unless, meanwhile, other remains are to be cleared there: what these were, a list says no more."""
            still = place.remains == (name, uid)
            return ev.RemainsCleared(job=job.uid, cluster=key[1], uid=uid) if still else None

        return await self._ended(key, answer, cleared)

    async def _ended(self, key: Key, answer: Stopped, outcome: Callable[[], Event | None]) -> float:
        if isinstance(answer, Accepted | Absent):
            await self._settle(key, outcome)
        return answer.retry_after_ms / 1000 if isinstance(answer, Limited) else 0.0

    async def _settle(self, key: Key, outcome: Callable[[], Event | None]) -> None:
        """Append an outcome, unless the intent is settled already. It is in the log when this returns, be it in the
        commit of another one that came first."""
        self._outcomes.append((key, outcome))
        await self._decider.say(self._gathered, "outcome")

    def _gathered(self) -> list[Event]:
        """The outcomes so far. No key has two of them: each is tried by one worker at a time."""
        gathered, self._outcomes = self._outcomes, []
        return [event for key, outcome in gathered if self._state.intends(key) and (event := outcome()) is not None]

    async def _special(self, job: Job, place: Place, effect: str) -> Submission | Refused | None:
        """Refused, and told, where its body is gone; None, and told, where nothing can be made of it now. YAML is read
        and written slowly, up to seconds where somebody wants it: in a thread, so that everybody else has their turn."""
        async with self._preparing:
            await asyncio.sleep(0)
            try:
                if (parsed := self._parsed.get(job.digest)) is None:
                    parsed = await asyncio.to_thread(mcc.load, (await self._bodies.read(job.digest)).decode())
                self._parsed[job.digest] = parsed
                if len(self._parsed) > PARSED:
                    self._parsed.pop(next(iter(self._parsed)))
                owner = self.owner((job.uid, place.cluster))
                written = await asyncio.to_thread(_written, parsed, place.cluster, owner, place.number)
            except (BodyGone, BodyLocked, mcc.InvalidJob) as error:
                logger.error("cannot be %s", effect, extra={"job": job.name, "on": place.cluster, "reason": str(error)})
                lost = isinstance(error, BodyGone)
                return Refused(code="BodyGone", message=str(error), of_content=True) if lost else None
            return Submission(name=place.name, body=written)

    def owner(self, key: Key) -> Owner:
        return Owner(federation=self._decider.log.cluster, job=key[0], cluster=key[1])


def _written(job: mcc.MultiClusterJob, alias: str, owner: Owner, number: int) -> bytes:
    """Raises InvalidJob."""
    return to_yaml(specialize(job, alias, owner, number)).encode()
