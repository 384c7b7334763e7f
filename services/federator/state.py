"""The fold of the federation's log: one table, event → transition; these stand in `services.federator.transitions`.

It is a fold of its own: a federation's log has nothing of a cluster's, and its events mean nothing there. An event that
does not fit the state at its own place changes nothing, and is counted.

The rules' verdict on a job (`services.federator.rules`) changes only with its own events, and with an answer or the
silence of a cluster on which it runs, or of any once it has a holder. So each commit looks again at the jobs that it
touched, and `actionable` has those with a decision due: deciding looks at no others. Of ten thousand jobs that wait, an
answer touches none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import count
from typing import Any

import events as ev
from events.envelope import (
    FIRST_VERSION,
    Commit,
    Header,
    MalformedCommit,
    Stored,
    commit_of,
    decode_events,
    header_of,
)
from services.federator.backends import RUNNING
from services.federator.records import (
    ABANDONED,
    ENDED,
    NOTHING,
    RACING,
    STOPPING,
    SUBMITTED,
    SUBMITTING,
    TRANSITIONS,
    Cluster,
    Job,
    Key,
    Place,
    Stray,
    origin_of,
)
from services.federator.rules import forgotten, verdict
from services.federator.transitions import answers, jobs, places, strays
from services.state.clock import advance
from services.state.form import UnknownCommit, UnknownVersion, snapshot_taken
from services.state.records import Clock
from services.state.slices import at_once

WRITER = "federator"
"""The one writer of a federation's log."""
RULES = FOLD = FIRST_VERSION
"""The latest that this code has."""
SLICE_JOBS = 500
"""Looked at between two yields: some milliseconds, of jobs with 20 clusters each."""
SLICE_PLACES = 10_000
"""Touched between two yields."""


