"""A federator that is killed (SIGKILL) over and over, on real processes: NATS, OpenPAI clusters over HTTP, its own.

``python -m tests.federator.kills --kills 200 --jobs 50 --clusters 5`` prints one line of JSON: how many jobs ended with
how many survivors, and what was left over. Jobs come, run, lose and are stopped while it is killed at random moments;
answers are lost, submissions land late and stops are refused meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from events.connection import Connection
from events.log import LogError
from events.micro import Unfit, ask
from events.object_store import Bucket, bodies_bucket
from events.server import EmbeddedServer
from events.subjects import jobs as jobs_subject
from services.console.demo.federator import write_files
from services.federator.records import SETTLED
from services.simulator.openpai.jobs import Life
from services.simulator.openpai.server import OpenPai
from tests.federator.jobs import quick
from tests.federator.openpai import FAULTS, NO_LIMITS, alive, err

FEDERATION = "federation"
WITHIN_S = 300.0


class Run:
    """One run of it all."""

    def __init__(self, url: str, pai: OpenPai, directory: Path, *, jobs: int, clusters: int, seed: int) -> None:
        self.url, self.pai, self.directory, self.rng = url, pai, directory, random.Random(seed)
        self.names = [f"job-{number}" for number in range(jobs)]
        self.count: Counter[str] = Counter()
        for number in range(clusters):
            life = Life(waiting_ms=self.rng.randrange(100, 3_000), notice_ms=300, dying_ms=100)
            pai.add(f"c{number}", tokens={"secret": "alice"}, limits=NO_LIMITS, life=life)
        uris = {alias: cluster.url for alias, cluster in pai.clusters.items()}
        self.files = write_files(directory, uris, user="alice", token="secret", poll_ms=200)
        self.process: asyncio.subprocess.Process | None = None

    def text(self, name: str) -> str:
        urls = {alias: cluster.url for alias, cluster in self.pai.clusters.items()}
        return quick(name, urls, {alias: self.rng.choice((0, 0, 5, 20)) for alias in urls})

    async def start(self) -> None:
        command = [sys.executable, "-m", "services", "federator", "--nats", self.url]
        command += self.files
        with (self.directory / "federator.log").open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            self.count["kill -9"] += 1
        else:
            self.count[f"ended by itself: {self.process.returncode}"] += 1
        await self.process.wait()

    async def submit(self, connection: Connection) -> None:
        """Every job, as a client that asks until it has its answer."""
        for name in self.names:
            text = self.text(name)
            while True:
                try:
                    await ask(connection, jobs_subject(FEDERATION), "submit", {"document": text}, 2.0)
                except Unfit as refused:
                    if "already" not in refused.message:  # else the answer before was lost
                        raise
                except LogError:
                    await asyncio.sleep(0.2)
                    continue
                break
            self.count["jobs"] += 1
            await asyncio.sleep(self.rng.random() * 0.2)

    def disturb(self) -> None:
        err(self.rng.choice(list(self.pai.clusters.values())), self.rng)
        self.count["faults planned"] += FAULTS

    async def settled(self, connection: Connection) -> list[dict[str, Any]]:
        deadline = time.monotonic() + WITHIN_S
        while True:
            assert time.monotonic() < deadline, "not everything settles"
            try:
                jobs: list[dict[str, Any]] = await ask(connection, jobs_subject(FEDERATION), "list", {}, 5.0)
            except LogError:
                await asyncio.sleep(0.2)
                continue
            if len(jobs) == len(self.names) and all(job["phase"] == SETTLED for job in jobs):
                return jobs
            await asyncio.sleep(0.2)

    def survivors(self) -> dict[str, list[str]]:
        """By job: where something of it is not over."""
        there = alive(self.pai.clusters)
        return {name: there.get(name, []) for name in self.names}


async def run(directory: Path, *, kills: int, jobs: int, clusters: int, seed: int) -> dict[str, Any]:
    """What came of it."""
    with EmbeddedServer(directory / "nats") as server:
        async with OpenPai() as pai:
            made = Run(server.url, pai, directory, jobs=jobs, clusters=clusters, seed=seed)
            connection = await Connection(server.url).connect()
            await made.start()
            submitting = asyncio.create_task(made.submit(connection))
            try:
                while made.count["kill -9"] < kills:
                    made.disturb()
                    await asyncio.sleep(made.rng.random() * 3.0)
                    await made.kill()
                    await made.start()
                await submitting
                for cluster in pai.clusters.values():
                    cluster.faults.lift()
                told = await made.settled(connection)
                await asyncio.sleep(4.0)  # what could still land has landed
                survivors = made.survivors()
                await _end(connection, told)
            finally:
                submitting.cancel()
                await made.kill()
                await connection.close()
            kept = {job["name"]: job["cluster"] for job in told}
            return {
                "jobs": len(told),
                "survivors": dict(Counter(len(where) for where in survivors.values())),
                "elsewhere": [name for name, where in survivors.items() if where != [kept[name]]],
                "submitted": sum(len(cluster.jobs) for cluster in pai.clusters.values()),
                "happened": dict(made.count),
            }


async def _end(connection: Connection, told: list[dict[str, Any]]) -> None:
    """Bodies of jobs that are settled, and whose winners have ended, are forgotten soon."""
    for job in told:
        await ask(connection, jobs_subject(FEDERATION), "cancel", {"name": job["name"]}, 5.0)
    bucket = Bucket(connection, bodies_bucket(FEDERATION))
    deadline = time.monotonic() + 60.0
    while await bucket.listed():
        assert time.monotonic() < deadline, "bodies are left"
        await asyncio.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.federator.kills")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--clusters", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(run(Path(directory), **arguments))
    print(json.dumps(found))
    return 0 if found["survivors"] == {1: found["jobs"]} and not found["elsewhere"] else 1


if __name__ == "__main__":
    sys.exit(main())
