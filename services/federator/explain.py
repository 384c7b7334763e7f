"""Why a job is where it is: its story, told from the federation's log alone.

The log is folded event by event, and each event that means something to the job becomes lines: when, on which cluster,
what happened, the rule (`services.federator.rules`) and its reason. What an event means is seen from the state before it:
the same `JobScheduled` is the first to be scheduled, or one that takes over. What the fold ignores tells nothing.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator, Sequence

import msgspec

import events as ev
from events import Event
from services.federator.backends import GONE, RUNNING, SUCCEEDED, TERMINAL, UNKNOWN
from services.federator.records import ENDED, RACING, Job, Place
from services.federator.rules import ending, names, race
from services.federator.rules.forgotten import KEPT
from services.federator.state import State
from services.state.slices import at_once

NS_PER_S, NS_PER_MINUTE = 1_000_000_000, 60_000_000_000
SLICE_EVENTS = 500
"""Folded between two yields."""


class Said(msgspec.Struct, frozen=True):
    """A commit of the federator's."""

    sequence: int
    time_ns: int
    """Its writer's clock."""
    events: Sequence[Event]


class Line(msgspec.Struct, frozen=True):
    """One step of a job's story."""

    sequence: int
    time_ns: int
    cluster: str
    """The alias; empty where it is about all of them."""
    what: str
    rule: str
    """R1, R2, …; empty where none applies."""
    reason: str


Step = tuple[str, str, str, str]
"""A line's cluster, what, rule, reason."""

STOPS = {
    race.LOWER_PRIORITY: ("R5", "{other} of higher priority was scheduled"),
    race.NOT_EARLIEST: ("R3", "{other} of the same priority was scheduled, and holds the job"),
    race.EXTRA_TIME_OVER: ("R6", "it was not scheduled within its extra time; {other} holds the job"),
    race.OTHER_SUCCEEDED: ("R10", "{other} succeeded: nothing is worth running twice"),
    names.NO_NAME: ("R17", f"{names.MOST_NAMES} names were somebody else's"),
    ending.CANCELLED: ("R19", "its user cancelled the job"),
}
"""StopIntended's reason → rule, reason."""


def explained(commits: Iterable[Said], name: str) -> list[Line] | None:
    """The story of the job of this name over these commits from a log's beginning on; None when they have no such job. A
    name that was forgotten may have had several, one after the other."""
    story = Story(name, State())
    for said in commits:
        story.add(said)
    return story.lines or None


class Story:
    """The same, commit by commit: of a long log nothing is kept but the lines."""

    def __init__(self, name: str, state: State) -> None:
        """`state`: that on which the first commit stands; it is changed."""
        self._name, self._state = name, state
        self.lines = [*_purged(state, name)]
        self._had = set[str]()
        """The UIDs of all that had the name."""

    def add(self, said: Said) -> None:
        at_once(self.add_in_slices(said))

    def add_in_slices(self, said: Said) -> Generator[None, None, None]:
        """`add`, with a yield now and then: a takeover is about all jobs."""
        for number, event in enumerate(said.events, 1):
            if number % SLICE_EVENTS == 0:
                yield
            self._had.add(self._state.names.get(self._name, ""))
            steps = yield from _folded(self._state, said.sequence, event, self._name, self._had)
            self.lines += [Line(said.sequence, said.time_ns, *step) for step in steps]


def _purged(state: State, name: str) -> Iterator[Line]:
    if name in state.names:
        job = state.jobs[state.names[name]]
        stood = f"{job.phase} on {job.winner}" if job.winner else job.phase
        reason = f"everything before was purged; it was {stood}"
        for step in (("", "as of a snapshot", "", reason), *_silences(state, job)):
            yield Line(state.sequence, state.clock.time_ns, *step)


def _folded(
    state: State, sequence: int, event: Event, name: str, had: Container[str]
) -> Generator[None, None, list[Step]]:
    """What an event is to the job; the state is the one behind it then. `had`: the UIDs of all that had the name."""
    uid = state.names.get(name)
    before = list(_before(state, state.jobs[uid], event)) if uid is not None else []
    if isinstance(event, ev.StrayFound | ev.StrayCleared) and event.job in had:
        before = list(_answered(event, None))
    ignored = sum(state.ignored.values())
    yield from state.apply_in_slices(sequence, [event])
    if sum(state.ignored.values()) != ignored:
        return []
    if isinstance(event, ev.JobFederated) and event.name == name:
        return list(_accepted(state, state.jobs[event.job], event))
    return before


