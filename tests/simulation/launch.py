"""A process's whole life: its connections, its service, as `services.console.launch` puts them together."""

from __future__ import annotations

from collections.abc import Coroutine
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
from tests.simulation.kube import ApiServer
from tests.simulation.leases import Holding, Seat
from tests.simulation.processes import Process
from tests.simulation.told import OURS
from tests.simulation.wire import SimulatedClient

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

    def __init__(self, kube: ApiServer, leases: Holding, clock: Clock) -> None:
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
        match process.slot:
            case "snapshot":
                return msgspec.json.encode(await take(log))
            case "verify":
                return await verify(log)
            case "retention":
                await retention.retain(log, self.archive, days=1, now_ns=retain_at_ns(self._clock))
                return None
        async with self._leases.seat(process, log) as seat:
            if process.slot == "ingest":
                await seat.turn()
            await seat.hold(self._service(process, log, seat))
        return None

    def _service(self, process: Process, log: JetStreamLog, seat: Seat) -> Coroutine[Any, Any, None]:
        role, _, shard = process.slot.partition(".")
        client, holder = SimulatedClient(self._kube, process), process.name
        match role:
            case "planner":
                return planner.run(log, shard=shard, holder=holder, turn=seat.turn, stop=process.told_to_stop)
            case "ingest":
                return ingest.run(log, client, holder=holder, scheduler_names=process.names)
        taking = Taking(self.snapshot_after_bytes, {})
        return binder.run(
            log, client, holder=holder, turn=seat.turn, leases=seat.eye, concurrency=CONCURRENCY, snapshots=taking
        )
