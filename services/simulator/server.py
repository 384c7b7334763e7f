"""The simulated API over HTTP: paths to verbs, errors to Status objects, watches as chunked JSON lines.

One low-level aiohttp handler; Kubernetes' paths are regular, so they are split here and no router is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from events.wire import UNDECODABLE
from services.simulator import causes, errors, event_forms, forms, names, resources
from services.simulator.api import Api
from services.simulator.errors import ApiError
from services.simulator.faults import Fault, Faults
from services.simulator.selectors import predicate
from services.simulator.store import Entry, decode, encode
from services.simulator.watches import Lists, View, Watch, cut, error_line

JSON = "application/json"
BINARY = ("application/vnd.kubernetes.protobuf", "application/cbor")
DISCOVERY = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
WATCH_S = 1800.0
"""How long a watch lives that names no timeoutSeconds; the API server takes 30 to 60 minutes."""
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0-muster-simulated", "platform": "simulated"}
MOST_BYTES = 3 * 1024 * 1024
"""Of a request's body."""
METHODS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(slots=True)
class Call:
    """One request, understood."""

    verb: str
    view: View
    name: str
    subresource: str
    query: dict[str, str]
    media_type: str
    body: bytes

    @property
    def namespace(self) -> str:
        return self.view.namespace

    def object(self) -> dict[str, Any]:
        """The body as an object. Raises ApiError 400."""
        decoded = self.json()
        if not isinstance(decoded, dict):
            raise errors.bad_request(f"the body is {type(decoded).__name__}, expected a JSON object")
        return decoded

    def formed(self, api_version: str, kind: str) -> dict[str, Any]:
        """The body as an object of this kind. Raises ApiError 400."""
        obj = self.object()
        if said := forms.misfit(api_version, kind, obj):
            raise errors.undecodable(kind, api_version, f"json: {said}")
        return obj

    def json(self) -> Any:
        try:
            return decode(self.body) if self.body else {}
        except UNDECODABLE as error:
            raise errors.bad_request(f"the body cannot be decoded as JSON: {error}") from error


