"""A federation beside the cluster: simulated OpenPAI clusters, two federators as services, and the jobs of its users.

The clusters live in this process and never end: their answers are lost, late or refusals, and connections break. Users
submit jobs and cancel some, all the while. Its log is followed, folded and verified as the cluster's is. At rest every
job is settled; on the cluster on which it is kept it runs, or has succeeded, and on no other; of a job that was
cancelled, or never was in the log, nothing runs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

from events.connection import Connection
from events.log import LogError
from events.micro import Unfit, ask
from events.object_store import Bucket, bodies_bucket
from events.subjects import FEDERATION
from events.subjects import jobs as jobs_subject
from services.console.demo.federator import write_files
from services.federator.records import SETTLED, Job
from services.federator.state import State
from services.simulator.openpai.jobs import Life
from services.simulator.openpai.server import OpenPai
from tests.chaos.plan import MEMBERS
from tests.federator.jobs import quick
from tests.federator.openpai import NO_LIMITS, alive, err

USER, TOKEN = "alice", "secret"
LIVES = (
    Life(waiting_ms=200, notice_ms=300, dying_ms=100),
    Life(waiting_ms=1_500, notice_ms=300, dying_ms=100),
    Life(waiting_ms=600, running_ms=12_000, dying_ms=500),
)
"""Of jobs on each member: two where they run until they are stopped, one where they succeed."""
POLL_MS = 500
USERS = 3
"""At once: one of them waits for as long as nobody answers."""
STEP_S = (0.5, 3.0)
ASKED_S = 2.0
AGAIN_S = 0.3
CANCELLED = 0.3
"""The chance that a step is a cancellation."""


class Members:
    """The clusters. `start` them before whoever asks them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"members {seed}")
        self.pai = OpenPai()
        self.flags: list[str | Path] = []
        """Of a federator over them."""

    async def start(self, directory: Path) -> None:
        await self.pai.start()
        for alias, life in zip(MEMBERS, LIVES, strict=True):
            self.pai.add(alias, tokens={TOKEN: USER}, limits=NO_LIMITS, life=life)
        self.flags += self._write(directory)

    def _write(self, directory: Path) -> list[str]:
        directory.mkdir()
        return write_files(directory, self.urls, user=USER, token=TOKEN, poll_ms=POLL_MS)

    @property
    def urls(self) -> dict[str, str]:
        return {alias: cluster.url for alias, cluster in self.pai.clusters.items()}

    @property
    def port(self) -> int:
        return int(self.pai.url.rpartition(":")[2])

    def err(self, alias: str) -> None:
        err(self.pai.clusters[alias], self.random)

    def cut_off(self, alias: str, cut: bool) -> None:
        """Every connection to it breaks, or no longer does."""
        self.pai.clusters[alias].cut_off = cut

    def heal(self) -> None:
        for cluster in self.pai.clusters.values():
            cluster.faults.lift()
            cluster.cut_off = False

    def alive(self) -> dict[str, list[str]]:
        """Jobs by name: where something of them is not over."""
        return alive(self.pai.clusters)

    def succeeded(self, alias: str, run: str) -> bool:
        cluster = self.pai.clusters[alias]
        found = cluster.jobs.get((USER, run))
        return found is not None and found.now(cluster.clock()).state == "SUCCEEDED"


class Users:
    """Who submits jobs and cancels them. What they were told is remembered."""

    def __init__(self, members: Members, connection: Connection, seed: int) -> None:
        self.random = random.Random(f"federation's users {seed}")
        self.submitted: list[str] = []
        """Names that were accepted."""
        self.cancelled: set[str] = set()
        """Names of which somebody was told that they are."""
        self.violations: list[str] = []
        self.made = 0
        self._members, self._connection = members, connection

    async def run(self) -> None:
        """For ever. What is under way when this is cancelled may be carried out or not, and nobody was told."""
        await asyncio.gather(*(self._run() for _ in range(USERS)))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(*STEP_S))
            going = [name for name in self.submitted if name not in self.cancelled]
            if going and self.random.random() < CANCELLED:
                await self.cancel(self.random.choice(going))
            else:
                await self._submit()

    async def _submit(self) -> None:
        self.made += 1
        name = f"f{self.made:04d}"
        priorities = {alias: self.random.choice((0, 0, 5, 20)) for alias in MEMBERS}
        try:
            await self.ask("submit", document=quick(name, self._members.urls, priorities))
        except Unfit as refused:
            if "already" not in refused.message:  # else the answer before was lost
                raise
        self.submitted.append(name)

    async def cancel(self, name: str) -> None:
        """One that was accepted. That nobody knows it is a violation."""
        try:
            if (await self.ask("cancel", name=name))["cancelled"]:
                self.cancelled.add(name)
        except Unfit as refused:
            self.violations.append(f"{name} was accepted, and cannot be cancelled: {refused.message} (7.7)")

    async def ask(self, verb: str, **words: Any) -> Any:
        """Again and again until it is answered. Raises Unfit."""
        while True:
            try:
                return await ask(self._connection, jobs_subject(FEDERATION), verb, words, ASKED_S)
            except LogError:
                await asyncio.sleep(AGAIN_S)


def unrest(state: State, members: Members, users: Users) -> list[str]:
    """What is still under way, or runs where it should not. Empty: all is at rest."""
    jobs, there = state.jobs.values(), members.alive()
    found = [f"job {job.name} is {job.phase}" for job in jobs if job.phase != SETTLED]
    found += [f"{job.name} is {what}" for job in jobs if (what := _wrong(job, there.pop(job.name, []), members))]
    found += [f"{name} is not in the log and runs on {where}" for name, where in sorted(there.items())]
    found += [f"{name} was accepted and is not in the log (7.7)" for name in users.submitted if name not in state.names]
    known = [name for name in sorted(users.cancelled) if name in state.names]
    found += [f"{name} goes on, and was cancelled" for name in known if not state.jobs[state.names[name]].cancelled]
    under_way: dict[str, Collection[Any]] = {
        "submissions": state.submitting,
        "stops": state.stopping,
        "decisions": state.actionable,
        "strays": state.strays,
    }
    return found + [f"{len(things)} {what} under way" for what, things in under_way.items() if things]


def _wrong(job: Job, where: list[str], members: Members) -> str:
    """Where it runs, if that is not what its users are told."""
    if where == [job.kept] or (not where and not job.kept):
        return ""
    if not where and members.succeeded(job.kept, job.places[job.kept].name):
        return ""
    return f"on {', '.join(where) or 'no cluster'}, and kept on {job.kept or 'none'}"


async def end(state: State, users: Users, members: Members, operator: Connection, within_s: float) -> list[str]:
    """Everything is cancelled, also what its user was never told of: nothing runs any more, and no body is kept. What is
    left all the same."""
    for name in list(state.names):
        await users.cancel(name)
    bucket, left = Bucket(operator, bodies_bucket(FEDERATION)), ["nobody looked yet"]
    try:
        async with asyncio.timeout(within_s):
            while left:
                await asyncio.sleep(AGAIN_S)
                left = [f"{name} runs on {where}, and was cancelled" for name, where in members.alive().items()]
                left += [f"body {name} is kept for nobody" for name in await bucket.names()]
    except TimeoutError:
        return left
    return []
