"""What must hold of a federated history: what the federation's log says, and what its members have, by the objects there.

Not asked here is when the rules should have decided: `tests.federator.audit` does so, over its own histories.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

import events as ev
from events import envelope
from events.envelope import Stored
from services.console.kinds import FEDERATED
from services.console.verify import Verifier
from services.federator.backends import Owner, gangs
from services.federator.records import ENDED, SETTLED, Job, Place, is_seen, origin_of
from services.federator.snapshot import FORM
from services.federator.state import State
from services.federator.validate import validate_state
from services.simulator.store import Change
from services.state.slices import at_once
from tests.simulation.federation.training import NAMESPACE
from tests.simulation.told import Object
from tests.simulation.witness import Violation

if TYPE_CHECKING:
    from services.federator.service import Federator
    from tests.federator.served.process import Running
    from tests.simulation.federation.member import Member
    from tests.simulation.processes import Process

NAME = "fed"
"""Of the federation."""
PHASES = (gangs.HELD, gangs.RELEASED, gangs.STOPPED)
"""Of a Job, in their order."""
STOPPED = PHASES.index(gangs.STOPPED)
DECIDED = ev.SubmissionIntended | ev.SubmissionAccepted | ev.SubmissionHeld | ev.StopIntended | ev.JobPlaced
"""What is not said of a run that was given up."""


class Witness:
    def __init__(self) -> None:
        self.told = State()
        self.commits: list[Stored] = []
        self.events = 0
        self.seen: dict[str, int] = {}
        self.names: set[str] = set()
        """Of jobs that were ever accepted."""
        self.federated: dict[str, None] = {}
        """UIDs of all jobs that the log has."""
        self.accepted: set[str] = set()
        """UIDs of runs that the log has as submitted."""
        self.let_go: dict[str, int] = {}
        """UIDs of runs that may run → how many processes had been started when they were let go."""
        self.kept: set[str] = set()
        """UIDs of runs that were kept. What is left of one that is over stays, for its user."""
        self.given_up: set[tuple[str, str]] = set()
        """Jobs and clusters: what goes on there is its operator's."""
        self.lost: dict[str, None] = {}
        """Of jobs that the log had before it was set back."""
        self.before = 0
        """How many processes were started before that: they stop what lost by what the log has lost."""

    def landed(self, stored: Stored, by: Process | None) -> None:
        self.commits.append(stored)
        said = envelope.decode(stored).events
        for event in said:
            self._is_not_its_operators(event)
            if isinstance(event, ev.SubmissionRefused) and by is not None:
                self._does_not_run(event, by)
        self.told.apply_stored(stored)
        for event in said:
            name = type(event).__name__
            self.seen[name] = self.seen.get(name, 0) + 1
            match event:
                case ev.JobFederated():
                    self.names.add(event.name)
                    self.federated[event.job] = None
                case ev.SubmissionAccepted() | ev.SubmissionHeld():
                    self.accepted.add(event.uid)
                case ev.JobPlaced():
                    self.kept.add(self.told.jobs[event.job].places[event.cluster].uid)
        self.events += len(said)
        validate_state(self.told)

    def _is_not_its_operators(self, event: ev.Event) -> None:
        """R21: only what its cluster does not show is given up, and then nothing more is decided of it. Raises
        Violation."""
        at = getattr(event, "job", ""), getattr(event, "cluster", "")
        if isinstance(event, ev.RunGivenUp):
            place = self.told.jobs[event.job].places[event.cluster]
            if is_seen(place, self.told.clusters[place.account]):
                raise Violation(f"{at} is given up, and its cluster shows it: {place.run} (R21)")
            self.given_up.add(at)
        elif at in self.given_up and isinstance(event, DECIDED):
            raise Violation(f"{event} is said of what was given up (R21)")

    def _does_not_run(self, event: ev.SubmissionRefused, by: Process) -> None:
        """What was let go is not out of the race because nobody has its body any more. Raises Violation."""
        place = self.told.jobs[event.job].places[event.cluster]
        if event.code == "BodyGone" and self.let_go.get(place.uid, by.number + 1) <= by.number:
            raise Violation(f"{place.name} on {event.cluster} is refused for its body, and it was let go (R15)")

    # ------------------------------------------------------------------------------------------------- as it happens

    def job_changed(self, member: Member, change: Change, by: Process | None) -> None:
        """Raises Violation."""
        job, before = change.new.object, change.old
        uid = run_of(job)
        if change.type == "ADDED" and not job["spec"].get("suspend"):
            raise Violation(f"{name_of(job)} on {member.alias} is made, and not held (R16)")
        if before is not None and _phase(job) < _phase(before.object):
            was, now = PHASES[_phase(before.object)], PHASES[_phase(job)]
            raise Violation(f"{name_of(job)} on {member.alias} was {was}, and is {now} again (R16)")
        let_go = _suspended(before) and not job["spec"].get("suspend")
        if let_go and uid not in self.accepted:
            raise Violation(f"{name_of(job)} on {member.alias} is let go, and no log has {uid} (R16)")
        if let_go:
            self.let_go[uid] = len(member.federation.supervisor.ever)
        elif change.type == "DELETED" or _phase(job) == STOPPED:
            self.let_go.pop(uid, None)
        if by is None or by.slot != "federator":
            return
        ends = change.type == "DELETED" or (job["spec"].get("suspend") and not _suspended(before))
        if (
            change.type != "ADDED"
            and ends
            and by.number >= self.before
            and (kept := self._kept(member, uid)) is not None
            and not is_over(member, uid)
        ):
            raise Violation(f"{name_of(job)} on {member.alias} is ended, and {kept.name} is kept there (7.8)")

    def held_again_on(self, member: Member) -> None:
        """Its etcd was restored."""
        for job in _held(member):
            self.let_go.pop(run_of(job), None)

    def _kept(self, member: Member, uid: str) -> Job | None:
        """The job that is kept by this run, if one is."""
        found = (job for job in self.told.jobs.values() if job.kept == member.alias)
        return next((job for job in found if job.places[member.alias].uid == uid), None)

    # ------------------------------------------------------------------------------------------------------- at rest

    def unsettled(self) -> list[Job]:
        return [job for job in self.told.jobs.values() if job.phase != SETTLED]

    def not_let_go(self, members: list[Member]) -> list[str]:
        """Jobs that are held still: whatever is late is cleared, whatever is kept runs. But for a winner that had ended
        before a restore undid its release: that is its user's to delete; and for what a log had that was set back to
        before its first job: by that its own are known."""
        held = [(member, job) for member in members for job in _held(member)]
        left = [(member, job) for member, job in held if not self._is_another_logs(owner_of(job).job)]
        return [f"{name_of(job)} on {member.alias}" for member, job in left if not self._had_ended(member, job)]

    def _is_another_logs(self, uid: str) -> bool:
        return uid in self.lost and origin_of(uid) != self.told.origin

    def _had_ended(self, member: Member, job: Object) -> bool:
        kept = self._kept(member, run_of(job)) if member.restored else None
        return kept is not None and kept.places[member.alias].phase == ENDED

    def held_again(self, members: list[Member]) -> list[Job]:
        """Those that wait until their users cancel them: they were settled before a restore undid the release."""
        owners = [owner_of(job).job for member in members if member.restored for job in _held(member)]
        return [self.told.jobs[owner] for owner in owners if owner in self.told.jobs]

    def check(self, members: list[Member], serving: Running) -> None:
        """Raises Violation."""
        for member in members:
            for job in _jobs(member):
                self._is_kept(member, job)
            self._leaves_nothing(member)
        self._those_kept_are_there(members)
        federator: Federator | None = serving.federator
        assert federator is not None
        if _but_sequence(federator.state) != _but_sequence(self.told):
            raise Violation("the federator's live state is not the fold of its log (7.6)")

    def _is_kept(self, member: Member, job: Object) -> None:
        """Whatever is there belongs to a job that is kept there, by the run that the log has."""
        owner = owner_of(job)
        told = self.told.jobs.get(owner.job)
        place = None if told is None else told.places.get(member.alias)
        if member.restored and (told is None or is_over(member, run_of(job)) or _phase(job) == STOPPED):
            return  # it was cleared, or nobody knows any more which run was kept
        if (owner.job, owner.cluster) in self.given_up or (owner.job in self.lost and told is None):
            return
        if told is None or place is None:
            was_kept = run_of(job) in self.kept and is_over(member, run_of(job))
            if not was_kept and not self._was_stopped(job):
                raise Violation(f"{name_of(job)} on {member.alias} is of {owner.job}, which is over (7.8, R22)")
            return
        if told.kept != member.alias:
            raise Violation(f"{name_of(job)} is on {member.alias}, and {told.name} is kept on {told.kept!r} (7.8)")
        if run_of(job) != place.uid:
            raise Violation(f"{name_of(job)} on {member.alias} is of {run_of(job)}, and kept is {place.uid} (7.8)")

    def _was_stopped(self, job: Object) -> bool:
        """By what the log has lost: for the log it has ended, or there never was any."""
        return self.before > 0 and _phase(job) == STOPPED

    def _leaves_nothing(self, member: Member) -> None:
        """Pods and PodGroups of runs that are not there."""
        runs = {run_of(job) for job in _jobs(member)}
        jobs = {job["metadata"]["uid"] for job in _jobs(member)}
        served = member.kube.api.by_path.get(("scheduling.x-k8s.io", "v1alpha1", "podgroups"))
        for entry in served.entries.values() if served is not None else ():
            labels = entry.object["metadata"].get("labels") or {}
            if gangs.FIRST in labels and labels[gangs.FIRST] not in runs:
                raise Violation(f"PodGroup {entry.key} on {member.alias} is left of a run that is gone (7.13)")
        for key, entry in member.kube.api.pods.entries.items():
            owners = _owners(entry.object)
            if key[0] == NAMESPACE and owners and owners.isdisjoint(jobs):
                raise Violation(f"pod {key} on {member.alias} is left of a run that is gone (7.13)")

    def _those_kept_are_there(self, members: list[Member]) -> None:
        for job in self.told.jobs.values():
            for member in members:
                place = job.places.get(member.alias)
                if place is not None and job.kept == member.alias and place.phase != ENDED:
                    self._runs(member, job, place)

    def _runs(self, member: Member, job: Job, place: Place) -> None:
        """As the log says."""
        found = [one for one in _jobs(member) if run_of(one) == place.uid]
        wanted = sum(one["spec"]["completions"] for one in found)
        uids = {one["metadata"]["uid"] for one in found}
        pods = [pod for pod in _pods(member) if not _owners(pod).isdisjoint(uids)]
        run = sum(pod["status"]["phase"] in ("Running", "Succeeded") for pod in pods)
        if not found or (place.run == "running") != (run == wanted):
            raise Violation(f"{job.name} is kept on {member.alias}, {place.run!r}, and {run} of {wanted} run (7.11)")

    def verified(self) -> str:
        """The log decided again from its beginning; the digest. Raises Violation."""
        verifier = Verifier(NAME, FEDERATED)
        verifier.expect(self.commits)
        at_once(verifier.check(self.commits))
        verifier.finish(strict=True)
        report = verifier.report
        if report.differences or report.violation:
            raise Violation(f"verify: {report.violation or report.difference} (7.6)")
        if report.digest != FORM.digest(self.told):
            raise Violation("the federation's log folds to another state (7.6)")
        return report.digest


