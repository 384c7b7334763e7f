"""OpenPAI clusters over HTTP: paths to calls, refusals to JSON, and the faults that a test planned.

    async with OpenPai() as pai:
        v100 = pai.add("v100", tokens={"secret": "alice"}, life=Life(waiting_ms=4_000))
        v100.url                                        # http://127.0.0.1:…/v100, a job's `uri`
        v100.faults.plan(verb="submit", hang_up=True, applied=True)   # taken, and the answer is lost
        v100.faults.plan(LateFault(verb="submit", hang_up=True, late_ms=5_000))   # lands after a 404 was seen
        v100.cut_off = True                             # partition: every connection breaks

Verbs are submit, list, get, config and stop; a fault's `name` is the job's, where the request names it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
from aiohttp import web

from events.wire import UNDECODABLE
from services.documents import load_all
from services.simulator.faults import Fault, Faults
from services.simulator.openpai.jobs import Cluster, Life, Refusal
from services.simulator.openpai.limits import Limits, Window

BASE = "rest-server/api/v2"
MOST_BYTES = 100 * 1024
"""What express' body-parser takes."""
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True, eq=False)
class LateFault(Fault):
    """One whose effect comes later than its answer, or than no answer."""

    late_ms: int = 0
    """By the cluster's clock, behind the request; the request then takes effect, or is refused unheard."""


@dataclass(slots=True)
class Call:
    """One request, understood."""

    verb: str
    framework: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    media_type: str = ""
    body: bytes = b""

    @property
    def name(self) -> str:
        return self.framework.partition("~")[2]