class Server:
    """Answers requests on an `Api`."""

    def __init__(self, api: Api, faults: Faults, *, token: str, watch_buffer: int, bookmark_every_s: float) -> None:
        self.api, self.faults = api, faults
        self.lists = Lists()
        self.watches: set[Watch] = set()
        self.requests = 0
        self._authorization = f"Bearer {token}" if token else ""
        self._watch_buffer, self._bookmark_every_s = watch_buffer, bookmark_every_s

    def cut(self, resource: str, error: ApiError | None) -> int:
        return cut(list(self.watches), resource, error)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The one handler."""
        self.requests += 1
        path, _, query = request.raw_path.partition("?")
        try:
            if self._authorization and request.headers.get("Authorization", "") != self._authorization:
                raise errors.unauthorized()
            plain = self._unversioned(path, request.headers.get("Accept", ""))
            if plain is not None:
                return plain
            call = self._call(request, path, query)
            if request.body_exists:
                call.body = await _body(request)
            fault = self._fault(call, request.headers.get("Authorization", "").removeprefix("Bearer "))
            return await (self._faulty(request, call, fault) if fault else self._answer(request, call))
        except ApiError as error:
            return _refusal(error)

    # ------------------------------------------------------------------------------------------------ paths to calls

    def _unversioned(self, path: str, accept: str) -> web.Response | None:
        """Health, version and discovery; None for everything else."""
        served = self.api.resources
        found: Any = None
        match [part for part in path.split("/") if part]:
            case ["readyz" | "livez" | "healthz", *_]:
                return web.Response(body=b"ok", content_type="text/plain")
            case ["version"]:
                found = VERSION
            case ["api"]:
                found = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            case ["apis"]:
                if "as=APIGroupDiscoveryList" in accept:  # a client looks at the type to see which of the two it got
                    found = encode(resources.group_discovery(served()))
                    return web.Response(body=found, headers={"Content-Type": DISCOVERY})
                found = resources.group_list(served())
            case ["api", "v1"]:
                found = resources.resource_list(served(), "", "v1")
            case ["apis", group]:
                found = resources.group_of(served(), group)
                found = found and {"kind": "APIGroup", "apiVersion": "v1", **found}
            case ["apis", group, version]:
                found = resources.resource_list(served(), group, version)
            case _:
                return None
        return _answer(encode(found)) if found else _page_not_found()

    def _call(self, request: web.BaseRequest, path: str, query: str) -> Call:
        parts = [unquote(part) if "%" in part else part for part in path.split("/")[1:]]
        if parts[0] == "api" and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise _PageNotFound()
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
            namespace, rest = rest[1], rest[2:]
        collection = self.api.by_path.get((group, version, rest[0]))
        if collection is None or len(rest) > 3 or (namespace and not collection.resource.namespaced):
            raise errors.no_such_resource() if self.api.serves(group, version) else _PageNotFound()
        name, subresource = (*rest[1:], "", "")[:2]
        resource, convert = collection.resource, None
        if group == "events.k8s.io":
            convert = event_forms.from_core
            resource = next(r for r in resources.BUILT_IN if r.group == group)
        asked = dict(parse_qsl(query, keep_blank_values=True)) if query else {}
        verb = _verb(request.method, resource, name, subresource, asked)
        if resource.namespaced and not namespace and (name or verb == "create"):
            raise errors.no_such_resource() if name else errors.method_not_allowed()
        matches = predicate(resource, asked.get("labelSelector", ""), asked.get("fieldSelector", "")) if asked else None
        media_type = request.headers.get("Content-Type", "").partition(";")[0].strip()
        view = View(collection, resource, namespace, matches, convert)
        return Call(verb, view, name, subresource, asked, media_type, b"")

    # ------------------------------------------------------------------------------------------------------- answers

    async def _answer(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        if call.verb == "watch":
            return await self._watch(request, call)
        if call.verb == "list":
            return _answer(self._list(call))
        return _answer(*self._write(call)) if call.verb != "get" else _answer(self._get(call))

    def _get(self, call: Call) -> bytes:
        view = call.view
        return view.whole(self.api.get(view.collection, call.namespace, call.name))

    def _list(self, call: Call) -> bytes:
        query = call.query
        revision, current = _revision(query.get("resourceVersion", "")), self.api.store.revision
        if revision > current:
            raise errors.too_large_version(revision, current)
        if query.get("resourceVersionMatch") == "Exact" and revision != current:
            raise errors.expired(f"The resourceVersion for the provided list is too old: {revision} ({current})")
        limit = _number(query.get("limit", ""), "limit")
        return self.lists.page(call.view, current, limit, query.get("continue", ""))

    def _write(self, call: Call) -> tuple[bytes, int]:
        """Everything that changes something: the answer's body and status."""
        api, view, name, namespace = self.api, call.view, call.name, call.namespace
        collection = view.collection
        _refuse_dry_run(call.query)
        status = 200
        match call.verb:
            case "bind" | "evict":
                api_version, kind, act = _ACTIONS[call.verb]
                asked = call.formed(api_version, kind)
                _refuse_dry_run(asked.get("deleteOptions") or {})
                act(api, namespace, name, asked)
                body, status = _SUCCESS, 201
            case "create":
                body, status = view.whole(api.create(collection, namespace, _stored_form(call))), 201
            case "update":
                body = view.whole(api.replace(collection, namespace, name, _stored_form(call), call.subresource))
            case "patch":
                patch = call.json() if view.convert is None else _stored_form(call)
                patched = api.patch(collection, namespace, name, patch, call.media_type, call.subresource)
                body = view.whole(patched)
            case "delete":
                gone = api.delete(collection, namespace, name, _delete_options(call))
                body = view.whole(gone) if isinstance(gone, Entry) else encode(gone)
            case _:
                body = self._delete_collection(call)
        return body, status

    def _delete_collection(self, call: Call) -> bytes:
        """Delete all that the call sees; answers with what was there."""
        view, options = call.view, _delete_options(call)
        body = self.lists.page(view, self.api.store.revision, 0, "")
        for entry in list(view.collection.in_order(call.namespace)):
            if view.sees(entry):
                self.api.delete(view.collection, *entry.key, options)
        return body

    async def _watch(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        query, store, collection = call.query, self.api.store, call.view.collection
        bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        timeout_s = float(_number(query.get("timeoutSeconds", ""), "timeoutSeconds") or WATCH_S)
        watch = Watch(
            call.view,
            lambda: store.revision,
            bookmarks,
            time.monotonic() + timeout_s,
            self._watch_buffer,
            self._bookmark_every_s,
        )
        asked = query.get("resourceVersion", "")
        if _wants_initial(call, asked):
            watch.begin_with_everything(marked=query.get("sendInitialEvents") == "true")
        elif not asked.isdecimal():
            raise errors.internal(f'resourceVersion: Invalid value: "{asked}": strconv.ParseUint: invalid syntax')
        elif not watch.begin_after(int(asked)):
            gone = errors.expired(f"too old resource version: {asked} ({collection.since + 1})")
            return await _lines(request, error_line(gone))
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        self.watches.add(watch)
        try:
            await watch.run(response.write)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client went away, or the server stops
        finally:
            self.watches.discard(watch)
        return response

    # -------------------------------------------------------------------------------------------------------- faults

    def _fault(self, call: Call, token: str) -> Fault | None:
        if not self.faults.planned:
            return None
        return self.faults.hit(call.verb, call.view.resource.plural, call.subresource, call.name, token)

    async def _faulty(self, request: web.BaseRequest, call: Call, fault: Fault) -> web.StreamResponse:
        answer: web.StreamResponse | None = None
        if fault.applied and call.verb not in ("get", "list", "watch"):
            answer = _answer(*self._write(call))
        await asyncio.sleep(fault.delay_s)
        if fault.hang_up:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        if not fault.status:
            return answer or await self._answer(request, call)
        reason, message = _FAULTS.get(fault.status, ("InternalError", "Internal error occurred: planned by a test"))
        raise ApiError(fault.status, reason, fault.message or message, retry_after_s=fault.retry_after_s)


_ACTIONS = {"bind": ("v1", "Binding", Api.bind), "evict": ("policy/v1", "Eviction", Api.evict)}
_SUCCESS = encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})

