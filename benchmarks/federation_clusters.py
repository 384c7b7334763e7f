"""OpenPAI clusters in processes of their own, filled with jobs beforehand, for `benchmarks.federation`.

Each process serves some of the clusters over HTTP and takes orders over a pipe: which of its jobs begin to run now, and
how often each verb was asked for.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from services.simulator.openpai.jobs import Job, Life, lived
from services.simulator.openpai.limits import Limits
from services.simulator.openpai.server import OpenPai

USER, TOKEN = "bench", "secret"
PROCESSES = 2
WAITS = Life(waiting_ms=1_000_000_000)
RUNS = Life()


class Clusters:
    """Used as a context manager."""

    def __init__(self, aliases: Sequence[str]) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._aliases = [list(aliases[number::PROCESSES]) for number in range(PROCESSES)]
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        self.uris: dict[str, str] = {}

    def __enter__(self) -> Clusters:
        for aliases in self._aliases:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs, aliases), daemon=True)
            process.start()
            self._processes.append(process)
            self._pipes.append(ours)
            self.uris |= ours.recv()
        self.uris = dict(sorted(self.uris.items()))
        return self

    def __exit__(self, *exception: object) -> None:
        for pipe in self._pipes:
            pipe.send(("end",))
        for process in self._processes:
            process.join(10.0)

    def fill(self, jobs: Sequence[str]) -> None:
        """Every cluster has all of these jobs, and they wait."""
        self._order("fill", list(jobs))

    def run(self, alias: str, jobs: Sequence[str]) -> None:
        """These jobs begin to run there now."""
        self._order("run", alias, list(jobs))

    def counts(self) -> dict[str, dict[str, int]]:
        """Requests, by alias and verb."""
        return {alias: count for answer in self._order("counts") for alias, count in answer.items()}

    def _order(self, *order: Any) -> list[Any]:
        for pipe in self._pipes:
            pipe.send(order)
        return [pipe.recv() for pipe in self._pipes]


def _serve(pipe: Connection, aliases: list[str]) -> None:
    asyncio.run(_served(pipe, aliases))


async def _served(pipe: Connection, aliases: list[str]) -> None:
    none = Limits(requests_per_minute=0, lists_per_minute=0, submissions_per_hour=0)
    ended = asyncio.Event()
    async with OpenPai() as pai:
        for alias in aliases:
            pai.add(alias, tokens={TOKEN: USER}, limits=none, life=WAITS)
        pipe.send({alias: cluster.url for alias, cluster in pai.clusters.items()})

        def ordered() -> None:
            try:
                order = pipe.recv()
            except EOFError:
                ended.set()
                return
            match order:
                case ("fill", jobs):
                    _fill(pai, jobs)
                    pipe.send(None)
                case ("run", alias, jobs):
                    _run(pai, alias, jobs)
                    pipe.send(None)
                case ("counts",):
                    pipe.send({alias: dict(cluster.counts) for alias, cluster in pai.clusters.items()})
                case _:
                    ended.set()

        asyncio.get_running_loop().add_reader(pipe.fileno(), ordered)
        await ended.wait()
        asyncio.get_running_loop().remove_reader(pipe.fileno())


def _fill(pai: OpenPai, jobs: list[str]) -> None:
    for alias, cluster in pai.clusters.items():
        now_ms = cluster.clock()
        steps = lived(WAITS, now_ms, 0)
        for job in jobs:
            name = name_of(job, alias)
            cluster.jobs[USER, name] = Job(USER, "", protocol_of(name), WAITS, now_ms, steps, steps)


def _run(pai: OpenPai, alias: str, jobs: list[str]) -> None:
    cluster = pai.clusters.get(alias)
    for job in jobs if cluster is not None else ():
        one = cluster.jobs[USER, name_of(job, alias)]
        one.life = RUNS
        one.steps = one.uncut = lived(RUNS, cluster.clock(), 0)


def name_of(job: str, alias: str) -> str:
    return f"{job}-{alias}"


def protocol_of(name: str) -> dict[str, Any]:
    """A job's protocol."""
    return {"name": name, **_PROTOCOL}


_PROTOCOL: dict[str, Any] = {
    "protocolVersion": "2",
    "type": "job",
    "prerequisites": [{"type": "dockerimage", "name": "image", "uri": "openpai/standard"}],
    "taskRoles": {
        "main": {
            "dockerImage": "image",
            "commands": ["train"],
            "resourcePerInstance": {"cpu": 4, "memoryMB": 8192, "gpu": 1},
        }
    },
}
