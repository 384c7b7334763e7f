"""Credentials: the forms that are read here mean what the official package makes of them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from deploy.certificates import Authority
from services.kubernetes import access
from services.kubernetes.access import Access, AccessError
from services.kubernetes.client import Client
from services.kubernetes.errors import Unauthorized, Unreachable
from tests.kubernetes.certificates import CERTIFICATE, KEY
from tests.kubernetes.kubeconfigs import CLUSTERS, PROXY, encoded, kubeconfig


def meaning(of: Access) -> dict[str, Any]:
    context = of.ssl_context and of.ssl_context()
    return {
        "base_url": of.base_url,
        "authorization": of.authorization(),
        "server_hostname": of.server_hostname,
        "proxy": of.proxy,
        "tls": context
        and (context.verify_mode, context.check_hostname, context.get_ca_certs(), context.minimum_version),
    }


USERS = {
    "nobody": {},
    "token": {"token": "abc"},
    "token file": {"tokenFile": "token"},
    "certificate": {"client-certificate-data": encoded(CERTIFICATE), "client-key-data": encoded(KEY)},
    "certificate files": {"client-certificate": "ca.crt", "client-key": "key.pem"},
}


def test_who_asks_for_it_checks_no_certificate(tmp_path: Path) -> None:
    """Both ways make the context alike; so that they agree does not say this."""
    for read in (access.from_kubeconfig, access.official):
        made = read(kubeconfig(tmp_path, CLUSTERS["insecure"], {})).ssl_context
        assert made is not None
        assert (made().verify_mode, made().check_hostname) == (ssl.CERT_NONE, False)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("user", USERS)
def test_plain_forms_mean_what_the_official_package_says(tmp_path: Path, cluster: str, user: str) -> None:
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    (tmp_path / "token").write_text("from-a-file")
    path = kubeconfig(tmp_path, CLUSTERS[cluster], USERS[user])
    assert meaning(access.from_kubeconfig(path)) == meaning(access.official(path))


def test_plain_forms_do_without_the_official_package(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, CLUSTERS["https"], USERS["token"])
    program = (
        f"import sys; from services.kubernetes import access; access.load({path!r}); print('kubernetes' in sys.modules)"
    )

    async def run() -> bytes:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        return out

    assert asyncio.run(run()).strip() == b"False"


def test_exec_plugins_go_through_the_official_package(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    said = json.dumps({**credential, "status": {"token": "from-a-plugin"}})
    plugin.write_text(f"#!/bin/sh\necho '{said}'\n")
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    found = access.from_kubeconfig(kubeconfig(tmp_path, CLUSTERS["http"], user))
    assert found.authorization() == "Bearer from-a-plugin"
    assert found.refreshed


def test_a_plugins_token_that_no_header_can_hold_is_told_and_not_sent(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    said = json.dumps({**credential, "status": {"token": "two\nlines"}})
    plugin.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    found = access.from_kubeconfig(kubeconfig(tmp_path, CLUSTERS["http"], user))
    with pytest.raises(access.AccessError, match="one word without spaces or line ends") as error:
        found.authorization()
    assert "two" not in str(error.value), "it is never shown"


def test_a_service_account_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    (tmp_path / "token").write_text("first\n")
    found = access.in_cluster(tmp_path)
    assert (found.base_url, found.refreshed, found.authorization()) == ("https://[fd00::1]:443", True, "Bearer first")
    (tmp_path / "token").write_text("second\n")
    assert found.authorization() == "Bearer second"
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    assert access.in_cluster(tmp_path).proxy == PROXY
    monkeypatch.setenv("NO_PROXY", "fd00::/8")
    assert access.in_cluster(tmp_path).proxy is None


def test_a_token_that_stands_in_the_kubeconfig_is_read_anew(tmp_path: Path) -> None:
    """As it was: the first one for ever, so that a new one in its place needed a restart."""
    file = Path(kubeconfig(tmp_path, CLUSTERS["http"], {"token": "first"}))
    found = access.from_kubeconfig(str(file))
    assert (found.authorization(), found.refreshed) == ("Bearer first", True)
    file.write_text(file.read_text()[:50])  # somebody is writing it
    assert found.authorization() == "Bearer first"
    kubeconfig(tmp_path, CLUSTERS["http"], {"token": "two words"})
    assert found.authorization() == "Bearer first"
    kubeconfig(tmp_path, CLUSTERS["http"], {"token": "second"})
    assert found.authorization() == "Bearer second"


def test_files_that_a_kubeconfig_names_by_now_are_read_anew(tmp_path: Path) -> None:
    """As it was: those of the start, so that one which was exchanged later, in place, needed a restart."""
    for name in ("first.crt", "second.crt"):
        (tmp_path / name).write_text(CERTIFICATE)
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority": "first.crt"}
    found = access.from_kubeconfig(kubeconfig(tmp_path, cluster, {}))
    assert found.ssl_context is not None
    first = found.ssl_context()
    kubeconfig(tmp_path, cluster | {"certificate-authority": "second.crt"}, {})
    second = found.ssl_context()
    (tmp_path / "second.crt").write_text("somebody is writing it")
    assert found.ssl_context() is second
    (tmp_path / "second.crt").write_text(CERTIFICATE + "\n")
    third = found.ssl_context()
    assert len({id(context) for context in (first, second, third)}) == 3
    assert found.ssl_context() is third


@pytest.mark.parametrize("files", [1, 2])
def test_who_is_to_act_as_somebody_else_does_not_act_as_himself(tmp_path: Path, files: int) -> None:
    """As it was: an administrator's kubeconfig that is to act as a tenant had the administrator's rights."""
    path = kubeconfig(tmp_path, CLUSTERS["https"], {"token": "abc", "as": "tenant", "as-groups": ["tenants"]})
    with pytest.raises(AccessError, match=r"user.as: expected credentials of the user's own"):
        access.load(os.pathsep.join([path] * files))


@pytest.mark.parametrize("read", [access.from_kubeconfig, access.official])
@pytest.mark.parametrize("server", ["ftp://x", "https:x", "x:6443", "https://x:99999", "https://x y", "", None])
def test_a_server_that_cannot_be_asked_is_named(
    tmp_path: Path, read: Callable[[str], Access], server: str | None
) -> None:
    """Where the official package read it, as with an exec plugin, a service took its subject and asked for ever."""
    path = kubeconfig(tmp_path, {} if server is None else {"server": server}, {})
    with pytest.raises(AccessError) as error:
        read(path)
    assert f"{path}: cluster.server: {server or ''!r}: expected an http or https URL" in str(error.value)


@pytest.mark.parametrize("method", ["open", "write"])
def test_where_no_temporary_file_can_be_had_what_was_read_counts_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """As it was: a kubeconfig that was written anew while the disk was full ended whoever asked next."""
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": encoded(CERTIFICATE)}
    found = access.from_kubeconfig(kubeconfig(tmp_path, cluster, {}))
    assert found.ssl_context is not None
    before = found.ssl_context()
    full = OSError(errno.ENOSPC, "No space left on device")
    file = MagicMock(**{"write.side_effect": full})
    made = Mock(side_effect=full) if method == "open" else Mock(return_value=file)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", made)
    os.utime(tmp_path / "config", ns=(1, 1))
    assert found.ssl_context() is before
    assert made.called
    with pytest.raises(AccessError, match="certificate-authority-data: no temporary file: No space left"):
        access.from_kubeconfig(kubeconfig(tmp_path, cluster, {})).ssl_context()  # type: ignore[misc]


def test_a_proxy_that_is_none_is_named_without_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = kubeconfig(tmp_path, {"server": "https://x", "proxy-url": "socks5://me:secret@y:1080"}, {})
    with pytest.raises(AccessError, match=r"cluster.proxy-url: .*expected the URL of an http or https proxy") as error:
        access.load(path)
    assert "secret" not in str(error.value)
    monkeypatch.setenv("ALL_PROXY", "http://[")
    with pytest.raises(AccessError, match=r"HTTPS_PROXY or ALL_PROXY: .http://\["):
        access.load(kubeconfig(tmp_path, {"server": "https://x"}, {}))


Handler = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def serving_over_tls(
    pod: Handler, certificate: Path, key: Path, clients_ca: Path | None = None, port: int = 0
) -> AsyncIterator[int]:
    """A server that has one pod, on the port that this gives; with `clients_ca` it asks clients for certificates."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(clients_ca) if clients_ca else None)
    context.load_cert_chain(certificate, key)
    if clients_ca:
        context.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/default/pods/p", pod)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context, reuse_port=True).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def test_a_client_certificate_and_a_changed_token_are_used(tmp_path: Path) -> None:
    """Over TLS with both sides' certificates; the server stops accepting the first token."""
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    (tmp_path / "token").write_text("first")
    seen: list[str] = []
    accepted = {"Bearer first"}

    async def pod(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        if request.headers["Authorization"] not in accepted:
            return web.json_response({"kind": "Status", "message": "Unauthorized", "code": 401}, status=401)
        return web.json_response({"metadata": {"name": "p"}})

    ca, key = tmp_path / "ca.crt", tmp_path / "key.pem"
    async with serving_over_tls(pod, ca, key, ca) as port:
        cluster = {**CLUSTERS["https"], "server": f"https://127.0.0.1:{port}"}
        path = kubeconfig(tmp_path, cluster, {**USERS["certificate"], "tokenFile": "token"})
        async with Client(access.load(path)) as client:
            assert await client.get_pod("default", "p") is not None
            accepted.clear()
            with pytest.raises(Unauthorized) as error:
                await client.get_pod("default", "p")
            assert "get pods default/p: 401" in str(error.value)
            (tmp_path / "token").write_text("second")
            accepted.add("Bearer second")
            assert await client.get_pod("default", "p") is not None
        assert seen == ["Bearer first"] * 4 + ["Bearer second"]
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(ca)))
        async with aiohttp.ClientSession(connector=connector) as bare:
            with pytest.raises(aiohttp.ClientError):
                await bare.get(cluster["server"])