_FAULTS = {
    403: ("Forbidden", "pods is forbidden: planned by a test"),
    409: ("Conflict", "Operation cannot be fulfilled on resourcequotas: the object has been modified"),
    410: ("Expired", "too old resource version: planned by a test"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}


async def _body(request: web.BaseRequest) -> bytes:
    """Raises ApiError 413."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise errors.too_large_request(MOST_BYTES) from error


class _PageNotFound(ApiError):
    """A path that nothing serves: the API server answers in plain text."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")


def _verb(method: str, resource: resources.Resource, name: str, subresource: str, query: dict[str, str]) -> str:
    if method not in METHODS:
        raise errors.method_not_allowed()
    if subresource in ("binding", "eviction") and subresource in resource.subresources:
        if method != "POST":
            raise errors.method_not_allowed()
        return "bind" if subresource == "binding" else "evict"
    if subresource and not (subresource == "status" and resource.status) and subresource not in resource.subresources:
        raise errors.no_such_resource()
    verb = METHODS[method]
    if name:
        if verb == "create" or (subresource and verb == "delete"):
            raise errors.method_not_allowed()
        return verb
    if verb in ("update", "patch"):
        raise errors.method_not_allowed()
    if verb == "get":
        return "watch" if query.get("watch") in ("true", "1") else "list"
    return "deletecollection" if verb == "delete" else verb


