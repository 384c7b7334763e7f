"""What is made of an answer, and of none: the OpenPAI server's, and those of what stands between."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from services.federator.backends import (
    RUNNING,
    STOPPING,
    SUCCEEDED,
    UNKNOWN,
    Described,
    InDoubt,
    Limited,
    Listing,
    NotSent,
    Refused,
    Silent,
    credentials,
    openpai,
)
from services.federator.backends.credentials import Secret
from services.federator.backends.openpai import OpenPai as Backend
from services.federator.backends.openpai import _Answer
from tests.federator.backends.sites import OWNER, job, submission
from tests.kubernetes.certificates import CERTIFICATE, KEY

NAME = "train-v100"
HTML = b"<html>\xff</html>"
NO_API = b'{"code": "NoApiError", "message": "API is not found."}'
ROW = {"username": "alice", "name": NAME, "state": "RUNNING", "subState": "AttemptRunning"}
DETAIL = _Answer(200, msgspec.json.encode({"name": NAME, "jobStatus": ROW}), 0)
CONFIG = _Answer(200, msgspec.json.encode(job(NAME)), 0)


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    (tmp_path / "token").write_text("secret")
    return Secret(file=str(tmp_path / "token"))


@pytest.fixture
async def backend(secret: Secret) -> AsyncIterator[Backend]:
    opened = Backend("http://127.0.0.1:9", "alice", secret)
    yield opened
    await opened.close()


def answer(backend: Backend, *answers: _Answer) -> None:
    """Its requests are answered so, one after the other."""
    left = iter(answers)

    async def once(*_: object) -> _Answer:
        await backend._token.read()
        return next(left)

    backend._once = once  # type: ignore[method-assign]


# ---------------------------------------------------------------------------------------------------------- an effect's


@pytest.mark.parametrize("body", [HTML, NO_API, b"", b"[" * 100_000])
@pytest.mark.parametrize(
    ("status", "meant"),
    [(200, InDoubt), (302, Refused), (404, Refused), (408, InDoubt), (429, Limited), (502, InDoubt)],
)
async def test_what_an_answer_to_an_effect_means(
    backend: Backend, status: int, meant: type[Refused | Limited | InDoubt], body: bytes
) -> None:
    """R16: a proxy's page is no acceptance, and its 404 does not say that there is no such job."""
    answer(backend, _Answer(status, body, 0), _Answer(status, body, 0))
    assert isinstance(await backend.submit(submission(NAME)), meant)
    assert isinstance(await backend.stop(NAME, ""), meant)


