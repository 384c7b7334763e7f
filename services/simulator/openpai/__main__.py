"""OpenPAI clusters as a process: ``python -m services.simulator.openpai v100:4000 k80 --token secret --user alice``.

Each argument is an alias, with the milliseconds that jobs wait there before they run. The first line on stdout is JSON,
``{"clusters": {"v100": "http://127.0.0.1:…/v100", …}}``; it serves until SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys

from services.simulator.arguments import count, port, told
from services.simulator.openpai.jobs import Life
from services.simulator.openpai.limits import Limits
from services.simulator.openpai.server import OpenPai


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m services.simulator.openpai", description="OpenPAI clusters.")
    parser.add_argument(
        "cluster", nargs="+", type=_cluster, metavar="ALIAS[:WAITING_MS]", help="a cluster; how long jobs wait there"
    )
    parser.add_argument("--port", type=port, default=0, help="on 127.0.0.1; 0 (default) takes a free one")
    parser.add_argument("--token", default="token", help="the bearer token that requests must carry (default: token)")
    parser.add_argument("--user", default="user", help="whose token it is (default: user)")
    parser.add_argument(
        "--running-ms", type=count, metavar="MS", help="how long an attempt runs (default: until it is stopped)"
    )
    parser.add_argument(
        "--dying-ms",
        type=count,
        default=0,
        metavar="MS",
        help="from an attempt's end until its containers are gone (default: 0)",
    )
    parser.add_argument(
        "--notice-ms",
        type=count,
        default=0,
        metavar="MS",
        help="from a stop's answer until anything happens (default: 0)",
    )
    parser.add_argument(
        "--exit-code", type=int, default=0, metavar="CODE", help="of attempts that end by themselves (default: 0)"
    )
    parser.add_argument("--no-limits", action="store_true", help="take as many requests as come")
    arguments = parser.parse_args()
    aliases = [alias for alias, _ in arguments.cluster]
    if len(set(aliases)) < len(aliases):
        parser.error(f"{' '.join(aliases)}: expected each alias once")
    try:
        asyncio.run(_serve(arguments))
    except OSError as error:  # a port that is taken
        print(f"error: {told(error)}", file=sys.stderr)
        return 2
    return 0


def _cluster(said: str) -> tuple[str, int]:
    """An alias, and how long jobs wait there. Raises ArgumentTypeError."""
    alias, _, waiting_ms = said.partition(":")
    if not alias or not (waiting_ms or "0").isdecimal():
        raise argparse.ArgumentTypeError(f"{said!r}: expected an alias, or one with milliseconds: v100:4000")
    return alias, int(waiting_ms or 0)


async def _serve(arguments: argparse.Namespace) -> None:
    limits = Limits(requests_per_minute=0, lists_per_minute=0, submissions_per_hour=0) if arguments.no_limits else None
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    pai = OpenPai()
    for alias, waiting_ms in arguments.cluster:
        life = Life(
            waiting_ms=waiting_ms,
            running_ms=arguments.running_ms,
            dying_ms=arguments.dying_ms,
            notice_ms=arguments.notice_ms,
            exit_codes=(arguments.exit_code,),
        )
        pai.add(alias, tokens={arguments.token: arguments.user}, limits=limits, life=life)
    await pai.start(arguments.port)
    print(json.dumps({"clusters": {alias: cluster.url for alias, cluster in pai.clusters.items()}}), flush=True)
    try:
        await stop.wait()
    finally:
        await pai.stop()


if __name__ == "__main__":
    sys.exit(main())
