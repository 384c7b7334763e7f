"""Muster beside other schedulers, in one run on the same real apiserver: throughput, CPU, time from created to bound.

    python -m benchmarks.peers [--shapes 1000x100x20,5000x50x100] [--peers …] [--modes live,preload,idle] [--json FILE]

A shape is nodes x gangs x pods of each gang. *live*: the scheduler runs, then the pods are created; pods/s from the
first creation to the last binding. *preload*: all pods exist, then the scheduler starts; pods/s from its start, and
from its first binding. *idle*: single pods, each created after the one before was bound. Each row has a control plane
of its own (etcd on tmpfs, never synced). One watcher, the same for all, notes when a pod is seen and when it is seen
with a node. CPU is that of all the scheduler's processes (for Muster its services and NATS) until they have come to
rest, per 1,000 pods; in live runs without their start. Compare rows of one run: figures drift with the machine. Muster's
bytecode is there before the first run, as it is in its image (`deploy/Dockerfile`), whatever the shell says of it.

Needs the binaries of `python -m deploy.e2e.build`.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
import yaml

from benchmarks.arguments import new_file, some
from deploy.e2e.api import Api, ApiError, Object, collection
from deploy.e2e.build import BIN
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.native_gangs import native_gangs
from deploy.e2e.processes import Process
from deploy.e2e.workload import SCHEDULER, gang, nodes, pod, pod_group
from events.server import EmbeddedServer

ROOT = Path(__file__).resolve().parents[1]
MUSTER = Path(sys.executable).with_name("muster")
IDLE_PODS = 30
LIMIT_S = 240
PROFILE: dict[str, object] = {"profiles": [{"schedulerName": SCHEDULER}]}


class Shape(NamedTuple):
    nodes: int
    gangs: int
    size: int


@dataclass
class Row:
    """What one peer did with one shape in one mode. Times in seconds; None where the mode has no such figure."""

    peer: str
    shape: str
    mode: str
    pods: int
    pods_per_s: float | None = None
    pods_per_s_once_started: float | None = None
    first_binding_s: float | None = None
    cpu_s_per_1000_pods: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None
    peak_memory_mb: float | None = None
    cpu_s_by_process: dict[str, float] = field(default_factory=dict)


class Bench:
    """One control plane and one peer on it."""

    def __init__(self, peer: str, plane: ControlPlane, api: Api, size: int) -> None:
        self.peer, self.plane, self.api, self.size = peer, plane, api, size
        self.processes: list[Process] = []
        self.nats: EmbeddedServer | None = None

    def start(self) -> None:
        """Starts the peer; it is ready when it binds."""
        PEERS[self.peer](self)

    def run(self, name: str, *command: str) -> None:
        self.processes.append(
            Process(name, command, self.plane.directory / f"{name}.log", {"TOKEN": self.plane.admin_token})
        )

    def cpu_s(self) -> float:
        ended = [process for process in self.processes if not process.alive]
        if ended:
            raise RuntimeError(f"{ended[0].name} ended:\n{ended[0].tail()}")
        return sum(self.cpu_s_by_process().values())

    def cpu_s_by_process(self) -> dict[str, float]:
        spent = {process.name: process.cpu_s() for process in self.processes}
        return spent | ({"nats": cpu_of(self.nats.pid)} if self.nats else {})

    async def events(self) -> int:
        """How many Kubernetes events there are."""
        listed = await self.api.get("/api/v1/events?limit=1")
        return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount", 0))

    async def cpu_at_rest_s(self) -> float:
        """The CPU spent once two seconds used less than 2 % of a core and saw no new Kubernetes event: what is written
        behind counts too."""
        spent, events = self.cpu_s(), await self.events()
        for _ in range(90):
            await asyncio.sleep(2)
            before, spent = spent, self.cpu_s()
            told, events = events, await self.events()
            if spent - before < 0.04 and events == told:
                break
        return spent

    def peak_memory_mb(self) -> float:
        return sum(process.peak_memory_bytes() for process in self.processes) / 1e6

    def stop(self) -> None:
        for process in self.processes:
            process.stop(timeout_s=5)
        if self.nats:
            self.nats.stop()


def start_scheduler(bench: Bench) -> None:
    bench.processes.append(bench.plane.start_scheduler(PROFILE))


def start_native(bench: Bench) -> None:
    bench.processes.append(bench.plane.start_scheduler(PROFILE, *native_gangs().scheduler_flags))


def start_loop(bench: Bench) -> None:
    loop = "benchmarks.peers_loop"
    bench.run("loop", sys.executable, "-m", loop, bench.plane.url, str(bench.plane.certificate), str(bench.size))


def start_muster(bench: Bench) -> None:
    """By one command: three processes that import once what they all need."""
    common, kubeconfig = prepare_muster(bench)
    bench.run("muster", str(MUSTER), "run", "ingest", "planner", "binder", *common, "--kubeconfig", kubeconfig)


def start_apart(bench: Bench) -> None:
    """Each by a command of its own, as they are deployed."""
    common, kubeconfig = prepare_muster(bench)
    bench.run("ingest", str(MUSTER), "ingest", *common, "--kubeconfig", kubeconfig)
    bench.run("planner", str(MUSTER), "planner", *common)
    bench.run("binder", str(MUSTER), "binder", *common, "--kubeconfig", kubeconfig)


def prepare_muster(bench: Bench) -> tuple[tuple[str, ...], str]:
    """NATS; the flags of all services, and the kubeconfig of those that ask Kubernetes."""
    bench.nats = EmbeddedServer(bench.plane.directory / "nats").start()
    kubeconfig = bench.plane.kubeconfig("admin", bench.plane.admin_token)
    return ("--nats", bench.nats.url, "--cluster", "bench"), str(kubeconfig)


PEERS: dict[str, Callable[[Bench], None]] = {
    "kube-scheduler": start_scheduler,
    "native gangs": start_native,
    "bare loop": start_loop,
    "muster": start_muster,
    "muster apart": start_apart,
}


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ------------------------------------------------------------------------------------------------------- the workload


def members(peer: str, name: str, size: int) -> list[Object]:
    """The pods of a gang, as the peer's dialect declares them."""
    pods = gang(name, size)
    if peer == "native gangs":
        for one in pods:
            one["spec"]["schedulingGroup"] = {"podGroupName": name}
    return pods


