"""A cluster behind OpenPAI's REST server (microsoft/pai 2.2): `Backend` by HTTP.

What its answers mean here:

- 202 to a submission is `Accepted`: the name is taken in its database before it answers. 409 is `Taken`. 400 with a code
  of the server's own is a refusal of the content; other 4xx are refusals of this attempt, and 429 is `Limited`. Malformed
  YAML would be a 500 without a code, which nobody could tell from a server in trouble: it is refused before it is sent.
- 202 to a stop is an intent. The run is seen stopped in a list, or not.
- A list shows state, ``subState`` and the number of retries, but not the marker, which is in the job's ``config``:
  `describe` reads both. RUNNING with another ``subState`` than AttemptRunning is an attempt that dies: `STOPPING`.
- ``launchedTime`` is that of the first attempt, and made up for a job that was stopped before it ran.
- Lists are in the order of the names, which are unique and stay for ever: what is submitted between two pages can make
  a job show twice, and never hide one.

Only reads are repeated, as they change nothing. The client keeps to the server's limits by itself (`Pace`); what they
leave no room for is `NotSent` or `Silent`, and of all requests a tenth is kept for stops. A read waits for its turn if
that is a moment away: a client that lists exactly as often as it may is at times early.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt, wait_random_exponential
from yarl import URL

from events.wire import UNDECODABLE
from services.answers import whole, why_none
from services.documents import load_all
from services.federator.backends import (
    FAILED,
    MARKER,
    RUNNING,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    UNKNOWN,
    WAITING,
    Absent,
    Accepted,
    Described,
    InDoubt,
    Limited,
    Listing,
    NotSent,
    Owner,
    Refused,
    Run,
    Silent,
    Stopped,
    Submission,
    Submitted,
    Taken,
    scripts,
)
from services.federator.backends.credentials import NoSecret, Secret, Token
from services.federator.backends.pace import Pace
from services.federator.backends.responses import clock_ms, cut, number
from services.federator.clusters import Limits

BASE = "/rest-server/api/v2/jobs"
MOST_RETRIES = 1 << 53
"""A number in JSON may have thousands of digits, and this one goes into the log."""
MOST_BYTES = 100 * 1024
"""What the server takes as a body."""
MOST_LISTED = 50_000
"""What it lists in one page."""
MOST_JOBS = 10 * MOST_LISTED
"""Of all pages: more than the limits of a server as it is shipped let anybody list in time."""
MOST_ANSWERED_BYTES = 128 * 1024 * 1024
"""A page of as many jobs is a quarter of this. What goes on behind it, as something on the way may for ever, is not read:
the other clusters' places are in the same memory."""
MOST_OBJECTS = 10 * MOST_LISTED
"""Of one page, where each job is a few: what is nothing but brackets takes many times its bytes when it is read."""
MOST_CONFIGURED_BYTES = 10 * MOST_BYTES
"""Of a job's configuration: as the server keeps it, it may be longer than what was taken. YAML is read slowly, and
everybody waits for it."""
LONGEST_WINDOW_MS = 3_600_000
"""That of submissions. Who asks for a longer wait is not believed."""
MOMENT_MS = 1_000
"""How long a read waits for room."""
NO_JOB, NO_CONFIG = "NoJobError", "NoJobConfigError"
"""Its codes for a job that is not there, and for one of before protocol 2."""
AS_SHIPPED = Limits()
"""OpenPAI's own, where an administrator changed nothing."""
_STATES = {
    "WAITING": WAITING,
    "RUNNING": RUNNING,
    "STOPPING": STOPPING,
    "STOPPED": STOPPED,
    "SUCCEEDED": SUCCEEDED,
    "SUCCESS": SUCCEEDED,
    "FAILED": FAILED,
}


class _Job(msgspec.Struct, rename="camel"):
    """A row of a list, or the status of one job."""

    username: str
    state: str
    sub_state: str | None = None
    name: str = ""
    retries: int = 0
    launched_time: int | None = None
    completed_time: int | None = None


