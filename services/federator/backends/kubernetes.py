"""A Kubernetes cluster that Muster or another scheduler runs: `Holding` by a Job for each task role, and a PodGroup.

`gangs` says what they look like. Kubernetes gives a name away again when its object is gone, so that a submission that
comes late would make a second run. It cannot, as each step says which object it means:

1. `submit` makes the first Job, held: suspended, without pods. It is one object: a submission is there or not.
2. The federator appends its acceptance, with the Job's UID, to its log. A process that was replaced cannot.
3. `release` makes what else belongs to the run, held, and lets the Jobs go, the first one last; each only if it is still
   the one that is meant, and held. A gang that lacks its first Job is below its minimum: so nothing runs before that.
4. `stop` suspends all Jobs, the first one first, and says so on them: no release that is under way finds it held.
5. `clear` deletes the first Job on condition that it has this UID; Kubernetes' garbage collector takes the rest.

A late submission makes a first Job that is in nobody's log and nobody releases: a list shows it, held, and it is cleared.

A run is `running` when all pods of all its Jobs run or have succeeded. It is over with the first of its Jobs that failed,
or decides and succeeded, else when all did, and no pod is left that runs: a node that does not answer keeps its pods, and
their run is `stopping` until they are gone. A Job's controller ends the rest of one Job when a part has ended the whole;
nobody does so for several Jobs: whoever observes a run that is over suspends its rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from services.documents import load_all
from services.federator.backends import (
    FAILED,
    LONGEST_WORD,
    RUNNING,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    WAITING,
    Absent,
    Accepted,
    Described,
    InDoubt,
    Limited,
    Listing,
    NotSent,
    Refused,
    Run,
    Silent,
    Stopped,
    Submission,
    Submitted,
    Taken,
    gangs,
)
from services.federator.backends.protocol import Unsupported
from services.federator.backends.responses import clock_ms, cut
from services.kubernetes.access import Access
from services.kubernetes.errors import ApiError, Conflict, NotFound, Unreachable
from services.kubernetes.gang_jobs import CONTROLLER, JOBS, GangJobs, GangPod, Job
from services.kubernetes.objects import Metadata
from services.kubernetes.resources import Resource

ODD = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""What comes of a body that anybody may have written."""
FAILING, SUCCEEDING = ("FailureTarget", "Failed"), ("SuccessCriteriaMet", "Complete")
"""A Job's conditions: the first says how it will end, the second that it has, with all of its pods."""
STOPPED_SAID = {gangs.PHASE: gangs.STOPPED}


class Found(NamedTuple):
    """A run as its cluster has it."""

    first: Job
    others: list[Job]
    pods: list[GangPod]

    @property
    def jobs(self) -> list[Job]:
        return [self.first, *self.others]