@pytest.mark.parametrize(("inline", "life_s"), [(False, 0.0), (True, 0.0), (False, 3_600.0)])
async def test_authorities_and_certificates_that_are_renewed_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: bool, life_s: float
) -> None:
    """As it was: a year after its start a service found no API server that it knew, or that knew it; and later it took a
    minute to look."""
    monkeypatch.setattr("services.kubernetes.transport.TOKEN_LIFE_S", life_s)

    async def pod(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "p"}}, headers={"Connection": "close"})

    port = 0
    client: Client | None = None
    for authority in (Authority(), Authority("another")):
        issued = authority.issue(["127.0.0.1"])
        for name, text in (("ca.crt", authority.certificate), ("own.crt", issued.certificate), ("own.key", issued.key)):
            (tmp_path / name).write_text(text)
        serving = serving_over_tls(pod, tmp_path / "own.crt", tmp_path / "own.key", tmp_path / "ca.crt", port)
        async with serving as port:
            cluster, user = {"server": f"https://127.0.0.1:{port}"}, {}
            for section, key, file in (
                (cluster, "certificate-authority", "ca.crt"),
                (user, "client-certificate", "own.crt"),
                (user, "client-key", "own.key"),
            ):
                section.update({f"{key}-data": encoded((tmp_path / file).read_text())} if inline else {key: file})
            path = kubeconfig(tmp_path, cluster, user)
            client = client or Client(access.load(path))
            assert await client.get_pod("default", "p") is not None
    assert client is not None
    await client.close()


