"""The service broken on purpose, in ways that the core cannot be: histories must find each.

``python -m tests.federator.served.plants`` says after how many. Each is what a method does otherwise, as long as it is
planted.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import events as ev
from services.federator import core, mcc, observing, service
from services.federator.backends import Accepted, InDoubt, Listing, NotSent, Silent
from services.federator.bodies import Bodies
from services.federator.records import SETTLED
from services.federator.service import Federator
from services.federator.service.agenda import Agenda
from services.federator.service.decider import Decider
from services.federator.service.effects import Effects
from services.federator.service.polling import Polling
from services.federator.snapshot import FORM
from services.start import state_at
from tests.federator import simulation
from tests.federator.plants import tell
from tests.federator.served.world import HeldServed, Served
from tests.federator.simulation.network import FAULTS_END_MS

Patch = tuple[Any, str, Any]
_say, _submit, _ask = Decider.say, Effects._submit, Polling._ask
_read, _forget_all_but = Bodies.read, Bodies.forget_all_but


async def _clears_what_lies_there_now(self: Bodies, needed: frozenset[str], of: object) -> int:
    return await _forget_all_but(self, needed, await self.lying())


async def _cleared_whoever_writes_by_now(self: Federator) -> None:
    """What is not this log's any more may be a successor's."""
    while True:
        await asyncio.sleep(service.CLEARS_AFTER_S)
        await self.bodies.forget_all_but(self._needed(), await self.bodies.lying())


async def _keeps_later(self: Bodies, body: bytes) -> str:
    """The digest is there at once, and the body is kept meanwhile."""
    data = self._cipher.sealed(body)
    digest = hashlib.sha256(data).hexdigest()
    asyncio.get_running_loop().create_task(self._blobs.put(digest, data))
    return digest


async def _forgets_as_it_is_read(self: Bodies, digest: str) -> bytes:
    body = await _read(self, digest)
    await self.forget(digest)
    return body


async def _decides_on_what_it_read_before(self: Decider, make: Callable[[], Any], cause: str) -> bool:
    """Made before it is its turn to append."""
    said = make()
    return await _say(self, lambda: said, cause)


async def _submitted_before_it_says_so(self: Decider, make: Callable[[], Any], cause: str) -> bool:
    """Folded and acted upon before it stands in the log."""
    said = make()
    if not said:
        return False
    self.state.apply(self.state.sequence + 1, said)
    self._told(said)
    await self.writer.append(said, basis=self.state.sequence, cause=cause)
    self._stirred.set()
    return True


async def _asked_when_it_is_answered(self: Polling, account: str, reach: Any, asked_ns: int) -> Any:
    """That there was no answer counts as one."""
    answer = await _ask(self, account, reach, asked_ns)
    if isinstance(answer, Silent):
        self._answered[account] = asked_ns
    return answer


async def _takes_the_log_as_it_was(self: Decider, holder: str) -> None:
    """Reads first, takes the subject then."""
    started = await state_at(self.log, form=FORM)
    await self.writer.take(ev.FederatorTaken(holder=holder))
    self.state, self.tail_bytes, self.active = started.state, started.tail_bytes, True


async def _doubts_are_refusals(self: Effects, key: Any, backend: Any, agenda: Any) -> float:
    """A submission without an answer counts as one that was never sent."""

    class Sure:
        def __getattr__(self, name: str) -> Any:
            return getattr(backend, name)

        async def submit(self, submission: Any) -> Any:
            answer = await backend.submit(submission)
            return NotSent(reason=answer.reason) if isinstance(answer, InDoubt) else answer

    return await _submit(self, key, Sure(), agenda)


async def _held_ones_are_released_unsaid(self: Effects, key: Any, backend: Any, agenda: Any) -> float:
    """Before its acceptance is in the log."""

    class Eager:
        def __getattr__(self, name: str) -> Any:
            return getattr(backend, name)

        async def submit(self, submission: Any) -> Any:
            answer = await backend.submit(submission)
            if isinstance(answer, Accepted):
                await backend.release(submission, answer.uid)
            return answer

    return await _submit(self, key, Eager(), agenda)


async def _absent_by_the_list_alone(self: Polling, account: str, backend: Any, answer: Any) -> list[Any]:
    return observing.missing(self._state, account, answer) if isinstance(answer, Listing) else []


def _nobody_is_told(self: Federator, said: Any) -> None:
    """Effects are those of the start alone."""


def _once(self: Agenda, key: Any, now_s: float, at_least_s: float = 0.0) -> None:
    """What settled nothing is not tried again."""


async def _given_up_at_once(self: Federator, job: Any, place: Any, by: str, reason: str) -> None:
    await self.decider.say(lambda: [core.given_up(self.state, job, place, by, reason)], "request")


async def _accepted_whatever_came_meanwhile(self: Federator, text: str) -> str:
    job = mcc.load(text)
    drawn = uuid.uuid4().hex
    said = core.federated(self.state, job, core.uid_of(self.state, drawn), await self.bodies.keep(text.encode()))
    await self.decider.say(lambda: [said], "request")
    return said.job


def _nothing_came_late(self: Polling, account: str, listing: Listing) -> list[Any]:
    return []


async def _nothing_came_back(self: Polling, key: Any, backend: Any) -> bool:
    return True


def _needed_in_a_race_alone(job: Any) -> bool:
    """Whatever its cluster holds again."""
    return bool(job.phase != SETTLED)


class Rushed(HeldServed):
    """With an operator who gives up what he may again and again: attempts are seldom under way."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        source = random.Random(f"{seed}/rushed")
        for _ in range(40):
            self.at(source.randrange(FAULTS_END_MS), self.people.rush)


