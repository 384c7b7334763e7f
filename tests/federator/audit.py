"""What must hold through a history: read off the log and the true clusters, without the federator's own fold or rules.

Each commit is read as it is appended. Guard times are added up run by run and answer by answer, and every decision is
compared with what the rules (`services.federator.rules`) ask for; before the next answer is read, nothing may be overdue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import events as ev
from events import Event
from services.federator import core
from services.federator.snapshot import FORM
from services.federator.state import State
from services.federator.transitions.places import NOT_RELEASED
from services.federator.validate import validate_state
from tests.federator.clusters import TrueRun
from tests.federator.told import MS, Seen, Told

if TYPE_CHECKING:
    from tests.federator.simulation import World

TERMINAL = ("succeeded", "failed", "stopped", "gone")
REPLAYED = 16
"""One history of so many is folded and decided again."""


class Violation(AssertionError):
    """Something that must hold does not."""


class Audit:
    """One history's."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.jobs: dict[str, Told] = {}
        self.time_ns = 0
        self.now_ns = 0
        self.seen_ns: dict[str, int] = {}
        """Accounts that answer."""

    def read(self, commit: tuple[Event, ...]) -> None:
        self.check_overdue(commit)
        for event in commit:
            told = self.jobs.get(getattr(event, "job", ""))
            late = isinstance(event, ev.StrayFound | ev.StrayCleared)
            _check(told is None or told.forgotten is late, f"R22: {event} of a job that is forgotten, or is not")
            reader = READERS.get(type(event))
            if reader is not None:
                reader(self, event)
        for job in self.jobs.values():
            if job.decided == "placed" and not job.cancelled:
                left = [place.cluster for place in job.wanted() if place.cluster != job.winner]
                _check(not left, f"R3: {job.uid} is placed on {job.winner}, and nobody stops it on {left}")

    # --------------------------------------------------------------------------------------------------- what is due

    def check_overdue(self, commit: tuple[Event, ...]) -> None:
        """Before the next answer is read, everything was said."""
        if isinstance(commit[0], ev.Ticked):
            for job in self.jobs.values():
                if overdue := self.overdue(job):
                    raise Violation(f"{job.uid}: overdue: {overdue}")

    def answers(self, place: Seen) -> bool:
        return place.account in self.seen_ns

    def scheduled(self, job: Told) -> list[Seen]:
        return [
            place
            for place in job.wanted()
            if place.accepted and place.run == "running" and self.answers(place) and place.earned_ns >= job.guard_ns
        ]

    def guard_ended_ns(self, job: Told, place: Seen) -> int:
        return self.seen_ns[place.account] - (place.earned_ns - job.guard_ns)

    def holder_is_seen(self, job: Told) -> bool:
        holder = job.places[job.holder]
        return self.answers(holder) and holder.run == "running"

    def takes_over(self, job: Told, place: Seen) -> bool:
        if place.priority <= job.places[job.holder].priority:
            return False
        return not self.holder_is_seen(job) or self.guard_ended_ns(job, place) <= job.extra_time_ends_ns(place)

    def is_over(self, job: Told, place: Seen) -> bool:
        end_ns = job.extra_time_ends_ns(place)
        holder = job.places[job.holder]
        heard = self.holder_is_seen(job) and self.seen_ns[holder.account] >= end_ns
        return self.now_ns >= end_ns and heard and self.seen_ns.get(place.account, end_ns) >= end_ns

    def overdue(self, job: Told) -> str:  # noqa: PLR0911
        """What a federator that has read everything should have said."""
        if job.cancelled and job.wanted():
            return "R19: stops"
        if job.decided and not job.settled:
            kept = "" if job.cancelled else job.winner
            if all(place.over for place in job.places.values() if place.cluster != kept):
                return "R18: it is settled"
        if job.decided:
            return ""
        if any(place.run == "succeeded" for place in job.places.values()):
            return "R10: one succeeded"
        if not job.wanted():
            return "R13: nobody is left"
        if not job.holder:
            return "R2: one is scheduled" if self.scheduled(job) else ""
        if any(self.takes_over(job, place) for place in self.scheduled(job)):
            return "R7: one takes over"
        higher = [place for place in job.wanted() if place.cluster != job.holder]
        if any(self.is_over(job, place) for place in higher):
            return "R6: an extra time is over"
        if not higher and self.holder_is_seen(job):
            return "R3: only the holder is left"
        return ""

    # ------------------------------------------------------------------------------------------------------- reading

    def _taken(self, event: ev.FederatorTaken) -> None:
        self.seen_ns.clear()
        for job in self.jobs.values():
            for place in job.places.values():
                place.doubted |= not place.accepted

    def _doubted(self, event: ev.SubmissionDoubted) -> None:
        self.jobs[event.job].places[event.cluster].doubted = True

    def _ticked(self, event: ev.Ticked) -> None:
        step_ns = event.time_ns - self.time_ns
        _check(step_ns >= 0, "a tick goes back")
        self.now_ns += step_ns if step_ns <= 30_000 * MS else 0
        self.time_ns = event.time_ns

    def _federated(self, event: ev.JobFederated) -> None:
        _check(event.job not in self.jobs, f"{event.job} is federated twice")
        self.jobs[event.job] = Told(event)

    def _job_cancelled(self, event: ev.JobCancelled) -> None:
        job = self.jobs[event.job]
        job.cancelled, job.decided, job.settled, job.holder = True, "cancelled", False, ""

    def _intended(self, event: ev.SubmissionIntended) -> None:
        job = self.jobs[event.job]
        place = job.places[event.cluster]
        _check(not job.decided, f"R15: {event.job} is submitted again to {event.cluster}")
        _check(place.wanted, f"{event.job} is submitted to {event.cluster}, where it is not wanted")
        place.names.append(event.name)
        place.doubted = place.nameless = False

    def _accepted(self, event: ev.SubmissionAccepted | ev.SubmissionHeld) -> None:
        place = self.jobs[event.job].places[event.cluster]
        place.uid = event.uid
        place.doubted |= event.adopted
        run = self.run_of(place) or self._undone(place)
        ours = run is not None and run.owner is not None and run.owner.job == event.job
        _check(ours, f"R17: {event.job} takes {place.names[-1]} on {event.cluster} for its own")
        place.accepted = True
        if place.over:
            self.came_back(event.job, place)

    def came_back(self, uid: str, place: Seen) -> None:
        """R18: what had ended is there again, to be stopped."""
        job, run = self.jobs[uid], self.run_of(place)
        _check(run is not None and run.returned, f"R18: {uid} is said to be back on {place.cluster}")
        _check(not place.given_up, f"R21: {uid} on {place.cluster} is its operator's")
        kept = place.cluster == job.winner and not job.cancelled
        _check(not kept, f"R15: {uid} is to be stopped on {place.cluster}, its winner")
        place.over = place.wanted = job.settled = False
        place.run = ""

    def _name_taken(self, event: ev.NameTaken) -> None:
        place = self.jobs[event.job].places[event.cluster]
        run = self.run_of(place)
        others = run is not None and (run.owner is None or run.owner.job != event.job)
        _check(others, f"{event.job} disowns {place.names[-1]}")
        place.over |= not place.wanted
        place.nameless = True

    def _gone(self, event: ev.SubmissionWithdrawn) -> None:
        self.jobs[event.job].places[event.cluster].over = True

    def _refused(self, event: ev.SubmissionRefused) -> None:
        place = self.world.folded.place(event.job, event.cluster)
        told = self.jobs[event.job].places[event.cluster]
        told.over |= place is not None and place.phase == "ended"
        told.wanted &= place is None or place.stopped_for != NOT_RELEASED

    def _observed(self, event: ev.ClusterObserved) -> None:
        since_ns = self.seen_ns.get(event.account)
        asked_ns = min(event.asked_ns, self.now_ns)
        if since_ns is not None:
            self.earn(event.account, max(0, asked_ns - since_ns))
        self.seen_ns[event.account] = max(asked_ns, since_ns or 0)
        for seen in event.runs:
            job = self.jobs[seen.job]
            self.run_seen(job, job.places[seen.cluster], seen)

    def _silent(self, event: ev.ClusterSilent) -> None:
        answered_ns = self.world.answered_ns(event.account)
        _check(event.asked_ns <= answered_ns, f"R2: {event.account} did not answer until {event.asked_ns}")
        since_ns = self.seen_ns.pop(event.account, None)
        if since_ns is not None:
            self.earn(event.account, max(0, min(event.asked_ns, self.now_ns) - since_ns))

    def earn(self, account: str, earned_ns: int) -> None:
        for job in self.jobs.values():
            for place in job.places.values():
                if place.account == account and place.run == "running":
                    place.earned_ns += earned_ns

    def run_seen(self, job: Told, place: Seen, seen: Any) -> None:
        goes_on = place.started_ns >= 0 and place.attempt == seen.attempt
        if seen.state != "unknown" and not (seen.state == "running" and goes_on):
            place.earned_ns = 0
            place.started_ns = seen.started_ns if seen.state == "running" else -1
            if job.holder == place.cluster:
                job.holder = ""
        if seen.state == "running" and (place.run != "running" or not goes_on):
            place.earned_ns -= self.now_ns - self.seen_ns[place.account]
        if seen.state == "running" and not goes_on:
            self.check_start(place, seen.started_ns)
        place.run = seen.state
        place.attempt = place.attempt if seen.state == "unknown" else seen.attempt
        if seen.state in TERMINAL:
            place.over = True
            run = self.run_of(place) or self._undone(place)
            ended = run is not None and (run.returned or run.ends(self.world.now_ms))
            _check(ended, f"{job.uid} on {place.cluster} did not end")

    def check_start(self, place: Seen, started_ns: int) -> None:
        """R4: no earlier than it truly began, whatever its clock says; answers are a second old at most."""
        run = self.run_of(place) or self._undone(place)
        _check(run is not None, f"{place.cluster} has no run")
        if run.returned:  # type: ignore[union-attr]
            return  # and was let go again, between two lists
        begun = [time_ms for time_ms, state, _ in run.life if state == "running" and time_ms <= self.world.now_ms]  # type: ignore[union-attr]
        age_ms, true_age_ms = (self.now_ns - started_ns) // MS, self.world.now_ms - min(begun)
        _check(0 <= age_ms <= true_age_ms + 1_000, f"R4: {place.cluster} runs for {true_age_ms} ms, not {age_ms} ms")

    def _scheduled(self, event: ev.JobScheduled) -> None:
        job = self.jobs[event.job]
        place = job.places[event.cluster]
        where = f"{job.uid} is scheduled on {place.cluster}"
        _check(not job.decided, f"R15: {where}, and was decided")
        found = self.scheduled(job)
        _check(self.answers(place), f"R14: {where}, which does not answer")
        _check(place in found, f"R2: {where} after {place.earned_ns // MS} of {job.guard_ns // MS} ms, {place.run}")
        _check(event.guard_ended_ns == self.guard_ended_ns(job, place), f"R2: {where}: another end of the guard time")
        run = self.run_of(place)
        ran_ms = self.ran_ms(run, place.attempt) if run is not None else -1
        _check(
            (run is not None and run.returned) or ran_ms >= job.guard_ns // MS, f"R2: {where}, and ran for {ran_ms} ms"
        )
        if job.holder:
            _check(self.takes_over(job, place), f"R7: {where}, too late for {job.holder}")
            found = [other for other in found if self.takes_over(job, other)]
        best = min(found, key=lambda other: (-other.priority, other.started_ns, other.cluster))
        _check(best is place, f"R4: {where} and not on {best.cluster}")
        job.holder, job.held_ns = event.cluster, event.guard_ended_ns

    def _placed(self, event: ev.JobPlaced) -> None:
        job = self.jobs[event.job]
        place = job.places[event.cluster]
        where = f"{job.uid} is placed on {place.cluster}"
        _check(not job.decided, f"R15: {where}, and was decided: {job.decided} {job.winner}")
        if event.reason == "Succeeded":
            done = [other for other in job.places.values() if other.run == "succeeded"]
            best = min(done, key=lambda other: (-other.priority, other.cluster), default=None)
            _check(best is place, f"R10: {where}, which did not succeed, or not as the best")
        else:
            _check(job.holder == place.cluster, f"R12: {where}, and {job.holder or 'nobody'} holds it")
            _check(self.holder_is_seen(job), f"R9: {where}, of which nothing is known")
        job.decided, job.winner = "placed", event.cluster

    def _unplaced(self, event: ev.JobUnplaced) -> None:
        job = self.jobs[event.job]
        _check(not job.decided, f"R15: {job.uid} is unplaced, and was decided")
        left = [place.cluster for place in job.wanted()]
        _check(not left, f"R13: {job.uid} is placed nowhere, and {left} are left")
        job.decided = "unplaced"

    def _stop_intended(self, event: ev.StopIntended) -> None:
        job = self.jobs[event.job]
        place = job.places[event.cluster]
        where = f"{job.uid} is to be stopped on {place.cluster} for {event.reason}"
        _check(place.wanted and not place.over, f"{where}, again")
        _check(job.cancelled or place.cluster != job.winner, f"R15: {where}, its winner")
        holder = job.places.get(job.winner or job.holder)
        match event.reason:
            case "Cancelled":
                _check(job.cancelled, f"R19: {where}, by nobody")
            case "NoName":
                _check(len(place.names) == 3, f"R17: {where} after {place.names}")
                place.over = True
            case "OtherSucceeded":
                _check(bool(job.winner) and job.places[job.winner].run == "succeeded", f"R10: {where}")
            case "LowerPriority":
                _check(holder is not None and place.priority < holder.priority, f"R5: {where}")
            case "NotEarliest":
                _check(holder is not None and place.priority == holder.priority, f"R5: {where}")
            case "ExtraTimeOver":
                _check(holder is not None and place.priority > holder.priority, f"R6: {where}")
                _check(self.is_over(job, place), f"R6: {where}, which it is not")
            case _:
                raise Violation(where)
        place.wanted = False
        place.over |= place.nameless

    def _given_up(self, event: ev.RunGivenUp) -> None:
        """Who is careful does it only where nobody else can say it."""
        job = self.jobs[event.job]
        place = job.places[event.cluster]
        where = f"R21: {job.uid} is given up on {place.cluster}"
        _check(not place.over, f"{where}, where it ended")
        shown = place.accepted and self.answers(place) and place.run not in ("", "unknown")
        _check(not shown, f"{where}, which shows it {place.run}")
        run = self.run_of(place)
        known = bool(place.uid) and not place.doubted and self.answers(place)
        deleted = run is not None and self.world.clusters[place.account].runs.get(run.name) is not run
        rash = event.by == "hasty"
        _check(rash or not (known and deleted), f"R20: {job.uid} on {place.cluster} is gone, and nobody saw it")
        place.over, place.wanted, place.given_up, place.rashly = True, False, True, rash
        if job.holder == place.cluster:
            job.holder = ""

    def _settled(self, event: ev.JobSettled) -> None:
        job = self.jobs[event.job]
        job.settled = True
        runs = self.survivors(job, "" if job.cancelled else job.winner, returned=False)
        _check(not runs, f"R18: {job.uid} is settled, and still runs: {runs}")
        for place in job.places.values():
            if place.uid and not place.given_up and (job.cancelled or place.cluster != job.winner):
                place.remains = place.uid

    def _forgotten(self, event: ev.JobForgotten) -> None:
        job = self.jobs[event.job]
        _check(job.is_over(), f"R22: {job.uid} is forgotten, and not over")
        runs = self.survivors(job, returned=False)
        _check(not runs, f"R22: {job.uid} is forgotten, and still runs: {runs}")
        known = [place.uid for place in job.places.values() if place.uid]
        left = [
            run.uid
            for cluster in self.world.clusters.values()
            for run in cluster.runs.values()
            if run.uid in known and run.owner is not None and (job.cancelled or run.owner.cluster != job.winner)
            if not run.returned
        ]
        _check(not left, f"R22: {job.uid} is forgotten, and not cleared: {left}")
        job.forgotten = True
        self.world.again(job.uid)

    def _remains_found(self, event: ev.RemainsFound) -> None:
        self.jobs[event.job].places[event.cluster].remains = event.uid

    def _remains_cleared(self, event: ev.RemainsCleared) -> None:
        self.jobs[event.job].places[event.cluster].remains = ""

    # ----------------------------------------------------------------------------------------------------- the truth

    def run_of(self, place: Seen) -> TrueRun | None:
        cluster = self.world.clusters[place.account]
        if not place.uid:
            return cluster.runs.get(place.names[-1])
        return next(run for run in cluster.ever if run.uid == place.uid)

    def _undone(self, place: Seen) -> TrueRun | None:
        """Its cluster took it, and was restored before the answer was in the log."""
        ever = self.world.clusters[place.account].ever
        return next((run for run in reversed(ever) if run.name == place.names[-1]), None)

    def ran_ms(self, run: TrueRun, attempt: int) -> int:
        """For how long this attempt truly ran; what its cluster does not know may run."""
        ends = [time_ms for time_ms, _, _ in run.life[1:]] + [self.world.now_ms]
        spans = zip(run.life, ends, strict=True)
        now_ms = self.world.now_ms
        return sum(
            max(0, min(end_ms, now_ms) - time_ms)
            for (time_ms, state, number), end_ms in spans
            if state in ("running", "unknown") and number == attempt
        )

    def survivors(self, job: Told, but: str = "", *, returned: bool = True) -> list[str]:
        """Clusters with a run of the job that did not end; but for those that somebody gave up without a look, and runs
        that are dying since somebody deleted them before the log heard of them: there is no name left to see them by.
        `returned`: whether one counts that had ended, before its cluster was restored."""
        rashly = [place.cluster for place in job.places.values() if place.rashly]
        heard = [place.uid for place in job.places.values()]
        return [
            run.owner.cluster
            for cluster in self.world.clusters.values()
            for run in cluster.ever
            if run.owner is not None
            and run.owner.job == job.uid
            and run.owner.cluster != but
            and run.owner.cluster not in rashly
            and not run.ends(self.world.now_ms)
            and (run.uid in heard or cluster.runs.get(run.name) is run)
            and (returned or not run.returned)
        ]

    def loose(self, job: Told) -> set[str]:
        """Where it runs and is not kept. Of a job that is forgotten nobody knows what a restored cluster runs again."""
        kept = {job.winner} if job.decided == "placed" and not job.cancelled else set()
        return set(self.survivors(job, returned=not job.forgotten)) - kept

    def end(self) -> None:
        world = self.world
        for cluster in world.clusters.values():
            _check(not cluster.touched, f"R17: foreign runs were stopped: {cluster.touched}")
        _check(not world.requests, "a request was lost")
        for job in self.jobs.values():
            _check(job.forgotten or world.kept > 0 or not job.is_over(), f"R22: {job.uid} is over, and not forgotten")
            _check(job.settled, f"{job.uid} did not settle: {job.decided or 'undecided'}")
            loose = self.loose(job)
            _check(not loose, f"{job.uid} survives on {sorted(loose)}, and was placed on {job.winner or 'none'}")
            for place in job.places.values():
                run = self.run_of(place)
                if run is not None and run.owner is not None and run.owner.job == job.uid and run.stopped:
                    _check(not place.wanted, f"{job.uid} was stopped on {place.cluster}, and nobody meant to")
        ignored = world.folded.ignored
        _check(not ignored, f"what changes nothing is said: {ignored}")
        if world.seed % REPLAYED == 0:
            self.replay()

    def replay(self) -> None:
        """Design, rule 3: folded again it is the same state, and deciding again gives what was decided."""
        state, digests = State(), {}
        for number, commit in enumerate(self.world.log, 1):
            if isinstance(commit[0], DECIDED) and list(commit) != core.decide(state):
                raise Violation(f"commit {number}: decided again it is {core.decide(state)}")
            state.apply(number, commit)
            digests[number] = FORM.digest(state)
            validate_state(state)
            for event in commit:
                if isinstance(event, ev.SnapshotTaken):
                    _check(
                        event.digest == digests[event.sequence], f"the snapshot of {event.sequence} is another state"
                    )
        _check(FORM.digest(self.world.folded) == digests[len(digests)], "folded again it is another")


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Violation(otherwise)


