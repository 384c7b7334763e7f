"""A log for the commands to look at, a NATS server to keep it in, and services over it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from events.homes import open_log
from events.server import EmbeddedServer
from services.cli.muster import app
from services.console.processes import stop
from services.console.verify import verify
from services.simulator.cluster import SimulatedCluster
from tests.console.manifests import node, pod
from tests.console.muster import CLUSTER, Muster

runner = CliRunner()


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[str]:
    with EmbeddedServer(tmp_path / "nats") as running:
        yield running.url


@pytest.fixture
def urls(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A server's own URL, and that of its websockets."""
    with EmbeddedServer(tmp_path, extra="websocket { host: 127.0.0.1, port: -1, no_tls: true }") as server:
        (ports,) = tmp_path.glob("*.ports")
        (websocket,) = json.loads(ports.read_text())["websocket"]
        yield server.url, websocket


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log that `simulate` left behind."""
    manifests = tmp_path / "all.json"
    manifests.write_text("\n---\n".join(map(json.dumps, [node("n1"), pod("a"), pod("b", "99")])))
    path = tmp_path / "log.db"
    said = runner.invoke(app, ["simulate", "-f", str(manifests), "--log", str(path), "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["bound"] == {"default/a": "n1"}
    return path


@pytest.fixture
async def muster(nats: str, tmp_path: Path) -> AsyncIterator[Muster]:
    async with SimulatedCluster() as cluster:
        for i in range(4):
            cluster.create(node(f"n{i}"))
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        log = await open_log(nats, CLUSTER, create=True)
        services = Muster(nats, log, cluster, tmp_path)
        following = asyncio.create_task(services.follow())
        try:
            yield services
        finally:
            stop(services.children)
            following.cancel()
            await asyncio.wait({following})
            report = await verify(log)
            await log.close()
            assert report.verified, report.difference or report.violation