class Kubernetes:
    """One namespace of one cluster. Made inside a running loop; closed by `close`."""

    def __init__(
        self, access: Access, namespace: str, placing: gangs.Placing | None = None, *, timeout_s: float = 30.0
    ) -> None:
        self._placing = placing or gangs.Placing()
        self._jobs = GangJobs(access, namespace, timeout_s=timeout_s)
        self._groups = Resource.custom(gangs.DIALECTS[self._placing.dialect].api_version, "podgroups")

    async def close(self) -> None:
        await self._jobs.close()

    # --------------------------------------------------------------------------------------------------------- effects

    async def submit(self, submission: Submission) -> Submitted:
        gang = await asyncio.to_thread(self._gang, submission)
        if isinstance(gang, Refused):
            return gang
        try:
            return Accepted(uid=await self._jobs.create(JOBS, gang.first), held=True)
        except Conflict:
            return Taken()
        except ApiError as error:
            return _failed(error)

    async def release(self, submission: Submission, uid: str) -> Stopped:
        gang = await asyncio.to_thread(self._gang, submission)
        if isinstance(gang, Refused):
            return gang
        first = gang.first["metadata"]["name"]
        try:
            if (phase := await self._phase(first, uid)) != gangs.HELD:
                return Accepted(uid=uid) if phase == gangs.RELEASED else Absent()
            for resource, body in [(self._groups, gang.group), *((JOBS, other) for other in gang.others)]:
                await self._make(resource, gangs.owned(body, first, uid))
            for other in gang.others:
                await self._resume(other, ("metadata", "labels", gangs.FIRST), uid)
            await self._resume(gang.first, ("metadata", "uid"), uid)
            released = await self._phase(first, uid) == gangs.RELEASED
        except ApiError as error:
            failed = _failed(error)
            return InDoubt(reason=failed.reason) if isinstance(failed, NotSent) else failed
        return Accepted(uid=uid) if released else Absent()

    async def stop(self, name: str, uid: str) -> Stopped:
        own = gangs.kubernetes_name(name)
        try:
            await self._jobs.suspend(own, uid, STOPPED_SAID)
            await self._suspend(await self._others(uid))
        except ApiError as error:
            return await self._undone(own, uid, error)
        return Accepted(uid=uid)

    async def clear(self, name: str, uid: str) -> Stopped:
        own = gangs.kubernetes_name(name)
        try:
            await self._jobs.delete(own, uid)
        except ApiError as error:
            return await self._undone(own, uid, error)
        return Accepted(uid=uid)

    async def _undone(self, own: str, uid: str, error: ApiError) -> Stopped:
        """What came of an effect on this run that failed. Where nothing or another has its name the run is gone; but a
        webhook may say no in the same way, and then it is there."""
        if isinstance(error, NotFound | Conflict):
            try:
                job = await self._jobs.get_job(own)
            except ApiError:
                return _failed(error)
            if job is None or job.metadata.uid != uid:
                return Absent()
        return _failed(error)

    def _gang(self, submission: Submission) -> gangs.Gang | Refused:
        """In a thread: what a few lines of anchors say is read for a second."""
        try:
            (body,) = load_all(submission.body.decode())
            return gangs.objects(body, self._placing)
        except Unsupported as error:
            return Refused(code="Unsupported", message=cut(str(error)), of_content=True)
        except ODD as error:
            message = f"expected a job of OpenPAI's protocol 2: {type(error).__name__}"
            return Refused(code="InvalidProtocolError", message=message, of_content=True)

    async def _phase(self, first: str, uid: str) -> str:
        """How far the run of this UID is; empty: it is not there. Raises ApiError."""
        job = await self._jobs.get_job(first)
        there = job is not None and job.metadata.uid == uid and job.metadata.deletion_timestamp is None
        return job.says(gangs.PHASE) if job is not None and there else ""

    async def _make(self, resource: Resource, body: gangs.Mapped) -> None:
        """Raises ApiError."""
        try:
            await self._jobs.create(resource, body)
        except Conflict as error:  # from an attempt before: the owner is in its name
            if error.reason != "AlreadyExists":  # a quota that somebody else wrote meanwhile: nothing was made
                raise

    async def _resume(self, body: gangs.Mapped, path: Sequence[str], uid: str) -> None:
        """Let a Job go that is held, of this run, and stands there as it was made; another is left as it is. Raises
        ApiError, also where an admission policy denies it: Kubernetes answers 422 to that as well, and the Job is held
        still."""
        name, asked = body["metadata"]["name"], gangs.succeeded_count(body)
        said: dict[tuple[str, ...], str | int]
        said = {tuple(path): uid, ("metadata", "annotations", gangs.PHASE): gangs.HELD, **asked}
        try:
            await self._jobs.resume(name, said, gangs.PHASE, gangs.RELEASED)
        except ApiError as error:
            if error.code != 422:
                raise
            if (held := await self._held(name, uid)) is not None:
                if asked and held.spec.success_policy is None:
                    raise ApiError(error.request, 422, "Unsupported", gangs.LACKS_SUCCESS_POLICY) from error
                raise

    async def _held(self, name: str, uid: str) -> Job | None:
        """The Job of this run, if it is held. Raises ApiError."""
        job = await self._jobs.get_job(name)
        if job is None or uid not in (job.metadata.uid, _first(job)) or job.says(gangs.PHASE) != gangs.HELD:
            return None
        return job

    async def _suspend(self, jobs: Sequence[Job]) -> None:
        """Raises ApiError."""
        for job in jobs:
            with suppress(NotFound, Conflict):
                await self._jobs.suspend(job.metadata.name, job.metadata.uid, STOPPED_SAID)

    # --------------------------------------------------------------------------------------------------------- queries

    async def observe(self) -> Listing | Silent:
        try:
            jobs, date = await self._jobs.jobs(gangs.SELECTOR)
            found = _found(jobs, await self._jobs.pods(gangs.SELECTOR) if jobs else [])
        except ApiError as error:
            return _silent(error)
        for one in found:
            await self._conclude(one)
        shown = [(_run(_name(one.first.metadata), one), one.first.metadata) for one in found]
        held = [
            Described(run=run, owner=gangs.owner(metadata.annotations, run.name)) for run, metadata in shown if run.held
        ]
        return Listing(runs=tuple(run for run, _ in shown), clock_ms=clock_ms(date), held=tuple(held))

    async def describe(self, name: str) -> Described | Absent | Silent:
        own = gangs.kubernetes_name(name)
        try:
            first = await self._jobs.get_job(own)
            if first is None:
                return Absent()
            others = await self._others(first.metadata.uid)
            uids = ", ".join(job.metadata.uid for job in (first, *others))
            found = Found(first, others, await self._jobs.pods(f"{CONTROLLER} in ({uids})"))
        except ApiError as error:
            return _silent(error)
        return Described(run=_run(name, found), owner=gangs.owner(first.metadata.annotations, name))

    async def is_gone(self, name: str, uid: str) -> bool:
        """Its Jobs were deleted, and what somebody left of its pods, or a node keeps that does not answer, is over. A pod
        of its name may be its own, unless the pod's Job is there: then that is another run's."""
        try:
            first = await self._jobs.get_job(gangs.kubernetes_name(name))
            if (first is not None and first.metadata.uid == uid) or await self._others(uid):
                return False
            jobs, _ = await self._jobs.jobs(gangs.SELECTOR)
            pods = await self._jobs.pods(gangs.SELECTOR)
        except ApiError:
            return False
        others = {job.metadata.uid for job in jobs if uid not in (job.metadata.uid, _first(job))}
        left = [pod for pod in pods if not pod.is_over and pod.job_uid not in others]
        return all((pod.metadata.annotations or {}).get(gangs.NAME) != name for pod in left)

    async def _others(self, uid: str) -> list[Job]:
        """The other Jobs of a run. Raises ApiError."""
        return (await self._jobs.jobs(f"{gangs.FIRST}={uid}"))[0]

    async def _conclude(self, found: Found) -> None:
        """Ends what is left of a run that is over."""
        if found.others and _end(found):
            rest = [job for job in found.jobs if not (job.spec.suspend or _is_over(job))]
            with suppress(ApiError):  # the next list finds it again
                await self._suspend(rest)


