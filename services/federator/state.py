"""The fold of the federation's log: one table, event → transition.

It is a fold of its own: a federation's log has nothing of a cluster's, and its events mean nothing there. An event that
does not fit the state at its own place changes nothing, and is counted.

What the rules would say of a job (`services.federator.rules`) changes only with its own events, and with an answer or the
silence of a cluster on which it runs, or of any once it has a holder. So each commit looks again at the jobs that it
touched, and `actionable` has those of which something is to be said: deciding looks at nobody else. Of ten thousand jobs
that wait, an answer touches none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import events as ev
from events.envelope import FIRST_VERSION, Commit, MalformedCommit, Stored, commit_of, decode_events, header_of
from events.federation import RunSeen
from services.federator import records
from services.federator.backends import RUNNING, TERMINAL, UNKNOWN
from services.federator.records import (
    ABANDONED,
    ENDED,
    NOTHING,
    PLACED,
    RACING,
    SETTLED,
    STOPPING,
    SUBMITTED,
    SUBMITTING,
    TRANSITIONS,
    UNPLACED,
    Cluster,
    Job,
    Key,
    Place,
    account_of,
)
from services.federator.rules import verdict
from services.state.clock import advance
from services.state.form import UnknownCommit, confirm
from services.state.records import Clock

NS_PER_MS = 1_000_000
NOT_RELEASED = "NotReleased"
"""Why what is held is to be stopped, other than by a rule's `StopIntended`."""
WRITER = "federator"
"""The one writer of a federation's log."""


class State:
    """The fold of a federation's log up to `sequence`."""

    def __init__(self) -> None:
        self.sequence = 0
        self.holder = ""
        self.clock = Clock()
        self.jobs: dict[str, Job] = {}
        self.clusters: dict[str, Cluster] = {}
        self.actionable: dict[str, None] = {}
        """Jobs of which something is to be said, in the order in which that came to be."""
        self.snapshots: dict[int, ev.SnapshotTaken] = {}
        """The last `SNAPSHOTS_KEPT`, by sequence."""
        self.ignored: dict[str, int] = {}
        """Events that were not current at their own place, by type."""
        self.set_aside = 0
        """Messages in the stream that are nobody's commit."""

        # Derived, but for the order of the intents, by which nothing is decided.
        self.names: dict[str, str] = {}
        """Every name that a job ever had → its UID: clusters keep names for ever."""
        self.open: dict[str, dict[Key, None]] = {}
        """By account: places that did not end, in the order in which their jobs came."""
        self.timed: dict[str, dict[Key, None]] = {}
        """By account: those of them of which an answer without news may decide something (`is_timed`), in no order."""
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
    rules_version = state_version = FIRST_VERSION
    """Nothing switches them."""

    @property
    def holders(self) -> dict[str, str]:
        """writer → holder, as every log's state has it."""
        return {WRITER: self.holder} if self.holder else {}

    @property
    def now_ns(self) -> int:
        """Log time, without jumps."""
        return self.clock.counted_ns

    def apply_stored(self, stored: Stored, events: list[ev.Event] | None = None) -> Commit | None:
        """Decode and apply; what is nobody's commit is set aside and None returned. Raises UnknownCommit.

        `events`: what the payload says, from somebody who knows it.
        """
        header = header_of(stored)
        if header is None or header.writer != WRITER:
            self.sequence = stored.sequence
            self.set_aside += 1
            return None
        try:
            commit = commit_of(stored, header, decode_events(stored) if events is None else events)
            self.apply(commit.sequence, commit.events)
        except MalformedCommit as error:
            raise UnknownCommit(f"{error} (rules {header.rules}, state {header.state})") from error
        except Exception as error:  # half applied: what would follow stood on a wrong state
            where = f"commit {stored.sequence} on {stored.subject}"
            raise UnknownCommit(f"{where}: {error!r} (rules {header.rules}, state {header.state})") from error
        return commit

    def apply(self, sequence: int, events: Sequence[ev.Event]) -> None:
        """Fold one commit of the federator's."""
        self.sequence = sequence
        for event in events:
            transition = APPLY.get(type(event))
            if transition is None:
                self.ignore(event)
            else:
                transition(self, event)
        for uid in self._touched:
            job = self.jobs[uid]
            self.time(job)
            _mark(self.actionable, uid, bool(verdict(job, self.clusters, self.now_ns)))
        self._touched.clear()

    def ignore(self, event: ev.Event) -> None:
        name = type(event).__name__
        self.ignored[name] = self.ignored.get(name, 0) + 1

    def touch(self, uid: str) -> None:
        self._touched[uid] = None

    def place(self, uid: str, alias: str) -> Place | None:
        job = self.jobs.get(uid)
        return job.places.get(alias) if job is not None else None

    def intends(self, key: Key) -> bool:
        """Whether something is to be tried there, and not settled."""
        return key in self.submitting or key in self.stopping or key in self.releasing or key in self.clearing

    def intents(self) -> list[Key]:
        return [*self.submitting, *self.stopping, *self.releasing, *self.clearing]

    def move(self, uid: str, place: Place, what: str) -> bool:
        """One step in the life of a place; False when it is none."""
        phase = TRANSITIONS.get((place.phase, what))
        if phase is None:
            return False
        place.phase = phase
        self.index(uid, place)
        self.touch(uid)
        return True

    def index(self, uid: str, place: Place) -> None:
        """Have it where its phase says."""
        key = (uid, place.cluster)
        _mark(self.submitting, key, place.phase in (SUBMITTING, ABANDONED))
        _mark(self.stopping, key, place.phase == STOPPING)
        _mark(self.releasing, key, place.phase == SUBMITTED and place.held)
        _mark(self.clearing, key, place.remains != NOTHING)
        _mark(self.open.setdefault(place.account, {}), key, place.phase != ENDED)
        self.timed.setdefault(place.account, {})

    def time(self, job: Job) -> None:
        """Have its places where an answer without news may matter to them."""
        racing, held = job.phase == RACING, bool(job.holder)
        for place in job.places.values():
            timed = self.timed[place.account]
            if racing and (held or place.run == RUNNING) and is_timed(job, place):
                timed[job.uid, place.cluster] = None
            elif timed:
                timed.pop((job.uid, place.cluster), None)


