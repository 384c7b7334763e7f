"""The simulated cluster as a process: ``python -m services.simulator --nodes nodes.yaml --workload jobs.yaml``.

Its first line on stdout is JSON, ``{"url": "http://127.0.0.1:…", "refused": […]}``, with what is wrong with the objects
that are not taken; it serves until SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.simulator.arguments import count, port, told
from services.simulator.cluster import SimulatedCluster
from services.simulator.errors import ApiError
from services.simulator.manifests import ManifestError, is_configuration, read_yaml
from services.simulator.offline import named_first
from services.simulator.operators import admitted
from services.simulator.traces import MODES, TRACES, TraceError, load


def main() -> int:
    arguments = _parser().parse_args()
    try:
        with asyncio.Runner(loop_factory=_event_loop) as runner:
            runner.run(_serve(arguments))
    except (ManifestError, TraceError, ApiError, OSError) as error:  # the last: a port that is taken, a file
        print(f"error: {told(error)}", file=sys.stderr)
        return 2
    return 0


def _event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m services.simulator", description="A simulated Kubernetes cluster.")
    parser.add_argument("--port", type=port, default=0, help="on 127.0.0.1; 0 (default) takes a free one")
    parser.add_argument(
        "--nodes",
        action="append",
        default=[],
        metavar="FILE",
        help="YAML or JSON with nodes; may be repeated",
    )
    parser.add_argument(
        "--workload",
        action="append",
        default=[],
        metavar="FILE",
        help="YAML or JSON with everything else, which is loaded after the nodes; may be repeated",
    )
    parser.add_argument("--trace", choices=TRACES, help="a public trace in place of files")
    parser.add_argument("--dir", type=Path, default=Path(), metavar="DIR", help="where the trace's CSV files are")
    parser.add_argument("--limit", type=count, metavar="PODS", help="pods of the trace at most")
    parser.add_argument("--gang-groups", choices=tuple(MODES), default="", help="dlrm's services as gang groups")
    parser.add_argument("--token", default="", help="a bearer token that requests must carry")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="write a kubeconfig there")
    parser.add_argument("--no-podgroups", action="store_true", help="without the PodGroup CRD")
    parser.add_argument("--startup-ms", type=count, default=0, metavar="MS", help="from bound to Running (default: 0)")
    parser.add_argument(
        "--termination-ms", type=count, default=0, metavar="MS", help="from deleted to gone (default: 0)"
    )
    parser.add_argument("--seed", type=int, help="makes UIDs and generated names repeatable")
    return parser


async def _serve(arguments: Any) -> None:
    cluster = SimulatedCluster(
        podgroups=not arguments.no_podgroups,
        token=arguments.token,
        seed=arguments.seed,
        startup_ms=arguments.startup_ms,
        termination_ms=arguments.termination_ms,
    )
    refused = _load(cluster, [*arguments.nodes, *arguments.workload])
    if arguments.trace:
        cluster.load(load(arguments.trace, arguments.dir, arguments.limit, gang_groups=arguments.gang_groups))
    gc.collect()
    gc.freeze()  # what was loaded stays; no collection needs to look at it again
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    await cluster.start(arguments.port)
    if arguments.kubeconfig:
        cluster.write_kubeconfig(arguments.kubeconfig)
    print(json.dumps({"url": cluster.url, "refused": refused}), flush=True)
    try:
        await cluster.serve(until=stop)
    finally:
        await cluster.stop()


def _load(cluster: SimulatedCluster, files: Sequence[str]) -> list[str]:
    """The files' objects; what is wrong with those that cannot be taken, which cost themselves only."""
    objects, misfits = read_yaml(files)
    made, denied = admitted(obj for obj in objects if not is_configuration(obj))
    refused = [str(error) for error in (*misfits, *denied)]
    for obj in sorted(made, key=named_first):
        try:
            cluster.load([obj])
        except ApiError as error:
            refused.append(str(error))
    return refused


if __name__ == "__main__":
    sys.exit(main())
