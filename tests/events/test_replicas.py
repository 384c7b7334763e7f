"""Three replicas: an answer may be lost in more ways, and a publish may still be under way when it is tried again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from events.jetstream import JetStreamLog
from events.lease import Lease
from events.server import EmbeddedServer
from tests.events.writing import append_through
from tests.waiting import until

REPLICAS = 3


def free_ports(count: int) -> list[int]:
    with ExitStack() as open_together:
        sockets = [open_together.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listening.getsockname()[1] for listening in sockets]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, EmbeddedServer]]:
    """Three servers of one NATS cluster, by name."""
    ports = free_ports(REPLICAS)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    with ExitStack() as running:
        servers = {}
        for name, port in zip(("one", "two", "three"), ports, strict=True):
            extra = f'server_name: {name}\ncluster {{ name: all, listen: "127.0.0.1:{port}", routes: [{routes}] }}'
            servers[name] = running.enter_context(EmbeddedServer(tmp_path / name, extra=extra))
        yield servers


async def leader(log: JetStreamLog) -> str:
    answer = msgspec.json.decode(await log._patiently(f"STREAM.INFO.{log.stream}"))
    return str(answer["cluster"]["leader"])


async def test_a_leader_that_dies_loses_and_repeats_nothing(servers: dict[str, EmbeddedServer], cluster: str) -> None:
    total = 400
    url = ",".join(server.url for server in servers.values())
    writer = await JetStreamLog.open(url, cluster, replicas=REPLICAS)
    reader = await JetStreamLog.open(url, cluster)

    async def crash(written: list[int]) -> None:
        await until(lambda: len(written) >= total // 3)
        killed = servers[await leader(writer)]
        killed.kill()
        await until(lambda: len(written) >= 2 * total // 3)
        killed.start()

    await append_through(writer, reader, total, crash)
    async with Lease(writer.connection, cluster, "binder", "me", replicas=REPLICAS) as held:
        assert not held.lost.is_set()
    await writer.close()
    await reader.close()