def _accepted(state: State, job: Job, event: ev.JobFederated) -> Iterator[Step]:
    aliases = ", ".join(f"{at.cluster} ({at.priority_milli / 1000:g})" for at in event.clusters)
    yield "", "accepted", "R1", f"submitted to all, by priority: {aliases}"
    yield from _silences(state, job)


def _silences(state: State, job: Job) -> Iterator[Step]:
    """Clusters that had not answered before the story begins say nothing new while they go on so."""
    for place in job.places.values():
        if place.phase != ENDED and (reason := state.clusters[place.account].silent):
            yield _silent(job, place, reason)


def _before(state: State, job: Job, event: Event) -> Iterator[Step]:
    """What an event is to a job, by the state before it."""
    match event:
        case ev.FederatorTaken():
            for place in job.places.values():
                if (job.uid, place.cluster) in state.submitting:
                    yield (
                        place.cluster,
                        "in doubt",
                        "R16",
                        "another process took over; what it may have sent is repeated",
                    )
                if place.phase != ENDED and state.clusters[place.account].silent:
                    yield place.cluster, "asked anew", "R14", "another process took over, which has had no answer yet"
        case ev.ClusterObserved():
            for place in _open_on(job, event.account):
                if state.clusters[place.account].silent:
                    yield place.cluster, "answers again", "R14", "its guard time goes on"
            for run in event.runs:
                if run.job == job.uid and run.cluster in job.places:
                    yield from _seen(job, job.places[run.cluster], run.state, run.attempt)
        case ev.ClusterSilent():
            for place in _open_on(job, event.account):
                yield _silent(job, place, event.reason)
        case _ if getattr(event, "job", "") == job.uid:
            yield from _decided(job, event)
            yield from _answered(event, job)


def _open_on(job: Job, account: str) -> list[Place]:
    return [place for place in job.places.values() if place.account == account and place.phase != ENDED]


def _decided(job: Job, event: Event) -> Iterator[Step]:
    match event:
        case ev.JobScheduled():
            yield event.cluster, "scheduled", *_why_scheduled(job, job.places[event.cluster])
        case ev.JobPlaced():
            yield event.cluster, "placed", *_why_placed(job, event)
        case ev.StopIntended():
            rule, reason = STOPS.get(event.reason, ("", event.reason))  # a later version may know more
            yield event.cluster, "to be stopped", rule, reason.format(other=job.holder or job.winner)
        case ev.JobUnplaced():
            yield "", "placed nowhere", "R13", "no cluster is left in the race"
        case ev.JobCancelled():
            yield "", "cancelled", "R19", "by its user: every run is stopped"
        case ev.JobSettled():
            yield "", "settled", "R18", "everything that is not kept was seen to have ended, or can never come to be"
        case ev.JobForgotten():
            yield "", "forgotten", "R22", f"it is over, and so are {KEPT:,} others since: its name is free"


def _why_scheduled(job: Job, place: Place) -> tuple[str, str]:
    ran = f"it ran for its guard time of {_length(job.guard_ns)}"
    holder = job.places.get(job.holder)
    rule, reason = ("R2", ran) if holder is None else ("R8", f"{ran} and takes over from {holder.cluster}")
    higher = [other for other in job.contenders() if other.priority_milli > place.priority_milli]
    if not higher:
        return rule, reason
    extra = ", ".join(
        f"{other.cluster} {_length((other.priority_milli - place.priority_milli) * job.scale_ns // 1_000)}"
        for other in higher
    )
    return rule, f"{reason}; extra time of higher priorities (R6): {extra}"


def _why_placed(job: Job, event: ev.JobPlaced) -> tuple[str, str]:
    if event.reason == race.SUCCEEDED:
        return "R10", "it succeeded before anything was decided"
    place = job.places[event.cluster]
    if any(other.priority_milli > place.priority_milli for other in job.contenders()):
        return "R6", "the extra time of all higher priorities is over"
    return "R3", "it is scheduled, and nobody of higher priority is left in the race"


