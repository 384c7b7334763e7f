"""What Muster asks of the API server: lists and watches as raw bytes, and the few effects of the binder.

Lists and watches give bytes: ingest decodes them into the fields that it needs. Effects carry the preconditions of
their intent, so that one that comes too late, or twice, fails instead of doing harm. A binding's answer is a
`BindResult` and never an exception: whether it took hold may be unknown, and then that is the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote

import msgspec

from events.wire import UNDECODABLE
from services.kubernetes import binding, discovery
from services.kubernetes.access import Access
from services.kubernetes.binding import BindResult
from services.kubernetes.discovery import Release, Served
from services.kubernetes.errors import ApiError, Conflict, NotFound, Unreachable
from services.kubernetes.objects import Group, Identified, Page, Pod, Written
from services.kubernetes.resources import Resource
from services.kubernetes.transport import (
    JSON,
    LONGEST_WAIT_S,
    MERGE,
    REPEATED_WITHIN_S,
    UNREADABLE,
    Answer,
    Transport,
    decoded,
    retrying,
    unreadable,
    worth_repeating,
)
from services.telemetry.repeated import Repeated

logger = logging.getLogger("muster.kubernetes")
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
PAGE = 1_000
"""Objects that one page of a list holds at most: a few MB, decoded in about 10 ms."""
WATCH_S = 300
"""After this long the server ends a watch by itself; it is resumed from the last resourceVersion seen."""
PATIENCE_S = 5.0
"""Who asks a write to come again after longer is not waited for here: it may be one namespace's webhook that is busy, and
others' writes are made together with this one."""
SLOW_S = 5.0
"""A read that is repeated for longer is told of: whoever waits for it says nothing meanwhile, and it may take minutes, as
each try may be answered by nothing, or by "not before half a minute"."""
NOTE_BYTES = 1_024
"""What the API server accepts as the note of a Kubernetes event."""
INSTANCE_BYTES = 128
"""And as the instance that reports it."""

