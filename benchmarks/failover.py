"""Failover: from kill -9 of a planner shard, and of the binder, to the next decision: ``python -m benchmarks.failover``.

The services as processes over the embedded nats-server and the simulated cluster. Gangs are made all the time, one every
50 ms, so that there is always something to decide. A *planner* is killed while two shards share the partitions: until the
first proposal for a group of a partition that it owned. The *binder* is killed while a second one stands by: until the
next permit. What is behind the kill is told by its parts, each since the kill: the lease's end is noticed (`ShardLost`,
`BinderTaken`), the next decision is appended. Asked: at most 3 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import events as ev
from benchmarks.arguments import some
from events.envelope import decode
from events.homes import open_log
from events.log import EventLog
from events.server import EmbeddedServer
from services.console.processes import Child, stop
from services.simulator.cluster import SimulatedCluster

CLUSTER = "failover"
NODES = 50
GANG, EVERY_S = 2, 0.05
LIFE_S = 3.0
"""How long a gang lives, so that there is always room."""
WITHIN_S = 60.0


class Muster:
    """The services' processes, the log that they write, and somebody who makes gangs."""

    def __init__(self, directory: Path, nats: str, log: EventLog, cluster: SimulatedCluster) -> None:
        self.directory, self.nats, self.log, self.cluster = directory, nats, log, cluster
        self.children: list[Child] = []
        self.owners: tuple[str, ...] = ()
        self.seen: list[tuple[float, ev.Event]] = []
        """(when it was read, event)."""
        self._grown = asyncio.Event()

    def start(self, role: str, *flags: str) -> Child:
        arguments = ["services", role, "--nats", self.nats, "--cluster", CLUSTER, *flags]
        if role != "planner":
            arguments += ["--kubeconfig", str(self.directory / "kubeconfig")]
        child = Child(f"{role}-{len(self.children)}", arguments, self.directory / f"{role}-{len(self.children)}.log")
        self.children.append(child)
        return child

    async def follow(self) -> None:
        async for batch in self.log.follow():
            now_s = time.monotonic()
            for stored in batch:
                for event in decode(stored).events:
                    if isinstance(event, ev.PartitionsAssigned):
                        self.owners = event.owners
                    self.seen.append((now_s, event))
            self._grown.set()

    async def next(self, wanted: Callable[[Any], bool], behind: int) -> float:
        """When the first event after the `behind`-th that is wanted was read. Raises TimeoutError."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                for when_s, event in self.seen[behind:]:
                    if wanted(event):
                        return when_s
                behind = len(self.seen)
                self._grown.clear()
                await self._grown.wait()

    async def make_gangs(self) -> None:
        living: list[tuple[float, str]] = []
        number = 0
        while True:
            number += 1
            name = f"gang-{number:05}"
            self.cluster.create(_pod_group(name))
            for member in range(GANG):
                self.cluster.create(_pod(f"{name}-{member}", name))
            living.append((time.monotonic(), name))
            while living and time.monotonic() - living[0][0] > LIFE_S:
                _, old = living.pop(0)
                for member in range(GANG):
                    with suppress(Exception):
                        self.cluster.delete("Pod", f"{old}-{member}")
                self.cluster.delete("PodGroup", old)
            await asyncio.sleep(EVERY_S)


def _pod_group(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": GANG},
    }


def _pod(name: str, gang: str) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    labels = {"scheduling.x-k8s.io/pod-group": gang}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    spec = {"schedulerName": "muster", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _node(number: int) -> dict[str, Any]:
    offered = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    metadata = {"name": f"node-{number:03}"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": offered}}


@asynccontextmanager
async def running() -> AsyncIterator[Muster]:
    """Everything but planners and binders."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with SimulatedCluster() as cluster:
            cluster.load(_node(number) for number in range(NODES))
            cluster.write_kubeconfig(directory / "kubeconfig")
            with EmbeddedServer(directory / "nats") as server:
                log = await open_log(server.url, CLUSTER, create=True)
                muster = Muster(directory, server.url, log, cluster)
                muster.start("ingest")
                tasks = [asyncio.create_task(work) for work in (muster.follow(), muster.make_gangs())]
                try:
                    yield muster
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.wait(tasks)
                    stop(muster.children)
                    await log.close()


