"""Planning, fold and verification rates of the pure cores: ``python -m benchmarks.planning``.

A cluster of ready nodes (32 cpu, 256 GiB, 8 GPUs) stands in the state; pods arrive in commits as ingest writes them; each
planning cycle is timed with its events encoded and folded back, as a shard does it. The three workloads differ in how
much of the work is shared: gangs of 100, single pods of one scheduling class, single pods that are a class of their own.
Prints one JSON line for each workload. Rates are per second of CPU time of this one process, which a busy
machine disturbs less than the wall clock; each is the best of five runs, and each ratio, of two of one run, their median.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterator
from statistics import median

import events as ev
from benchmarks.arguments import at_least
from benchmarks.opening import opening
from events import envelope, subjects
from events.envelope import Header
from events.memory import MemoryLog
from events.objects import Declaration, Membership
from services.binder import core as binder
from services.console.verify import verify
from services.planner import core as planner
from services.state.fold import State
from tests.facts import pod, scheduling_class

GI = 1 << 30
NODES = 5_000
FEWEST_NODES = 13
"""On which a gang of 100 has room; of none that is placed there are no rates."""
RUNS = 5


class Bench:
    """A log in memory with one shard and a binder, and the state that all of them share here."""

    def __init__(self, nodes: int) -> None:
        self.log = MemoryLog("bench")
        self.state = State()
        for commit in opening([_node(i) for i in range(nodes)]):
            self.append(*commit)
        self.append("binder", binder.decide_now(self.state), "decide")

    def append(self, writer: str, events: list[ev.Event], cause: str) -> None:
        subject = subjects.subject("bench", writer)
        header = Header(writer=writer, epoch=self.state.epoch, basis=self.state.sequence, time_ns=0, cause=cause)
        sequence = self.log.append_now(subject, header, envelope.encode_events(events), self.log._last.get(subject, 0))
        self.state.apply(sequence, header, events)

    def plan(self) -> list[planner.PlannerEvent]:
        decided = planner.decide_now(self.state, "0")
        if decided:
            self.append("planner.0", list(decided), "decide")
        return decided

    def judge(self) -> None:
        decided = binder.decide_now(self.state)
        if decided:
            self.append("binder", decided, "decide")

    def live(self, pods: int) -> None:
        """The rest of the pods' lives, in commits of 100: bound, seen on the node, finished, deleted."""
        claims = list(self.state.claims.values())[:pods]
        for start in range(0, len(claims), 100):
            some = [(claim, self.state.pods[claim.uid].fact.name) for claim in claims[start : start + 100]]
            names = [{"uid": claim.uid, "namespace": "default", "name": name} for claim, name in some]
            of = list(zip(names, [claim.node for claim, _ in some], strict=True))
            self.append("binder", [ev.PodBound(**name, node=node) for name, node in of], "outcome")
            self.append(
                "ingest", [ev.PodAssigned(**name, resource_version="50000", node=node) for name, node in of], "facts"
            )
            finished = [ev.PodFinished(**name, resource_version="60000", succeeded=True, reason="") for name in names]
            self.append("ingest", finished, "facts")
            self.append("ingest", [ev.PodDeleted(**name) for name in names], "facts")


def _node(i: int) -> ev.NodeObserved:
    return ev.NodeObserved(
        name=f"node-{i:05}",
        uid=f"node-uid-{i}",
        resource_version=str(i + 1),
        labels={"kubernetes.io/hostname": f"node-{i:05}", "topology.kubernetes.io/zone": f"zone-{i % 8}"},
        taints=(),
        unschedulable=False,
        allocatable={"cpu_milli": 32_000, "memory_bytes": 256 * GI, "pods": 110, "nvidia.com/gpu": 8},
    )


def _class(digest: str, cpu_milli: int) -> ev.SchedulingClassObserved:
    return scheduling_class(digest, {"cpu_milli": cpu_milli, "memory_bytes": GI, "pods": 1, "nvidia.com/gpu": 1})


def waiting_pod(i: int, digest: str, gang: Membership | None) -> ev.PodObserved:
    return pod(
        f"pod-{i:06}",
        digest,
        uid=f"00000000-0000-4000-8000-{i:012}",
        version=str(10_000 + i),
        gang=gang,
        created_ns=i,
    )


def gangs(pods: int, size: int) -> Iterator[ev.Event]:
    yield _class("one", 1000)
    for i in range(pods):
        declared = Declaration(min_member=size, waiting_time_ms=0)
        yield waiting_pod(
            i, "one", Membership(gang=f"default/gang-{i // size:05}", dialect="coscheduling/2020", declared=declared)
        )


def singles(pods: int) -> Iterator[ev.Event]:
    yield _class("one", 1000)
    for i in range(pods):
        yield waiting_pod(i, "one", None)


def each_its_own(pods: int) -> Iterator[ev.Event]:
    for i in range(pods):
        yield _class(f"class-{i}", 500 + i % 7_000)
        yield waiting_pod(i, f"class-{i}", None)


