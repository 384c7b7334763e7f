"""Services as processes, each as its own user: snapshots are taken, the log is archived and purged, all start again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import events as ev
from events import permissions
from events.envelope import decode
from events.homes import open_log
from events.log import EventLog
from events.server import EmbeddedServer
from services.console.retention import DAY_NS, retain
from services.console.verify import verify
from services.simulator.cluster import SimulatedCluster
from services.start import state_at
from services.state import snapshot
from tests.console.manifests import node, pod
from tests.waiting import until

CLUSTER = "purged"


class Services:
    """ingest, planner and binder over one server, and what binds pods through them."""

    def __init__(self, server: EmbeddedServer, cluster: SimulatedCluster, directory: Path) -> None:
        self.server, self.cluster, self.directory = server, cluster, directory
        self.made = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        children = [self._start(role) for role in ("ingest", "planner", "binder")]
        try:
            yield
        finally:
            for child in reversed(children):
                child.send_signal(signal.SIGTERM)
            codes = [await asyncio.to_thread(child.wait, 60) for child in children]
        assert codes == [0, 0, 0]

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        settings = {
            "NATS_URL": self.server.url,
            "NATS_USER": role,
            "NATS_PASSWORD": f"of {role}",
            "CLUSTER": CLUSTER,
            "KUBECONFIG": str(self.directory / "kubeconfig"),
            "SNAPSHOT_AFTER_BYTES": "3000",
        }
        environment = {**os.environ, **{f"MUSTER_{name}": value for name, value in settings.items()}}
        with (self.directory / f"{role}.log").open("ab") as said:
            return subprocess.Popen([sys.executable, "-m", "services", role], env=environment, stderr=said)

    async def bind(self, pods: int) -> None:
        for _ in range(pods):
            self.made += 1
            made = pod(f"p{self.made}")
            made["spec"]["schedulerName"] = "muster"
            self.cluster.create(made)
            await until(lambda: self.cluster.get("Pod", f"p{self.made}")["spec"].get("nodeName"), "a binding")

    async def opened(self, user: str) -> EventLog:
        return await open_log(self.server.url, CLUSTER, create=user == "binder", user=user, password=f"of {user}")


async def snapshots_in(log: EventLog, number: int) -> None:
    """Waits until the log confirms so many."""
    found = 0
    async with asyncio.timeout(60), aclosing(log.follow()) as batches:  # type: ignore[type-var]
        async for batch in batches:
            for stored in batch:
                found += sum(isinstance(event, ev.SnapshotTaken) for event in decode(stored).events)
            if found >= number:
                return


def told(directory: Path) -> str:
    return "".join(path.read_text() for path in directory.glob("*.log"))


async def test_a_log_that_was_purged_goes_on(own_server: EmbeddedServer, tmp_path: Path) -> None:
    own_server.stop()
    passwords = {user: f"of {user}" for user in permissions.users()}
    own_server.extra = permissions.configuration(CLUSTER, passwords)
    own_server.start()
    async with SimulatedCluster() as cluster:
        cluster.create(node("n1", "64"))
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        services = Services(own_server, cluster, tmp_path)
        reader, keeper = await services.opened("binder"), await services.opened("keeper")
        async with services.running():
            for number in (1, 2, 3):
                await services.bind(8)
                await snapshots_in(reader, number)
        archive = await open_log(str(tmp_path / "archive.db"), CLUSTER, create=True)
        found = await retain(keeper, archive, days=1, now_ns=time.time_ns() + 2 * DAY_NS)
        assert found.purged > 0, found.because
        async with services.running():
            await services.bind(5)
        left = await verify(reader)
        assert left.verified, left.difference or left.violation or left.why_unverifiable
        assert left.start == found.first - 1
        await retain(keeper, archive, days=0, now_ns=time.time_ns())
        whole = await verify(archive)
        assert whole.verified, whole.difference or whole.violation
        assert (whole.start, whole.digest) == (0, left.digest)
        assert whole.snapshots >= 3
        assert snapshot.digest((await state_at(reader)).state) == left.digest
        for log in (reader, keeper, archive):
            await log.close()
    assert "is left out" not in told(tmp_path)