def _found(jobs: Sequence[Job], pods: Sequence[GangPod]) -> list[Found]:
    """The runs, each with what belongs to it. A Job whose first is gone is nobody's run any more."""
    found = {job.metadata.uid: Found(job, [], []) for job in jobs if not _first(job)}
    of_job: dict[str, Found] = {}
    for job in jobs:
        if (run := found.get(_first(job) or job.metadata.uid)) is not None:
            of_job[job.metadata.uid] = run
            if job is not run.first:
                run.others.append(job)
    for pod in pods:
        if (run := of_job.get(pod.job_uid)) is not None:
            run.pods.append(pod)
    return list(found.values())


def _first(job: Job) -> str:
    return (job.metadata.labels or {}).get(gangs.FIRST, "")


def _name(metadata: Metadata) -> str:
    whole = (metadata.annotations or {}).get(gangs.NAME, "")
    return whole if len(whole) <= LONGEST_WORD and gangs.kubernetes_name(whole) == metadata.name else metadata.name


def _run(name: str, found: Found) -> Run:
    state = _state(found)
    return Run(
        name=name,
        uid=found.first.metadata.uid,
        state=state,
        attempt=0,
        started_ms=max((pod.started_ms for pod in found.pods), default=0) if state == RUNNING else 0,
        held=found.first.says(gangs.PHASE) == gangs.HELD,
        placed=state == WAITING and any(pod.spec.node_name for pod in found.pods),
    )