def _stored_form(call: Call) -> dict[str, Any]:
    """The body in the form that is stored; checks its kind. Raises ApiError 400, 415, 422."""
    if call.media_type in BINARY:  # kubectl's own of built-in kinds: create job, create namespace
        raise errors.unsupported_media(call.media_type, [JSON])
    obj, resource = call.object(), call.view.resource
    if call.verb != "patch":
        kind, version = obj.get("kind", resource.kind), obj.get("apiVersion", resource.api_version)
        if (kind, version) != (resource.kind, resource.api_version):
            raise errors.bad_request(
                f'{kind} in version "{version}" cannot be handled as a {resource.kind} of {resource.api_version}'
            )
    if call.view.convert is None:
        return obj
    if call.verb == "create":
        wrong = [
            (field, "FieldValueRequired", "Required value") for field in event_forms.REQUIRED if not obj.get(field)
        ]
        if len(str(obj.get("note") or "").encode()) > event_forms.LONGEST_NOTE:
            why = f'Invalid value: "": can have at most {event_forms.LONGEST_NOTE} characters'
            wrong.append(("message", "FieldValueInvalid", why))
        for field in event_forms.WORDS:
            if len(str(obj.get(field) or "").encode()) > event_forms.LONGEST_WORD:
                why = f'Invalid value: "": can have at most {event_forms.LONGEST_WORD} characters'
                wrong.append((field, "FieldValueInvalid", why))
        wrong += causes.spelt(names.subdomain, (obj.get("metadata") or {}).get("name") or "e", "metadata.name")
        if wrong:
            raise errors.invalid(resource, (obj.get("metadata") or {}).get("name", ""), wrong)
    return event_forms.to_core(obj)


def _refuse_dry_run(options: Mapping[str, Any]) -> None:
    """Whoever asks for one wants nothing to happen: deletions say so in their body."""
    if options.get("dryRun"):
        raise errors.bad_request("the simulated API has no dryRun")


def _delete_options(call: Call) -> dict[str, Any]:
    """Raises ApiError 400, also for what would be left alone: the controllers delete what an owner leaves behind."""
    options = call.formed("v1", "DeleteOptions")
    _refuse_dry_run(options)
    if "Orphan" in (options.get("propagationPolicy"), call.query.get("propagationPolicy")):
        raise errors.bad_request("the simulated API orphans nothing: expected propagationPolicy Background")
    if grace := call.query.get("gracePeriodSeconds"):
        options.setdefault("gracePeriodSeconds", _number(grace, "gracePeriodSeconds"))
    return options


def _wants_initial(call: Call, revision: str) -> bool:
    """Whether a watch begins with every object. Raises ApiError 422 for options that don't go together."""
    query = call.query
    wanted, match = query.get("sendInitialEvents"), query.get("resourceVersionMatch")
    if (wanted is not None) != (match == "NotOlderThan"):
        message = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes = [("resourceVersionMatch", "FieldValueForbidden", message)]
        raise errors.invalid(resources.Resource("meta.k8s.io", "v1", "", "ListOptions"), "", causes)
    return wanted == "true" or (wanted is None and revision in ("", "0"))


def _revision(text: str) -> int:
    if text and not text.isdecimal():
        invalid = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: invalid syntax'
        raise errors.bad_request(f"invalid resource version: {invalid}")
    return int(text or 0)


def _number(text: str, field: str) -> int:
    if text and not text.isdecimal():
        raise errors.bad_request(f'{field}: Invalid value: "{text}": expected a non-negative integer')
    return int(text or 0)


def _answer(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type=JSON)


def _refusal(error: ApiError) -> web.Response:
    if isinstance(error, _PageNotFound):
        return _page_not_found()
    headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s else None
    return web.Response(body=error.body, status=error.code, content_type=JSON, headers=headers)


def _page_not_found() -> web.Response:
    return web.Response(body=b"404 page not found\n", status=404, content_type="text/plain")


async def _lines(request: web.BaseRequest, data: bytes) -> web.StreamResponse:
    """A watch that ends with its first event."""
    response = web.StreamResponse(headers={"Content-Type": JSON})
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(data)
    await response.write_eof()
    return response