class _Detail(msgspec.Struct, rename="camel"):
    name: str
    job_status: _Job


class _Error(msgspec.Struct):
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    clock_ms: int
    retry_after_ms: int = 0


_Heard = _Answer | NotSent | InDoubt
_decode_list = msgspec.json.Decoder(list[_Job]).decode
_decode_detail = msgspec.json.Decoder(_Detail).decode
_decode_error = msgspec.json.Decoder(_Error).decode
_backoff = wait_random_exponential(multiplier=0.1, max=2.0)


class OpenPai:
    """One user on one OpenPAI cluster. Made inside a running loop; closed by `close`.

    `uri`: what stands before ``/rest-server``. `timeout_s` bounds each request. `page`: jobs that one list asks for.
    """

    def __init__(
        self,
        uri: str,
        user: str,
        secret: Secret,
        *,
        limits: Limits = AS_SHIPPED,
        ssl_context: ssl.SSLContext | None = None,
        timeout_s: float = 30.0,
        page: int = MOST_LISTED,
        read_attempts: int = 3,
    ) -> None:
        self._url, self._user, self._page = uri.rstrip("/") + BASE, user, page
        self._token = Token(secret)
        self._pace = Pace(limits.requests_per_minute, 60_000)
        self._paces = {
            "list": Pace(limits.lists_per_minute, 60_000),
            "submit": Pace(limits.submissions_per_hour, 3_600_000),
        }
        self._kept_for_stops = limits.requests_per_minute // 10
        self._ssl: Any = ssl_context or True
        self._timeout_s = timeout_s
        """Of asyncio: aiohttp's own loses cancellations (`services.kubernetes.transport.Transport`)."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=16, keepalive_timeout=30.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(10.0, timeout_s / 2)),
        )
        self._reading = AsyncRetrying(
            retry=retry_if_result(_may_be_better),
            wait=_backoff,
            stop=stop_after_attempt(read_attempts),
            retry_error_callback=_last,
        )

    async def close(self) -> None:
        await self._session.close()

    # --------------------------------------------------------------------------------------------------------- effects

    async def submit(self, submission: Submission) -> Submitted:
        if wrong := await asyncio.to_thread(_unfit, submission):
            return Refused(code="InvalidProtocolError", message=wrong, of_content=True)
        heard = await self._ask("submit", "POST", "", submission.body, "text/yaml")
        if not isinstance(heard, _Answer):
            return heard
        if heard.status == 409:
            return Taken()
        return Accepted(uid="") if heard.status == 202 else self._refused(heard)

    async def stop(self, name: str, uid: str) -> Stopped:
        path = f"/{self._framework(name)}/executionType"
        heard = await self._ask("stop", "PUT", path, b'{"value":"STOP"}', "application/json")
        if not isinstance(heard, _Answer):
            return heard
        if heard.status == 202:
            return Accepted(uid="")
        absent = heard.status == 404 and _said(heard).code == NO_JOB
        return Absent() if absent else self._refused(heard)

    # --------------------------------------------------------------------------------------------------------- queries

    async def observe(self) -> Listing | Silent:
        """All pages. A full one with nothing new ends it: who does not know `offset` would give it for ever."""
        runs: dict[str, Run] = {}
        seen: set[tuple[str, str]] = set()
        offset = clock_ms = 0
        while True:
            before = len(seen)
            asked = {"username": self._user, "order": "jobName,ASC", "offset": offset, "limit": self._page}
            heard = await self._read("list", f"?{urlencode(asked)}")
            if not isinstance(heard, _Answer):
                return heard
            if heard.body.count(b"{") > MOST_OBJECTS:
                return Silent(reason=f"expected a page of at most {self._page} jobs")
            try:
                jobs = _decode_list(heard.body)
            except UNDECODABLE as error:
                return Silent(reason=f"expected a list of jobs: {cut(str(error))}")
            for job in jobs:
                seen.add((job.username, job.name))
                if job.username == self._user:
                    runs[job.name] = _run(job.name, job)
            if len(seen) > MOST_JOBS:
                return Silent(reason=f"expected at most {MOST_JOBS} jobs")
            clock_ms = heard.clock_ms
            offset += len(jobs)
            if len(jobs) < self._page:
                return Listing(runs=tuple(runs.values()), clock_ms=clock_ms)
            if len(seen) == before:
                return Silent(reason=f"expected other jobs before offset {offset}: they came already")

    async def describe(self, name: str) -> Described | Absent | Silent:
        path = f"/{self._framework(name)}"
        heard = await self._read("get", path, NO_JOB)
        if isinstance(heard, Silent):
            return heard
        if heard.status == 404:
            return Absent()
        config = await self._read("config", f"{path}/config", NO_CONFIG)
        if isinstance(config, Silent):
            return config
        if len(config.body) > MOST_CONFIGURED_BYTES:
            return Silent(reason=f"expected a configuration of at most {MOST_CONFIGURED_BYTES} bytes")
        try:
            detail = _decode_detail(heard.body)
        except UNDECODABLE as error:
            return Silent(reason=f"expected a job: {cut(str(error))}")
        return Described(run=_run(detail.name, detail.job_status), owner=_owner(config))

    def _framework(self, name: str) -> str:
        return quote(f"{self._user}~{name}", safe="~")

    # ---------------------------------------------------------------------------------------------------------- asking

    async def _read(self, kind: str, path: str, lacking: str = "") -> _Answer | Silent:
        """A success, or a 404 by which the server itself says so: with the code `lacking`."""
        if (wait_ms := self._wait_ms(kind)) <= MOMENT_MS:
            await asyncio.sleep(wait_ms / 1000)
        heard: _Heard = await self._reading(self._ask, kind, "GET", path)
        if not isinstance(heard, _Answer):
            return Silent(reason=heard.reason, retry_after_ms=self._wait_ms(kind))
        if heard.status == 200:
            return heard
        said = _said(heard)
        if heard.status == 404 and lacking and said.code == lacking:
            return heard
        reason = self._cleaned(f"HTTP {heard.status} {said.code or ''} {said.message or ''}".strip())
        return Silent(reason=reason, retry_after_ms=heard.retry_after_ms)

    async def _ask(self, kind: str, method: str, path: str, body: bytes | None = None, media_type: str = "") -> _Heard:
        """One request, once; with a secret that is read anew a second time after a 401."""
        heard = await self._once(kind, method, path, body, media_type)
        if isinstance(heard, _Answer) and heard.status == 401 and self._token.forget():
            heard = await self._once(kind, method, path, body, media_type)
        return heard

    async def _once(self, kind: str, method: str, path: str, body: bytes | None, media_type: str) -> _Heard:
        try:
            token = await self._token.read()
        except NoSecret as error:
            return NotSent(reason=str(error))
        if wait_ms := self._wait_ms(kind):  # behind the last wait: what was asked meanwhile counts
            reason = f"the limit of requests ({kind}) leaves no room for {wait_ms} ms"
            return NotSent(reason=reason, retry_after_ms=wait_ms)
        headers = {"Authorization": f"Bearer {token}", "User-Agent": "muster"}
        if media_type:
            headers["Content-Type"] = media_type
        for pace in (self._pace, self._paces.get(kind)):
            if pace is not None:
                pace.take(_now_ms())
        try:
            url = URL(self._url + path, encoded=True)
            async with (
                asyncio.timeout(self._timeout_s),
                self._session.request(
                    method, url, data=body, headers=headers, ssl=self._ssl, allow_redirects=False
                ) as answer,
            ):
                said = await whole(answer, MOST_ANSWERED_BYTES)
                return _Answer(answer.status, said, _date_ms(answer), _retry_after_ms(answer))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            return NotSent(reason=self._cleaned(_what(error)))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:  # may quote an answer that is no HTTP
            return InDoubt(reason=self._cleaned(_what(error)))
        except ValueError as error:  # the URL is none, or its host can be nobody's name
            return NotSent(reason=self._cleaned(_what(error)))

    def _wait_ms(self, kind: str) -> int:
        """How long the limits keep this client from asking."""
        now_ms = _now_ms()
        own = self._paces.get(kind)
        all_ms = self._pace.wait_ms(now_ms, 0 if kind == "stop" else self._kept_for_stops)
        return max(all_ms, own.wait_ms(now_ms) if own is not None else 0)

    def _refused(self, heard: _Answer) -> Refused | Limited | InDoubt:
        """What an answer other than the one hoped for means."""
        said = _said(heard)
        if heard.status == 429:
            return Limited(retry_after_ms=heard.retry_after_ms)
        if not 300 <= heard.status < 500 or heard.status == 408:
            return InDoubt(reason=self._cleaned(f"HTTP {heard.status} {said.message or ''}".strip()))
        return Refused(
            code=self._cleaned(said.code or f"HTTP {heard.status}"),
            message=self._cleaned(said.message or ""),
            of_content=heard.status == 400 and said.code is not None,  # a proxy's says nothing of other attempts
        )

    def _cleaned(self, text: str) -> str:
        """What a server says, without our secret, should it repeat it."""
        return cut(self._token.hidden(text))


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _unfit(submission: Submission) -> str:
    """What the server would not even call wrong. Says nothing of what stands in the body: there may be secrets."""
    if len(submission.body) > MOST_BYTES:
        return f"the job has {len(submission.body)} bytes; the server takes at most {MOST_BYTES}"
    try:
        documents = load_all(submission.body.decode())
    except ValueError:
        return "the job is not YAML"
    if len(documents) != 1 or not isinstance(documents[0], dict):
        return "expected one YAML document, a mapping"
    if documents[0].get("name") != submission.name:
        return f"name: expected {submission.name}"
    return scripts.unreadable(documents[0])


def _run(name: str, job: _Job) -> Run:
    state = _STATES.get(job.state, UNKNOWN)
    if state == RUNNING and job.sub_state != "AttemptRunning":
        state = STOPPING
    known = job.retries == 0 and job.launched_time and job.launched_time != job.completed_time
    attempt, started_ms = min(job.retries, MOST_RETRIES), (job.launched_time or 0) if known else 0
    return Run(name=name, uid="", state=state, attempt=attempt, started_ms=started_ms)


def _owner(config: _Answer) -> Owner | None:
    """From a job's configuration, which anybody may have written; a job of another protocol has none."""
    if config.status != 200:
        return None
    try:
        (job,) = load_all(config.body.decode())
        return msgspec.convert(job["extras"][MARKER], Owner)
    except (ValueError, TypeError, KeyError):  # msgspec's and NotYaml are ValueErrors
        return None