def declaration(peer: str, name: str, size: int) -> tuple[str, Object] | None:
    """(path, object) of a gang's PodGroup; None for peers that know no gangs."""
    if peer == "native gangs":
        version = native_gangs().api_version
        group = {
            "apiVersion": version,
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
        }
        return f"/apis/{version}/namespaces/default/podgroups", group
    if peer.startswith("muster"):
        return "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups", pod_group(name, size)
    return None


async def prepare(bench: Bench, shape: Shape) -> list[Object]:
    """Nodes, CRD and PodGroups; returns the pods, gang by gang, not created yet."""
    for document in yaml.safe_load_all((ROOT / "deploy/manifests/10-podgroup-crd.yaml").read_text()):
        await bench.api.apply(document)
    await bench.api.create_all(nodes(shape.nodes))
    names = [f"gang-{number:03d}" for number in range(shape.gangs)]
    for name in names:
        if declared := declaration(bench.peer, name, shape.size):
            await patiently(partial(bench.api.call, "POST", *declared))
    return [one for name in names for one in members(bench.peer, name, shape.size)]


async def patiently(call: Callable[[], Any]) -> None:
    """Repeats a call while the answer is 404: a CRD is served a moment after it was created."""
    for _ in range(200):
        try:
            await call()
            return
        except ApiError as error:
            if error.status != 404:
                raise
            await asyncio.sleep(0.05)
    raise TimeoutError("PodGroups are not served")


async def watch(bench: Bench, count: int, prefix: str) -> asyncio.subprocess.Process:
    """The stopwatch, which has seen all that was there when this returns."""
    command = [sys.executable, "-m", "benchmarks.peers_watch", bench.plane.url, str(bench.plane.certificate)]
    process = await asyncio.create_subprocess_exec(
        *command,
        str(count),
        prefix,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 26,
        env=os.environ | {"TOKEN": bench.plane.admin_token},
    )
    assert process.stdout
    assert await process.stdout.readline() == b"watching\n"
    return process


async def times(stopwatch: asyncio.subprocess.Process) -> dict[str, tuple[float, float]]:
    try:
        out, _ = await asyncio.wait_for(stopwatch.communicate(), LIMIT_S)
    except TimeoutError:
        stopwatch.kill()
        raise
    found: dict[str, tuple[float, float]] = json.loads(out)
    return found


async def bind_one(bench: Bench, name: str) -> tuple[float, float]:
    """Creates one pod without a gang; returns when it was seen, and when bound."""
    stopwatch = await watch(bench, 1, name)
    await bench.api.create(pod(name, gpus=0))
    return (await times(stopwatch))[name]


# ---------------------------------------------------------------------------------------------------------- the modes


async def live(bench: Bench, shape: Shape, row: Row) -> None:
    pods = await prepare(bench, shape)
    bench.start()
    await bind_one(bench, "probe")
    before = await bench.cpu_at_rest_s()
    stopwatch = await watch(bench, len(pods), "gang-")
    requests = [(collection(one), json.dumps(one).encode()) for one in pods]
    started = time.monotonic()
    await bench.api.load(requests)
    bound = await times(stopwatch)
    row.pods_per_s = len(pods) / (max(at for _, at in bound.values()) - started)
    waits = sorted(at - seen for seen, at in bound.values())
    row.p50_s, row.p99_s = statistics.median(waits), waits[int(len(waits) * 0.99)]
    row.cpu_s_per_1000_pods = (await bench.cpu_at_rest_s() - before) / len(pods) * 1000


