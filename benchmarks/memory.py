"""What a planner's state costs in memory, folded from a log.

    python -m benchmarks.memory [--nodes 5000 …] [--plot docs/memory.svg]

For each point the log of `benchmarks.snapshots` (twenty pods for each node, half of them in gangs of 20, nine tenths
bound, the rest refused for room) is made by one process, commit by commit as bytes, and decoded and folded by another, as
a planner does that has no snapshot to start from. Then that one plans a cycle over what was refused. *folded* is its
resident memory when the log is read, *planned* the most that it ever had, *bare* what it had before.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import events as ev
from benchmarks.arguments import new_file, some
from benchmarks.plot import Panel, Series, write
from benchmarks.snapshots import ASKED, CLUSTER, MB, PODS_PER_NODE, Cluster, told
from events import envelope, subjects
from events.envelope import Header, Stored
from events.policy import DEFAULT_POLICY
from services.planner.core import Cycle
from services.state.fold import State
from services.state.slices import at_once

NODES = (1_000, 5_000, 10_000)
LENGTHS = struct.Struct("<III")


class Written(Cluster):
    """A cluster whose log goes out as bytes."""

    def __init__(self, nodes: int, out: IO[bytes]) -> None:
        self.out = out
        super().__init__(nodes)

    def append(self, writer: str, events: list[ev.Event], cause: str) -> None:
        state = self.state
        header = Header(writer=writer, epoch=state.epoch, basis=state.sequence, time_ns=0, cause=cause)
        parts = (writer.encode(), envelope.encode_header(header), envelope.encode_events(events))
        self.out.write(LENGTHS.pack(*map(len, parts)) + b"".join(parts))
        super().append(writer, events, cause)


def read(source: IO[bytes]) -> Iterator[Stored]:
    sequence = 0
    while lengths := source.read(LENGTHS.size):
        writer, header, payload = (source.read(length) for length in LENGTHS.unpack(lengths))
        sequence += 1
        yield Stored(
            sequence=sequence,
            subject=subjects.subject(CLUSTER, writer.decode()),
            message_id="",
            header=header,
            payload=payload,
        )


def build(nodes: int) -> None:
    """The log, to stdout."""
    out = os.fdopen(1, "wb", buffering=1 << 20)
    Written(nodes, out).populate(nodes * PODS_PER_NODE)
    out.flush()


def fold() -> dict[str, Any]:
    """The log, from stdin."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # as `services.console.launch` has it
    bare_mb = resident_mb()
    state, began_s = State(), time.process_time()
    size = events = 0
    for stored in read(sys.stdin.buffer):
        commit = state.apply_stored(stored)
        size += len(stored.header) + len(stored.payload)
        events += len(commit.events) if commit is not None else 0
    took_s = time.process_time() - began_s
    folded_mb = resident_mb()
    said = plan(state)
    return {
        "nodes": len(state.nodes),
        "pods": len(state.pods),
        "bound": sum(pod.status == "bound" for pod in state.pods.values()),
        "events": events,
        "log_mb": round(size / MB),
        "fold_cpu_s": round(took_s, 1),
        "said": said,
        "bare_mb": bare_mb,
        "folded_mb": folded_mb,
        "planned_mb": resident_mb("VmHWM"),
        "bytes_a_pod": round((folded_mb - bare_mb) * MB / len(state.pods)),
    }


def plan(state: State) -> int:
    """A cycle over groups that were refused; so many events come of it."""
    refused = [state.groups[key] for cohort in state.cohorts.values() for key in cohort.groups]
    cycle = Cycle(state, DEFAULT_POLICY, "0")
    for batch in cycle.batches(refused[: DEFAULT_POLICY.cycle_pods]):
        at_once(cycle.plan(batch))
    return len(cycle.events())


def resident_mb(what: str = "VmRSS") -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return round(int(line.split()[1]) * 1024 / MB)
    raise RuntimeError(f"/proc/self/status has no {what}")


def point(nodes: int) -> dict[str, Any]:
    this = [sys.executable, "-m", "benchmarks.memory"]
    building = subprocess.Popen([*this, "--build", str(nodes)], stdout=subprocess.PIPE)
    folding = subprocess.run([*this, "--fold"], stdin=building.stdout, check=True, capture_output=True)
    if building.wait():
        raise RuntimeError(f"whoever made the log ended with {building.returncode}")
    found: dict[str, Any] = json.loads(folding.stdout)
    return found


def panel(points: list[dict[str, Any]]) -> Panel:
    pods = [found["pods"] for found in points]
    return Panel(
        "Memory of a planner that folded the log",
        "MB",
        [Series("at most", pods, [found["planned_mb"] for found in points])],
        (ASKED["nodes"] * PODS_PER_NODE, ASKED["planner_mb"], "asked: 400 MB"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory of a planner's state.")
    parser.add_argument("--nodes", type=some, nargs="+", default=NODES)
    parser.add_argument("--plot", type=new_file)
    parser.add_argument("--build", type=some, help=argparse.SUPPRESS)
    parser.add_argument("--fold", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.build:
        build(asked.build)
        return
    if asked.fold:
        print(json.dumps(fold()))
        return
    points = told(point, asked.nodes)
    if asked.plot:
        write(asked.plot, [panel(points)], "pods; a node for each twenty")


if __name__ == "__main__":
    main()
