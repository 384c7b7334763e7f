"""Planner shards as processes, decisions a second and conflicts by number: ``python -m benchmarks.shard_processes``.

The embedded nats-server holds a log of nodes and waiting gangs of 20, as ingest would have written it. So many ``muster
planner`` start on it, each a shard with a lease of its own, and fold; when all of them have joined, the binder's core
starts in this process, without effects on any cluster, and shares the partitions out. From that commit until the last
permit is what is measured, by the binder's clock. A *conflict* is a proposal that the binder refused; a *decision* is a
proposal or a verdict. *planned* is per second of the CPU of the shard that needed most of it, its fold of everybody's
commits included: what so many shards would plan on a core each. By the clock all processes share this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import events as ev
from benchmarks import planning
from benchmarks.arguments import at_least, some
from benchmarks.opening import BLOCK, opening
from events import envelope, subjects
from events.envelope import Commit, Header
from events.homes import copy, open_log
from events.log import EventLog
from events.memory import MemoryLog
from events.server import EmbeddedServer
from services.binder import core
from services.console.processes import Child, stop
from services.decider import Decider
from services.writer import Writer

CLUSTER = "bench"
GANG = 20
SLOTS = 8
"""GPUs of a node; every pod asks for one. With 40,000 pods, 5,000 nodes are full in the end."""
WITHIN_S = 300.0


def recorded(nodes: int, pods: int) -> MemoryLog:
    """What is there before anybody decides."""
    log = MemoryLog(CLUSTER)
    facts = planning.gangs(pods, GANG)
    blocks = iter(lambda: list(itertools.islice(facts, BLOCK)), [])
    begun = [one for one in opening([planning._node(i) for i in range(nodes)], shards=()) if one[0] != "binder"]
    for writer, said, cause in (*begun, *(("ingest", block, "facts") for block in blocks)):
        subject = subjects.subject(CLUSTER, writer)
        header = Header(writer=writer, epoch=0, basis=len(log.commits), time_ns=0, cause=cause)
        log.append_now(subject, header, envelope.encode_events(said), log._last.get(subject, 0))
    return log


class Measured:
    """What the binder's core folds, from the commit on by which the shards have their partitions."""

    def __init__(self, pods: int, planners: list[Child]) -> None:
        self.done = asyncio.Event()
        self.counted: Counter[str] = Counter()
        self._wanted, self._planners = pods, planners
        self._began_ns = self._ended_ns = 0
        self._cpu_s: list[float] = []

    def fold(self, commit: Commit) -> None:
        for event in commit.events:
            if isinstance(event, ev.PartitionsAssigned):
                self._began_ns, self._cpu_s = commit.header.time_ns, [_cpu_s(one) for one in self._planners]
            self.counted[type(event).__name__] += 1
            if isinstance(event, ev.GangPermitted):
                self.counted["pods"] += sum(len(binding.pods) for binding in event.bindings)
                self._ended_ns = commit.header.time_ns
        if self.counted["pods"] >= self._wanted and not self.done.is_set():
            self._cpu_s = [_cpu_s(one) - before for one, before in zip(self._planners, self._cpu_s, strict=True)]
            self.done.set()

    def answer(self) -> dict[str, object]:
        seconds = (self._ended_ns - self._began_ns) / 1e9
        placed, refused, pods = (self.counted[name] for name in ("GangPlaced", "ProposalRefused", "pods"))
        decisions = placed + refused + self.counted["GangPermitted"] + self.counted["GangHeld"]
        return {
            "proposals": placed,
            "refused": refused,
            "conflict_rate": round(refused / max(placed, 1), 4),
            "seconds": round(seconds, 2),
            "decisions_per_s": round(decisions / seconds),
            "permitted_pods_per_s": round(pods / seconds),
            "planned_pods_per_cpu_s": round(pods / max(*self._cpu_s, 0.01)),
        }


def _cpu_s(child: Child) -> float:
    """Of all its threads."""
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def joined(log: EventLog, behind: int, shards: int) -> None:
    """Until so many have taken their subjects, and with that folded all that there is."""
    found = 0
    async for batch in log.follow(behind):
        found += sum(isinstance(event, ev.PlannerTaken) for stored in batch for event in envelope.decode(stored).events)
        if found >= shards:
            return


async def measure(nodes: int, pods: int, shards: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as name, EmbeddedServer(Path(name) / "nats") as server:
        log = await open_log(server.url, CLUSTER, create=True)
        behind = await copy(recorded(nodes, pods), log)
        planners = list(_started(Path(name), server.url, shards))
        measured = Measured(pods, planners)
        binder = Decider(log, Writer(log, "binder"), core.decide, applied=measured.fold)
        try:
            async with asyncio.timeout(WITHIN_S):
                await joined(log, behind, shards)
                judging = asyncio.create_task(binder.run(ev.BinderTaken(holder="bench")))
                ended = asyncio.create_task(measured.done.wait())
                await asyncio.wait((judging, ended), return_when=asyncio.FIRST_COMPLETED)
                if judging.done():
                    judging.result()
                judging.cancel()
                with suppress(asyncio.CancelledError):
                    await judging
        finally:
            stop(planners)
            await log.close()
    return {"nodes": nodes, "shards": shards, "pods": pods, **measured.answer()}


def _started(directory: Path, nats: str, shards: int) -> Iterator[Child]:
    for shard in map(str, range(shards)):
        arguments = ["services", "planner", "--nats", nats, "--cluster", CLUSTER, "--shard", shard]
        yield Child(f"planner-{shard}", arguments, directory / f"planner-{shard}.log")


def main() -> None:
    parser = argparse.ArgumentParser(description="Decisions a second and conflicts by shards, each a process.")
    parser.add_argument("--nodes", type=some, nargs="+", default=[5_000, 50_000])
    parser.add_argument("--shards", type=some, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--pods", type=at_least(GANG), nargs="+", default=[20_000, 40_000], help="in gangs of 20")
    asked = parser.parse_args()
    if max(asked.pods) > (room := SLOTS * min(asked.nodes)):
        parser.error(f"argument --pods: expected at most {room}, as {SLOTS} go onto a node, not '{max(asked.pods)}'")
    for nodes, pods, shards in itertools.product(asked.nodes, asked.pods, asked.shards):
        print(json.dumps(asyncio.run(measure(nodes, pods // GANG * GANG, shards))), flush=True)


if __name__ == "__main__":
    main()