def _said(heard: _Answer) -> _Error:
    """The server's own words, if they are; something on the way may have answered in its place."""
    try:
        return _decode_error(heard.body)
    except UNDECODABLE:
        return _Error(message=heard.body.decode(errors="replace"))


def _may_be_better(heard: _Heard) -> bool:
    """Whether a read may be answered a moment later."""
    return isinstance(heard, InDoubt) or (isinstance(heard, _Answer) and heard.status >= 500)


def _last(state: RetryCallState) -> Any:
    return state.outcome.result() if state.outcome is not None else None


def _date_ms(answer: aiohttp.ClientResponse) -> int:
    return clock_ms(answer.headers.get("Date", ""))


def _retry_after_ms(answer: aiohttp.ClientResponse) -> int:
    """Until the window of the limit ends, where the server says when; Retry-After is the whole window's length."""
    window_ms = min(number(answer.headers.get("Retry-After", "")) * 1000, LONGEST_WINDOW_MS)
    if answer.status != 429 or not window_ms:
        return 0
    ends_ms, now_ms = number(answer.headers.get("X-RateLimit-Reset", "")) * 1000, _date_ms(answer)
    return min(window_ms, max(1000, ends_ms - now_ms)) if ends_ms and now_ms else window_ms


def _what(error: BaseException) -> str:
    said = why_none(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
