"""Waiting pods that each ask something else of nodes: ``python -m benchmarks.constraints [NODES] [PODS]``.

Every pod has a toleration and affinities of its own, required and preferred, so that nothing which is known of all nodes
for one serves another. In the first workload all fit, in the second none does; the third is the first with as many masks
of nodes kept as there are constraints, as it was before they were bounded (`services.state.masks.MASKED_BYTES`). A
planner's cycles, and the binder's decisions about each, run until nothing more is decided. In the fourth all pods have
nodes that they may go to, and no room there; ten times, ten nodes change, and all of them are tried again. Prints one
JSON line for each workload, measured in a process of its own: CPU seconds, those of the longest slice (a service renews
its lease between slices), those of each time after the first that all were tried, and the most memory that the process
ever had.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from typing import TypeVar

from msgspec.structs import replace

import events as ev
from benchmarks.arguments import some
from benchmarks.planning import GI, Bench, waiting_pod
from events.objects import PreferredTerm, SelectorRequirement, SelectorTerm, Taint, Toleration
from services.binder import core as binder
from services.planner import core as planner
from services.state import masks
from services.state.clock import tick
from tests.facts import scheduling_class

T = TypeVar("T")
WORKLOADS = ("fits", "fits nowhere", "fits, masks unbounded", "no room, nodes change")
ROUNDS = CHANGED = 10
BACKOFF_NS = 11_000_000_000
"""Longer than any pod backs off."""


class Stopwatch:
    """CPU seconds of what runs in slices."""

    def __init__(self) -> None:
        self.spent_s = self.longest_s = 0.0

    def run(self, work: Generator[None, None, T]) -> T:
        while True:
            began_s = time.process_time()
            try:
                next(work)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                slice_s = time.process_time() - began_s
                self.spent_s += slice_s
                self.longest_s = max(self.longest_s, slice_s)


def waiting(pods: int, zone: str, cpu_milli: int) -> Iterator[ev.Event]:
    for number in range(pods):
        requirements = (
            SelectorRequirement(key="topology.kubernetes.io/zone", operator="In", values=(zone,)),
            SelectorRequirement(key="kubernetes.io/hostname", operator="NotIn", values=(f"host-{number}",)),
        )
        asked = {"cpu_milli": cpu_milli, "memory_bytes": GI, "pods": 1}
        tolerations = (Toleration(key="dedicated", operator="Equal", value=f"team-{number}", effect="NoSchedule"),)
        yield scheduling_class(
            f"class-{number}",
            asked,
            tolerations=tolerations,
            required_affinity=(SelectorTerm(match_expressions=requirements, match_fields=()),),
            preferred_affinity=(PreferredTerm(weight=10, term=SelectorTerm((requirements[1],), ())),),
        )
        yield waiting_pod(number, f"class-{number}", None)


class Cycles:
    """A planner's cycles and a binder's decisions over one log."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.planning, self.judging = bench, Stopwatch(), Stopwatch()
        self.count = 0

    def run(self) -> None:
        """Until nothing more is decided."""
        bench = self.bench
        while decided := self.planning.run(planner.decide(bench.state, "0")):
            bench.append("planner.0", list(decided), "decide")
            self.count += 1
            if judged := self.judging.run(binder.decide(bench.state)):
                bench.append("binder", list(judged), "decide")

    def change_nodes(self, number: int) -> None:
        """Other nodes each time: a label, a taint, or what it offers."""
        facts = [record.fact for record in self.bench.state.nodes.values()]
        changed: list[ev.Event] = []
        for at, fact in enumerate(facts[number * CHANGED : (number + 1) * CHANGED]):
            assert fact is not None
            version = str(1_000_000 + number)
            changes: tuple[dict[str, object], ...] = (
                {"labels": {**fact.labels, "round": str(number)}},
                {"taints": (Taint(key="round", value=str(number), effect="NoSchedule"),)},
                {"allocatable": {**fact.allocatable, "cpu_milli": 31_000 + number}},
            )
            changed.append(replace(fact, resource_version=version, **changes[at % len(changes)]))
        self.bench.append("ingest", changed, "facts")

    def end_backoff(self, number: int) -> None:
        """A tick at which backoffs start, and one at which they are over."""
        for at in (1, 2):
            event = tick(self.bench.state.clock("planner.0"), (2 * number + at) * BACKOFF_NS)
            if event is not None:
                self.bench.append("planner.0", [event], "tick")


def measure(workload: str, node_count: int, pods: int) -> dict[str, object]:
    if workload == WORKLOADS[2]:
        masks.MASKED_BYTES = 1 << 62
    cycles = Cycles(Bench(node_count))
    zone, cpu_milli = "nowhere" if workload == WORKLOADS[1] else "zone-3", 100
    if workload == WORKLOADS[3]:
        cpu_milli = 64_000
    pending = list(waiting(pods, zone, cpu_milli))
    for start in range(0, len(pending), 200):
        cycles.bench.append("ingest", pending[start : start + 200], "facts")
    cycles.run()
    first_s = cycles.planning.spent_s
    if workload == WORKLOADS[3]:
        for number in range(ROUNDS):
            cycles.change_nodes(number)
            cycles.end_backoff(number)
            cycles.run()
    return {
        "workload": workload,
        "nodes": node_count,
        "pods": pods,
        "cycles": cycles.count,
        "planning_cpu_s": round(first_s, 2),
        "planning_longest_slice_s": round(cycles.planning.longest_s, 3),
        "planning_again_cpu_s": round((cycles.planning.spent_s - first_s) / ROUNDS, 2),
        "judging_cpu_s": round(cycles.judging.spent_s, 2),
        "judging_longest_slice_s": round(cycles.judging.longest_s, 3),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Pods that each ask something else of nodes.")
    parser.add_argument("nodes", type=some, nargs="?", default=50_000)
    parser.add_argument("pods", type=some, nargs="?", default=10_000)
    parser.add_argument("--one", choices=WORKLOADS, help="this alone, in this process")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.nodes, asked.pods)), flush=True)
        return
    for workload in WORKLOADS:
        command = ["-m", "benchmarks.constraints", str(asked.nodes), str(asked.pods), "--one", workload]
        subprocess.run([sys.executable, *command], check=True)


if __name__ == "__main__":
    main()