def kill(child: Child) -> float:
    """When."""
    os.kill(child.pid, signal.SIGKILL)
    killed_s = time.monotonic()
    child.wait()
    return killed_s


async def shard_killed(muster: Muster, runs: int) -> list[dict[str, float]]:
    """One of two shards, again and again; another takes its name in between."""
    planners = {}
    muster.start("binder")
    found = []
    for _ in range(runs):
        while len(planners) < 2:
            behind = len(muster.seen)
            child = muster.start("planner", "--shard", "auto")
            await muster.next(lambda event: isinstance(event, ev.PlannerTaken), behind)
            taken = [event for _, event in muster.seen[behind:] if isinstance(event, ev.PlannerTaken)]
            planners[taken[-1].shard] = child
        if set(muster.owners) != set(planners):
            await muster.next(lambda _: set(muster.owners) == set(planners), len(muster.seen))
        await asyncio.sleep(1.0)
        shard = sorted(planners)[len(found) % 2]
        lost = {partition for partition, owner in enumerate(muster.owners) if owner == shard}
        behind = len(muster.seen)
        killed_s = kill(planners.pop(shard))
        noticed_s = await muster.next(lambda event: isinstance(event, ev.ShardLost), behind)
        while muster.seen[behind][0] < noticed_s:
            behind += 1
        decided_s = await muster.next(_proposes(lost), behind)
        found.append({"noticed_s": noticed_s - killed_s, "decided_s": decided_s - killed_s})
    return found


def _proposes(partitions: set[int]) -> Callable[[Any], bool]:
    return lambda event: isinstance(event, ev.GangPlaced) and event.partition in partitions


async def standby_takes_over(
    muster: Muster, role: str, taken: type, decision: type, runs: int
) -> list[dict[str, float]]:
    """The active one of two processes of a role, again and again; another stands by in between."""
    for other in {"planner", "binder"} - {role}:
        muster.start(other)
    behind = len(muster.seen)
    active = muster.start(role)
    await muster.next(lambda event: isinstance(event, taken), behind)
    found = []
    for _ in range(runs):
        standby = muster.start(role)
        await muster.next(lambda event: isinstance(event, decision), len(muster.seen))
        await asyncio.sleep(2.0)  # the standby has read the log
        behind = len(muster.seen)
        killed_s = kill(active)
        noticed_s = await muster.next(lambda event: isinstance(event, taken), behind)
        while muster.seen[behind][0] < noticed_s:
            behind += 1
        decided_s = await muster.next(lambda event: isinstance(event, decision), behind)
        found.append({"noticed_s": noticed_s - killed_s, "decided_s": decided_s - killed_s})
        active = standby
    return found


async def measure(what: str, runs: int) -> dict[str, object]:
    async with running() as muster:
        match what:
            case "one shard of two":
                found = await shard_killed(muster, runs)
            case "binder":
                found = await standby_takes_over(muster, "binder", ev.BinderTaken, ev.GangPermitted, runs)
            case _:
                found = await standby_takes_over(muster, "planner", ev.PlannerTaken, ev.GangPlaced, runs)
    return {
        "killed": what,
        "runs": len(found),
        **{
            f"{part}_{name}": round(take([one[part] for one in found]), 2)
            for part in ("noticed_s", "decided_s")
            for name, take in (("median", statistics.median), ("max", max))
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="From kill -9 to the next decision.")
    parser.add_argument("--runs", type=some, default=10)
    asked = parser.parse_args()
    for what in ("one shard of two", "the only shard, with a standby", "binder"):
        print(json.dumps(asyncio.run(measure(what, asked.runs))), flush=True)


if __name__ == "__main__":
    main()
