"""Muster's services as processes over a real NATS server and a simulated cluster, and what they write into its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import events as ev
from events.envelope import decode
from events.log import EventLog
from services.console.processes import Child
from services.simulator.cluster import SimulatedCluster
from tests.console.manifests import pod
from tests.waiting import until

CLUSTER = "simulated"


class Muster:
    """Processes of Muster over one log, which this follows."""

    def __init__(self, nats: str, log: EventLog, cluster: SimulatedCluster, directory: Path) -> None:
        self.nats, self.log, self.cluster, self.directory = nats, log, cluster, directory
        self.children: list[Child] = []
        self.lease_s = 2
        self.commits: list[tuple[str, ev.Event]] = []
        """(writer, event), in the log's order."""
        self._pods = 0

    def start(self, role: str, *flags: str) -> Child:
        where = ["--nats", self.nats, "--cluster", CLUSTER]
        access = [] if role == "planner" else ["--kubeconfig", str(self.directory / "kubeconfig")]
        name = f"{role}-{len(self.children)}"
        lease = {"MUSTER_LEASE_S": str(self.lease_s)}
        child = Child(name, ["services", role, *where, *access, *flags], self.directory / f"{name}.log", lease)
        self.children.append(child)
        return child

    async def follow(self) -> None:
        async for batch in self.log.follow():
            for stored in batch:
                commit = decode(stored)
                self.commits += [(commit.header.writer, event) for event in commit.events]

    def said(self, kind: type) -> list[Any]:
        return [event for _, event in self.commits if isinstance(event, kind)]

    async def taken(self, kind: type, times: int) -> str:
        """Wait until a role was taken so often; by whom last."""
        await until(lambda: len(self.said(kind)) >= times, f"{kind.__name__} {times}")
        return str(self.said(kind)[-1].holder)

    async def bind_one_more(self) -> None:
        """A pod that is made now is bound: every role is at work."""
        self._pods += 1
        name = f"p{self._pods}"
        made = pod(name)
        made["spec"]["schedulerName"] = "muster"
        self.cluster.create(made)
        await until(lambda: self.cluster.get("Pod", name)["spec"].get("nodeName"), f"{name} to be bound")