class State:
    """The fold of a federation's log up to `sequence`."""

    def __init__(self) -> None:
        self.sequence = 0
        self.holder = ""
        self.clock = Clock()
        self.jobs: dict[str, Job] = {}
        self.clusters: dict[str, Cluster] = {}
        self.actionable: dict[str, None] = {}
        """Jobs with a decision due, in the order in which it became due."""
        self.origin = ""
        """Of this log's jobs' UIDs (`origin_of`); empty before the first."""
        self.over: dict[str, None] = {}
        """Jobs that are over, in the order in which that came to be."""
        self.strays: dict[str, dict[str, Stray]] = {}
        """By account and UID: what came late of jobs that are forgotten, and is to be cleared."""
        self.snapshots: dict[int, ev.SnapshotTaken] = {}
        """The last `SNAPSHOTS_KEPT`, by sequence."""
        self.ignored: dict[str, int] = {}
        """Events that were not current at their own place, by type."""
        self.set_aside = 0
        """Messages in the stream that are nobody's commit."""

        # Derived, but for the order of the intents, by which nothing is decided.
        self.names: dict[str, str] = {}
        """The names of the jobs → their UIDs."""
        self.open: dict[str, dict[Key, None]] = {}
        """By account: places that did not end; in the order in which their jobs came, but for those that came back."""
        self.timed: dict[str, dict[Key, None]] = {}
        """By account: those for which an answer without news may decide something (`is_timed`), in no order."""
        self.submitting: dict[Key, None] = {}
        """Intended to submit and not settled."""
        self.stopping: dict[Key, None] = {}
        """Intended to stop and not settled."""
        self.releasing: dict[Key, None] = {}
        """Intended to release and not settled."""
        self.clearing: dict[Key, None] = {}
        """Intended to clear and not settled."""
        self._touched: dict[str, None] = {}

    epoch = 0
    """Nobody shares a federation."""
    rules_version, state_version = RULES, FOLD
    """There is no other."""

    @property
    def holders(self) -> dict[str, str]:
        """writer → holder, as every log's state has it."""
        return {WRITER: self.holder} if self.holder else {}

    @property
    def now_ns(self) -> int:
        """Log time, without jumps."""
        return self.clock.counted_ns

    def apply_stored(self, stored: Stored, events: list[ev.Event] | None = None) -> Commit | None:
        """Decode and apply; what is nobody's commit is set aside and None returned. Raises UnknownCommit, and
        UnknownVersion for that of a later version.

        `events`: the payload, where the caller has decoded it already.
        """
        return at_once(self.apply_stored_in_slices(stored, events))

    def apply_stored_in_slices(
        self, stored: Stored, events: list[ev.Event] | None = None
    ) -> Generator[None, None, Commit | None]:
        """`apply_stored`, as `apply_in_slices` has them."""
        header = header_of(stored)
        if header is None or header.writer != WRITER:
            self.sequence = stored.sequence
            self.set_aside += 1
            return None
        check_versions(stored.sequence, header)
        try:
            commit = commit_of(stored, header, decode_events(stored) if events is None else events)
            yield from self.apply_in_slices(commit.sequence, commit.events)
        except MalformedCommit as error:
            raise UnknownCommit(f"{error} (rules {header.rules}, state {header.state})") from error
        except Exception as error:  # half applied: what would follow stood on a wrong state
            where = f"commit {stored.sequence} on {stored.subject}"
            raise UnknownCommit(f"{where}: {error!r} (rules {header.rules}, state {header.state})") from error
        return commit

    def apply(self, sequence: int, events: Sequence[ev.Event]) -> None:
        """Fold one commit of the federator's."""
        at_once(self.apply_in_slices(sequence, events))

    def apply_in_slices(self, sequence: int, events: Sequence[ev.Event]) -> Generator[None, None, None]:
        """`apply`, with a yield now and then while it looks again at the jobs that the events touched: an answer may be
        about all of them, and a takeover is. Until it is over nobody may decide, or fold."""
        self.sequence = sequence
        for event in events:
            transition = APPLY.get(type(event))
            if transition is None:
                self.ignore(event)
            else:
                transition(self, event)
            if type(event) is ev.FederatorTaken:
                yield from self._touch_open()
        for number, uid in enumerate(self._touched, 1):
            if number % SLICE_JOBS == 0:
                yield
            job = self.jobs.get(uid)
            if job is None:  # forgotten in the same commit
                continue
            self.time(job)
            _mark(self.actionable, uid, bool(verdict(job, self.clusters, self.now_ns)))
            self.reckon(job)
        self._touched.clear()

    def ignore(self, event: ev.Event) -> None:
        name = type(event).__name__
        self.ignored[name] = self.ignored.get(name, 0) + 1

    def touch(self, uid: str) -> None:
        self._touched[uid] = None

    def _touch_open(self) -> Generator[None, None, None]:
        """All jobs with a place that is open: what a cluster answered to the process before is not known to this one. In
        the order in which the jobs came, as behind a snapshot: what came back is behind the others in `open`."""
        looked_at = count(1)
        for account in self.clusters:
            there = set()
            for uid, _ in self.open[account]:
                if next(looked_at) % SLICE_PLACES == 0:
                    yield
                there.add(uid)
            for uid in self.jobs if there else ():
                if next(looked_at) % SLICE_PLACES == 0:
                    yield
                if uid in there:
                    self._touched[uid] = None

    def reckon(self, job: Job) -> None:
        """List the job under `over` if it is over (R22), else take it off."""
        _mark(self.over, job.uid, forgotten.is_over(job, self.origin))

    def is_forgotten(self, uid: str) -> bool:
        """Whether the UID is of a job of this log that is forgotten: the state does not know it, and it has this log's
        origin."""
        return uid not in self.jobs and bool(self.origin) and origin_of(uid) == self.origin

    def place(self, uid: str, alias: str) -> Place | None:
        job = self.jobs.get(uid)
        return job.places.get(alias) if job is not None else None

    def intends(self, key: Key) -> bool:
        """Whether an effect is intended for the place and not settled."""
        return key in self.submitting or key in self.stopping or key in self.releasing or key in self.clearing

    def intents(self) -> list[Key]:
        return [*self.submitting, *self.stopping, *self.releasing, *self.clearing]

    def move(self, uid: str, place: Place, what: str) -> bool:
        """One step in the life of a place, by `TRANSITIONS`; False when that has no such step."""
        phase = TRANSITIONS.get((place.phase, what))
        if phase is None:
            return False
        place.phase = phase
        self.index(uid, place)
        self.touch(uid)
        return True

    def index(self, uid: str, place: Place) -> None:
        """List the place in the tables of intents and open places that its phase asks for."""
        key = (uid, place.cluster)
        _mark(self.submitting, key, place.phase in (SUBMITTING, ABANDONED))
        _mark(self.stopping, key, place.phase == STOPPING)
        _mark(self.releasing, key, place.phase == SUBMITTED and place.held)
        _mark(self.clearing, key, place.remains != NOTHING)
        _mark(self.open.setdefault(place.account, {}), key, place.phase != ENDED)
        self.timed.setdefault(place.account, {})

    def time(self, job: Job) -> None:
        """List those of the job's places in `timed` for which an answer without news may end a guard or extra time."""
        racing, held = job.phase == RACING, bool(job.holder)
        for place in job.places.values():
            timed = self.timed[place.account]
            if racing and (held or place.run == RUNNING) and is_timed(job, place):
                timed[job.uid, place.cluster] = None
            elif timed:
                timed.pop((job.uid, place.cluster), None)


