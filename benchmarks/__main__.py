"""Every figure of benchmarks/README.md, in one go: ``make bench`` or ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import subprocess
import sys

RUNS = (
    ("The pure cores: planning, judging, verifying, folding", ["-m", "benchmarks.planning"]),
    ("Whether work grows faster than its input", ["-m", "benchmarks.doubling"]),
    ("Pods that each ask something else of nodes", ["-m", "benchmarks.constraints"]),
    ("The log: appending, replaying, latency", ["-m", "benchmarks.log"]),
    ("Planner shards: conflicts, inversions, rates", ["-m", "benchmarks.shards"]),
    ("Planner processes alone over a recorded log", ["-m", "benchmarks.shards", "--processes"]),
    ("Failover: from kill -9 to the next decision", ["-m", "benchmarks.failover"]),
    ("One of three NATS servers is lost", ["-m", "benchmarks.nats_failover"]),
    ("Snapshots: taking, starting from one, memory", ["-m", "benchmarks.snapshots"]),
    ("A planner's memory, folded from the log", ["-m", "benchmarks.memory"]),
    ("The federator: 10,000 jobs over 20 clusters", ["-m", "benchmarks.federation"]),
    ("A pod's cost in the log and at the API server", ["-m", "benchmarks.growth"]),
    ("Beside other schedulers on a real apiserver", ["-m", "benchmarks.peers"]),
)


def main() -> int:
    described = "\n".join(f"python {' '.join(command):38} {title}" for title, command in RUNS)
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
