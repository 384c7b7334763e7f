"""batch/v1 Jobs whose pods are a gang: made with their PodGroup, listed with their pods, changed, and deleted.

A Job's controller makes the pods; of a suspended Job there are none. Suspending one ends its pods and leaves it in place:
its name stays taken. Every change says which object it means, by UID or by what stands in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from services.kubernetes.access import Access
from services.kubernetes.errors import NotFound, Unreachable
from services.kubernetes.objects import Int32, Listed, Metadata, Object, Present, Time
from services.kubernetes.resources import PODS, Resource
from services.kubernetes.transport import JSON, MERGE, UNREADABLE, Answer, Transport, decoded, retrying

JSON_PATCH = "application/json-patch+json"
JOBS = Resource("jobs.batch", "/apis/batch/v1/jobs")
CONTROLLER = "batch.kubernetes.io/controller-uid"
"""The label by which a Job's controller marks its pods: the Job's UID. That with its name outlives it, on pods that
somebody kept."""
PAGE = 1_000
MOST_ANSWERED_BYTES = 256 * 1024 * 1024
"""A page of as many Jobs is some megabytes. What goes on behind it is not read: whoever has several clusters has all of
their answers in the same memory."""
MOST_LISTED = 250_000
"""Objects of one list: what goes on page after page has no end."""
Word = Annotated[str, msgspec.Meta(max_length=253)]
"""As long as Kubernetes' names are."""
S = TypeVar("S")


