"""TLS on the way to NATS: what is trusted, what is shown, and what is said when it does not fit."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.certificates import Authority, Issued
from events import connection as connections
from events import tls
from events.connection import Connection
from events.homes import open_log
from events.patience import patiently
from events.server import EmbeddedServer
from events.tls import HANG_UPS, InTheClear, Trust, Untrusted
from tests.server_cluster import ServerCluster, TlsFiles
from tests.waiting import until

HOST = "127.0.0.1"


class Files:
    """Certificates of one authority, and of another, as files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ours, other = Authority(), Authority("another")
        self.ca, self.other_ca = self._text("ca", ours.certificate), self._text("other-ca", other.certificate)
        self.good = self._pair("good", ours.issue([HOST]))
        self.both = self._text("both", "".join(Path(file).read_text() for file in self.good))
        self.expired = self._pair("expired", ours.issue([HOST], days=-1))
        self.elsewhere = self._pair("elsewhere", ours.issue(["nats.example"]))
        self.foreign = self._pair("foreign", other.issue([HOST]))

    def server(self, pair: tuple[str, str], more: str = "") -> str:
        """The server's configuration with this certificate."""
        return TlsFiles(Path(self.ca), Path(pair[0]), Path(pair[1])).block(more)

    def _pair(self, name: str, issued: Issued) -> tuple[str, str]:
        return self._text(name, issued.certificate), self._text(f"{name}-key", issued.key)

    def _text(self, name: str, text: str) -> str:
        file = self.directory / f"{name}.pem"
        file.write_text(text)
        return str(file)

    def copied(self, pair: tuple[str, str], to: Path) -> tuple[str, str]:
        """As if just issued: under the names ``own.pem`` and ``own-key.pem`` of the directory."""
        to.mkdir(exist_ok=True)
        own = to / "own.pem", to / "own-key.pem"
        for file, one in zip(pair, own, strict=True):
            one.write_text(Path(file).read_text())
        return str(own[0]), str(own[1])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("secured"), extra=files.server(files.good)) as running:
        yield running