def check_versions(sequence: int, header: Header) -> None:
    """Of a federator's commit. Its only writer stamps it with what it decides and folds by: so a later version that
    takes over switches to itself, and code without that one must neither fold nor write after it. Raises
    UnknownVersion.
    """
    if header.rules > RULES or header.state > FOLD:
        later = f"commit {sequence} is by rules version {header.rules}, state version {header.state}"
        raise UnknownVersion(f"{later}, and this code has {RULES}, {FOLD}")


def is_timed(job: Job, place: Place) -> bool:
    """Whether the cluster's answers count as guard or extra time for the job: the place runs, or the job has a holder."""
    return job.phase == RACING and place.phase != ENDED and (bool(job.holder) or place.runs)


def _mark(marks: dict[Any, None], key: Any, wanted: bool) -> None:
    if wanted:
        marks[key] = None
    else:
        marks.pop(key, None)


# ---------------------------------------------------------------------------------------------------- the federator


def _taken(state: State, event: ev.FederatorTaken) -> None:
    state.holder = event.holder
    for uid, alias in state.submitting:
        state.jobs[uid].places[alias].doubtful = True
    for cluster in state.clusters.values():
        cluster.seen_ns, cluster.silent = -1, ""


def _ticked(state: State, event: ev.Ticked) -> None:
    advance(state.clock, event)


def _renewed(state: State, event: ev.Renewed) -> None:
    """Only that it stands there matters."""


APPLY: dict[type, Callable[[State, Any], None]] = {
    ev.FederatorTaken: _taken,
    ev.JobFederated: jobs.federated,
    ev.JobCancelled: jobs.cancelled,
    ev.SubmissionIntended: places.intended,
    ev.SubmissionAccepted: places.submitted,
    ev.SubmissionHeld: places.held,
    ev.RunReleased: places.released,
    ev.SubmissionDoubted: places.doubted,
    ev.SubmissionRefused: places.refused,
    ev.NameTaken: places.name_taken,
    ev.SubmissionWithdrawn: places.withdrawn,
    ev.ClusterObserved: answers.observed,
    ev.ClusterSilent: answers.silent,
    ev.JobScheduled: jobs.scheduled,
    ev.JobPlaced: jobs.placed,
    ev.JobUnplaced: jobs.unplaced,
    ev.StopIntended: places.stop_intended,
    ev.StopRefused: places.stop_refused,
    ev.RunGivenUp: places.given_up,
    ev.JobSettled: jobs.settled,
    ev.JobForgotten: jobs.forgotten,
    ev.RemainsFound: jobs.remains_found,
    ev.RemainsCleared: jobs.remains_cleared,
    ev.StrayFound: strays.found,
    ev.StrayCleared: strays.cleared,
    ev.Ticked: _ticked,
    ev.SnapshotTaken: snapshot_taken,
    ev.Renewed: _renewed,
}
"""event → transition: the whole fold."""
