"""A federation's log: one writer, which decides each time over exactly what it wrote before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Mapping
from typing import Any, get_args

import events as ev
from events import Event
from events.envelope import FIRST_VERSION
from services.federator import core
from services.federator.records import SETTLED
from services.federator.requests import shown
from services.federator.state import WRITER, State
from services.federator.validate import validate_state

DECISIONS = frozenset(
    {
        ev.JobScheduled,
        ev.JobPlaced,
        ev.JobUnplaced,
        ev.JobSettled,
        ev.JobForgotten,
        ev.SubmissionIntended,
        ev.StopIntended,
    }
)
"""What the rules say (`services.federator.rules`)."""
INPUTS: dict[str, frozenset[type]] = {
    "taken": frozenset({ev.FederatorTaken}),
    "renew": frozenset({ev.Renewed}),
    "request": frozenset({ev.JobFederated, ev.JobCancelled, ev.RunGivenUp}),
}
INPUTS["outcome"] = frozenset(get_args(ev.FederatorEvents)) - DECISIONS.union(*INPUTS.values())


class Checks:
    """As `services.console.kinds.Checks`. An outcome has its intent when the fold does not ignore it."""

    rules: Mapping[str, Collection[int]] = {WRITER: (FIRST_VERSION,)}
    inputs: Mapping[str, frozenset[type]] = INPUTS

    def __init__(self, state: State) -> None:
        self.before = 0
        self.times = {WRITER: state.clock.time_ns}
        self._state = state
        self._ignored = sum(state.ignored.values())

    def decide(self, writer: str) -> Generator[None, None, list[Event]]:
        yield from ()  # one slice
        return core.decide(self._state)

    def broken(self, decided: list[Event]) -> str:
        return ""

    def taken(self, event: Event) -> None:
        """The fold knows the intents."""

    def decided(self, events: list[Event]) -> None:
        """The fold knows the intents."""

    def unintended(self, event: Event) -> str | None:
        return None

    def inert(self) -> str:
        """Nobody else writes: whatever the federator says is current at its own place."""
        before, self._ignored = self._ignored, sum(self._state.ignored.values())
        return f"{self._ignored - before} of its events change nothing" if self._ignored > before else ""

    def validate(self) -> None:
        validate_state(self._state)


def summary(state: State) -> dict[str, Any]:
    """The state in numbers, ready for JSON."""
    places = [place for job in state.jobs.values() for place in job.places.values()]
    return {
        "sequence": state.sequence,
        "jobs": dict(sorted(Counter(job.phase for job in state.jobs.values()).items())),
        "submissions": dict(sorted(Counter(place.phase for place in places).items())),
        "clusters": {
            account: "silent" if cluster.silent else "answers" if cluster.answers else "not asked"
            for account, cluster in state.clusters.items()
        },
        "submitting": len(state.submitting),
        "stopping": len(state.stopping),
        "releasing": len(state.releasing),
        "clearing": len(state.clearing) + sum(map(len, state.strays.values())),
        "log_time_ns": state.clock.time_ns,
        "holders": state.holders,
        "ignored": dict(sorted(state.ignored.items())),
        "set_aside": state.set_aside,
    }


def waiting(state: State) -> tuple[str, dict[str, dict[str, Any]]]:
    """Jobs that are not settled."""
    unsettled = (job for job in state.jobs.values() if job.phase != SETTLED)
    return "unsettled_jobs", {job.name: _unsettled(shown(state, job)) for job in unsettled}


def _unsettled(job: dict[str, Any]) -> dict[str, Any]:
    of_each = ", ".join(f"{at['cluster']}: {at['phase']} {at['run']}".rstrip() for at in job["clusters"])
    return {"phase": job["phase"], "cluster": job["cluster"], "clusters": of_each}
