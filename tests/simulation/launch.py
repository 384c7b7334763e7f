"""A process's whole life: its connections, its service, as `services.console.launch` puts them together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from events.jetstream import JetStreamLog
from events.sqlite import SqliteLog
from services.binder import service as binder
from services.console import retention
from services.console.verify import verify
from services.ingest import service as ingest
from services.planner import service as planner
from services.snapshots import Taking, take
from tests.simulation.clock import Clock
from tests.simulation.kube import ApiServer, SimulatedClient
from tests.simulation.leases import Eye, Leases
from tests.simulation.processes import Process
from tests.simulation.told import OURS

CLUSTER = "simulated"
CONCURRENCY = 4
SNAPSHOT_AFTER_BYTES, WHERE_PURGED = 20 * 1024, 14 * 1024
"""Some dozens of commits; fewer in a log that is purged behind them."""
KEPT_FOR_S = 15.0
"""What is older than this a run of the retention may purge: more than a writer's time to renew, as in earnest."""


def retain_at_ns(clock: Clock) -> int:
    """A moment at which what is as old as that is a day old."""
    return clock.time_ns() + retention.DAY_NS - round(KEPT_FOR_S * 1e9)


class Launch:
    """Called with a process, it is that process's main task."""

    def __init__(self, kube: ApiServer, leases: Leases, clock: Clock) -> None:
        self._kube, self._leases, self._clock = kube, leases, clock
        self.snapshot_after_bytes = SNAPSHOT_AFTER_BYTES
        self.names = OURS
        """Of the schedulers whose pods are candidates, for an ingest that is started from now on."""
        self.archive: SqliteLog | None = None
        """Where the retention keeps what it purges."""

    async def __call__(self, process: Process) -> Any:
        process.names = self.names
        log = process.log = JetStreamLog(await process.link.open(), CLUSTER)
        try:
            return await self._serve(process, log)
        finally:
            await log.close()

    async def _serve(self, process: Process, log: JetStreamLog) -> Any:
        role, _, shard = process.slot.partition(".")
        client, holder, turn = SimulatedClient(self._kube, process), process.name, self._turn(process)
        match role:
            case "planner":
                await planner.run(log, shard=shard, holder=holder, turn=turn, stop=process.told_to_stop)
            case "ingest":
                await turn()
                await ingest.run(log, client, holder=holder, scheduler_names=process.names)
            case "binder":
                leases: Any = Eye(self._leases, process)
                taking = Taking(self.snapshot_after_bytes, {})
                await binder.run(
                    log, client, holder=holder, turn=turn, leases=leases, concurrency=CONCURRENCY, snapshots=taking
                )
            case "snapshot":
                return msgspec.json.encode(await take(log))
            case "verify":
                return await verify(log)
            case "retention":
                await retention.retain(log, self.archive, days=1, now_ns=retain_at_ns(self._clock))
        return None

    def _turn(self, process: Process) -> Callable[[], Awaitable[None]]:
        async def turn() -> None:
            if self._leases.holders.get(process.slot) is not process:
                await self._leases.acquire(process)

        return turn