PLANTS: dict[str, tuple[type[Served], list[Patch]]] = {
    "bodies: cleared as they lie now": (
        HeldServed,
        [(Bodies, "forget_all_but", _clears_what_lies_there_now)],
    ),
    "bodies: cleared whoever writes by now": (Served, [(Federator, "_clear", _cleared_whoever_writes_by_now)]),
    "bodies: kept behind the job": (Served, [(Bodies, "keep", _keeps_later)]),
    "bodies: gone as their jobs settle": (HeldServed, [(core, "needs_body", _needed_in_a_race_alone)]),
    "bodies: read once": (Served, [(Bodies, "read", _forgets_as_it_is_read)]),
    "log: decided before its turn": (Served, [(Decider, "say", _decides_on_what_it_read_before)]),
    "log: acted before it is said": (Served, [(Decider, "say", _submitted_before_it_says_so)]),
    "log: read before it is taken": (Served, [(Decider, "take", _takes_the_log_as_it_was)]),
    "effects: doubt is none": (Served, [(Effects, "_submit", _doubts_are_refusals)]),
    "effects: released before it is said": (HeldServed, [(Effects, "_submit", _held_ones_are_released_unsaid)]),
    "effects: those of the start alone": (Served, [(Federator, "_told", _nobody_is_told)]),
    "agenda: tried once": (Served, [(Agenda, "again", _once)]),
    "polling: silence is an answer": (Served, [(Polling, "_ask", _asked_when_it_is_answered)]),
    "polling: gone by the list alone": (HeldServed, [(Polling, "_absent", _absent_by_the_list_alone)]),
    "polling: late ones are not looked for": (HeldServed, [(Polling, "_late", _nothing_came_late)]),
    "polling: what runs again is not looked for": (HeldServed, [(Polling, "_came_back", _nothing_came_back)]),
    "requests: given up while it is tried": (Rushed, [(Federator, "give_up", _given_up_at_once)]),
    "requests: the name is looked up before": (Served, [(Federator, "federate", _accepted_whatever_came_meanwhile)]),
}


@contextmanager
def planted(name: str) -> Iterator[type[Served]]:
    """The world in which it is to be found, with this bug in it."""
    world, patches = PLANTS[name]
    with ExitStack() as stack:
        for planting in patches:
            stack.enter_context(patch.object(*planting))
        yield world


def found(name: str, seeds: int, first: int = 0) -> tuple[int, str]:
    """After how many histories it is found, and by what; 0 when it is not."""
    with planted(name) as world:
        for seed in range(first, first + seeds):
            violation, _ = simulation.run(seed, world)
            if violation:
                return seed + 1 - first, violation
    return 0, "not found"


def main() -> int:
    argparse.ArgumentParser(prog="python -m tests.federator.served.plants", description=__doc__).parse_args()
    return tell((name, *found(name, 2_000)) for name in PLANTS)


if __name__ == "__main__":
    sys.exit(main())
