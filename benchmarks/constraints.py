"""Waiting pods that each ask something else of nodes: ``python -m benchmarks.constraints [NODES] [PODS]``.

Every pod has a toleration and affinities of its own, required and preferred, so that nothing which is known of all nodes
for one serves another. In the first workload all fit, in the second none does; the third is the first with as many masks
of nodes kept as there are constraints, as it was before they were bounded (`services.state.nodes.MASKED_ROWS`). A
planner's cycles, and the binder's decisions about each, run until nothing more is proposed. Prints one JSON line for each
workload, measured in a process of its own: CPU seconds, those of the longest slice (a service renews its lease between
slices), and the most memory that the process ever had.
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

import events as ev
from benchmarks.planning import GI, Bench, waiting_pod
from events.objects import PreferredTerm, SelectorRequirement, SelectorTerm, Toleration
from services.binder import core as binder
from services.planner import core as planner
from services.state import nodes
from tests.facts import scheduling_class

T = TypeVar("T")
WORKLOADS = ("fits", "fits nowhere", "fits, masks unbounded")


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


def waiting(pods: int, zone: str) -> Iterator[ev.Event]:
    for number in range(pods):
        requirements = (
            SelectorRequirement(key="topology.kubernetes.io/zone", operator="In", values=(zone,)),
            SelectorRequirement(key="kubernetes.io/hostname", operator="NotIn", values=(f"host-{number}",)),
        )
        asked = {"cpu_milli": 100, "memory_bytes": GI, "pods": 1}
        tolerations = (Toleration(key="dedicated", operator="Equal", value=f"team-{number}", effect="NoSchedule"),)
        yield scheduling_class(
            f"class-{number}",
            asked,
            tolerations=tolerations,
            required_affinity=(SelectorTerm(match_expressions=requirements, match_fields=()),),
            preferred_affinity=(PreferredTerm(weight=10, term=SelectorTerm((requirements[1],), ())),),
        )
        yield waiting_pod(number, f"class-{number}", None)


def measure(workload: str, node_count: int, pods: int) -> dict[str, object]:
    if workload == WORKLOADS[2]:
        nodes.MASKED_ROWS = 1 << 62
    bench, planning, judging = Bench(node_count), Stopwatch(), Stopwatch()
    pending = list(waiting(pods, "nowhere" if workload == WORKLOADS[1] else "zone-3"))
    for start in range(0, len(pending), 200):
        bench.append("ingest", pending[start : start + 200], "facts")
    cycles = 0
    while proposed := planning.run(planner.decide(bench.state, "0")):
        bench.append("planner.0", list(proposed), "decide")
        cycles += 1
        if judged := judging.run(binder.decide_in_slices(bench.state)):
            bench.append("binder", list(judged), "decide")
    return {
        "workload": workload,
        "nodes": node_count,
        "pods": pods,
        "cycles": cycles,
        "planning_cpu_s": round(planning.spent_s, 2),
        "planning_longest_slice_s": round(planning.longest_s, 3),
        "judging_cpu_s": round(judging.spent_s, 2),
        "judging_longest_slice_s": round(judging.longest_s, 3),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Pods that each ask something else of nodes.")
    parser.add_argument("nodes", type=int, nargs="?", default=50_000)
    parser.add_argument("pods", type=int, nargs="?", default=10_000)
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