def run_of(job: Object) -> str:
    """The UID of the first Job of the run that this one belongs to."""
    metadata = job["metadata"]
    return str((metadata.get("labels") or {}).get(gangs.FIRST) or metadata["uid"])


def owner_of(job: Object) -> Owner:
    return msgspec.json.decode(job["metadata"]["annotations"][gangs.MARKER], type=Owner)


def name_of(job: Object) -> str:
    return str(job["metadata"]["name"])


def is_over(member: Member, uid: str) -> bool:
    """Whether one of its Jobs has ended."""
    ends = ("Failed", "Complete", "FailureTarget", "SuccessCriteriaMet")
    of_run = [job for job in _jobs(member) if run_of(job) == uid]
    return not of_run or any(
        one["type"] in ends for job in of_run for one in (job.get("status") or {}).get("conditions") or ()
    )


def _phase(job: Object) -> int:
    """How far its run is: that never goes back."""
    return PHASES.index(job["metadata"]["annotations"][gangs.PHASE])


def _suspended(entry: Any) -> bool:
    return entry is not None and bool(entry.object["spec"].get("suspend"))


def _jobs(member: Member) -> Iterator[Object]:
    return (entry.object for entry in member.kube.api.by_path["batch", "v1", "jobs"].entries.values())


def _held(member: Member) -> list[Object]:
    return [job for job in _jobs(member) if job["metadata"]["annotations"][gangs.PHASE] == gangs.HELD]


def _pods(member: Member) -> Iterator[Object]:
    return (entry.object for key, entry in member.kube.api.pods.entries.items() if key[0] == NAMESPACE)


def _owners(pod: Object) -> set[str]:
    """Their UIDs; none of one that somebody made by hand."""
    return {one["uid"] for one in pod["metadata"].get("ownerReferences", ())}


def _but_sequence(state: State) -> list[bytes]:
    """A service does not fold what is nobody's."""
    return [*FORM.lines(state)][1:]
