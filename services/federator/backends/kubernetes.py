"""A Kubernetes cluster that Muster or another scheduler runs: `Backend` by a PodGroup and a Job for each run.

`gangs` says what they look like. The PodGroup comes first, so that no scheduler sees pods of a gang that it does not
know. Its name has the owner in it, so that it is never somebody else's; without a Job it is nothing. The Job is the run,
and takes the name for ever: a run is stopped by suspending its Job, on condition that it has this UID. The Job's
controller then deletes the pods, and a Job without pods is left. (Who deletes that frees the name: never the federator.)

A run is `running` when all of its pods run or have succeeded, and over when its Job says so and no pod is left that
runs: a node that does not answer keeps its pods, and their run is `stopping` until they are gone.
"""

from __future__ import annotations

from contextlib import suppress
from email.utils import parsedate_to_datetime

from services.documents import load_all
from services.federator.backends import (
    FAILED,
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
from services.kubernetes.access import Access
from services.kubernetes.errors import ApiError, Conflict, NotFound, Unreachable
from services.kubernetes.gang_jobs import JOB_NAME, JOBS, GangJobs, GangPod, Job
from services.kubernetes.objects import Metadata
from services.kubernetes.resources import Resource

MOST_SAID = 500
_ENDS = (("Complete", SUCCEEDED), ("Failed", FAILED))


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
        try:
            (body,) = load_all(submission.body.decode())
            group, job = gangs.objects(body, self._placing)
        except gangs.Unsupported as error:
            return Refused(code="Unsupported", message=str(error)[:MOST_SAID], of_content=True)
        except (ValueError, TypeError, KeyError, AttributeError) as error:  # the body is whatever somebody wrote
            message = f"expected a job of OpenPAI's protocol 2: {type(error).__name__}"
            return Refused(code="InvalidProtocolError", message=message, of_content=True)
        try:
            with suppress(Conflict):  # from an attempt before: the owner is in its name
                await self._jobs.create(self._groups, group)
        except ApiError as error:
            return _failed(error)
        try:
            return Accepted(uid=await self._jobs.create(JOBS, job))
        except Conflict:
            return Taken()
        except ApiError as error:
            failed = _failed(error)
            return InDoubt(reason=failed.reason) if isinstance(failed, NotSent) else failed

    async def stop(self, name: str, uid: str) -> Stopped:
        try:
            await self._jobs.suspend(gangs.kubernetes_name(name), uid)
        except (NotFound, Conflict):
            return Absent()  # the run of this UID is gone, whatever has its name now
        except ApiError as error:
            return _failed(error)
        return Accepted(uid=uid)

    # --------------------------------------------------------------------------------------------------------- queries

    async def observe(self) -> Listing | Silent:
        try:
            jobs, date = await self._jobs.jobs(gangs.SELECTOR)
            pods = await self._jobs.pods(gangs.SELECTOR) if jobs else []
        except ApiError as error:
            return _silent(error)
        of_job: dict[str, list[GangPod]] = {}
        for pod in pods:
            of_job.setdefault(pod.job, []).append(pod)
        runs = [_run(_name(job.metadata), job, of_job.get(job.metadata.name, [])) for job in jobs]
        return Listing(runs=tuple(runs), clock_ms=_clock_ms(date))

    async def describe(self, name: str) -> Described | Absent | Silent:
        own = gangs.kubernetes_name(name)
        try:
            job = await self._jobs.get_job(own)
            pods = await self._jobs.pods(f"{JOB_NAME}={own}") if job is not None else []
        except ApiError as error:
            return _silent(error)
        if job is None:
            return Absent()
        return Described(run=_run(name, job, pods), owner=gangs.owner(job.metadata.annotations, name))


def _name(metadata: Metadata) -> str:
    whole = (metadata.annotations or {}).get(gangs.NAME, "")
    return whole if gangs.kubernetes_name(whole) == metadata.name else metadata.name


def _run(name: str, job: Job, pods: list[GangPod]) -> Run:
    state = _state(job, pods)
    started_ms = max((pod.started_ms for pod in pods), default=0) if state == RUNNING else 0
    placed = state == WAITING and any(pod.spec.node_name for pod in pods)
    return Run(name=name, uid=job.metadata.uid, state=state, attempt=0, started_ms=started_ms, placed=placed)


def _state(job: Job, pods: list[GangPod]) -> str:
    alive = any(not pod.is_over for pod in pods)
    for condition, end in _ENDS:
        if job.is_so(condition):
            return STOPPING if alive else end
    if job.spec.suspend or job.metadata.deletion_timestamp is not None:
        return STOPPED if job.is_so("Suspended") and not alive else STOPPING
    if any(pod.status.phase == "Failed" for pod in pods):
        return STOPPING  # the Job is about to fail, too
    there = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    begun = sum(pod.status.phase in ("Running", "Succeeded") for pod in there)
    if begun < job.spec.completions:
        return WAITING
    return RUNNING if alive else STOPPING


def _failed(error: ApiError) -> Refused | Limited | NotSent | InDoubt:
    """What came of an effect that was not answered as hoped."""
    if isinstance(error, Unreachable):
        return InDoubt(reason=_cut(error)) if error.sent else NotSent(reason=_cut(error))
    if error.code == 429:
        return Limited(retry_after_ms=int((error.retry_after_s or 1.0) * 1000))
    if error.retryable or not 300 <= error.code < 500:
        return InDoubt(reason=_cut(error))
    code = error.reason or f"HTTP {error.code}"
    return Refused(code=code, message=_cut(error), of_content=error.code in (400, 413, 422))


def _silent(error: ApiError) -> Silent:
    return Silent(reason=_cut(error), retry_after_ms=int((error.retry_after_s or 0.0) * 1000))


def _cut(error: ApiError) -> str:
    return " ".join(str(error).split())[:MOST_SAID]


def _clock_ms(date: str) -> int:
    try:
        return int(parsedate_to_datetime(date).timestamp()) * 1000
    except (ValueError, TypeError):
        return 0
