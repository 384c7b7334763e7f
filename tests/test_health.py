"""Probes: what they answer, and that nothing that is sent to the port does harm."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from deploy.e2e.processes import free_port
from services.health import Health

LOOPBACK = "127.0.0.1"


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(request)
    writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()


async def status(port: int, path: str) -> bytes:
    return (await ask(port, f"GET {path} HTTP/1.1\r\nHost: probe\r\n\r\n".encode())).split(b"\r\n")[0]


async def test_a_service_is_alive_before_it_is_ready() -> None:
    health, port = Health(), free_port()
    async with health.serve(LOOPBACK, port):
        assert await status(port, "/healthz") == b"HTTP/1.1 200 OK"
        assert await status(port, "/readyz") == b"HTTP/1.1 503 Service Unavailable"
        health.ready = True
        assert await status(port, "/readyz?verbose=1") == b"HTTP/1.1 200 OK"
        answer = await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")
        assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "no keep-alive, no body"
        for path in ("/metrics", "/", "/healthz/", "/\xff"):
            assert await status(port, path) == b"HTTP/1.1 404 Not Found"


@pytest.mark.parametrize("garbage", [b"", b"\r\n\r\n", b"GET\r\n\r\n", b"\xff" * 100_000, b"GET /healthz HTTP/1.1\r\n"])
async def test_garbage_is_not_answered_and_costs_only_its_own_connection(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    health, port = Health(), free_port()
    async with health.serve(LOOPBACK, port):
        try:
            answer = await ask(port, garbage)
        except ConnectionError:
            answer = b""
        assert b"200" not in answer
        assert await status(port, "/healthz") == b"HTTP/1.1 200 OK"
    assert not caplog.records


async def test_who_asks_and_goes_or_says_nothing_is_not_told_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    health, port = Health(), free_port()
    async with health.serve(LOOPBACK, port):
        with monkeypatch.context() as patched:
            patched.setattr("services.health.REQUEST_WITHIN_S", 0)
            silent, _ = await asyncio.open_connection(LOOPBACK, port)
            assert await silent.read() == b"", "its time is over"
        _, gone = await asyncio.open_connection(LOOPBACK, port)
        gone.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.write(b"GET ")
        gone.transport.abort()  # with that option: a reset
        assert await status(port, "/healthz") == b"HTTP/1.1 200 OK"
    assert not caplog.records


async def test_without_a_port_nobody_listens_and_a_taken_port_is_an_error() -> None:
    async with Health().serve("nobody asks for this host..", 0):
        pass
    port = free_port()
    async with Health().serve(LOOPBACK, port):
        with pytest.raises(OSError, match=f"MUSTER_HEALTH_PORT: .*{port}"):
            async with Health().serve(LOOPBACK, port):
                pass


async def test_a_host_that_is_none_is_named() -> None:
    """As it was: a traceback of the IDNA codec."""
    with pytest.raises(
        OSError, match=r"^MUSTER_HEALTH_HOST, MUSTER_HEALTH_PORT: probes cannot be answered at a\.\.b:\d+: "
    ):
        async with Health().serve("a..b", free_port()):
            pass