def plain_authority() -> tuple[str, str, str]:
    """An authority that says of itself only that it is one, as EKS makes them; and a certificate for 127.0.0.1 by it that
    names no key of an authority's, and its own key."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    made = []
    for name, key in zip(("kubernetes", "kube-apiserver"), keys, strict=True):
        builder = x509.CertificateBuilder(
            issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")]),
            subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=datetime.now(UTC) - timedelta(days=1),
            not_valid_after=datetime.now(UTC) + timedelta(days=1),
        ).add_extension(x509.BasicConstraints(ca=key is keys[0], path_length=None), critical=True)
        if key is not keys[0]:
            names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
            builder = builder.add_extension(names, critical=False)
        made.append(builder.sign(keys[0], hashes.SHA256()).public_bytes(Encoding.PEM).decode())
    return *made, keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


async def test_an_authority_that_says_little_of_itself_is_trusted_by_every_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was: from 3.13 on Python asks more of certificates than Go does, and so than kubectl and kube-apiserver: of
    EKS, none was trusted (Missing Authority Key Identifier)."""
    made = ssl.create_default_context

    def of_python_3_13(*args: Any, **options: Any) -> ssl.SSLContext:
        context = made(*args, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", of_python_3_13)
    for name, text in zip(("ca.crt", "server.crt", "server.key"), plain_authority(), strict=True):
        (tmp_path / name).write_text(text)

    async def pod(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "p"}})

    async with serving_over_tls(pod, tmp_path / "server.crt", tmp_path / "server.key") as port:
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": "ca.crt"}
        async with Client(access.load(kubeconfig(tmp_path, cluster, {}))) as client:
            assert await client.get_pod("default", "p") is not None
        (tmp_path / "ca.crt").write_text(Authority("another").certificate)
        async with Client(access.load(kubeconfig(tmp_path, cluster, {}))) as client:
            with pytest.raises(Unreachable, match="certificate verify failed"):
                await client.send("get pods", "GET", "/api/v1/namespaces/default/pods/p")


@pytest.mark.parametrize(("name", "trusted"), [("api.example", True), ("other.example", False)])
async def test_a_servers_certificate_is_for_the_name_that_a_kubeconfig_gives_it(
    tmp_path: Path, name: str, trusted: bool
) -> None:
    """As behind a tunnel: it counts in place of the URL's, for which the certificate is as well."""
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)

    async def pod(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "p"}})

    async with serving_over_tls(pod, tmp_path / "ca.crt", tmp_path / "key.pem") as port:
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": "ca.crt", "tls-server-name": name}
        async with Client(access.load(kubeconfig(tmp_path, cluster, {}))) as client:
            if trusted:
                assert await client.get_pod("default", "p") is not None
            else:
                with pytest.raises(Unreachable, match=r"not valid for .other\.example."):
                    await client.send("get pods", "GET", "/api/v1/namespaces/default/pods/p")


async def test_a_proxy_over_tls_is_trusted_as_the_system_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the API server is asked in plain http: services start without aiohttp's own picture of the system's
    certificates."""
    (tmp_path / "ca.crt").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    asked: list[str] = []

    async def pod(request: web.Request) -> web.Response:
        asked.append(request.host)
        return web.json_response({"metadata": {"name": "p"}})

    async with (
        serving_over_tls(pod, tmp_path / "ca.crt", tmp_path / "key.pem") as port,
        Client(Access("http://api.example:8080", proxy=f"https://127.0.0.1:{port}")) as client,
    ):
        assert await client.get_pod("default", "p") is not None
    assert asked == ["api.example"]
