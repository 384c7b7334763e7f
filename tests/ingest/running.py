"""An ingest that runs against the simulated cluster, and what it has said."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from events import (
    ClusterSynced,
    Event,
    envelope,
)
from events.log import EventLog
from services.ingest import service
from services.ingest.differ import Ingest
from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.simulator.cluster import SimulatedCluster
from tests.waiting import until


class Running:
    """An ingest with the log that it writes, read back."""

    def __init__(self, log: EventLog, url: str) -> None:
        self.log = log
        self.events: list[Event] = []
        self.state = Ingest(["muster"])
        self._reading = asyncio.create_task(self._read())
        self.task = asyncio.create_task(self._run(url))

    async def _run(self, url: str) -> None:
        async with Client(direct(url)) as client:
            await service.run(self.log, client, holder="test", discovery_s=0.02)

    async def _read(self) -> None:
        async for batch in self.log.follow():
            for stored in batch:
                for event in envelope.decode(stored).events:
                    self.events.append(event)
                    self.state.fold(event)

    def seen(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def says(self, condition: Callable[[], object], what: str = "the log to say so") -> None:
        """Waits for what the log says; raises what ended the ingest, if that came first."""
        await until(lambda: condition() or self.task.done(), what)
        if self.task.done():
            self.task.result()
        assert condition(), what

    async def synced(self, times: int = 1) -> None:
        await self.says(lambda: len(self.seen(ClusterSynced)) >= times, "ClusterSynced")

    async def end(self) -> None:
        self.task.cancel()
        self._reading.cancel()
        await asyncio.gather(self.task, self._reading, return_exceptions=True)

    def agrees_with(self, cluster: SimulatedCluster) -> bool:
        """Whether the log's pods and nodes are the cluster's."""
        pods = {
            (each["metadata"]["name"], each["metadata"]["uid"], each["spec"].get("nodeName", ""))
            for each in cluster.list("Pod")
            if each["status"].get("phase") not in ("Succeeded", "Failed")
        }
        nodes = {each["metadata"]["name"] for each in cluster.list("Node")}
        unfinished = [each for each in self.state.pods.values() if each.status not in ("succeeded", "failed")]
        return pods == {(each.name, each.uid, each.node) for each in unfinished} and nodes == {
            name for _, name in self.state.named["Node"]
        }


@contextlib.asynccontextmanager
async def ingesting(log: EventLog, cluster: SimulatedCluster) -> AsyncIterator[Running]:
    running = Running(log, cluster.url)
    try:
        await running.synced()
        yield running
    finally:
        await running.end()