def is_timed(job: Job, place: Place) -> bool:
    """Whether its cluster's answers are time that passes for somebody: it runs, or its job has a holder."""
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
        for uid, _ in state.open[cluster.account]:
            state.touch(uid)


def _ticked(state: State, event: ev.Ticked) -> None:
    advance(state.clock, event)


def _renewed(state: State, event: ev.Renewed) -> None:
    """Only that it stands there matters."""


def _snapshot_taken(state: State, event: ev.SnapshotTaken) -> None:
    if not confirm(state, event):
        state.ignore(event)


# ------------------------------------------------------------------------------------------------------------- jobs


def _federated(state: State, event: ev.JobFederated) -> None:
    if event.job in state.jobs or event.name in state.names:
        state.ignore(event)
        return
    places = {
        contender.cluster: Place(
            cluster=contender.cluster,
            account=account_of(contender.user, contender.uri),
            gpu_type=contender.gpu_type,
            priority_milli=contender.priority_milli,
            name=contender.name,
        )
        for contender in event.clusters
    }
    state.jobs[event.job] = Job(
        uid=event.job,
        name=event.name,
        digest=event.digest,
        guard_ns=event.guard_ms * NS_PER_MS,
        scale_ns=event.scale_ms * NS_PER_MS,
        places=places,
    )
    state.names[event.name] = event.job
    for place in places.values():
        state.clusters.setdefault(place.account, Cluster(place.account))
        state.index(event.job, place)
    state.touch(event.job)


def _cancelled(state: State, event: ev.JobCancelled) -> None:
    job = state.jobs.get(event.job)
    if job is None or job.cancelled:
        state.ignore(event)
        return
    job.cancelled = True
    job.phase = UNPLACED
    job.holder = ""
    state.touch(job.uid)