class Served(Cluster):
    """A cluster with its address, its limits and its faults."""

    def __init__(
        self, alias: str, limits: Limits, clock: Callable[[], int], tokens: Mapping[str, str], life: Life | None
    ) -> None:
        super().__init__(clock, tokens, life=life)
        self.alias, self.url = alias, ""
        self.faults = Faults()
        self.cut_off = False
        self.counts: Counter[str] = Counter()
        """Requests that reached it, by verb."""
        self._all = Window(limits.requests_per_minute, 60_000)
        self._of = {
            "list": Window(limits.lists_per_minute, 60_000),
            "submit": Window(limits.submissions_per_hour, 3_600_000),
        }

    async def handle(self, request: web.BaseRequest, path: list[str], query: str) -> web.StreamResponse:
        if self.cut_off:
            return _hang_up(request)
        call = _call(request.method, path, query)
        self.counts[call.verb] += 1
        try:
            self._take(self._all, request.remote or "")
            if not call.verb:
                raise Refusal(404, "NoApiError", f"API {request.raw_path} is not found.")
            call.user = self._user(request.headers.get("Authorization"))
            if window := self._of.get(call.verb):
                self._take(window, call.user)
            call.media_type = request.content_type
            call.body = await _body(request)
            fault = self.faults.hit(call.verb, "", "", call.name or _named(call.body)) if self.faults.planned else None
            return await self._faulty(request, call, fault) if fault else self._answer(call)
        except Refusal as refusal:
            return self._refuse(refusal)

    def _take(self, window: Window, key: str) -> None:
        if not window.take(key, self.clock()):
            raise _TooMany(window, key)

    def _user(self, authorization: str | None) -> str:
        if authorization is None:
            raise Refusal(401, "UnauthorizedUserError", "Guest is not allowed to do this operation.")
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or token not in self.tokens:
            raise Refusal(401, "UnauthorizedUserError", "Your token is invalid.")
        return self.tokens[token]

    def _answer(self, call: Call) -> web.Response:
        """Raises Refusal."""
        match call.verb:
            case "submit":
                # what is not text has been made an object, and an object becomes the text "[object Object]"
                text = call.body.decode(errors="replace") if call.media_type.startswith("text/") else "[object Object]"
                return self._json(self.submit(call.user, text), 202)
            case "list":
                return self._json(self.listed(call.query))
            case "get":
                return self._json(self.get(call.framework))
            case "config":
                return self._respond(self.config(call.framework).encode(), "text/yaml")
            case _:
                return self._json(self.execute(call.user, call.framework, _execution_type(call)), 202)

    async def _faulty(self, request: web.BaseRequest, call: Call, fault: Fault) -> web.StreamResponse:
        answer: web.Response | None = None
        if isinstance(fault, LateFault):
            self.later(fault.late_ms, lambda: self._answer(call))
        elif fault.applied:
            answer = self._answer(call)
        await asyncio.sleep(fault.delay_s)
        if fault.hang_up:
            return _hang_up(request)
        if fault.status:
            refusal = self._refuse(
                _FAULTS.get(fault.status) or Refusal(fault.status, "UnknownError", "planned by a test")
            )
            if fault.retry_after_s:
                refusal.headers["Retry-After"] = str(fault.retry_after_s)
            return refusal
        return answer or self._answer(call)

    # --------------------------------------------------------------------------------------------------------- answers

    def _json(self, answer: Any, status: int = 200) -> web.Response:
        return self._respond(_encode(answer), "application/json", status)

    def _refuse(self, refusal: Refusal) -> web.Response:
        if isinstance(refusal, _TooMany):
            text = self._respond(refusal.message.encode(), "text/html", 429)
            text.headers.update(refusal.headers)
            return text
        code = {"code": refusal.code} if refusal.code else {}
        return self._json(code | {"message": refusal.message}, refusal.status)

    def _respond(self, body: bytes, media_type: str, status: int = 200) -> web.Response:
        date = formatdate(self.clock() // 1000, usegmt=True)
        return web.Response(body=body, status=status, content_type=media_type, headers={"Date": date})


class _TooMany(Refusal):
    """429: in plain text."""

    def __init__(self, window: Window, key: str) -> None:
        super().__init__(429, "", "Too many requests, please try again later.")
        self.headers = window.headers(key) | {"Retry-After": str(window.retry_after_s)}


_FAULTS = {
    401: Refusal(401, "UnauthorizedUserError", "Your token is invalid."),
    403: Refusal(403, "ForbiddenUserError", "planned by a test"),
    429: Refusal(429, "", "Too many requests, please try again later."),
    500: Refusal(500, "UnknownError", "planned by a test"),
}


class OpenPai:
    """Clusters behind one loopback port, each under its alias. Used as an async context manager, or by start and stop."""

    def __init__(self) -> None:
        self.clusters: dict[str, Served] = {}
        self.url = ""
        self._runner: web.ServerRunner | None = None

    def add(
        self,
        alias: str,
        *,
        tokens: Mapping[str, str],
        clock: Callable[[], int] | None = None,
        limits: Limits | None = None,
        life: Life | None = None,
    ) -> Served:
        """One more cluster; without a clock it has the machine's."""
        cluster = Served(alias, limits or Limits(), clock or _wall_ms, tokens, life)
        cluster.url = f"{self.url}/{alias}" if self.url else ""
        self.clusters[alias] = cluster
        return cluster

    async def start(self, port: int = 0) -> None:
        """Serve on 127.0.0.1; port 0 takes a free one."""
        server = web.Server(self._handle, access_log=None, keepalive_timeout=3600.0)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        for alias, cluster in self.clusters.items():
            cluster.url = f"{self.url}/{alias}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> OpenPai:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        alias, _, rest = path.lstrip("/").partition("/")
        cluster = self.clusters.get(alias)
        if cluster is None:
            return web.Response(status=404, text="404 page not found\n")
        return await cluster.handle(request, [unquote(part) for part in rest.split("/") if part], query)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _call(method: str, path: list[str], query: str) -> Call:
    """An empty verb: there is no such API."""
    asked = dict(parse_qsl(query, keep_blank_values=True)) if query else {}
    if path[:4] != [*BASE.split("/"), "jobs"]:
        return Call("")
    framework = path[4] if len(path) > 4 else ""
    return Call(_VERBS.get((method, len(path), "/".join(path[5:])), ""), framework, asked)


_VERBS = {
    ("POST", 4, ""): "submit",
    ("GET", 4, ""): "list",
    ("GET", 5, ""): "get",
    ("GET", 6, "config"): "config",
    ("PUT", 6, "executionType"): "stop",
}
"""By method, length of the path and what follows the job."""


async def _body(request: web.BaseRequest) -> bytes:
    """Raises Refusal."""
    body = b"".join([chunk async for chunk in request.content.iter_any()]) if request.body_exists else b""
    if len(body) > MOST_BYTES:
        raise Refusal(413, "", "request entity too large")
    return body


def _named(body: bytes) -> str:
    """The name in a submission, if it has one."""
    try:
        found = load_all(body.decode())
    except ValueError:
        return ""
    return str(found[0].get("name", "")) if found and isinstance(found[0], dict) else ""


def _execution_type(call: Call) -> str:
    """Raises Refusal."""
    try:
        found = msgspec.json.decode(call.body) if call.media_type == "application/json" else {}
    except UNDECODABLE as error:
        raise Refusal(400, "", f"Unexpected token in JSON: {error}") from error
    value = found.get("value") if isinstance(found, dict) else None
    if value not in ("STOP", "START") or len(found) > 1:
        message = 'child "value" fails because ["value" must be one of [STOP, START]]'
        raise Refusal(400, "InvalidParametersError", message)
    return str(value)


def _hang_up(request: web.BaseRequest) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
