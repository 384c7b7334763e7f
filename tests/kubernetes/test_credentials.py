"""Where credentials are, and when a transport asks for them, and its files about TLS, again; what it does meanwhile."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.kubernetes import access
from services.kubernetes.access import Access, AccessError, direct
from services.kubernetes.client import Client
from services.kubernetes.errors import NoCredentials, NotFound, Unauthorized
from services.kubernetes.transport import Transport
from tests.kubernetes.certificates import CERTIFICATE, KEY
from tests.kubernetes.tokens import Server

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


def test_where_credentials_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file named, else $KUBECONFIG, else the service account of this pod, else ~/.kube/config."""
    for name in (HOST, "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    for file in (".kube/config", "of-the-environment", "named"):
        config = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://{Path(file).name}.example"}}],
        }
        (tmp_path / file).write_text(json.dumps(config))
    monkeypatch.setattr(access, "in_cluster", lambda: direct("http://in-cluster.example"))
    assert access.load().base_url == "http://config.example"
    monkeypatch.setenv(HOST, "10.0.0.1")
    assert access.load().base_url == "http://in-cluster.example"
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "of-the-environment"))
    assert access.load().base_url == "http://of-the-environment.example"
    assert access.load(str(tmp_path / "named")).base_url == "http://named.example"


def test_the_service_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its token is rotated, so it is read anew; what is missing is told at once."""
    for name, value in ((HOST, "10.0.0.1"), (PORT, "443"), ("NO_PROXY", "*")):
        monkeypatch.setenv(name, value)
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    found = access.in_cluster(tmp_path)
    assert (found.base_url, found.refreshed, found.authorization()) == ("https://10.0.0.1:443", True, "Bearer one")
    (tmp_path / "token").write_text("two")
    assert found.authorization() == "Bearer two"
    assert found.ssl_context is not None
    assert len(found.ssl_context().get_ca_certs()) == 1, "and no other authority"
    for name in (HOST, PORT):
        with monkeypatch.context() as without:
            without.delenv(name)
            with pytest.raises(AccessError, match="expected both"):
                access.in_cluster(tmp_path)
    (tmp_path / "token").unlink()
    with pytest.raises(AccessError, match="expected a bearer token"):
        access.in_cluster(tmp_path)


@pytest.mark.parametrize("file", ["ca.crt", "own.crt", "own.key"])
def test_each_file_that_a_kubeconfig_names_counts_as_it_stands(tmp_path: Path, file: str) -> None:
    """Whoever rotates a client's certificate leaves the authority as it is."""
    for name, text in (("ca.crt", CERTIFICATE), ("own.crt", CERTIFICATE), ("own.key", KEY)):
        (tmp_path / name).write_text(text)
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority": "ca.crt"}}],
        "users": [{"name": "u", "user": {"client-certificate": "own.crt", "client-key": "own.key"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    context = access.from_kubeconfig(str(tmp_path / "config")).ssl_context
    assert context is not None
    before = context()
    assert context() is before
    (tmp_path / file).write_text(f"{(tmp_path / file).read_text()}\n")
    assert context() is not before


class Asked:
    """What is asked off the loop: it counts, and hangs while it is told to."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.times = answer, 0
        self.goes_on = threading.Event()
        self.goes_on.set()

    def __call__(self) -> Any:
        self.times += 1
        self.goes_on.wait()
        return self.answer


@pytest.fixture
def token() -> Iterator[Asked]:
    asked = Asked("Bearer old")
    yield asked
    asked.goes_on.set()


@pytest.fixture
def files() -> Iterator[Asked]:
    asked = Asked(ssl.create_default_context())
    yield asked
    asked.goes_on.set()


def refreshed(server: Server, token: Asked) -> Access:
    return Access(server.url, authorization=token, refreshed=True)


async def asks(transport: Transport) -> int:
    return (await transport.send("get pod", "GET", "/api/v1/namespaces/default/pods/p")).code


async def test_each_request_says_who_asks_and_what_is_accepted(server: Server) -> None:
    """JSON, packed by nobody: what is packed is not read."""
    async with Transport(Access(server.url, authorization=lambda: "Bearer old")) as transport:
        assert await asks(transport) == 404
        await transport.send("patch pod", "PATCH", "/api/v1/namespaces/default/pods/p", b"{}", "application/x")
    said = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "muster"}
    said |= {"Authorization": "Bearer old", "Content-Type": "application/x"}
    assert {name: server.headers.get(name) for name in said} == said


async def test_what_is_served_is_asked_for_as_who_one_is(server: Server) -> None:
    """It accepts other answers than all else, and comes with the same credentials."""
    async with Client(Access(server.url, authorization=lambda: "Bearer old")) as client:
        with pytest.raises(NotFound):
            await client.discover()


async def test_a_watch_that_is_not_accepted_asks_for_another_token(server: Server, token: Asked) -> None:
    """Else it was not accepted until the first was a minute old."""

    async def watch() -> None:
        async for _ in client.stream("watch pods", "/api/v1/pods?watch=1", 60.0):
            pass

    async with Client(refreshed(server, token)) as client:
        with pytest.raises(NotFound):
            await watch()
        server.token, token.answer = "new", "Bearer new"
        with pytest.raises(Unauthorized):
            await watch()
        with pytest.raises(NotFound):
            await watch()
        with pytest.raises(NotFound):
            await watch()
    assert token.times == 2


async def test_many_at_once_ask_once_for_a_token(server: Server, token: Asked) -> None:
    """A plugin may take seconds, and each request would have it run."""
    async with Transport(refreshed(server, token)) as transport:
        assert await asyncio.gather(*(asks(transport) for _ in range(5))) == [404] * 5
    assert token.times == 1


async def test_a_token_that_does_not_come_is_told_of_and_awaited_on(
    server: Server, token: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.kubernetes.transport.CREDENTIALS_WITHIN_S", 0.01)
    token.goes_on.clear()
    async with Transport(refreshed(server, token)) as transport:
        for _ in range(2):
            with pytest.raises(NoCredentials, match=r"no bearer token within 0\.01 s"):
                await asks(transport)
        monkeypatch.setattr("services.kubernetes.transport.CREDENTIALS_WITHIN_S", 60.0)
        token.goes_on.set()
        assert await asks(transport) == 404
    assert token.times == 1


async def test_files_about_tls_that_cannot_be_looked_at_count_as_they_were(
    server: Server, files: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that is lost. Before they were ever read nothing is asked."""
    monkeypatch.setattr("services.kubernetes.transport.FILES_WITHIN_S", 0.01)
    monkeypatch.setattr("services.kubernetes.transport.TOKEN_LIFE_S", -1.0)
    server.token = ""
    files.goes_on.clear()
    async with Transport(Access(server.url, ssl_context=files)) as transport:
        with pytest.raises(NoCredentials, match=r"no word of the files about TLS within 0\.01 s"):
            await asks(transport)
        monkeypatch.setattr("services.kubernetes.transport.FILES_WITHIN_S", 60.0)
        files.goes_on.set()
        assert await asks(transport) == 401
        looked = files.times
        monkeypatch.setattr("services.kubernetes.transport.FILES_WITHIN_S", 0.01)
        files.goes_on.clear()
        assert await asks(transport) == 401
    assert files.times == looked + 1


@pytest.mark.parametrize("changes", [False, True])
async def test_what_cannot_change_is_asked_for_once(
    server: Server, token: Asked, changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.kubernetes.transport.TOKEN_LIFE_S", -1.0)
    async with Transport(Access(server.url, authorization=token, refreshed=changes)) as transport:
        for _ in range(3):
            assert await asks(transport) == 404
    assert token.times == (3 if changes else 1)


async def test_of_who_has_no_other_a_refusal_is_an_answer(server: Server) -> None:
    """Asked again it would be refused again."""
    async with Transport(direct(server.url)) as transport:
        assert await asks(transport) == 401
    assert server.asked == 1
