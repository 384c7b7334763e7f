"""Credentials that only the official package can get: asked for again once they are not accepted."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path

import pytest

from services.kubernetes import access
from services.kubernetes.access import AccessError
from services.kubernetes.client import Client
from services.kubernetes.errors import NoCredentials, Unauthorized
from tests.kubernetes.certificates import CERTIFICATE, KEY
from tests.kubernetes.kubeconfigs import kubeconfig
from tests.kubernetes.tokens import Server


class Plugin:
    """An executable that says what stands in a file, or fails without one, and counts how often it ran."""

    def __init__(self, directory: Path) -> None:
        self.says, self._runs, self._path = directory / "says", directory / "runs", directory / "plugin"
        runs, says = (shlex.quote(str(path)) for path in (self._runs, self.says))
        self._path.write_text(f"#!/bin/sh\necho >> {runs}\nexec cat {says}\n")
        self._path.chmod(0o755)
        self.user = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": str(self._path),
                "interactiveMode": "Never",
            }
        }

    @property
    def runs(self) -> int:
        return len(self._runs.read_text()) if self._runs.exists() else 0

    def say(self, **status: str | None) -> None:
        said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        self.says.write_text(json.dumps(said))


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


async def opened(path: str) -> access.Access:
    return await asyncio.to_thread(access.from_kubeconfig, path)


async def test_a_token_without_an_expiry_counts_until_it_is_not_accepted(
    tmp_path: Path, server: Server, plugin: Plugin
) -> None:
    """As it was: the first one was sent for good."""
    plugin.say(token="old")
    async with Client(await opened(kubeconfig(tmp_path, {"server": server.url}, plugin.user))) as client:
        assert await client.get_pod("default", "p") is None
        assert plugin.runs == 1
        server.token = "new"
        plugin.say(token="new")
        assert await client.get_pod("default", "p") is None
        assert plugin.runs == 2
        assert await client.get_pod("default", "p") is None
        assert plugin.runs == 2


async def test_where_a_new_one_is_not_accepted_either_a_plugin_is_not_run_for_each_request(
    tmp_path: Path, server: Server, plugin: Plugin
) -> None:
    plugin.say(token="another")
    async with Client(await opened(kubeconfig(tmp_path, {"server": server.url}, plugin.user))) as client:
        for _ in range(5):
            with pytest.raises(Unauthorized):
                await client.get_pod("default", "p")
        assert plugin.runs == 2


async def test_a_plugin_that_fails_then_is_asked_again(
    tmp_path: Path, server: Server, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked meanwhile."""
    monkeypatch.setattr(access, "REFUSED_S", 0.0)
    plugin.say(token="old")
    async with Client(await opened(kubeconfig(tmp_path, {"server": server.url}, plugin.user))) as client:
        assert await client.get_pod("default", "p") is None
        server.token = "new"
        plugin.says.unlink()
        with pytest.raises(NoCredentials, match=r"user\.exec: expected a token or a certificate, and none came of it"):
            await client.send("get pods default/p", "GET", "/api/v1/namespaces/default/pods/p")
        plugin.say(token="new")
        assert await client.get_pod("default", "p") is None


async def test_a_plugin_that_fails_at_the_start_is_told_of(tmp_path: Path, server: Server, plugin: Plugin) -> None:
    """As it was: the package goes on without a token; a binder asked as nobody until somebody started it again."""
    with pytest.raises(
        AccessError, match=r"config: user\.exec: expected a token or a certificate, and none came of it"
    ):
        await opened(kubeconfig(tmp_path, {"server": server.url}, plugin.user))


@pytest.mark.parametrize("token", ["", None])
def test_a_plugin_that_gives_an_empty_token_gives_none(tmp_path: Path, plugin: Plugin, token: str | None) -> None:
    """As it was: `Bearer`, or `Bearer None`, was sent."""
    plugin.say(token=token)
    with pytest.raises(AccessError, match=r"user\.exec: expected a token or a certificate, and none came of it"):
        access.from_kubeconfig(kubeconfig(tmp_path, {"server": "http://127.0.0.1:1"}, plugin.user))


def test_so_it_is_with_a_certificate(tmp_path: Path, plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "REFUSED_S", 0.0)
    plugin.say(clientCertificateData=CERTIFICATE, clientKeyData=KEY)
    found = access.from_kubeconfig(kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, plugin.user))
    assert found.ssl_context is not None
    before = found.ssl_context()
    assert (found.authorization(), found.ssl_context()) == (None, before)
    found.refused()
    assert found.authorization() is None
    assert found.authorization() is None
    assert plugin.runs == 2, "once for each refusal"
    assert found.ssl_context() is not before


@pytest.mark.parametrize("joined", [False, True], ids=["one file", "two files"])
async def test_a_file_with_a_token_is_read_again(tmp_path: Path, server: Server, joined: bool) -> None:
    """As it was: not where `$KUBECONFIG` named several, which the package merges."""
    (tmp_path / "token").write_text("old")
    (tmp_path / "other").write_text("apiVersion: v1\nkind: Config\n")
    path = kubeconfig(tmp_path, {"server": server.url}, {"tokenFile": str(tmp_path / "token")})
    async with Client(await opened(f"{path}:{tmp_path / 'other'}" if joined else path)) as client:
        assert await client.get_pod("default", "p") is None
        server.token = "new"
        (tmp_path / "token").write_text("new")
        assert await client.get_pod("default", "p") is None


def test_a_new_token_of_a_provider_is_not_written_into_the_kubeconfig(tmp_path: Path, plugin: Plugin) -> None:
    """The package can do so, and the file may be others', or mounted read-only."""
    credential = {"access_token": "new", "token_expiry": "2100-01-01T00:00:00Z"}
    plugin.says.write_text(json.dumps({"credential": credential}))
    provider = {"name": "gcp", "config": {"cmd-path": plugin.user["exec"]["command"]}}
    path = kubeconfig(tmp_path, {"server": "http://127.0.0.1:1"}, {"auth-provider": provider})
    before = Path(path).read_text()
    bearer = access.from_kubeconfig(path).authorization
    assert bearer is not None
    assert bearer() == "Bearer new"
    assert Path(path).read_text() == before
