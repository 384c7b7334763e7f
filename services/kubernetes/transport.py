"""One aiohttp session with an API server: credentials in, bytes out, errors that name what was asked.

Nothing is decoded here but the server's own `Status`. A request is tried once; `retrying` repeats what may be repeated,
with the server's Retry-After where it gives one.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential
from yarl import URL

from events.wire import UNDECODABLE
from services import telemetry
from services.answers import whole, why_none
from services.background_call import BackgroundCall
from services.kubernetes import nesting
from services.kubernetes.access import Access, AccessError
from services.kubernetes.errors import BY_CODE, ApiError, Conflict, NoCredentials, Unreachable
from services.kubernetes.objects import Status
from services.kubernetes.share import KEPT_S, TURNED_AWAY, Share

JSON, MERGE = "application/json", "application/merge-patch+json"
NO_SUCH_PATH = b"404 page not found"
"""What an API server says of a path that it does not serve. Another page may be a gateway's."""
TOKEN_LIFE_S = 60.0
"""How long a credential that can change, or a certificate, is used before it is asked for again."""
CREDENTIALS_WITHIN_S = 30.0
"""What a plugin takes longer for is asked for again."""
FILES_WITHIN_S = 1.0
"""Files about TLS that take longer to look at, as on a disk that is lost, count as they were."""
LONGEST_WAIT_S = 3_600.0
"""Who asks to be left alone for longer is not believed."""
REPEATED_WITHIN_S = 30.0
"""The longest pause before a request is repeated, whatever was asked for."""
UNREADABLE = "Unreadable"
"""The reason of an answer that is no object of its kind."""
GZIP = b"\x1f\x8b"
PACKED = "expected the answer as it is (Accept-Encoding: identity): something between packs it with gzip"
T = TypeVar("T")
_status_decoder = msgspec.json.Decoder(Status)
_jitter = wait_random_exponential(multiplier=0.1, max=5.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer. `code` is the status, `body` its bytes, `date` the server's own clock as HTTP writes it."""

    code: int
    body: bytes
    retry_after_s: float | None = None
    date: str = ""

    def raise_for(self, request: str) -> Answer:
        """This answer if it is a success; raises the ApiError that it stands for otherwise."""
        if self.code < 300:
            return self
        raise error_of(request, self)


def error_of(request: str, answer: Answer) -> ApiError:
    """The error that an answer stands for; not every proxy on the way answers with a `Status`.

    That something is not there is believed of the API server alone: a gateway that has lost its way to it answers 404 to
    everything, often in JSON, and an object that is not there is taken as deleted.
    """
    try:
        status = _status_decoder.decode(answer.body)
    except UNDECODABLE:
        status = Status()
    if status.kind != "Status":
        status = Status(message=" ".join(answer.body[:200].decode(errors="replace").split()))  # a page has many lines
        if answer.code == 404 and not answer.body.startswith(NO_SUCH_PATH):
            return Unreachable(request, "NotFound", f"expected the API server: {status.message}", sent=True)
    after = answer.retry_after_s
    if after is None and status.details is not None and status.details.retry_after_seconds:
        after = float(status.details.retry_after_seconds)
    if after is not None:
        after = min(max(0.0, after), LONGEST_WAIT_S)
    kind = BY_CODE.get(answer.code, ApiError)
    if answer.code == 422 and "metadata.uid" in status.message:
        kind = Conflict  # a patch that names another UID is answered as if it wanted to change it
    return kind(request, answer.code, status.reason, status.message, after)


def decoded(decoder: msgspec.json.Decoder[T], request: str, body: bytes) -> T:
    """The object that is the answer. Raises Unreachable for what no API server answers: something between has."""
    try:
        return nesting.decode(decoder, body)
    except UNDECODABLE as error:
        raise unreadable(request, body, error) from error


def unreadable(request: str, body: bytes, error: Exception) -> Unreachable:
    """Something between has answered, or packed the answer."""
    said = PACKED if body.startswith(GZIP) else f"expected an object: {error}"
    return Unreachable(request, UNREADABLE, said, sent=True)


def heeding(backoff: Callable[[RetryCallState], float]) -> Callable[[RetryCallState], float]:
    """The pause before a request is repeated: what the server asks for, within bounds, where that is longer."""

    def pause_s(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked_s = (error.retry_after_s or 0.0) if isinstance(error, ApiError) else 0.0
        return max(backoff(state), min(asked_s, REPEATED_WITHIN_S))

    return pause_s


def worth_repeating(error: BaseException, patience_s: float = LONGEST_WAIT_S) -> bool:
    """Whether the same request may be answered otherwise a moment later, and nobody asked for more patience than that."""
    return isinstance(error, ApiError) and error.retryable and (error.retry_after_s or 0.0) <= patience_s


def retrying(attempts: int = 6, patience_s: float = LONGEST_WAIT_S) -> AsyncRetrying:
    """Repeats a call that raised an ApiError which is worth it; the last error is raised as it is."""
    return AsyncRetrying(
        retry=retry_if_exception(partial(worth_repeating, patience_s=patience_s)),
        wait=heeding(_jitter),
        stop=stop_after_attempt(attempts),
        reraise=True,
    )


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that notices a dead peer in about a minute: a watch sends nothing of its own for hours."""
    family, kind, protocol, _, _ = address
    opened = socket.socket(family=family, type=kind, proto=protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds_or_count in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds_or_count)
    opened.setblocking(False)
    return opened


class Transport:
    """Requests to one API server over at most `connections` connections. Used as an async context manager.

    The time of a request is asyncio's, not aiohttp's `total`: where that runs out as its task is cancelled, the task is
    not (aiohttp 3.14: its timers are nested, and each takes one cancellation back). A process that is told to end would
    go on.
    """

    def __init__(
        self, access: Access, *, connections: int = 128, timeout_s: float = 30.0, most_bytes: int | None = None
    ) -> None:
        """`most_bytes`: of an answer, where others are not to suffer for a server that sends one without an end; there
        `timeout_s` is for the whole answer, too, and else for each part of it."""
        self._access = access
        self._most_bytes = most_bytes
        self._timeout_s = timeout_s
        self._share = Share(connections)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=30.0, socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
            auto_decompress=False,
        )
        self._options: dict[str, Any] = {"allow_redirects": False}
        if access.server_hostname:
            self._options["server_hostname"] = access.server_hostname
        if access.proxy:
            self._options["proxy"] = access.proxy
            if access.ssl_context is None and urlsplit(access.proxy).scheme == "https":
                self._options["ssl"] = ssl.create_default_context()
        self._headers: dict[str, dict[str, str]] = {}
        self._fresh_until = -1.0
        self._refreshing = asyncio.Lock()
        self._authorization = BackgroundCall(access.authorization)
        self._context = None if access.ssl_context is None else BackgroundCall(access.ssl_context)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def send(
        self,
        request: str,
        verb: str,
        path: str,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Answer:
        """One request, tried once, with fresh credentials a second time after a 401.

        `request` says in words what is asked, for errors. Raises Unreachable, which leaves open whether the request was
        executed; every HTTP status is an Answer.
        """
        share = self._share
        entered = await share.enter()
        try:
            answer = await self._send(request, verb, path, body, content_type, accept)
            if answer.code == 401 and self._access.refreshed:
                self._refused()
                answer = await self._send(request, verb, path, body, content_type, accept)
            if answer.code == 429 and answer.body.startswith(TURNED_AWAY):
                share.turned_away(entered)
                await asyncio.sleep(KEPT_S)
            else:
                share.answered()
        finally:
            share.leave()
        return answer

    async def _send(
        self, request: str, verb: str, path: str, body: bytes | None, content_type: str, accept: str
    ) -> Answer:
        headers = await self._headers_for(content_type)
        if accept != JSON:
            headers = {**headers, "Accept": accept}
        try:
            async with (
                asyncio.timeout(self._timeout_s) as left,
                self._session.request(
                    verb, URL(self._access.base_url + path, encoded=True), data=body, headers=headers, **self._options
                ) as response,
            ):
                date = response.headers.get("Date", "")
                answer = Answer(response.status, await self._body(response, left), _retry_after_s(response), date)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            telemetry.REQUESTS.add(1, verb=verb, status="unreachable")
            self._doubt(error)
            raise _unreachable(request, error) from error
        except ValueError as error:  # the URL is none, or its host can be nobody's name
            raise Unreachable(request, type(error).__name__, str(error), sent=False) from error
        telemetry.REQUESTS.add(1, verb=verb, status=str(answer.code))
        return answer

    async def _body(self, response: aiohttp.ClientResponse, left: asyncio.Timeout) -> bytes:
        """All of it. While it comes its time begins anew: over a slow link a page of large objects may take minutes."""
        if self._most_bytes is not None:
            return await whole(response, self._most_bytes)
        clock, chunks = asyncio.get_running_loop().time, list[bytes]()
        async for chunk in response.content.iter_any():
            chunks.append(chunk)
            left.reschedule(clock() + self._timeout_s)
        return b"".join(chunks)

    async def stream(self, request: str, path: str, silence_s: float) -> AsyncGenerator[bytes, None]:
        """The body of a GET in chunks as they arrive, until the server ends it.

        Raises Unreachable when the connection breaks or nothing comes for `silence_s`, the error of any other status.
        """
        headers = await self._headers_for(JSON)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=silence_s)
        url = URL(self._access.base_url + path, encoded=True)
        answered = False
        try:
            # A proxy may say nothing before it connects, where no other time runs.
            async with asyncio.timeout(silence_s):
                response = await self._session.get(url, headers=headers, timeout=timeout, **self._options)
            answered = True
            async with response:
                telemetry.REQUESTS.add(1, verb="WATCH", status=str(response.status))
                if response.status != 200:
                    if response.status == 401:
                        self._refused()
                    async with asyncio.timeout(silence_s):
                        body = await response.read()
                    raise error_of(request, Answer(response.status, body, _retry_after_s(response)))
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if not answered:
                telemetry.REQUESTS.add(1, verb="WATCH", status="unreachable")
            self._doubt(error)
            raise _unreachable(request, error) from error

    def _refused(self) -> None:
        self._access.refused()
        self._fresh_until = -1.0

    def _doubt(self, error: Exception) -> None:
        """If the server's certificate is not trusted, the files about TLS are looked at with the next request: nothing is
        asked before it is trusted, and most of a minute may be left until they are looked at anyway."""
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            self._fresh_until = -1.0

    async def _headers_for(self, content_type: str) -> dict[str, str]:
        """Headers are made once for each kind of content and again when the credentials may have changed."""
        if self._fresh_until < asyncio.get_running_loop().time():
            await self._refresh()
        headers = self._headers.get(content_type)
        if headers is None:
            headers = self._headers[content_type] = {**self._headers[""], "Content-Type": content_type}
        return headers

    async def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._refreshing:
            if self._fresh_until >= loop.time():
                return
            try:
                authorization = await self._authorization(CREDENTIALS_WITHIN_S)
            except AccessError as error:
                raise NoCredentials(str(error)) from error
            except TimeoutError as error:
                raise NoCredentials(f"no bearer token within {CREDENTIALS_WITHIN_S:g} s") from error
            common = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": "muster"}
            if authorization:
                common["Authorization"] = authorization
            self._headers = {"": common}
            if self._context is not None:
                await self._look_at_files(self._context)
            changes = self._access.refreshed or self._context is not None
            self._fresh_until = loop.time() + TOKEN_LIFE_S if changes else float("inf")

    async def _look_at_files(self, context: BackgroundCall[ssl.SSLContext]) -> None:
        try:
            self._options["ssl"] = await context(FILES_WITHIN_S)
        except TimeoutError as error:
            if "ssl" not in self._options:
                raise NoCredentials(f"no word of the files about TLS within {FILES_WITHIN_S:g} s") from error


def _retry_after_s(response: aiohttp.ClientResponse) -> float | None:
    value = response.headers.get("Retry-After", "") if response.status >= 400 else ""
    return float(value) if value.isdecimal() else None


def _unreachable(request: str, error: Exception) -> Unreachable:
    sent = not isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    said = why_none(error)
    if isinstance(error, aiohttp.ClientResponseError):  # its words name the proxy's URL, with the password in it
        said = f"{error.status} {error.message}"
    return Unreachable(request, type(error).__name__, said or "no answer in time", sent=sent)