def _scheduled(state: State, event: ev.JobScheduled) -> None:
    job = state.jobs.get(event.job)
    if job is None or job.phase != RACING:
        state.ignore(event)
        return
    job.holder = event.cluster
    job.held_ns = event.guard_ended_ns
    state.touch(job.uid)


def _placed(state: State, event: ev.JobPlaced) -> None:
    job = state.jobs.get(event.job)
    if job is None or job.phase != RACING:
        state.ignore(event)
        return
    job.phase, job.winner, job.holder = PLACED, event.cluster, ""
    state.touch(job.uid)


def _unplaced(state: State, event: ev.JobUnplaced) -> None:
    job = state.jobs.get(event.job)
    if job is None or job.phase != RACING:
        state.ignore(event)
        return
    job.phase = UNPLACED
    state.touch(job.uid)


def _settled(state: State, event: ev.JobSettled) -> None:
    job = state.jobs.get(event.job)
    if job is None:
        state.ignore(event)
        return
    job.phase = SETTLED
    kept = "" if job.cancelled else job.winner
    for alias, place in job.places.items():
        if place.uid and alias != kept and not place.given_up:
            _remains(state, job.uid, place, (place.name, place.uid))
    state.touch(job.uid)


def _remains_found(state: State, event: ev.RemainsFound) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or place.remains != NOTHING:
        state.ignore(event)
        return
    _remains(state, event.job, place, (event.name, event.uid))


def _remains_cleared(state: State, event: ev.RemainsCleared) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or place.remains[1] != event.uid or not event.uid:
        state.ignore(event)
        return
    _remains(state, event.job, place, NOTHING)


def _remains(state: State, uid: str, place: Place, remains: tuple[str, str]) -> None:
    place.remains = remains
    state.index(uid, place)


# ---------------------------------------------------------------------------------------------------------- effects


def _intended(state: State, event: ev.SubmissionIntended) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or not state.move(event.job, place, "submit"):
        state.ignore(event)
        return
    place.name, place.number, place.doubtful = event.name, event.number, False


def _accepted(state: State, event: ev.SubmissionAccepted | ev.SubmissionHeld) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or not state.move(event.job, place, "accepted"):
        state.ignore(event)
        return
    place.held = isinstance(event, ev.SubmissionHeld)
    place.sole = place.held or not (place.doubtful or event.adopted)
    place.uid, place.doubtful = event.uid, False
    state.index(event.job, place)


def _released(state: State, event: ev.RunReleased) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or not place.held:
        state.ignore(event)
        return
    place.held = False
    state.index(event.job, place)


def _doubted(state: State, event: ev.SubmissionDoubted) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or place.phase not in (SUBMITTING, ABANDONED):
        state.ignore(event)
        return
    place.doubtful = True


def _refused(state: State, event: ev.SubmissionRefused) -> None:
    """R16: a refusal says nothing of an earlier attempt in doubt, unless that must have been refused as well. What is
    held already, and will not be let go, is stopped."""
    place = state.place(event.job, event.cluster)
    if place is not None and place.held and state.move(event.job, place, "stop"):
        place.refusal, place.stopped_for = event.code, NOT_RELEASED
        return
    if place is None or place.phase not in (SUBMITTING, ABANDONED):
        state.ignore(event)
        return
    place.refusal = event.code
    if event.of_content or not place.doubtful:
        state.move(event.job, place, "refused")


def _name_taken(state: State, event: ev.NameTaken) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or not state.move(event.job, place, "name taken"):
        state.ignore(event)
        return
    place.doubtful = False


def _withdrawn(state: State, event: ev.SubmissionWithdrawn) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or place.doubtful or not state.move(event.job, place, "withdrawn"):
        state.ignore(event)


def _stop_intended(state: State, event: ev.StopIntended) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or not state.move(event.job, place, "stop"):
        state.ignore(event)
        return
    place.stopped_for = event.reason


def _stop_refused(state: State, event: ev.StopRefused) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or place.phase != STOPPING:
        state.ignore(event)
        return
    place.refusal = event.code