def planning(name: str, workload: Iterator[ev.Event], nodes: int) -> dict[str, object]:
    """Plan everything, judging in between; only the planner's cycles (decide, encode, fold) are on the clock."""
    bench = Bench(nodes)
    pending = list(workload)
    for start in range(0, len(pending), 100):
        bench.append("ingest", pending[start : start + 100], "facts")
    planned, planning_s, judging_s = 0, 0.0, 0.0
    while True:
        began_s = time.process_time()
        decided = bench.plan()
        planning_s += time.process_time() - began_s
        pods = _pods(decided)
        if not pods:
            break
        planned += pods
        began_s = time.process_time()
        bench.judge()
        judging_s += time.process_time() - began_s
    before_life = copy(bench.log)
    bench.live(planned)
    fold_s, folded = folding(bench.log)
    return {
        "workload": name,
        "nodes": nodes,
        "pods": planned,
        "planned_pods_per_s": round(planned / planning_s),
        "judged_pods_per_s": round(planned / judging_s),
        **verifying(before_life, planned, planning_s, judging_s),
        "fold_events_per_s": round(folded / fold_s),
    }


def _pods(decided: list[planner.PlannerEvent]) -> int:
    """How many pods these events place."""
    placed = [event for event in decided if isinstance(event, ev.GangPlaced)]
    return sum(len(assignment.pods) for event in placed for assignment in event.required + event.optional)


def verifying(log: MemoryLog, pods: int, planning_s: float, judging_s: float) -> dict[str, object]:
    """`verify` of the log beside what the live processes did to write it, on a core each.

    Live, each of the two decodes and folds whatever the others write, decides, and encodes and folds its own. The slower
    of them is the rate at which pods get through.
    """
    folding_s: dict[str, float] = {}
    state = State()
    for stored in log.commits:
        began_s = time.process_time()
        state.apply_stored(stored)
        writer = subjects.writer_of(stored.subject)
        folding_s[writer] = folding_s.get(writer, 0.0) + time.process_time() - began_s
    planner_s = planning_s + sum(folding_s.values()) - folding_s["planner.0"]
    binder_s = judging_s + sum(folding_s.values()) - folding_s["binder"]
    began_s = time.process_time()
    report = asyncio.run(verify(log))
    verify_s = time.process_time() - began_s
    if not report.reproduced or report.reproduced != report.decided:
        raise RuntimeError(f"verify reproduced {report.reproduced} of {report.decided} commits")
    return {
        "live_planner_pods_per_s": round(pods / planner_s),
        "live_binder_pods_per_s": round(pods / binder_s),
        "verified_pods_per_s": round(pods / verify_s),
        "verify_to_live_planner": round(planner_s / verify_s, 2),
        "verify_to_live": round(max(planner_s, binder_s) / verify_s, 2),
    }


def copy(log: MemoryLog) -> MemoryLog:
    """The log as it is now."""
    taken = MemoryLog(log.cluster)
    taken.commits = list(log.commits)
    return taken


def folding(log: MemoryLog) -> tuple[float, int]:
    """Fold the whole log again, five events for each pod's life. Each commit is decoded right before, as in the services;
    decoding is not on the clock."""
    state, folded, fold_s = State(), 0, 0.0
    for stored in log.commits:
        commit = envelope.decode(stored)
        began_s = time.process_time()
        state.apply(commit.sequence, commit.header, commit.events)
        fold_s += time.process_time() - began_s
        folded += len(commit.events)
    return fold_s, folded


def best(runs: list[dict[str, object]]) -> dict[str, object]:
    """Of several runs the best of each rate, as a busy machine only slows, and the median of each ratio: of the fastest
    run it would be too low, or too high, by what sped that one up."""
    first = runs[0]
    found = {name: [float(str(run[name])) for run in runs] for name in first if _is_measured(name)}
    of = {name: max(values) if name.endswith("_per_s") else median(values) for name, values in found.items()}
    return {name: of.get(name, value) for name, value in first.items()}


def _is_measured(name: str) -> bool:
    return name.endswith("_per_s") or name.startswith("verify_to_")


def main() -> None:
    parser = argparse.ArgumentParser(description="Planning, fold and verification rates of the pure cores.")
    parser.add_argument("nodes", nargs="?", type=at_least(FEWEST_NODES), default=NODES)
    nodes = parser.parse_args().nodes
    workloads: list[tuple[str, Callable[[], Iterator[ev.Event]]]] = [
        ("gangs of 100", lambda: gangs(30_000, 100)),
        ("single pods, one class", lambda: singles(30_000)),
        ("single pods, each its own class", lambda: each_its_own(10_000)),
    ]
    for name, workload in workloads:
        print(json.dumps(best([planning(name, workload(), nodes) for _ in range(RUNS)])), flush=True)


if __name__ == "__main__":
    main()
