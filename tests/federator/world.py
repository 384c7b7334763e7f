"""A federation that is driven by hand: given these answers at these minutes, what does the federator say?"""

from __future__ import annotations

from typing import TypeVar

import msgspec

import events as ev
from events import Event
from services.documents import load_all
from services.federator import core, observing
from services.federator.backends import RUNNING, Accepted, Listing, Run, Submitted
from services.federator.mcc import parse
from services.federator.records import Job, Place, account_of
from services.federator.state import State
from services.federator.validate import validate_state
from tests.federator.jobs import EXAMPLE, plugin

MINUTE_NS = 60_000_000_000
EPOCH_NS = 1_700_000_000_000_000_000
T = TypeVar("T", bound=msgspec.Struct)


class Federation:
    """One job on clusters whose users' names are their aliases. Every cluster answers until it is `silent`."""

    def __init__(self, *, guard: float = 10, scale: float = 1, job: str = "u1", **priorities: float) -> None:
        """`job`: its UID."""
        self.uid = job
        self.state = State()
        self.log: list[Event] = []
        self.minute = 0.0
        self.runs: dict[str, Run] = {}
        self.answered: dict[str, int] = {}
        self.silenced: set[str] = set()
        self.skew_ms: dict[str, int] = {}
        self.left: set[str] = set()
        """Of the runs that no list shows, those that their clusters still know by name."""
        self.append(ev.FederatorTaken(holder="test"))
        self.append(observing.ticked(self.state, EPOCH_NS))
        document = load_all(EXAMPLE)[0]
        del document["secrets"]
        plugin(document).update(
            guardTimeRunning=guard,
            timeScale=scale,
            clusters={alias: {"uri": alias, "user": alias, "priority": p} for alias, p in priorities.items()},
            params={
                "gpuNum": dict.fromkeys(priorities, 1),
                "storageConfigs": {alias: [alias] for alias in priorities},
            },
        )
        self.mcc = parse(document)
        self.append(core.federated(self.state, self.mcc, job, "digest"))

    # ------------------------------------------------------------------------------------------------------- driving

    def append(self, *said: Event) -> None:
        self.state.apply(self.state.sequence + 1, said)
        self.log += said
        validate_state(self.state)

    def decide(self) -> list[Event]:
        """Everything that is to be said, until there is nothing more."""
        everything: list[Event] = []
        while said := core.decide(self.state):
            self.append(*said)
            everything += said
            assert len(everything) < 100, "it never ends"
        return everything

    def accept(self, *aliases: str, identified: bool = False) -> list[Event]:
        """These clusters take the job."""
        for alias in aliases or tuple(self.job.places):
            self.answer(alias, Accepted(uid=f"uid of {alias}" if identified else ""))
        return self.decide()

    def delete(self, alias: str, *, left: bool = False) -> None:
        """Somebody deletes the run there. `left`: something of it goes on, or has its name."""
        del self.runs[alias]
        if left:
            self.left.add(alias)

    def give_up(self, alias: str, why: str = "it was decommissioned") -> list[Event]:
        """Raises KeptUp."""
        self.append(core.given_up(self.state, self.job, self.place(alias), "ann", why))
        return self.decide()

    def answer(self, alias: str, answer: Submitted, tried: bool = True) -> Event | None:
        said = core.submission_answered(self.job, self.place(alias), answer, tried)
        if said is not None:
            self.append(said)
        return said

    def at(self, minute: float, **states: str) -> list[Event]:
        """The time is `minute`; these runs are in these states now; all clusters are asked. What was said?

        A state may have an attempt behind it: ``running/2``.
        """
        passed = self._pass(minute)
        for alias, text in states.items():
            state, _, attempt = text.partition("/")
            number = int(attempt or 0)
            before = self.runs.get(alias)
            goes_on = before is not None and before.state == state == RUNNING and before.attempt == number
            started_ms = before.started_ms if goes_on and before is not None else self._clock_ms(alias)
            self.runs[alias] = Run(
                name=self.place(alias).name,
                uid=self.place(alias).uid,
                state=state,
                attempt=number,
                started_ms=started_ms,
            )
        said = [seen for alias in self.job.places if (seen := self._ask(alias)) is not None]
        if said:
            self.append(observing.ticked(self.state, self._clock_ns()), *said)
        return passed + self.decide()

    def heard(self, minute: float, alias: str) -> list[Event]:
        """The time is `minute`; this cluster's answer has come, the others' have not. What was said?"""
        self.minute = minute
        seen = self._ask(alias)
        self.append(observing.ticked(self.state, self._clock_ns()), *(() if seen is None else (seen,)))
        return self.decide()

    def silent(self, *aliases: str) -> None:
        """From now on these clusters do not answer."""
        self.silenced |= set(aliases)

    def back(self, *aliases: str) -> None:
        self.silenced -= set(aliases)

    def restart(self) -> list[Event]:
        """Another process becomes the federator."""
        self.append(ev.FederatorTaken(holder="another"))
        self.answered.clear()
        return self.decide()

    # ------------------------------------------------------------------------------------------------------- looking

    @property
    def job(self) -> Job:
        return self.state.jobs[self.uid]

    def place(self, alias: str) -> Place:
        return self.job.places[alias]

    def _pass(self, minute: float) -> list[Event]:
        """Time passes as it does for a federator that runs: a look every ten seconds. What was said meanwhile?"""
        passed: list[Event] = []
        while self.minute + 1 / 6 < minute:
            self.minute += 1 / 6
            said = [seen for alias in self.job.places if (seen := self._ask(alias)) is not None]
            self.append(observing.ticked(self.state, self._clock_ns()), *said)
            passed += self.decide()
        self.minute = minute
        return passed

    def _ask(self, alias: str) -> Event | None:
        account = account_of(alias, alias)
        now_ns = observing.log_time_ns(self.state, self._clock_ns())
        before_ns = self.answered.get(alias, -1)
        if alias in self.silenced:
            return observing.silent(self.state, account, "no answer", before_ns=before_ns)
        self.answered[alias] = now_ns
        listing = Listing(
            runs=tuple(run for name, run in self.runs.items() if name == alias), clock_ms=self._clock_ms(alias)
        )
        lacking = observing.missing(self.state, account, listing)
        absent = [key for key in lacking if key[1] not in self.left]
        return observing.observed(
            self.state, account, listing, asked_ns=now_ns, now_ns=now_ns, before_ns=before_ns, absent=absent
        )

    def _clock_ns(self) -> int:
        return EPOCH_NS + int(self.minute * MINUTE_NS)

    def _clock_ms(self, alias: str) -> int:
        return self._clock_ns() // 1_000_000 + self.skew_ms.get(alias, 0)


def of_type(said: list[Event], kind: type[T]) -> list[T]:
    return [event for event in said if isinstance(event, kind)]


def stops(said: list[Event]) -> dict[str, str]:
    """Cluster → why it is to be stopped."""
    return {event.cluster: event.reason for event in of_type(said, ev.StopIntended)}


def placed(said: list[ev.Event]) -> list[tuple[str, str]]:
    return [(event.cluster, event.reason) for event in of_type(said, ev.JobPlaced)]


def scheduled(said: list[ev.Event]) -> list[str]:
    return [event.cluster for event in of_type(said, ev.JobScheduled)]


def equal(**given: float) -> Federation:
    """Two clusters of equal priority that took the job."""
    world = Federation(a=50, b=50, **given)
    world.accept()
    return world