@pytest.fixture(scope="module")
def mutual(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """Asks its clients for certificates."""
    text = files.server(files.good, ", verify: true")
    with EmbeddedServer(tmp_path_factory.mktemp("mutual"), extra=text) as running:
        yield running


async def refused(url: str, **credentials: str) -> str:
    """What is said, long before the client's patience ends."""
    async with asyncio.timeout(connections.CONNECT_WITHIN_S / 2):
        with pytest.raises(Untrusted) as told:
            await Connection(url).connect(**credentials)
    return str(told.value)


async def test_a_log_over_tls(secured: EmbeddedServer, files: Files, cluster: str) -> None:
    log = await open_log(f"{secured.url}/{cluster}", create=True, ca_file=files.ca)
    assert await log.end() == 0
    await log.close()


def test_an_authority_may_say_as_little_of_itself_as_gos_servers_let_it(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was from Python 3.13 on: `Missing Authority Key Identifier`, where nats-server trusts its own."""
    made = ssl.create_default_context

    def of_python_3_13(cafile: str | None) -> ssl.SSLContext:
        context = made(cafile=cafile)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", of_python_3_13)
    for file in (files.ca, ""):
        flags = tls.of_files(file, "", "").now().verify_flags
        assert flags & ssl.VERIFY_X509_TRUSTED_FIRST
        assert not flags & ssl.VERIFY_X509_STRICT


async def test_an_authority_may_be_trusted_without_the_one_above_it(secured: EmbeddedServer, files: Files) -> None:
    """As Go has it: an intermediate one, or the server's own certificate. As it was: ``unable to get issuer``."""
    connection = await Connection(secured.url).connect(ca_file=files.good[0])
    await connection.close()


async def test_an_authority_that_did_not_sign(secured: EmbeddedServer, files: Files) -> None:
    told = await refused(secured.url, ca_file=files.other_ca)
    assert told.startswith(f"{secured.url}: the NATS server's certificate is refused: unable to get local issuer")
    assert told.endswith(f"expected one that is valid now and for the host in the URL, signed by {files.other_ca}")


async def test_the_systems_authorities_did_not_sign(secured: EmbeddedServer) -> None:
    told = await refused(secured.url.replace("nats://", "tls://"))
    assert "signed by the system's authorities" in told


@pytest.mark.parametrize(
    ("which", "complaint"),
    [("expired", "certificate has expired"), ("elsewhere", "certificate is not valid for '127.0.0.1'")],
)
async def test_a_servers_bad_certificate(files: Files, tmp_path: Path, which: str, complaint: str) -> None:
    with EmbeddedServer(tmp_path, extra=files.server(getattr(files, which))) as server:
        assert complaint in await refused(server.url, ca_file=files.ca)


@pytest.mark.parametrize(("url", "named"), [("nats://", True), ("tls://", True), ("tls://", False)])
async def test_a_password_is_not_sent_in_the_clear(server: EmbeddedServer, files: Files, url: str, named: bool) -> None:
    """An attacker between, who strips the server's word that it wants TLS, looks like this server."""
    ca_file = files.ca if named else ""
    told = await refused(server.url.replace("nats://", url), ca_file=ca_file, user="binder", password="secret")
    assert "offers no TLS" in told


async def test_a_client_with_a_certificate(mutual: EmbeddedServer, files: Files) -> None:
    certificate, key = files.good
    connection = await Connection(mutual.url).connect(ca_file=files.ca, certificate_file=certificate, key_file=key)
    await connection.close()


def test_files_that_are_written_anew_are_read_anew(files: Files, tmp_path: Path) -> None:
    certificate, key = files.copied(files.expired, tmp_path)
    read = tls.of_files(files.ca, certificate, key)
    before = read.now()
    files.copied(files.good, tmp_path)
    assert read.now() is not before
    after = read.now()
    Path(key).write_text("half of it")
    assert read.now() is after
    Path(certificate).unlink()
    assert read.now() is after


def test_a_file_is_another_by_its_place_its_size_or_its_time(tmp_path: Path) -> None:
    """Whoever replaces one may keep its time (`cp -p`), and two certificates are often of one length."""
    file, other = tmp_path / "file", tmp_path / "other"
    made: list[str] = []

    def make() -> str:
        made.append(file.read_text())
        return made[-1]

    file.write_text("one")
    os.utime(file, ns=(1, 1))
    read = tls.Files([str(file)], make, ValueError)
    assert [read.now(), read.now()] == ["one", "one"]
    other.write_text("two")
    os.utime(other, ns=(1, 1))
    other.replace(file)
    assert [read.now(), read.now()] == ["two", "two"], "another file"
    file.write_text("three")
    os.utime(file, ns=(1, 1))
    assert [read.now(), read.now()] == ["three", "three"], "of another size"
    file.write_text("seven")
    os.utime(file, ns=(1, 2))
    assert [read.now(), read.now()] == ["seven", "seven"], "at another time"
    assert made == ["one", "two", "three", "seven"], "each is read once"


async def test_a_client_outlives_its_certificate_and_its_authority(files: Files, tmp_path: Path) -> None:
    """As it was: whoever had started before the files were renewed was shut out when a server came that takes only these,
    or whose clock is behind the old ones' end."""
    certificate, key = files.copied(files.good, tmp_path)
    ca = files.copied((files.ca, files.ca), tmp_path / "ca")[0]
    with EmbeddedServer(tmp_path / "nats", extra=files.server(files.good, ", verify: true")) as server:
        connection = await Connection(server.url).connect(ca_file=ca, certificate_file=certificate, key_file=key)
        files.copied(files.foreign, tmp_path)
        files.copied((files.other_ca, files.other_ca), tmp_path / "ca")
        server.stop()
        foreign = TlsFiles(Path(files.other_ca), Path(files.foreign[0]), Path(files.foreign[1]))
        server.extra = foreign.block(", verify: true")
        server.start()
        await patiently(connection.ask, "$JS.API.INFO")
        await connection.close()


async def test_certificate_and_key_in_one_file(mutual: EmbeddedServer, files: Files) -> None:
    connection = await Connection(mutual.url).connect(ca_file=files.ca, certificate_file=files.both)
    await connection.close()


@pytest.mark.parametrize(
    ("which", "complaint"),
    [("", "certificate required"), ("expired", "certificate expired"), ("foreign", "unknown ca")],
)
async def test_a_client_that_the_server_does_not_take(
    mutual: EmbeddedServer, files: Files, which: str, complaint: str
) -> None:
    certificate, key = getattr(files, which) if which else ("", "")
    told = await refused(mutual.url, ca_file=files.ca, certificate_file=certificate, key_file=key)
    assert f"refuses this client's certificate ({certificate or 'none'})" in told
    assert complaint in told or "it hangs up behind the handshake" in told


@pytest.mark.parametrize("missing", [True, False])
async def test_a_file_that_cannot_be_used_is_named(files: Files, tmp_path: Path, missing: bool) -> None:
    bad = tmp_path / "bad.pem"
    if not missing:
        bad.write_text("no certificate at all")
    assert f"{bad}: expected the certificates of authorities" in await refused("nats://h:1", ca_file=str(bad))
    told = await refused("nats://h:1", ca_file=files.ca, certificate_file=files.good[0], key_file=str(bad))
    assert f"{files.good[0]} and {bad}: expected a certificate and its own key" in told
    told = await refused("nats://h:1", certificate_file=files.good[0], key_file=files.expired[1])
    assert "key values mismatch" in told


async def test_one_servers_expired_certificate_does_not_keep_a_client_from_the_others(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """nats-py waited for ever for the end of the connection whose handshake had failed."""
    expired = EmbeddedServer(tmp_path / "expired", extra=files.server(files.expired))
    good = EmbeddedServer(tmp_path / "good", extra=files.server(files.good))
    with expired, good:
        made = [await Connection(f"{expired.url},{good.url}").connect(ca_file=files.ca) for _ in range(6)]
        assert {connection.client.connected_url.port for connection in made} == {good.port}  # type: ignore[union-attr]
        good.stop()
        await until(lambda: "certificate has expired" in caplog.text, "the word that none of them can be trusted")
        good.start()
        await until(lambda: all(one.client.is_connected for one in made), "the connections")
        for connection in made:
            await connection.close()
    assert "eof_received" not in caplog.text, "asyncio warns of an end that TLS does not have"


async def test_a_server_whose_handshake_never_ends_does_not_keep_a_client_from_the_others(
    secured: EmbeddedServer, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections.random, "shuffle", lambda servers: None)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"tls_required": true}\r\n')
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(hang, HOST, 0) as hanging:
        url = f"nats://{HOST}:{hanging.sockets[0].getsockname()[1]},{secured.url}"
        connection = await Connection(url).connect(ca_file=files.ca)
        await connection.close()


async def test_servers_trust_each_other_by_certificate(files: Files, tmp_path: Path, cluster: str) -> None:
    paths = TlsFiles(Path(files.ca), *map(Path, files.good))
    with ServerCluster(tmp_path, size=2, tls=paths) as servers:
        log = await open_log(servers.url, cluster, create=True, replicas=2, ca_file=files.ca)
        assert await log.end() == 0
        await log.close()


def test_the_verdict_waits_until_each_server_had_its_turn() -> None:
    trust = Trust(2, used=True)
    for round_ in range(2):
        assert trust.failed(OSError("nobody is there")) == ""
        assert trust.failed(InTheClear()) == "", f"round {round_}: the other one may be better"
        assert trust.failed(OSError("nobody is there")) == "", "which says nothing about trust"
        assert trust.failed(ConnectionResetError()).startswith("the NATS server offers no TLS")
        trust.restored()


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (
            "TLSV13_ALERT_CERTIFICATE_REQUIRED",
            "refuses this client's certificate (none): certificate required; expected",
        ),
        ("WRONG_VERSION_NUMBER", ""),
        (None, ""),
    ],
)
def test_an_alert_is_the_servers_word(reason: str | None, said: str) -> None:
    error = ssl.SSLError(1, "as the library has it")
    error.reason = reason  # type: ignore[assignment]
    told = Trust(used=True).failed(error)
    assert said in told
    assert bool(told) is bool(said)


