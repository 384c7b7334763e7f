"""Every figure of benchmarks/README.md, in one go: ``make bench`` or ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import subprocess
import sys

NODES = ("1000", "5000", "10000", "25000", "50000")
RUNS = (
    ("The pure cores: planning, judging, verifying, folding", ["-m", "benchmarks.planning"]),
    ("Whether work grows faster than its input", ["-m", "benchmarks.doubling"]),
    ("Pods that each ask something else of nodes", ["-m", "benchmarks.constraints"]),
    ("The longest stretch between two turns of the event loop", ["-m", "benchmarks.slices"]),
    ("The log: appending, replaying, latency", ["-m", "benchmarks.log"]),
    ("Planner shards: conflicts, inversions, rates", ["-m", "benchmarks.shards"]),
    ("The same at 50,000 nodes", ["-m", "benchmarks.shards", "--nodes", "50000"]),
    ("Planner processes alone over a recorded log", ["-m", "benchmarks.shards", "--processes", "--rounds", "5"]),
    ("Planner shards as processes, judged by a binder", ["-m", "benchmarks.shard_processes"]),
    ("Failover: from kill -9 to the next decision", ["-m", "benchmarks.failover"]),
    ("One of three NATS servers is lost", ["-m", "benchmarks.nats_failover", "--runs", "4"]),
    ("Snapshots: taking, starting from one, memory", ["-m", "benchmarks.snapshots", "--nodes", *NODES]),
    ("A planner's memory, folded from the log", ["-m", "benchmarks.memory", "--nodes", *NODES]),
    (
        "The federator: 10,000 jobs over 20 clusters",
        ["-m", "benchmarks.federation", "--starting", "200", "--submitted", "40"],
    ),
    ("A pod's cost in the log and at the API server", ["-m", "benchmarks.growth"]),
    ("Beside other schedulers on a real apiserver", ["-m", "benchmarks.peers"]),
)


def main() -> int:
    described = "\n".join(f"python {' '.join(command):67} {title}" for title, command in RUNS)
    argparse.ArgumentParser(
        "python -m benchmarks", description=described, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for title, command in RUNS:
        print(f"\n== {title}: python {' '.join(command)}", flush=True)
        code = subprocess.run([sys.executable, *command], check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
