"""What is told of a server that cannot be reached: logs keep it, and people read it."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from deploy.e2e.processes import free_port
from services.federator.backends import Silent
from services.federator.backends.credentials import Secret
from services.federator.backends.openpai import OpenPai
from services.kubernetes.access import Access
from services.kubernetes.errors import Unreachable
from services.kubernetes.transport import Transport
from tests.kubernetes import certificates


async def reason(url: str) -> str:
    async with Transport(Access(base_url=url, ssl_context=ssl.create_default_context)) as transport:
        with pytest.raises(Unreachable) as found:
            await transport.send("list nodes", "GET", "/api/v1/nodes")
        assert not found.value.sent
        return found.value.message


async def test_a_server_that_hangs_up_in_the_handshake() -> None:
    """As it was: ``ssl:<ssl.SSLContext object at 0x7fa40f79c170> [None]``, another address in each event."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        said = await reason(f"https://127.0.0.1:{port}")
    assert said.startswith(f"cannot connect to 127.0.0.1:{port}: ")
    assert "Connection" in said.partition(f"{port}: ")[2]
    assert "0x" not in said


async def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    assert (await reason(f"https://127.0.0.1:{port}")).startswith(f"cannot connect to 127.0.0.1:{port}: [Errno 111] ")
    monkeypatch.setenv("TOKEN", "secret")
    backend = OpenPai(f"https://127.0.0.1:{port}", "alice", Secret(variable="TOKEN"), read_attempts=1)
    try:
        silent = await backend.observe()
    finally:
        await backend.close()
    assert isinstance(silent, Silent)
    assert silent.reason.startswith(f"ClientConnectorError: cannot connect to 127.0.0.1:{port}: [Errno 111] ")


async def test_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "both.pem").write_text(certificates.CERTIFICATE + certificates.KEY)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(tmp_path / "both.pem")
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=serving) as server:
        said = await reason(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert "certificate verify failed" in said
    assert "0x" not in said