def test_servers_that_hang_up_time_and_again_refuse_the_certificate() -> None:
    """The alert that said so was lost. Without TLS a server that hangs up is only one that hangs up."""
    trust, plain = Trust(2, certificate_file="own.pem", used=True), Trust(2)
    ends = [ConnectionResetError(), BrokenPipeError()] * HANG_UPS
    assert [trust.failed(end) for end in ends[:-1]] == [""] * (2 * HANG_UPS - 1)
    assert trust.failed(TimeoutError()) == ""
    assert "certificate (own.pem): it hangs up behind the handshake" in trust.failed(ends[-1])
    assert {plain.failed(end) for end in ends} == {""}


PATIENCE_OF_ASYNCIO_S = 30.0
"""With a TLS connection whose other end does not say goodbye."""


async def test_a_server_that_hangs_does_not_keep_a_client_from_the_others(files: Files, tmp_path: Path) -> None:
    paths = TlsFiles(Path(files.ca), *map(Path, files.good))
    with ServerCluster(tmp_path, size=2, tls=paths) as servers:
        connection = await Connection(servers.url).connect(ca_file=files.ca)
        for server in servers.servers.values():
            if server.url.endswith(f":{connection.client.connected_url.port}"):  # type: ignore[union-attr]
                server.pause()
        generation = connection.generation
        bound_s = PATIENCE_OF_ASYNCIO_S / 2
        await until(lambda: connection.generation > generation, "the connection to the other one", bound_s)
        await connection.close()


@pytest.mark.parametrize("messages", [0, 2])
async def test_a_server_that_hangs_does_not_keep_a_client_from_leaving(
    files: Files, tmp_path: Path, messages: int
) -> None:
    with EmbeddedServer(tmp_path, extra=files.server(files.good)) as server:
        connection = await Connection(server.url).connect(ca_file=files.ca)
        server.pause()
        for _ in range(messages):
            await connection.client.publish("large", bytes(6_000_000))
            await asyncio.sleep(0.1)  # on its way: the buffers fill up
        await connection.client.publish("large", bytes(100))
        async with asyncio.timeout(PATIENCE_OF_ASYNCIO_S / 2):
            await connection.close()


async def test_who_is_cancelled_while_a_connection_ends_leaves_the_others_waiting(files: Files, tmp_path: Path) -> None:
    """nats-py cancels its reconnecting task, which waits for the end, and then waits for the same end itself."""
    with EmbeddedServer(tmp_path, extra=files.server(files.good)) as server:
        connection = await Connection(server.url).connect(ca_file=files.ca)
        transport = connection.client._transport
        assert transport is not None
        server.pause()
        transport.close()
        first = asyncio.create_task(transport.wait_closed())
        await asyncio.sleep(0)
        first.cancel()
        await transport.wait_closed()
        await connection.close()