def _given_up(state: State, event: ev.RunGivenUp) -> None:
    place = state.place(event.job, event.cluster)
    if place is None or not state.move(event.job, place, "given up"):
        state.ignore(event)
        return
    place.given_up, place.doubtful = event.by, False
    _loses_hold(state.jobs[event.job], place)


# ----------------------------------------------------------------------------------------------------- observations


def _observed(state: State, event: ev.ClusterObserved) -> None:
    cluster = state.clusters.get(event.account)
    if cluster is None:
        state.ignore(event)
        return
    asked_ns = min(event.asked_ns, state.now_ns)
    _answered(cluster, asked_ns)
    cluster.seen_ns, cluster.silent = max(cluster.seen_ns, asked_ns), ""
    for run in event.runs:
        if (run.job, run.cluster) in state.open[cluster.account]:
            _run_seen(state, cluster, run)
    for uid, _ in sorted(state.timed[cluster.account]):
        state.touch(uid)


def _silent(state: State, event: ev.ClusterSilent) -> None:
    cluster = state.clusters.get(event.account)
    if cluster is None:
        state.ignore(event)
        return
    _answered(cluster, min(event.asked_ns, state.now_ns))
    cluster.silent = event.reason
    for uid, _ in sorted(state.timed[cluster.account]):
        state.touch(uid)


def _answered(cluster: Cluster, asked_ns: int) -> None:
    """R2: it answered all the time up to then."""
    if cluster.answers:
        cluster.covered_ns += max(0, asked_ns - cluster.seen_ns)


def _run_seen(state: State, cluster: Cluster, seen: RunSeen) -> None:
    place = state.jobs[seen.job].places[seen.cluster]
    if not place.is_there:
        return
    same_attempt = place.started_ns >= 0 and place.attempt == seen.attempt
    if seen.state == UNKNOWN:  # like silence
        place.earned_ns, place.since_ns = records.guard_ns(place, cluster), -1
    elif seen.state == RUNNING and same_attempt:
        if place.since_ns < 0:
            place.earned_ns += cluster.seen_ns - state.now_ns
            place.since_ns = cluster.covered_ns
    else:
        place.earned_ns, place.since_ns, place.started_ns = 0, -1, -1
        if seen.state == RUNNING:  # from the answer on, not from the question
            place.earned_ns = cluster.seen_ns - state.now_ns
            place.since_ns, place.started_ns = cluster.covered_ns, seen.started_ns
        _loses_hold(state.jobs[seen.job], place)
    place.run = seen.state
    if seen.state != UNKNOWN:
        place.attempt = seen.attempt
    if seen.state in TERMINAL:
        state.move(seen.job, place, "end seen")
    state.touch(seen.job)


def _loses_hold(job: Job, place: Place) -> None:
    """R12."""
    if job.holder == place.cluster:
        job.holder, job.held_ns = "", 0


APPLY: dict[type, Callable[[State, Any], None]] = {
    ev.FederatorTaken: _taken,
    ev.JobFederated: _federated,
    ev.JobCancelled: _cancelled,
    ev.SubmissionIntended: _intended,
    ev.SubmissionAccepted: _accepted,
    ev.SubmissionHeld: _accepted,
    ev.RunReleased: _released,
    ev.SubmissionDoubted: _doubted,
    ev.SubmissionRefused: _refused,
    ev.NameTaken: _name_taken,
    ev.SubmissionWithdrawn: _withdrawn,
    ev.ClusterObserved: _observed,
    ev.ClusterSilent: _silent,
    ev.JobScheduled: _scheduled,
    ev.JobPlaced: _placed,
    ev.JobUnplaced: _unplaced,
    ev.StopIntended: _stop_intended,
    ev.StopRefused: _stop_refused,
    ev.RunGivenUp: _given_up,
    ev.JobSettled: _settled,
    ev.RemainsFound: _remains_found,
    ev.RemainsCleared: _remains_cleared,
    ev.Ticked: _ticked,
    ev.SnapshotTaken: _snapshot_taken,
    ev.Renewed: _renewed,
}
"""event → transition: the whole fold."""
