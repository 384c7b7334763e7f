"""How a job's runs lived, cluster by cluster: its log as stretches of time.

What `explain` says in words, for the eye. A stretch begins at the commit that brought it about, by its writer's clock;
between two commits nothing else was seen.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from services.federator.backends import RUNNING
from services.federator.explain import Said
from services.federator.records import ABANDONED, ENDED, STOPPING, SUBMITTED, Job, Place
from services.federator.state import State

SENT, WAITS, GUARDED, HOLDS, KEPT, STOPS, OVER = "sent", "waits", "guarded", "holds", "kept", "stops", "over"
"""Submitted and not seen yet; seen, without running; running in its guard time; holding the job; kept; to be stopped;
ended."""


class Stretch(msgspec.Struct, frozen=True):
    """From `from_ns` until the next one of this cluster."""

    from_ns: int
    kind: str


class Timeline(msgspec.Struct, frozen=True):
    """A job's, in the order of the priorities. Times are epoch nanoseconds."""

    name: str
    from_ns: int
    until_ns: int
    """When the log last said something of the job."""
    priorities: dict[str, int]
    """By alias, in thousandths."""
    stretches: dict[str, tuple[Stretch, ...]]


def drawn(commits: Iterable[Said], name: str) -> Timeline | None:
    """The job of this name, the last that had it, over these commits from a log's beginning on; None when there is no
    such job."""
    drawing = Drawing(name, State())
    for said in commits:
        drawing.add(said)
    return drawing.line()


class Drawing:
    """The same, commit by commit: of a long log nothing is kept but the stretches."""

    def __init__(self, name: str, state: State) -> None:
        """`state` is changed by `add`."""
        self._name, self._state = name, state
        self._job: Job | None = None
        self._found: dict[str, list[Stretch]] = {}
        self._until_ns = 0

    def add(self, said: Said) -> None:
        self._state.apply(said.sequence, said.events)
        self.look(said.time_ns)

    def look(self, time_ns: int) -> None:
        """`add`, where somebody else folded the commit, which is of then."""
        state = self._state
        if self._name not in state.names:
            return
        job = state.jobs[state.names[self._name]]
        if self._job is None or job.uid != self._job.uid:
            self._found = {}
        self._job = job
        for place in job.places.values():
            stretches, kind = self._found.setdefault(place.cluster, []), _kind(job, place)
            if not stretches or stretches[-1].kind != kind:
                stretches.append(Stretch(time_ns, kind))
                self._until_ns = max(self._until_ns, time_ns)

    def line(self) -> Timeline | None:
        found = self._found
        if self._job is None or not found:
            return None
        places = sorted(self._job.places.values(), key=lambda place: -place.priority_milli)
        return Timeline(
            name=self._name,
            from_ns=min(stretches[0].from_ns for stretches in found.values()),
            until_ns=self._until_ns,
            priorities={place.cluster: place.priority_milli for place in places},
            stretches={place.cluster: tuple(found[place.cluster]) for place in places},
        )


def _kind(job: Job, place: Place) -> str:
    if place.phase == ENDED:
        return OVER
    if place.phase in (STOPPING, ABANDONED):
        return STOPS
    if job.winner == place.cluster:
        return KEPT
    if job.holder == place.cluster:
        return HOLDS
    if place.phase != SUBMITTED or not place.run:
        return SENT
    return GUARDED if place.run == RUNNING else WAITS