def _state(found: Found) -> str:
    alive = any(not pod.is_over for pod in found.pods)
    if end := _end(found):
        return STOPPING if alive else end
    if found.first.says(gangs.PHASE) == gangs.STOPPED:
        quiet = all(job.is_so("Suspended") or _is_over(job) for job in found.jobs)
        return STOPPED if quiet and not alive else STOPPING
    if found.first.metadata.deletion_timestamp is not None or any(pod.status.phase == "Failed" for pod in found.pods):
        return STOPPING  # of a failed pod the Job is about to fail, too
    if any(job.spec.suspend for job in found.jobs):  # held, or by somebody who may let it go on
        return STOPPING if alive and found.first.says(gangs.PHASE) != gangs.HELD else WAITING
    there = [pod for pod in found.pods if pod.metadata.deletion_timestamp is None]
    begun = sum(pod.status.phase in ("Running", "Succeeded") for pod in there)
    if begun < sum(job.spec.completions for job in found.jobs) or len(found.jobs) < _roles(found.first):
        return WAITING
    return RUNNING if alive else STOPPING


def _end(found: Found) -> str:
    """How the run ended; empty while it did not. As on OpenPAI the first role decides that failed, or that succeeded and
    decides. Of two in one second that is the latter: others may fail for want of it."""
    failed = [since_ms for job in found.jobs if (since_ms := job.since_ms(*FAILING)) is not None]
    done = [(job, since_ms) for job in found.jobs if (since_ms := job.since_ms(*SUCCEEDING)) is not None]
    decided = [since_ms for job, since_ms in done if job.says(gangs.DECIDES)]
    if decided and min(decided) <= min(failed, default=min(decided)):
        return SUCCEEDED
    if failed:
        return FAILED
    return SUCCEEDED if done and len(done) >= max(len(found.jobs), _roles(found.first)) else ""


def _is_over(job: Job) -> bool:
    """Whether its controller has ended it, or is about to."""
    return job.since_ms(*FAILING, *SUCCEEDING) is not None


def _roles(first: Job) -> int:
    said = first.says(gangs.JOBS)
    return int(said) if said.isdecimal() and len(said) < 4 else 1


def _failed(error: ApiError) -> Refused | Limited | NotSent | InDoubt:
    """What came of an effect that was not answered as hoped."""
    if isinstance(error, Unreachable):
        return InDoubt(reason=cut(str(error))) if error.sent else NotSent(reason=cut(str(error)))
    if error.code == 429:
        return Limited(retry_after_ms=int((error.retry_after_s or 1.0) * 1000))
    if not error.final and (error.retryable or error.code == 409 or not 300 <= error.code < 500):
        return InDoubt(reason=cut(str(error)))
    code = error.reason or f"HTTP {error.code}"
    return Refused(code=cut(code), message=cut(str(error)), of_content=error.final or error.code in (400, 413, 422))


def _silent(error: ApiError) -> Silent:
    return Silent(reason=cut(str(error)), retry_after_ms=int((error.retry_after_s or 0.0) * 1000))