async def preload(bench: Bench, shape: Shape, row: Row) -> None:
    pods = await prepare(bench, shape)
    await bench.api.create_all(pods)
    stopwatch = await watch(bench, len(pods), "gang-")
    started = time.monotonic()
    bench.start()
    bound = sorted(at for _, at in (await times(stopwatch)).values())
    row.first_binding_s = bound[0] - started
    row.pods_per_s = len(pods) / (bound[-1] - started)
    row.pods_per_s_once_started = len(pods) / (bound[-1] - bound[0])
    row.cpu_s_per_1000_pods = await bench.cpu_at_rest_s() / len(pods) * 1000


async def idle(bench: Bench, shape: Shape, row: Row) -> None:
    await prepare(bench, shape)
    bench.start()
    await bind_one(bench, "probe")
    await bench.cpu_at_rest_s()
    row.pods = IDLE_PODS
    watched = [await bind_one(bench, f"single-{number:03d}") for number in range(IDLE_PODS)]
    waits = sorted(at - seen for seen, at in watched)
    row.p50_s, row.p99_s = statistics.median(waits), waits[-1]


MODES = {"live": live, "preload": preload, "idle": idle}


async def measure(peer: str, shape: Shape, mode: str, directory: Path) -> Row:
    """One row, on a control plane of its own."""
    row = Row(peer=peer, shape="x".join(map(str, shape)), mode=mode, pods=shape.gangs * shape.size)
    plane = ControlPlane(directory, native_gangs().apiserver_flags if peer == "native gangs" else ())
    bench: Bench | None = None
    try:
        plane.start()
        async with Api(plane.url, plane.admin_token, plane.certificate, in_flight=32) as api:
            bench = Bench(peer, plane, api, shape.size)
            await MODES[mode](bench, shape, row)
            row.peak_memory_mb = bench.peak_memory_mb()
            row.cpu_s_by_process = bench.cpu_s_by_process()
    finally:
        if bench:
            bench.stop()
        plane.stop()
    return row


# ------------------------------------------------------------------------------------------------------------ printing

COLUMNS = {
    "pods/s": "pods_per_s",
    "once started": "pods_per_s_once_started",
    "first binding s": "first_binding_s",
    "CPU-s per 1,000 pods": "cpu_s_per_1000_pods",
    "p50 s": "p50_s",
    "p99 s": "p99_s",
    "peak MB": "peak_memory_mb",
}


def table(rows: list[Row]) -> Iterator[str]:
    """Markdown, a table for each shape and mode."""
    for shape, mode in dict.fromkeys((row.shape, row.mode) for row in rows):
        yield f"\n**{shape}, {mode}**\n"
        yield "| peer | " + " | ".join(COLUMNS) + " |"
        yield "| --- |" + " --- |" * len(COLUMNS)
        for row in rows:
            if (row.shape, row.mode) == (shape, mode):
                figures = (getattr(row, field) for field in COLUMNS.values())
                yield f"| {row.peer} | " + " | ".join(map(figure, figures)) + " |"


def figure(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if number >= 20 else f"{number:.1f}" if number >= 10 else f"{number:.3g}"


@contextmanager
def scratch(keep: bool) -> Iterator[Path]:
    """A directory for logs, kept where that is asked for."""
    if keep:
        yield Path(tempfile.mkdtemp(prefix="muster-peers-"))
    else:
        with tempfile.TemporaryDirectory(prefix="muster-peers-") as directory:
            yield Path(directory)


def shapes(text: str) -> list[Shape]:
    """Raises ArgumentTypeError."""
    try:
        return [Shape(*map(some, shape.split("x"))) for shape in text.split(",")]
    except TypeError:
        raise argparse.ArgumentTypeError(f"expected such as 1000x100x20, with commas, not {text!r}") from None


def main() -> None:
    parser = argparse.ArgumentParser(description="Muster beside other schedulers on a real apiserver.")
    shown = "nodes x gangs x pods of each gang"
    parser.add_argument("--shapes", type=shapes, default="1000x100x20,5000x50x100", help=shown)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--json", type=new_file, help="write the rows there")
    parser.add_argument("--keep-logs", action="store_true")
    asked = parser.parse_args()
    for name, known in ((asked.peers, PEERS), (asked.modes, MODES)):
        if unknown := set(name.split(",")) - set(known):
            parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(known)}")
    if not (BIN / "etcd").exists():
        parser.error(f"no {BIN / 'etcd'}: expected what `python -m deploy.e2e.build` builds")
    for package in ("events", "services"):
        compileall.compile_dir(ROOT / package, quiet=1)
    rows: list[Row] = []
    with scratch(asked.keep_logs) as directory:
        for shape in asked.shapes:
            sized = "x".join(map(str, shape))
            for mode in asked.modes.split(","):
                for peer in asked.peers.split(","):
                    here = directory / f"{sized}-{mode}-{peer.replace(' ', '-')}"
                    print(f"{sized} {mode} {peer} … (logs in {here})", file=sys.stderr, flush=True)
                    rows.append(uvloop.run(measure(peer, shape, mode, here)))
                    print(json.dumps(asdict(rows[-1])), file=sys.stderr, flush=True)
    print("\n".join(table(rows)))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
