"""The first act: every service as a process of its own, on one machine, over a real NATS server and a simulated cluster.

    nats-server ← log ─ ingest ← simulated cluster (HTTP)
                      ─ planner
                      ─ binder → simulated cluster

This process only starts them and follows the log like anybody else. It ends by itself when neither the log nor the
cluster can change any more, several looks in a row; then the log is copied to a file and verified.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

import events as ev
from events.homes import copy, open_log
from events.log import EventLog
from events.server import EmbeddedServer
from services.console.demo import workload
from services.console.demo.following import following
from services.console.errors import Unusable
from services.console.processes import Child, ChildFailed, stop
from services.console.remarks import Remarks, can_be_given, remarks
from services.console.summary import bound_pods, gangs, rejections, waiting_groups, waiting_pods
from services.console.verify import Report, verify
from services.state.fold import State

CLUSTER = "demo"
LOOK_S = 0.25
LOOKS = 3
"""Looks in a row that must find nothing that could change."""
READY_WITHIN_S = 60.0
DATABASE = "demo.db"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What runs. Without files and without a trace: `services.console.demo.workload`."""

    directory: Path
    """Where the log, the server's store and the processes' output go."""
    nodes: tuple[Path, ...] = ()
    workload: tuple[Path, ...] = ()
    trace: str = ""
    trace_directory: Path = Path()
    limit: int | None = None
    gang_groups: str = ""
    """How the gangs of a service of the trace dlrm are grouped; empty: not at all."""
    at_most_s: float = 600.0
    """When it has not come to rest by then, it ends all the same, and says so."""


class Outcome(msgspec.Struct, kw_only=True):
    """What came of it."""

    pods_bound: int
    gangs_bound: int
    waiting: int
    gangs: dict[str, dict[str, Any]]
    waiting_groups: dict[str, tuple[int, str]]
    """By group: how many of its pods wait, and why."""
    rejected: list[str]
    """Objects that could not be taken as they are."""
    remarks: Remarks
    """What is to be said of the manifests besides."""
    settled: bool
    """Whether it ended because nothing could change any more."""
    seconds: float
    """From the start of the services to the last binding."""
    pods_per_second: float
    peak_pods_per_second: int
    """Bindings in the best second."""
    report: Report
    log: str
    unclean: dict[str, int]
    """Processes that did not end with status 0."""


def in_one_line(found: Outcome) -> dict[str, Any]:
    """The outcome for machines."""
    return {
        "pods_bound": found.pods_bound,
        "gangs_bound": found.gangs_bound,
        "waiting": found.waiting,
        "waiting_groups": {key: {"pods": pods, "why": why} for key, (pods, why) in found.waiting_groups.items()},
        "rejected": found.rejected,
        **found.remarks._asdict(),
        "seconds": found.seconds,
        "pods_per_second": found.pods_per_second,
        "peak_pods_per_second": found.peak_pods_per_second,
        "settled": found.settled,
        "unclean": found.unclean,
        "decisions": found.report.decisions,
        "verified": found.report.verified,
        "digest": found.report.digest,
        "log": found.log,
    }


class Progress:
    """What the log says so far: the fold of it, and how fast it grows."""

    def __init__(self) -> None:
        self.state = State()
        self.started_ns = time.time_ns()
        self.events = 0
        self.bindings_ns: list[int] = []
        """When each pod was bound, by the binder's clock."""
        self._recent: deque[tuple[float, int]] = deque(maxlen=64)

    async def follow(self, log: EventLog) -> None:
        async for batch in log.follow():
            for stored in batch:
                commit = self.state.apply_stored(stored)
                if commit is None:
                    continue
                self.events += len(commit.events)
                bound = sum(type(event) is ev.PodBound for event in commit.events)
                self.bindings_ns += [commit.header.time_ns] * bound
            await asyncio.sleep(0)

    def events_per_second(self) -> float:
        """Over the last looks."""
        self._recent.append((time.monotonic(), self.events))
        (first_s, before), (last_s, now) = self._recent[max(0, len(self._recent) - 8)], self._recent[-1]
        return (now - before) / (last_s - first_s) if last_s > first_s else 0.0

    def seconds(self) -> float:
        """From the start to the last binding."""
        return max(0, max(self.bindings_ns, default=self.started_ns) - self.started_ns) / 1e9

    def peak(self) -> int:
        """Bindings in the best second."""
        best, first = 0, 0
        for last, moment in enumerate(self.bindings_ns):
            while moment - self.bindings_ns[first] > 1_000_000_000:
                first += 1
            best = max(best, last - first + 1)
        return best


async def run(options: Options, shown: Callable[[Progress], None] = lambda _: None) -> Outcome:
    """Run it to its end. `shown` is called with every look.

    Raises Unusable for input that cannot be used, ChildFailed, LogError, ServerError.
    """
    database = options.directory / DATABASE
    progress = Progress()
    async with AsyncExitStack() as stack:
        simulator, names, said = _start_simulator(options)
        stack.callback(stop, [simulator])
        server = stack.enter_context(EmbeddedServer(options.directory / "nats"))
        log = await open_log(server.url, CLUSTER, create=True)
        stack.push_async_callback(log.close)
        kubeconfig, refused = await _served(simulator, options)
        services = _start_services(options, server.url, kubeconfig, names)
        stack.callback(stop, services)
        async with following(progress.follow(log)):
            settled = await _until_rest(progress, kubeconfig, names, [simulator, *services], options, shown)
        statuses = stop(services)
        file = await open_log(str(database), CLUSTER, create=True)
        stack.push_async_callback(file.close)
        await copy(log, file)
        report = await verify(file)
        return _outcome(progress, refused, said, settled, report, database, statuses)