def _answered(event: Event, job: Job | None) -> Iterator[Step]:
    """`job`: None of one that is forgotten."""
    match event:
        case ev.SubmissionAccepted() | ev.SubmissionHeld() if job is not None:
            yield event.cluster, *_there(job.places[event.cluster], event)
        case ev.RunReleased():
            yield event.cluster, "released", "R16", "its acceptance is in the log: it may run"
        case ev.RemainsFound() | ev.StrayFound():
            yield event.cluster, "came late", "R16", "a submission that nobody waits for: it is held, and to be cleared"
        case ev.RemainsCleared() | ev.StrayCleared():
            yield event.cluster, "cleared", "R18", "nothing of it is left there"
        case ev.SubmissionDoubted():
            yield event.cluster, "in doubt", "R16", f"no answer: {event.reason}"
        case ev.SubmissionRefused():
            yield event.cluster, "refused", "R16", f"{event.code}: {event.message}"
        case ev.NameTaken():
            yield event.cluster, "name taken", "R17", "what is there is somebody else's"
        case ev.SubmissionIntended():
            yield event.cluster, "submitted anew", "R17", f"as {event.name}"
        case ev.SubmissionWithdrawn():
            yield event.cluster, "withdrawn", "R18", "nothing had reached the cluster"
        case ev.RunGivenUp():
            yield event.cluster, "given up", "R21", f"{event.by} declared that nothing of it is there: {event.reason}"
        case ev.StopRefused():
            yield event.cluster, "stop refused", "R18", f"{event.code}: {event.message}; it is asked again"


def _there(place: Place, event: ev.SubmissionAccepted | ev.SubmissionHeld) -> tuple[str, str, str]:
    if place.is_there:
        return "held again", "R16", "its cluster was restored to before its release: it is let go anew"
    if place.phase == ENDED:
        return "back", "R18", "its cluster was restored to before its end: it is stopped"
    if event.adopted:
        return "submitted", "R16", "found there with our marker"
    return "submitted", "R1", "the cluster took it"


def _seen(job: Job, place: Place, run: str, attempt: int) -> Iterator[Step]:
    if not place.is_there or (place.run, place.attempt) == (run, attempt):
        return
    holds = job.phase == RACING and job.holder == place.cluster
    if run == UNKNOWN:
        yield place.cluster, run, "R14", "the cluster does not say how it is"
    elif run == GONE:
        yield place.cluster, run, "R20", f"its cluster has nothing of it any more{', and it held the job' * holds}"
    elif place.stopped_for or job.phase != RACING:
        kept = job.kept == place.cluster
        rule, reason = ("R15", "the winner's run") if kept else ("R18", "a run that is not kept")
        if not kept and run == SUCCEEDED and job.phase == RACING:
            rule, reason = "R10", "it succeeded while it was being cancelled"
        yield place.cluster, run, rule, reason
    elif run == SUCCEEDED:
        yield place.cluster, run, "R10", "before anything was decided"
    elif run in TERMINAL:
        lost = ("R12", "the holder is lost: the race is open again") if holds else ("R11", "out of the race")
        yield place.cluster, run, *lost
    elif run == RUNNING:
        goes_on = place.started_ns >= 0 and place.attempt == attempt
        yield place.cluster, run, "R2", "its guard time goes on" if goes_on else "its guard time begins"
    else:
        yield place.cluster, run, "R12" if holds else "R2", "no guard time is earned"


def _silent(job: Job, place: Place, why: str) -> Step:
    if job.phase == RACING and job.holder == place.cluster:
        return place.cluster, "silent", "R9", f"{why}; nobody is cancelled for it"
    if job.phase == RACING and place.contends:
        return place.cluster, "silent", "R14", f"{why}; it earns no guard time and is not elected"
    stands = "is kept all the same" if job.kept == place.cluster else "stays possibly running"
    return place.cluster, "silent", "R14", f"{why}; it {stands}"


def _length(time_ns: int) -> str:
    return f"{time_ns / NS_PER_MINUTE:g} min" if time_ns >= NS_PER_MINUTE else f"{time_ns / NS_PER_S:g} s"