DECIDED = (
    ev.JobScheduled,
    ev.JobPlaced,
    ev.JobUnplaced,
    ev.JobSettled,
    ev.JobForgotten,
    ev.StopIntended,
    ev.SubmissionIntended,
)
READERS: dict[type, Any] = {
    ev.FederatorTaken: Audit._taken,
    ev.Ticked: Audit._ticked,
    ev.JobFederated: Audit._federated,
    ev.JobCancelled: Audit._job_cancelled,
    ev.SubmissionIntended: Audit._intended,
    ev.SubmissionAccepted: Audit._accepted,
    ev.SubmissionHeld: Audit._accepted,
    ev.SubmissionRefused: Audit._refused,
    ev.SubmissionWithdrawn: Audit._gone,
    ev.NameTaken: Audit._name_taken,
    ev.ClusterObserved: Audit._observed,
    ev.ClusterSilent: Audit._silent,
    ev.JobScheduled: Audit._scheduled,
    ev.JobPlaced: Audit._placed,
    ev.JobUnplaced: Audit._unplaced,
    ev.StopIntended: Audit._stop_intended,
    ev.SubmissionDoubted: Audit._doubted,
    ev.RunGivenUp: Audit._given_up,
    ev.JobSettled: Audit._settled,
    ev.JobForgotten: Audit._forgotten,
    ev.RemainsFound: Audit._remains_found,
    ev.RemainsCleared: Audit._remains_cleared,
}