_release_decoder = msgspec.json.Decoder(Release)
_page_decoder = msgspec.json.Decoder(Page)
_pod_decoder = msgspec.json.Decoder(Pod)
_group_decoder = msgspec.json.Decoder(Group)
_identified_decoder = msgspec.json.Decoder(Identified)
_written_decoder = msgspec.json.Decoder(Written)
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that a Kubernetes event is about. `namespace` is empty for a node."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Client(Transport):
    """An API server as Muster uses it. Made inside a running loop; closed by `close`, or used as a context manager."""

    def __init__(self, access: Access, *, connections: int = 128, timeout_s: float = 30.0) -> None:
        super().__init__(access, connections=connections, timeout_s=timeout_s)
        self._reading, self._writing = retrying(), retrying(patience_s=PATIENCE_S)
        self._slow: dict[str, Repeated] = {}
        """Of each verb and resource, the warning of reads that take long."""

    # ------------------------------------------------------------------------------------------------------- reading

    async def pages(self, resource: Resource, *, limit: int = PAGE) -> AsyncGenerator[bytes, None]:
        """A consistent list, page by page, each the raw JSON of a ``List``. The next page is fetched meanwhile.

        Raises ApiError; Expired when a continuation got too old: list again.
        """
        body, token = await self._page(resource, limit, "")
        while token:
            following = asyncio.create_task(self._page(resource, limit, token))
            try:
                yield body
                body, token = await following
            finally:
                following.cancel()
        yield body

    async def _page(self, resource: Resource, limit: int, token: str) -> tuple[bytes, str]:
        path = f"{resource.path}?limit={limit}" + (f"&continue={quote(token, safe='')}" if token else "")
        body = (await self._repeated(f"list {resource.name}", "GET", path)).body
        return body, decoded(_page_decoder, f"list {resource.name}", body).metadata.continue_

    async def watch(self, resource: Resource, resource_version: str) -> AsyncGenerator[list[bytes], None]:
        """What happens behind `resource_version`, bookmarks included: raw JSON lines, as many as have arrived together.

        Ends when the server ends it. Raises Unreachable when the connection breaks, Expired on HTTP 410; a 410 may
        also come as a line of type ERROR.
        """
        path = (
            f"{resource.path}?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}"
            f"&resourceVersion={quote(resource_version, safe='')}"
        )
        rest: list[bytes] = []
        async with contextlib.aclosing(self.stream(f"watch {resource.name}", path, WATCH_S + 60.0)) as chunks:
            async for chunk in chunks:
                rest.append(chunk)
                if b"\n" in chunk:
                    *lines, tail = b"".join(rest).split(b"\n")
                    rest = [tail]
                    yield lines

    async def discover(self) -> Served:
        """What the server serves beyond the core. Raises ApiError."""
        answer = await self._repeated("get /apis", "GET", discovery.PATH, accept=discovery.ACCEPT)
        try:
            return discovery.served(answer.body)
        except UNDECODABLE as error:
            raise unreadable("get /apis", answer.body, error) from error

    async def minor(self) -> int:
        """The y of the server's version 1.y. Raises ApiError."""
        request = f"get {discovery.VERSION}"
        answer = await self._repeated(request, "GET", discovery.VERSION)
        return int(decoded(_release_decoder, request, answer.body).minor.rstrip("+"))

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as it is now, or None. A consistent read. Raises ApiError."""
        request = f"get pods {namespace}/{name}"
        try:
            answer = await self._repeated(request, "GET", _pod_path(namespace, name))
        except NotFound as error:
            if not error.reason:
                raise error.of_served() from error
            return None
        return decoded(_pod_decoder, request, answer.body)

    # ------------------------------------------------------------------------------------------------------- effects

    async def bind(self, namespace: str, name: str, uid: str, resource_version: str, node: str) -> BindResult:
        """Ask once to bind a pod to a node, on condition that UID and resourceVersion are these. Never raises ApiError.

        Not even what certainly was not executed is repeated here: a webhook of one namespace may be the one that is busy.
        """
        body = binding.body(namespace, name, uid, resource_version, node)
        request = f"create pods/binding {namespace}/{name}"
        try:
            answer = await self.send(request, "POST", _pod_path(namespace, name, "/binding"), body)
        except ApiError as error:
            return binding.result_of(error)
        return binding.result(request, answer)

    async def patch_pod_status(
        self, namespace: str, name: str, uid: str, resource_version: str, status: Mapping[str, object]
    ) -> str:
        """Merge `status` into the pod's, conditions by type, if the pod is still this one; its resourceVersion now.

        An empty `resource_version` is no precondition. Raises Conflict when a precondition failed, NotFound, ApiError.
        """
        metadata = {"uid": uid, "resourceVersion": resource_version} if resource_version else {"uid": uid}
        request = f"patch pods/status {namespace}/{name}"
        answer = await self._repeated(
            request,
            "PATCH",
            _pod_path(namespace, name, "/status"),
            _encode({"metadata": metadata, "status": status}),
            STRATEGIC_MERGE,
        )
        return decoded(_identified_decoder, request, answer.body).metadata.resource_version

    async def annotate_pod(
        self, namespace: str, name: str, uid: str, resource_version: str, annotations: Mapping[str, str]
    ) -> str:
        """Ask once to add annotations to a pod if it is still this one; its resourceVersion now.

        An empty `resource_version` is no precondition. Raises Conflict when a precondition failed, NotFound, ApiError.
        """
        metadata: dict[str, object] = {"uid": uid, "annotations": annotations}
        if resource_version:
            metadata["resourceVersion"] = resource_version
        request = f"patch pods {namespace}/{name}"
        body = _encode({"metadata": metadata})
        answer = await self.send(request, "PATCH", _pod_path(namespace, name), body, STRATEGIC_MERGE)
        return decoded(_identified_decoder, request, answer.raise_for(request).body).metadata.resource_version

    async def get_pod_group(self, resource: Resource, namespace: str, name: str) -> Group | None:
        """A PodGroup as it is now, or None. A consistent read. Raises ApiError; NotFound where its kind is unknown."""
        request = f"get {resource.name} {namespace}/{name}"
        try:
            answer = await self._repeated(request, "GET", _path(resource, namespace, name))
        except NotFound as error:
            if not error.reason:  # not the object: its kind, or a gateway says so
                raise
            return None
        return decoded(_group_decoder, request, answer.body)

    async def patch_pod_group_status(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        status: Mapping[str, object],
        *,
        resource_version: str = "",
        subresource: bool = True,
    ) -> Written:
        """Merge `status` into a PodGroup's; returns the result. Without `subresource` the object itself is patched; if
        there is one nevertheless, the status stays as it was.

        Custom resources know no strategic merge: a list in their status is replaced whole. A real API server overlooks
        the UID in the patch of their status: without `resource_version` it may land on a PodGroup that was made anew
        under the name. Raises Conflict, NotFound, ApiError.
        """
        metadata = {"uid": uid, "resourceVersion": resource_version} if resource_version else {"uid": uid}
        part = "/status" if subresource else ""
        request = f"patch {resource.name}{part} {namespace}/{name}"
        answer = await self._repeated(
            request,
            "PATCH",
            _path(resource, namespace, name) + part,
            _encode({"metadata": metadata, "status": status}),
            STRATEGIC_MERGE if resource.built_in else MERGE,
        )
        return decoded(_written_decoder, request, answer.body)

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Ask once for a pod's eviction; a disruption budget may refuse it (ApiError 429). NotFound, Conflict: it is
        gone, or a webhook says so."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        request, path = f"create pods/eviction {namespace}/{name}", _pod_path(namespace, name, "/eviction")
        answer = (await self.send(request, "POST", path, _encode(body))).raise_for(request)
        if answer.code != binding.CREATED:
            raise Unreachable(request, UNREADABLE, f"{answer.code}: expected {binding.CREATED}", sent=True)

    async def create_event(
        self,
        name: str,
        regarding: Regarding,
        *,
        reason: str,
        action: str,
        note: str,
        warning: bool,
        time_ns: int,
        instance: str,
    ) -> None:
        """Write a Kubernetes event (events.k8s.io/v1) on an object. The same `name` again changes nothing."""
        namespace = regarding.namespace or "default"
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micro_time(time_ns),
            "reportingController": "muster",
            "reportingInstance": _cut(instance, INSTANCE_BYTES),
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "action": action,
            "note": _cut(note, NOTE_BYTES),
            "regarding": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "namespace": regarding.namespace,
                "name": regarding.name,
                "uid": regarding.uid,
            },
        }
        path = f"/apis/events.k8s.io/v1/namespaces/{_quoted(namespace)}/events"
        with contextlib.suppress(Conflict):
            await self._repeated(f"create events.events.k8s.io {namespace}/{name}", "POST", path, _encode(body))

    async def _repeated(
        self,
        request: str,
        verb: str,
        path: str,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Answer:
        """A request that may be repeated: it reads, or its preconditions make a second execution harmless."""
        patience_s, repeating = (LONGEST_WAIT_S, self._reading) if body is None else (PATIENCE_S, self._writing)
        clock = asyncio.get_running_loop().time
        began_s = clock()

        async def once() -> Answer:
            try:
                return (await self.send(request, verb, path, body, content_type, accept)).raise_for(request)
            except ApiError as error:
                takes_s = clock() - began_s + (error.retry_after_s or 0.0)
                if body is None and takes_s >= SLOW_S and worth_repeating(error, patience_s):
                    self._tell_of(error)
                raise

        try:
            return await once()  # nearly always; tenacity's bookkeeping costs as much as the request
        except ApiError as error:
            if not worth_repeating(error, patience_s):
                raise
            await asyncio.sleep(min(error.retry_after_s or 0.0, REPEATED_WITHIN_S))
        return await repeating(once)

    def _tell_of(self, error: ApiError) -> None:
        read = " ".join(error.request.split()[:2])
        if read not in self._slow:
            self._slow[read] = Repeated(logger, "read again: %d, the last: %s")
        self._slow[read].warn(error)


def _cut(text: str, size: int) -> str:
    """As much of it as fits so many bytes."""
    return text.encode()[:size].decode(errors="ignore")


def second_time(time_ns: int) -> str:
    """A Time as the API writes it: ``2026-01-02T03:04:05Z``."""
    return f"{_second(time_ns // 1_000_000_000)}Z"


def micro_time(time_ns: int) -> str:
    """A MicroTime as the API writes it: ``2026-01-02T03:04:05.678901Z``."""
    seconds, rest_ns = divmod(time_ns, 1_000_000_000)
    return f"{_second(seconds)}.{rest_ns // 1_000:06d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def _path(resource: Resource, namespace: str, name: str) -> str:
    """Of one object."""
    group, _, plural = resource.path.rpartition("/")
    return f"{group}/namespaces/{_quoted(namespace)}/{plural}/{_quoted(name)}"


def _pod_path(namespace: str, name: str, subresource: str = "") -> str:
    return f"/api/v1/namespaces/{_quoted(namespace)}/pods/{_quoted(name)}{subresource}"


def _quoted(name: str) -> str:
    """Names as Kubernetes allows them need no escape; what somebody else put into a log may."""
    return name if name.isascii() and name.replace("-", "").replace(".", "").isalnum() else quote(name, safe="")
