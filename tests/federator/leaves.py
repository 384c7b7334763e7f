"""A federation's server and clusters' own, joined by leaf nodes: real nats-servers, the permissions that are generated.

Each cluster is a simulated Kubernetes cluster with an ingest of its own that writes into the log on its own server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

from events import permissions, subjects
from events.connection import Connection
from events.jetstream import JetStreamLog
from events.lease import Lease
from events.server import EmbeddedServer, reserve_port
from services.ingest import service as ingest
from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.simulator.cluster import SimulatedCluster
from tests.manifests import node


class Hub:
    """The federation's server, to which clusters of these names may connect."""

    def __init__(self, directory: Path, leaves: list[str]) -> None:
        self.reserved = reserve_port()
        self.port = self.reserved.getsockname()[1]
        self.passwords = {user: f"of-{user}" for user in permissions.users(leaves=leaves)}
        text = permissions.configuration("hub", self.passwords, leaves=leaves)
        self.leaf_text = f'leafnodes {{ listen: "127.0.0.1:{self.port}" }}\n'
        extra = "server_name: hub\n" + self.leaf_text + text
        self.server = EmbeddedServer(directory / "hub", extra=extra, jetstream="domain: muster-hub")

    def __enter__(self) -> Hub:
        self.server.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.stop()
        self.reserved.close()

    async def connect(self, user: str = permissions.FEDERATOR) -> Connection:
        """Answers come to the federator's inbox, whoever it is: over a leaf node there is no other."""
        return await Connection(self.server.url).connect(
            user=user, password=self.passwords[user], inbox_prefix="_INBOX_federator"
        )

    async def federation_log(self) -> JetStreamLog:
        return await JetStreamLog.open(
            self.server.url, subjects.FEDERATION, user=permissions.FEDERATOR, password=self.passwords["federator"]
        )


class LeafCluster:
    """A cluster with a log of its own, and the leaf node that brings it to the hub."""

    def __init__(self, directory: Path, name: str, hub: Hub) -> None:
        self.name, self.domain = name, permissions.leaf_domain(name)
        self.passwords = {user: f"of-{user}" for user in permissions.users()}
        account = permissions.leaf_account_name(name)
        url = f"nats-leaf://{permissions.leaf_user(name)}:{hub.passwords[permissions.leaf_user(name)]}@127.0.0.1:{hub.port}"
        self.joined = f"leafnodes {{ reconnect: 1, remotes: [ {{ url: {json.dumps(url)}, account: {account} }} ] }}\n"
        self.accounts = f"server_name: {name}\n" + permissions.configuration(name, self.passwords, is_leaf=True)
        self.server = EmbeddedServer(
            directory / name, extra=self.joined + self.accounts, jetstream=f"domain: muster-{name}"
        )
        self.kubernetes = SimulatedCluster()
        self._lease: Lease | None = None
        self._ingest: asyncio.Task[None] | None = None
        self._log: JetStreamLog | None = None

    async def __aenter__(self) -> LeafCluster:
        self.server.start()
        await self.kubernetes.__aenter__()
        self.kubernetes.create(node("n1", cpu="1000", memory="1000Gi", pods="1000"))
        await self.start_ingest()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_ingest()
        await self.kubernetes.__aexit__(None, None, None)
        self.server.stop()

    async def start_ingest(self) -> None:
        """As the process does it: its lease, then its subject."""
        log = self._log = await JetStreamLog.open(
            self.server.url, self.name, user="ingest", password=self.passwords["ingest"]
        )
        self._lease = Lease(log.connection, self.name, "ingest", "test", 1)
        await self._lease.acquire()

        async def run() -> None:
            async with Client(direct(self.kubernetes.url)) as client:
                await ingest.run(log, client, holder="test", discovery_s=60.0)

        self._ingest = asyncio.create_task(run())

    async def stop_ingest(self) -> None:
        if self._ingest is None or self._lease is None or self._log is None:
            return
        self._ingest.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._ingest
        await self._lease.release()
        await self._log.close()
        self._ingest = None

    def cut(self) -> None:
        """The leaf node is gone; the cluster and its log go on."""
        self._restart(self.accounts)

    def join(self) -> None:
        self._restart(self.joined + self.accounts)

    def _restart(self, extra: str) -> None:
        self.server.stop()
        self.server.extra = extra
        self.server.start()

    def bind(self, job: str) -> None:
        """All pods of the Job get a node, and run."""
        for pod in self.pods(job):
            self.kubernetes.bind(pod["metadata"]["name"], "n1")

    def end(self, job: str, phase: str) -> None:
        for pod in self.pods(job):
            self.kubernetes.patch("Pod", pod["metadata"]["name"], {"status": {"phase": phase}}, subresource="status")

    def pods(self, job: str) -> list[dict[str, Any]]:
        return [pod for pod in self.kubernetes.list("Pod") if pod["metadata"]["name"].startswith(f"{job}-")]
