"""Loss of one of three NATS servers, under load: ``python -m benchmarks.nats_failover``.

The field of `tests/failover`: three servers with TLS and three replicas, Muster's services as processes, gangs all the
time. The log's leader is killed (-9), the leader hangs (SIGSTOP), a follower hangs, all three are restarted one after
another (SIGTERM, as a rolling update does). Each time: the longest silence between two commits, and between two commits
of decisions, by their writers' clocks. At the end the log is verified and compared with what its writers were told.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

from benchmarks.arguments import some
from tests.failover.field import Field, running

Hurt = Callable[[Field], Awaitable[None]]


async def lost(field: Field, hurt: Callable[[], None], mend: Callable[[], object]) -> None:
    """Hurt one server, see that it goes on without it, and make it whole."""
    hurt()
    await field.goes_on()
    mend()


async def leader_killed(field: Field) -> None:
    server = await field.leader()
    await lost(field, server.kill, server.start)


async def leader_hangs(field: Field) -> None:
    server = await field.leader()
    await lost(field, server.pause, server.resume)


async def follower_hangs(field: Field) -> None:
    server = await field.follower()
    await lost(field, server.pause, server.resume)


async def rolling_restart(field: Field) -> None:
    for server in field.servers.servers.values():
        server.stop()
        server.start()
        await field.whole()


HURTS: dict[str, Hurt] = {
    "leader killed": leader_killed,
    "leader hangs": leader_hangs,
    "follower hangs": follower_hangs,
    "all restarted in turn": rolling_restart,
}


async def measure(runs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="muster-nats-") as directory:
        async with running(Path(directory)) as field:
            await field.whole()
            for name, hurt in HURTS.items():
                await one_kind(field, name, hurt, runs)
            await at_the_end(field)


async def one_kind(field: Field, name: str, hurt: Hurt, runs: int) -> None:
    commits, decisions, stepped_down = [], [], field.stepped_down
    for _ in range(runs):
        since_ns = time.time_ns()
        await hurt(field)
        await field.whole()
        await field.goes_on()
        commits.append(field.silence_s(since_ns))
        decisions.append(field.silence_s(since_ns, "decide"))
    told = {
        "lost": name,
        "runs": runs,
        "without_a_commit_s_median": round(statistics.median(commits), 1),
        "without_a_commit_s_max": round(max(commits), 1),
        "without_a_decision_s_median": round(statistics.median(decisions), 1),
        "without_a_decision_s_max": round(max(decisions), 1),
        "services_replaced": field.stepped_down - stepped_down,
    }
    print(json.dumps(told), flush=True)


async def at_the_end(field: Field) -> None:
    await field.rest()
    told = field.acknowledged()
    async with aclosing(field.log.read()) as batches:
        there = {stored.sequence: stored.message_id async for batch in batches for stored in batch}
    _, verified = await field.muster("verify", field.servers.url, user="reader")
    found = {
        "commits": len(there),
        "acknowledged": len(told),
        "acknowledged_and_lost": sum(there.get(sequence) != message_id for sequence, message_id in told),
        "decisions": verified["decisions"],
        "verified": verified["verified"],
    }
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="One of three NATS servers is lost.")
    parser.add_argument("--runs", type=some, default=5)
    asyncio.run(measure(parser.parse_args().runs))


if __name__ == "__main__":
    main()