def pointer(path: Sequence[str]) -> str:
    """As JSON Patch writes it."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


class JobMetadata(Metadata):
    """Whoever made the Job keeps both words, for ever in a log."""

    name: Word = ""
    uid: Word = ""


class _Made(Object):
    metadata: JobMetadata


class _Details(Object):
    uid: str = ""


class _Deleted(Object):
    """A Status, or what is about to go."""

    status: str | dict[str, Any] = ""
    details: _Details | None = None
    metadata: Metadata | None = None

    def is_of(self, uid: str) -> bool:
        """Whether this says that the object of this UID goes."""
        if self.status == "Success":
            return self.details is not None and self.details.uid == uid
        about = self.metadata
        return about is not None and about.uid == uid and about.deletion_timestamp is not None


class JobSpec(Object):
    completions: Int32 = 1
    suspend: bool | None = None
    success_policy: Present | None = None


class JobCondition(Object):
    type: str
    status: str = ""
    last_transition_time: Time | None = None


class JobStatus(Object):
    conditions: list[JobCondition] | None = None


class Job(Object):
    metadata: JobMetadata
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)

    def is_so(self, condition: str) -> bool:
        return any(one.type == condition and one.status == "True" for one in self.status.conditions or ())

    def since_ms(self, *conditions: str) -> int | None:
        """Since when the first of these holds, epoch milliseconds, 0 where it does not say; None while none does."""
        held = [one for one in self.status.conditions or () if one.type in conditions and one.status == "True"]
        times = [one.last_transition_time for one in held]
        return min((int(time.timestamp() * 1000) if time else 0 for time in times), default=None)

    def says(self, annotation: str) -> str:
        return (self.metadata.annotations or {}).get(annotation, "")


class _Running(Object):
    started_at: Time | None = None


class _ContainerState(Object):
    running: _Running | None = None
    terminated: _Running | None = None


class _ContainerStatus(Object):
    state: _ContainerState | None = None


class _GangPodStatus(Object):
    phase: str = ""
    container_statuses: list[_ContainerStatus] | None = None


class _GangPodSpec(Object):
    node_name: str = ""


class GangPod(Object):
    """One pod of a Job, as far as it tells how the gang does."""

    metadata: Metadata
    spec: _GangPodSpec = msgspec.field(default_factory=_GangPodSpec)
    status: _GangPodStatus = msgspec.field(default_factory=_GangPodStatus)

    @property
    def job_uid(self) -> str:
        return (self.metadata.labels or {}).get(CONTROLLER, "")

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs, nor will."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def started_ms(self) -> int:
        """When its last container began to run, epoch milliseconds; 0 where none has."""
        states = [one.state for one in self.status.container_statuses or () if one.state is not None]
        ran = [state.running or state.terminated for state in states]
        return max((int(one.started_at.timestamp() * 1000) for one in ran if one and one.started_at), default=0)


_job_decoder = msgspec.json.Decoder(Job)
_jobs_decoder = msgspec.json.Decoder(Listed[Job])
_pods_decoder = msgspec.json.Decoder(Listed[GangPod])
_deleted_decoder = msgspec.json.Decoder(_Deleted)
_made_decoder = msgspec.json.Decoder(_Made)


class GangJobs(Transport):
    """Jobs of one namespace. Effects are tried once; reads are repeated."""

    def __init__(self, access: Access, namespace: str, *, timeout_s: float = 30.0) -> None:
        super().__init__(access, connections=16, timeout_s=timeout_s, most_bytes=MOST_ANSWERED_BYTES)
        self._namespace = namespace
        self._reading = retrying(3)

    # --------------------------------------------------------------------------------------------------------- effects

    async def create(self, resource: Resource, body: Mapping[str, Any]) -> str:
        """The new object's UID. Raises Conflict where the name is taken, and (its `reason` is another) where a quota was
        written meanwhile; ApiError."""
        request = f"create {resource.name} {self._namespace}/{body['metadata']['name']}"
        answer = await self.send(request, "POST", self._path(resource), msgspec.json.encode(body))
        made = decoded(_made_decoder, request, answer.raise_for(request).body).metadata
        if made.name != body["metadata"]["name"] or not made.uid:
            raise Unreachable(request, UNREADABLE, "expected the object that was made", sent=True)
        return made.uid

    async def suspend(self, name: str, uid: str, annotations: Mapping[str, str]) -> None:
        """End a Job's pods, if it is still this one. Raises Conflict where it is another, NotFound, ApiError."""
        metadata = {"uid": uid, "annotations": annotations}
        await self._patch(name, {"metadata": metadata, "spec": {"suspend": True}}, MERGE)

    async def resume(self, name: str, said: Mapping[tuple[str, ...], str | int], annotation: str, value: str) -> None:
        """Let a Job make its pods, and say so, if this stands in it: path → value.

        Raises ApiError of 422 where something else does, NotFound, ApiError; that also where it does not say so then.
        """
        tests = [{"op": "test", "path": pointer(path), "value": found} for path, found in said.items()]
        told = {"op": "replace", "path": pointer(("metadata", "annotations", annotation)), "value": value}
        run = {"op": "replace", "path": "/spec/suspend", "value": False}
        job = await self._patch(name, [*tests, told, run], JSON_PATCH)
        if (now := job.says(annotation)) != value:  # a webhook that admits it may put that back
            request = f"patch {JOBS.name} {self._namespace}/{name}"
            raise Unreachable(request, "NotTaken", f"expected {annotation} to be {value!r}: {now!r}", sent=True)

    async def delete(self, name: str, uid: str) -> None:
        """A Job and whatever belongs to it, if it is still this one. Raises Conflict where it is another, and where an
        admission webhook says so; NotFound, ApiError."""
        request = f"delete {JOBS.name} {self._namespace}/{name}"
        options = msgspec.json.encode({"preconditions": {"uid": uid}, "propagationPolicy": "Background"})
        answer = _served(request, await self.send(request, "DELETE", self._path(JOBS, name), options))
        gone = decoded(_deleted_decoder, request, answer.body)
        if not gone.is_of(uid):  # what stands between may say yes to anything
            raise Unreachable(request, UNREADABLE, "expected that the Job of this UID goes", sent=True)

    async def _patch(self, name: str, patch: Any, kind: str) -> Job:
        """As it is behind that."""
        request = f"patch {JOBS.name} {self._namespace}/{name}"
        body = msgspec.json.encode(patch)
        answer = _served(request, await self.send(request, "PATCH", self._path(JOBS, name), body, kind))
        return decoded(_job_decoder, request, answer.body)

    # --------------------------------------------------------------------------------------------------------- queries

    async def get_job(self, name: str) -> Job | None:
        """Raises ApiError."""
        request = f"get {JOBS.name} {self._namespace}/{name}"
        try:
            return decoded(_job_decoder, request, (await self._read(request, self._path(JOBS, name))).body)
        except NotFound:
            return None

    async def jobs(self, selector: str) -> tuple[list[Job], str]:
        """Those with these labels, by a consistent list; and the server's clock as HTTP writes it. Raises ApiError."""
        return await self._listed(JOBS, selector, _jobs_decoder)

    async def pods(self, selector: str) -> list[GangPod]:
        """Raises ApiError."""
        return (await self._listed(PODS, selector, _pods_decoder))[0]

    async def _listed(
        self, resource: Resource, selector: str, decoder: msgspec.json.Decoder[Listed[S]]
    ) -> tuple[list[S], str]:
        request, found, token = f"list {resource.name} {self._namespace}", [], ""
        while True:
            asked = {"labelSelector": selector, "limit": PAGE} | ({"continue": token} if token else {})
            answer = await self._read(request, f"{self._path(resource)}?{urlencode(asked)}")
            page = decoded(decoder, request, answer.body)
            if not page.metadata.resource_version:  # what has none looks like an empty list, and all runs like gone
                raise Unreachable(request, UNREADABLE, "expected a list of objects, with a resourceVersion", sent=True)
            found += page.items or []
            if len(found) > MOST_LISTED:
                raise Unreachable(request, UNREADABLE, f"expected at most {MOST_LISTED} objects", sent=True)
            token = page.metadata.continue_
            if not token:
                return found, answer.date

    async def _read(self, request: str, path: str) -> Answer:
        async def once() -> Answer:
            return _served(request, await self.send(request, "GET", path, accept=JSON))

        return await self._reading(once)

    def _path(self, resource: Resource, name: str = "") -> str:
        group, _, plural = resource.path.rpartition("/")
        return f"{group}/namespaces/{quote(self._namespace)}/{plural}" + (f"/{quote(name)}" if name else "")


def _served(request: str, answer: Answer) -> Answer:
    """A success. Jobs and pods are always served. Raises ApiError."""
    try:
        return answer.raise_for(request)
    except NotFound as error:
        raise error.of_served() from None
