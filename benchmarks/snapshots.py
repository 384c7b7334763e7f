"""Snapshots of large states: taking them, their size, starting from one, a planner's memory.

    python -m benchmarks.snapshots [--nodes 5000 …] [--plot docs/snapshots.svg]

For each point a state is made by the real cores: twenty pods for each node, half of them in gangs of 20, nine tenths
bound (observed, placed, permitted, bound, assigned), the rest refused for room. Its snapshot is put into the object store
of an embedded NATS server, and behind it as much log as there may be before the binder has the next one taken: the log of
a cluster that has run for a year, purged. Then ``muster planner`` starts there, and ``muster snapshot`` takes the next
one, each as a process: from its start to its first commit, or its end, by the wall clock, and the most memory it had.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

import events as ev
from benchmarks.arguments import new_file, some
from benchmarks.opening import BLOCK, opening
from benchmarks.plot import Panel, Series, write
from events import envelope, subjects
from events.envelope import FIRST_VERSION, Header, Stored
from events.jetstream import JetStreamLog
from events.objects import Declaration, Membership
from events.server import EmbeddedServer
from events.snapshots import Kept
from services.binder import core as binder
from services.planner import core as planner
from services.settings import Settings
from services.start import restored
from services.state import snapshot
from services.state.fold import State
from tests.facts import pod, scheduling_class

NODES = (1_000, 5_000, 10_000)
PODS_PER_NODE = 20
GANG = 20
CLUSTER = "large"
ASKED = {"nodes": 5_000, "start_s": 5.0, "planner_mb": 400}
DECIDES_S = 2.0
GI, MB = 1 << 30, 1_000_000
MUSTER = (sys.executable, "-m", "services")


class Cluster:
    """A log of which only the state is kept."""

    def __init__(self, nodes: int) -> None:
        self.state = State()
        self.source = random.Random(nodes)
        for commit in opening([_node(i) for i in range(nodes)]):
            self.append(*commit)
        self.append("binder", binder.decide_now(self.state), "decide")

    def append(self, writer: str, events: list[ev.Event], cause: str) -> None:
        state = self.state
        header = Header(writer=writer, epoch=state.epoch, basis=state.sequence, time_ns=0, cause=cause)
        state.apply(state.sequence + 1, header, events)

    def in_blocks(self, writer: str, events: Sequence[ev.Event], cause: str) -> None:
        for start in range(0, len(events), BLOCK):
            self.append(writer, list(events[start : start + BLOCK]), cause)

    def populate(self, pods: int) -> None:
        """Pods arrive, are planned, judged and bound; a tenth asks for more than any node has."""
        self.append("ingest", [_class("fits", 1_000), _class("does not", 33_000)], "facts")
        self.in_blocks("ingest", [_pod(i, self.source) for i in range(pods)], "facts")
        while decided := list(planner.decide_now(self.state, "0")):
            self.append("planner.0", decided, "decide")
            self.append("binder", binder.decide_now(self.state), "decide")
        state = self.state
        settled = [
            {"uid": uid, "namespace": "default", "name": state.pods[uid].fact.name, "node": state.claims[uid].node}
            for uid in state.permitted
        ]
        self.in_blocks("binder", [ev.PodBound(**one) for one in settled], "outcome")
        self.in_blocks("ingest", [ev.PodAssigned(**one, resource_version="2000000") for one in settled], "facts")

    def tail(self, size: int) -> list[Stored]:
        """So many bytes of log behind the state, in commits of 100: pods that are observed again."""
        commits: list[Stored] = []
        pods = list(self.state.pods.values())
        written = at = 0
        while written < size:
            events = [_again(pods[(at + i) % len(pods)], 3_000_000 + at + i) for i in range(100)]
            at += 100
            sequence = self.state.sequence + len(commits) + 1
            header = Header(writer="ingest", epoch=0, basis=0, time_ns=0, cause="facts")
            commits.append(
                Stored(
                    sequence=sequence,
                    subject=subjects.subject(CLUSTER, "ingest"),
                    message_id=f"tail-{sequence}",
                    header=envelope.encode_header(header),
                    payload=envelope.encode_events(events),
                )
            )
            written += len(commits[-1].header) + len(commits[-1].payload)
        return commits


def _node(i: int) -> ev.NodeObserved:
    name = f"node-{i:05}.example"
    return ev.NodeObserved(
        name=name,
        uid=str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        resource_version=str(i + 1),
        labels={"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{i % 8}"},
        taints=(),
        unschedulable=False,
        allocatable={"cpu_milli": 32_000, "memory_bytes": 256 * GI, "pods": 110, "nvidia.com/gpu": 8},
    )


def _class(name: str, cpu_milli: int) -> ev.SchedulingClassObserved:
    digest = uuid.uuid5(uuid.NAMESPACE_DNS, name).hex
    return scheduling_class(digest, {"cpu_milli": cpu_milli, "memory_bytes": GI, "pods": 1})


def _pod(i: int, source: random.Random) -> ev.PodObserved:
    """Of each thousand a hundred do not fit; every other thousand are gangs."""
    gang = None
    if i % 2_000 < 1_000:
        declared = Declaration(min_member=GANG, waiting_time_ms=0)
        gang = Membership(gang=f"default/train-{i // GANG:05}", dialect="coscheduling/2020", declared=declared)
    return pod(
        f"train-{i // GANG:05}-worker-{i % GANG}",
        _class("fits" if i % 1_000 < 900 else "does not", 0).digest,
        uid=str(uuid.UUID(int=source.getrandbits(128), version=4)),
        version=str(1_000_000 + i),
        gang=gang,
        created_ns=1_767_225_600_000_000_000 + i,
    )


def _again(pod: Any, version: int) -> ev.PodObserved:
    return msgspec.structs.replace(pod.fact, status=pod.status, node=pod.node, resource_version=str(version))


# ------------------------------------------------------------------------------------------------------------- a point


async def build(nodes: int, url: str) -> dict[str, Any]:
    """Put the snapshot and the tail into the server; in a process of its own, which takes its memory along."""
    cluster = Cluster(nodes)
    cluster.populate(nodes * PODS_PER_NODE)
    state = cluster.state
    began_s = time.perf_counter()
    data, digest = snapshot.FORM.pack(state)
    packed_s = time.perf_counter()
    log = await JetStreamLog.open(url, CLUSTER)
    kept = Kept(sequence=state.sequence, digest=digest, state=FIRST_VERSION, bytes=len(data))
    await log.snapshots.put(kept, data)
    stored_s = time.perf_counter()
    again = await restored(log, kept, snapshot.FORM)
    read_s = time.perf_counter()
    if again is None:
        raise RuntimeError("the snapshot did not come back")
    tail = cluster.tail(Settings().snapshot_after_bytes)
    await log.append_stored(tail)
    await log.close()
    return {
        "nodes": nodes,
        "pods": len(state.pods),
        "bound": sum(pod.status == "bound" for pod in state.pods.values()),
        "json_mb": round(sum(map(len, snapshot.FORM.lines(state))) / MB, 1),
        "stored_mb": round(len(data) / MB, 1),
        "encode_s": round(packed_s - began_s, 2),
        "store_s": round(stored_s - packed_s, 2),
        "read_back_s": round(read_s - stored_s, 2),
        "tail_events": len(tail) * 100,
    }


def start_planner(url: str) -> dict[str, Any]:
    """From its start to its first commit; what it takes in is the snapshot and the tail. Then it decides."""
    began_s = time.perf_counter()
    child = subprocess.Popen([*MUSTER, "planner"], env=_environment(url), stderr=subprocess.DEVNULL)
    started_s = asyncio.run(_taken_s(url, child)) - began_s
    cpu_s = _cpu_s(child.pid)
    time.sleep(DECIDES_S)
    child.send_signal(signal.SIGTERM)
    _, _, most = _ended(child)
    return {"start_s": round(started_s, 2), "start_cpu_s": round(cpu_s, 2), "planner_mb": most}


async def _taken_s(url: str, child: subprocess.Popen[bytes]) -> float:
    log = await JetStreamLog.open(url, CLUSTER)
    while await log.last(subjects.subject(CLUSTER, "planner.0")) is None:
        if child.poll() is not None:
            raise RuntimeError(f"the planner ended with {child.returncode}")
        await asyncio.sleep(0.01)
    await log.close()
    return time.perf_counter()


def take(url: str) -> dict[str, Any]:
    began_s = time.perf_counter()
    child = subprocess.Popen([*MUSTER, "snapshot", "--json"], env=_environment(url), stdout=subprocess.DEVNULL)
    status, cpu_s, most = _ended(child)
    if status:
        raise RuntimeError(f"muster snapshot ended with {status}")
    return {"take_s": round(time.perf_counter() - began_s, 2), "take_cpu_s": round(cpu_s, 2), "take_mb": most}


def _ended(child: subprocess.Popen[bytes]) -> tuple[int, float, int]:
    """Exit status, CPU seconds, and the most memory that it had, in MB."""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, used.ru_utime + used.ru_stime, round(used.ru_maxrss * 1024 / MB)


def _cpu_s(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _environment(url: str) -> dict[str, str]:
    return {**os.environ, "MUSTER_NATS_URL": url, "MUSTER_CLUSTER": CLUSTER}


def point(nodes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="muster-snapshots-") as store, EmbeddedServer(Path(store)) as server:
        building = [sys.executable, "-m", "benchmarks.snapshots", "--build", str(nodes), "--url", server.url]
        found = json.loads(subprocess.run(building, check=True, capture_output=True).stdout)
        return {**found, **start_planner(server.url), **take(server.url)}


def panels(points: list[dict[str, Any]]) -> Iterator[Panel]:
    pods = [found["pods"] for found in points]
    asked_at = ASKED["nodes"] * PODS_PER_NODE
    yield Panel(
        "Start of a planner: snapshot and 32 MiB of log",
        "seconds",
        [
            Series("wall clock", pods, [found["start_s"] for found in points]),
            Series("CPU", pods, [found["start_cpu_s"] for found in points]),
        ],
        (asked_at, ASKED["start_s"], "asked: 5 s"),
    )
    yield Panel(
        "Memory at most",
        "MB",
        [
            Series("planner", pods, [found["planner_mb"] for found in points]),
            Series("muster snapshot", pods, [found["take_mb"] for found in points]),
        ],
        (asked_at, ASKED["planner_mb"], "asked: 400 MB"),
    )


def told(point: Callable[[int], dict[str, Any]], nodes: list[int]) -> list[dict[str, Any]]:
    """What is measured with so many nodes each, a line of JSON as soon as it is."""
    points = []
    for each in nodes:
        points.append(point(each))
        print(json.dumps(points[-1]), flush=True)
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description="Snapshots of large states.")
    parser.add_argument("--nodes", type=some, nargs="+", default=NODES)
    parser.add_argument("--plot", type=new_file)
    parser.add_argument("--build", type=some, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.build:
        print(json.dumps(asyncio.run(build(asked.build, asked.url))))
        return
    points = told(point, asked.nodes)
    if asked.plot:
        write(asked.plot, list(panels(points)))


if __name__ == "__main__":
    main()