@pytest.mark.parametrize(
    ("error", "meant"),
    [
        (aiohttp.ConnectionTimeoutError("secret"), NotSent),
        (aiohttp.InvalidURL("http://[", "secret"), NotSent),
        (aiohttp.ServerTimeoutError("secret"), InDoubt),
        (aiohttp.ServerDisconnectedError("secret"), InDoubt),
        (aiohttp.ClientPayloadError("secret"), InDoubt),
        (ConnectionResetError("secret"), InDoubt),
    ],
)
async def test_only_what_was_never_connected_was_not_sent(
    backend: Backend, error: Exception, meant: type[NotSent | InDoubt], monkeypatch: pytest.MonkeyPatch
) -> None:
    def request(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(backend._session, "request", request)
    told = await backend.stop(NAME, "")
    assert isinstance(told, meant)
    assert "***" in told.reason
    assert "secret" not in told.reason


@pytest.mark.parametrize("packed", [False, True])
async def test_an_answer_without_an_end_is_not_read_to_it(
    secret: Secret, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: it grew in memory until its time was over; a gigabyte of nothing is a megabyte when packed."""
    monkeypatch.setattr(openpai, "MOST_ANSWERED_BYTES", 1 << 20)
    asked = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        response = web.StreamResponse()
        if packed:
            response.enable_compression(web.ContentCoding.gzip)
        await response.prepare(request)
        while True:
            await response.write(bytes(1 << 16))

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", endless)
    async with TestServer(application) as server:
        backend = Backend(str(server.make_url("")).rstrip("/"), "alice", secret, timeout_s=3_600)
        async with asyncio.timeout(60):
            listed, stopped = await backend.observe(), await backend.stop(NAME, "")
        await backend.close()
    assert isinstance(listed, Silent)
    assert isinstance(stopped, InDoubt)
    assert listed.reason == stopped.reason == "ClientPayloadError: HTTP 200 with more than 1048576 bytes"
    assert asked > 1


async def test_no_answer_repeats_the_token(backend: Backend) -> None:
    echo = b'{"code": "ForbiddenUserError", "message": "you said secret"}'
    answer(backend, _Answer(403, echo, 0), _Answer(500, echo, 0))
    listed, stopped = await backend.observe(), await backend.stop(NAME, "")
    assert isinstance(listed, Silent)
    assert isinstance(stopped, InDoubt)
    assert listed.reason == "HTTP 403 ForbiddenUserError you said ***"
    assert stopped.reason == "HTTP 500 you said ***"


# -------------------------------------------------------------------------------------------------------------- a read's


@pytest.mark.parametrize("body", [HTML, b"{}", b'["\xff"]', b"[" * 100_000, b'[{"username": 1}]'])
async def test_a_list_that_cannot_be_read_is_silence(backend: Backend, body: bytes) -> None:
    answer(backend, _Answer(200, body, 0))
    assert isinstance(await backend.observe(), Silent)
    answer(backend, _Answer(200, body, 0), CONFIG)
    assert isinstance(await backend.describe(NAME), Silent)


async def test_what_would_fill_the_memory_is_silence(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: pages of new jobs were asked for without an end, a page of the smallest rows took 2 GB, and a
    configuration of 128 MB was read as YAML while everybody waited, the lease too."""
    monkeypatch.setattr(openpai, "MOST_JOBS", 10)
    backend._page = 1
    rows = [ROW | {"username": "bob", "name": f"job-{number}"} for number in range(12)]
    answer(backend, *(_Answer(200, msgspec.json.encode([row]), 0) for row in rows))
    assert await backend.observe() == Silent(reason="expected at most 10 jobs")
    monkeypatch.setattr(openpai, "MOST_OBJECTS", 10)
    answer(backend, _Answer(200, msgspec.json.encode(rows), 0))
    assert await backend.observe() == Silent(reason="expected a page of at most 1 jobs")
    long = _Answer(200, CONFIG.body + b"\n" * openpai.MOST_CONFIGURED_BYTES, 0)
    answer(backend, DETAIL, long)
    assert await backend.describe(NAME) == Silent(reason="expected a configuration of at most 1024000 bytes")


async def test_of_others_runs_none_is_listed(backend: Backend) -> None:
    """Also by a server that does not know the filter, and has a job of that name of several users."""
    backend._page = 1
    rows = [ROW, ROW | {"username": "bob", "state": "FAILED"}, ROW | {"username": "carol", "state": "FAILED"}]
    answer(backend, *(_Answer(200, msgspec.json.encode([row]), 1_000) for row in rows), _Answer(200, b"[]", 2_000))
    listing = await backend.observe()
    assert isinstance(listing, Listing)
    assert [(run.name, run.state) for run in listing.runs] == [(NAME, RUNNING)]
    assert listing.clock_ms == 2_000, "when it was complete"


@pytest.mark.parametrize("body", [HTML, NO_API])
async def test_a_404_of_somebody_elses_is_not_that_a_job_is_absent(backend: Backend, body: bytes) -> None:
    answer(backend, _Answer(404, body, 0), _Answer(404, body, 0))
    assert isinstance(await backend.describe(NAME), Silent)


@pytest.mark.parametrize(
    "config", [_Answer(404, HTML, 0), _Answer(404, NO_API, 0), _Answer(403, NO_API, 0), _Answer(301, b"", 0)]
)
async def test_a_job_whose_marker_is_not_told_is_nobody_elses(backend: Backend, config: _Answer) -> None:
    """R17: a foreign one would have the federated job run a second time, under the next name."""
    answer(backend, DETAIL, config)
    assert isinstance(await backend.describe(NAME), Silent)
    answer(backend, DETAIL, CONFIG)
    described = await backend.describe(NAME)
    assert isinstance(described, Described)
    assert described.owner == OWNER


async def test_a_job_that_has_no_configuration_has_no_owner(backend: Backend) -> None:
    """One of before OpenPAI's protocol 2."""
    answer(backend, DETAIL, _Answer(404, b'{"code": "NoJobConfigError", "message": "none"}', 0))
    described = await backend.describe(NAME)
    assert isinstance(described, Described)
    assert described.owner is None


@pytest.mark.parametrize(
    "config", [b"", b"a", b"- a", b"extras: 1", b"extras: [a]", b"extras: {}", b"a: 1\n---\na: 1", b"a: [", b"\xff"]
)
async def test_a_configuration_without_a_marker_has_no_owner(backend: Backend, config: bytes) -> None:
    answer(backend, DETAIL, _Answer(200, config, 0))
    described = await backend.describe(NAME)
    assert isinstance(described, Described)
    assert described.owner is None


@pytest.mark.parametrize(
    ("state", "sub_state", "meant"),
    [
        ("RUNNING", "AttemptRunning", RUNNING),
        ("RUNNING", None, STOPPING),
        ("STOPPING", "AttemptDeletionPending", STOPPING),
        ("SUCCESS", "Completed", SUCCEEDED),
        ("OfAVersionToCome", "AttemptRunning", UNKNOWN),
    ],
)
async def test_what_a_state_means(backend: Backend, state: str, sub_state: str | None, meant: str) -> None:
    answer(backend, _Answer(200, msgspec.json.encode([ROW | {"state": state, "subState": sub_state}]), 0))
    listing = await backend.observe()
    assert isinstance(listing, Listing)
    assert [run.state for run in listing.runs] == [meant]


# -------------------------------------------------------------------------------------------------------------- the way


class Proxy:
    """Sends everybody elsewhere, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.asked.append((request.method, request.raw_path))
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    async def serve(self, tls: ssl.SSLContext | None = None) -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(self.answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        return runner


async def test_an_effect_goes_where_it_was_sent_and_nowhere_else(secret: Secret) -> None:
    proxy = Proxy()
    runner = await proxy.serve()
    backend = Backend(f"http://127.0.0.1:{runner.addresses[0][1]}/v100/", "al/ice?", secret)
    try:
        assert await backend.stop(NAME, "") == Refused(code="HTTP 302", message="", of_content=False)
    finally:
        await backend.close()
        await runner.cleanup()
    path = "/v100/rest-server/api/v2/jobs/al%2Fice%3F~train-v100/executionType"
    assert proxy.asked == [("PUT", path)]


async def test_who_signs_the_servers_certificate_may_be_named(secret: Secret, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "ca.crt", tmp_path / "key.pem")
    proxy = Proxy()
    runner = await proxy.serve(tls)
    told = []
    try:
        for context in (ssl.create_default_context(cafile=str(tmp_path / "ca.crt")), None):
            backend = Backend(f"https://127.0.0.1:{runner.addresses[0][1]}", "alice", secret, ssl_context=context)
            told.append(type(await backend.stop(NAME, "")))
            await backend.close()
    finally:
        await runner.cleanup()
    assert told == [Refused, NotSent]
    assert len(proxy.asked) == 1, "the token goes to nobody else"


# ------------------------------------------------------------------------------------------------------------ the secret


async def test_a_secret_from_a_file_is_read_anew_when_it_is_old(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = backend._token
    assert await token.read() == "secret"
    (tmp_path / "token").write_text("fresh")
    assert await token.read() == "secret"
    monkeypatch.setattr(credentials, "SECRET_LIFE_S", 0.0)
    assert token.forget()
    assert await token.read() == "fresh"
    (tmp_path / "token").write_text("third")
    assert await token.read() == "third"


async def test_a_variable_that_is_not_accepted_is_not_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI", "secret")
    backend = Backend("http://127.0.0.1:9", "alice", Secret(variable="PAI"))
    answer(backend, _Answer(401, b"", 0))
    assert isinstance(await backend.stop(NAME, ""), Refused)
    await backend.close()
