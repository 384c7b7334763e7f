"""``python -m tests.chaos --minutes 10 --seed 7 --kills 200``: one run, and its last line. Exit code 0: no violation."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
from pathlib import Path

import msgspec

from deploy.e2e.build import BIN, BUILD
from tests.chaos import isolation
from tests.chaos.network import Network, Packets, Proxies
from tests.chaos.run import Report, Run

INTERRUPTED = 130


def main() -> int:
    arguments = _parse()
    if not (BIN / "kube-apiserver").exists():
        print("no control plane in .build/bin: run `python -m deploy.e2e.build` first")
        return 2
    if not (arguments.proxies or isolation.inside()):
        if isolation.possible():
            isolation.enter("tests.chaos", sys.argv[1:])
        print("no namespaces here: TCP proxies instead of lost packets, no full disks, no parted NATS servers")
    directory: Path = arguments.keep.resolve() / f"seed-{arguments.seed}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        report = asyncio.run(_run(arguments, directory))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    (directory / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    for violation in report.violations:
        print(f"violation: {violation}")
    print(report.line())
    return 1 if report.violations else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="of hurting, the coming to rest in between included")
    parser.add_argument("--seed", type=int, default=1, help="decides what is hurt and when")
    parser.add_argument("--kills", type=int, default=0, help="end when so many were killed; 0: when the time is over")
    parser.add_argument("--keep", type=Path, default=BUILD / "chaos", help="where logs, output and report stay")
    parser.add_argument("--proxies", action="store_true", help="as without root: no namespaces")
    return parser.parse_args()


async def _run(arguments: argparse.Namespace, directory: Path) -> Report:
    isolated = isolation.inside()
    if isolated:
        isolation.prepare()
    network: Network = Packets() if isolated else Proxies(arguments.seed)
    run = Run(directory, network, seed=arguments.seed, isolated=isolated)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await run.run(arguments.minutes * 60, arguments.kills)
    finally:
        network.close()


if __name__ == "__main__":
    sys.exit(main())