# --------------------------------------------------------------------------------------------------------- the processes


def _start_simulator(options: Options) -> tuple[Child, frozenset[str], Remarks]:
    """The simulated cluster, the schedulerNames of its workload, and what is to be said of its manifests."""
    from services.simulator.manifests import read_yaml
    from services.simulator.operators import admitted

    nodes, pods = options.nodes, options.workload
    names = frozenset({"muster"})
    arguments = ["services.simulator", "--kubeconfig", str(options.directory / "kubeconfig"), "--seed", "1"]
    if options.trace:
        arguments += ["--trace", options.trace, "--dir", str(options.trace_directory)]
        arguments += [] if options.limit is None else ["--limit", str(options.limit)]
        arguments += ["--gang-groups", options.gang_groups] if options.gang_groups else []
    elif not (nodes or pods):
        nodes = (_write(options.directory / "nodes.yaml", workload.nodes()),)
        pods = (_write(options.directory / "workload.yaml", workload.workload()),)
    objects = read_yaml([*nodes, *pods])[0]
    if nodes and not any(obj["kind"] == "Node" for obj in objects):
        raise Unusable(f"--nodes {', '.join(map(str, nodes))}: expected a Node, found none that can be used")
    said = remarks(objects)
    names |= scheduler_names(admitted(objects)[0])
    for flag, files in (("--nodes", nodes), ("--workload", pods)):
        for file in files:
            arguments += [flag, str(file)]
    return Child("the simulated cluster", arguments, options.directory / "simulator.log"), names, said


def scheduler_names(objects: Iterable[dict[str, Any]]) -> frozenset[str]:
    """Of all pods and pod templates that a service can be given; what names none is meant for the default scheduler."""
    names = set()
    for obj in objects:
        spec = obj.get("spec") or {}
        template = spec.get("template") if isinstance(spec.get("template"), dict) else None
        pod = spec if obj["kind"] == "Pod" else (template or {}).get("spec")
        if isinstance(pod, dict) and "containers" in pod:
            names.add(str(pod.get("schedulerName") or "default-scheduler"))
    return frozenset(name for name in names if can_be_given(name))


def _write(path: Path, objects: Iterable[dict[str, Any]]) -> Path:
    path.write_text("\n---\n".join(map(json.dumps, objects)) + "\n")  # JSON is YAML
    return path


async def _served(simulator: Child, options: Options) -> tuple[Path, list[str]]:
    """The kubeconfig, which is written before the simulator says where it serves; and what it says it did not take."""
    deadline = time.monotonic() + READY_WITHIN_S
    while (said := re.search(r'^\{"url".*\n', simulator.log.read_text(errors="replace"), re.MULTILINE)) is None:
        try:
            simulator.check()
        except ChildFailed as error:
            raise Unusable(simulator.tail().removeprefix("error: ")) from error
        if time.monotonic() > deadline:
            raise Unusable(f"the simulated cluster is not ready within {READY_WITHIN_S:.0f} s:\n{simulator.tail()}")
        await asyncio.sleep(0.02)
    return options.directory / "kubeconfig", json.loads(said[0])["refused"]


def _start_services(options: Options, nats: str, kubeconfig: Path, names: frozenset[str]) -> list[Child]:
    where = ["--nats", nats, "--cluster", CLUSTER]
    access = ["--kubeconfig", str(kubeconfig)]
    arguments = {
        "ingest": [*access, "--scheduler-names", ",".join(sorted(names))],
        "planner": [],
        "binder": access,
    }
    return [
        Child(role, ["services", role, *where, *more], options.directory / f"{role}.log")
        for role, more in arguments.items()
    ]


# --------------------------------------------------------------------------------------------------------- until its end


async def _until_rest(
    progress: Progress,
    kubeconfig: Path,
    names: frozenset[str],
    children: list[Child],
    options: Options,
    shown: Callable[[Progress], None],
) -> bool:
    """Until nothing can change any more; False when time was up first. Raises ChildFailed."""
    from services.console.settled import cluster_at_rest, log_at_rest
    from services.kubernetes.access import load
    from services.kubernetes.client import Client

    deadline = time.monotonic() + options.at_most_s
    quiet = 0
    async with Client(load(str(kubeconfig))) as client:
        while quiet < LOOKS:
            for child in children:
                child.check()
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(LOOK_S)
            shown(progress)
            state = progress.state
            if log_at_rest(state) and await cluster_at_rest(client, state, names):
                quiet += 1
            else:
                quiet = 0
    return True


def _outcome(
    progress: Progress,
    refused: list[str],
    said: Remarks,
    settled: bool,
    report: Report,
    database: Path,
    statuses: dict[str, int],
) -> Outcome:
    state = progress.state
    bound, seconds = len(bound_pods(state)), progress.seconds()
    return Outcome(
        pods_bound=bound,
        gangs_bound=sum(gang.satisfied for gang in state.gangs.values()),
        waiting=len(waiting_pods(state)),
        gangs=gangs(state),
        waiting_groups=waiting_groups(state),
        rejected=[*refused, *rejections(state)],
        remarks=said,
        settled=settled,
        seconds=round(seconds, 3),
        pods_per_second=round(bound / seconds, 1) if seconds else 0.0,
        peak_pods_per_second=progress.peak(),
        report=report,
        log=str(database),
        unclean={name: status for name, status in statuses.items() if status},
    )
