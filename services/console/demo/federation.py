"""The second act: one job, three clusters, and the one on which it is kept.

    nats-server ← log ─ federator → v100, a100, h100: OpenPAI over HTTP
                          ↑ the job

The faster a cluster would start the job, the lower its priority. The v100 starts it at once; the a100 soon enough to take
over within its extra time; the h100 has a queue of ten minutes, and is waited for no longer than its priority is worth.
On a busy machine, too, seconds separate each of these from its other outcome.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec

from events import envelope, micro, subjects
from events.connection import Connection
from events.homes import copy, open_log
from events.log import EventLog, Unavailable
from events.server import EmbeddedServer
from services.console.demo.federator import write_files
from services.console.demo.following import following
from services.console.errors import Unusable
from services.console.processes import Child, stop
from services.console.verify import Report, verify
from services.federator import timeline
from services.federator.explain import Line, Said, explained
from services.federator.records import SETTLED, Job
from services.federator.state import WRITER, State
from services.federator.timeline import Timeline

JOB = "train"
USER, TOKEN = "demo", "token-of-a-simulated-cluster"
QUEUES_MS = {"v100": 0, "a100": 1_000, "h100": 600_000}
"""How long jobs wait on each cluster."""
PRIORITIES = {"v100": 5, "a100": 80, "h100": 100}
GUARD_MINUTES, SCALE_MINUTES = 0.01, 0.001
"""0.6 s; 0.06 s of extra time for each point: 4.5 s for the a100, then 1.2 s for the h100."""
POLL_MS = 100
LOOK_S = 0.1
READY_WITHIN_S = 60.0
DATABASE = "federation.db"


class Outcome(msgspec.Struct, kw_only=True):
    """What came of it."""

    cluster: str
    """Where the job is kept; empty: nowhere, or not yet."""
    settled: bool
    line: Timeline | None
    story: list[Line]
    report: Report
    seconds: float
    """From the job's acceptance to the last thing that the log says of it."""
    log: str
    unclean: dict[str, int]
    """Processes that did not end with status 0."""


def in_one_line(found: Outcome) -> dict[str, Any]:
    """The outcome for machines."""
    stopped = {line.cluster: line.rule for line in found.story if line.what == "to be stopped"}
    return {
        "cluster": found.cluster,
        "settled": found.settled,
        "unclean": found.unclean,
        "stopped": stopped,
        "seconds": found.seconds,
        "decisions": found.report.decisions,
        "verified": found.report.verified,
        "log": found.log,
    }


class Progress:
    """What the federation's log says so far."""

    def __init__(self) -> None:
        self.state = State()
        self.commits: list[Said] = []

    async def follow(self, log: EventLog) -> None:
        async for batch in log.follow():
            for stored in batch:
                header = envelope.header_of(stored)
                if header is not None and header.writer == WRITER:
                    said = Said(stored.sequence, header.time_ns, envelope.decode_events(stored))
                    self.state.apply(said.sequence, said.events)
                    self.commits.append(said)
            await asyncio.sleep(0)

    @property
    def job(self) -> Job | None:
        uid = self.state.names.get(JOB)
        return None if uid is None else self.state.jobs[uid]

    def line(self) -> Timeline | None:
        return timeline.drawn(self.commits, JOB)


async def run(directory: Path, at_most_s: float, shown: Callable[[Progress], None] = lambda _: None) -> Outcome:
    """Run it to its end. `shown` is called with every look.

    Raises Unusable, ChildFailed, LogError, ServerError.
    """
    database = directory / DATABASE
    progress = Progress()
    async with AsyncExitStack() as stack:
        clusters = _start_clusters(directory)
        stack.callback(stop, [clusters])
        server = stack.enter_context(EmbeddedServer(directory / "nats-federation"))
        log = await open_log(server.url, subjects.FEDERATION, create=True)
        stack.push_async_callback(log.close)
        uris = await _uris(clusters)
        federator = _start_federator(directory, server.url, uris)
        stack.callback(stop, [federator])
        children = [clusters, federator]
        async with following(progress.follow(log)):
            await _submit(server.url, json.dumps(job(uris)), children)
            settled = await _until_settled(progress, children, at_most_s, shown)
        statuses = stop(children)
        file = await open_log(str(database), subjects.FEDERATION, create=True)
        stack.push_async_callback(file.close)
        await copy(log, file)
        return _outcome(progress, settled, await verify(file), database, statuses)


def job(uris: dict[str, str]) -> dict[str, Any]:
    """The multi-cluster job, as its user would write it (JSON is YAML)."""
    parameters = {
        "clusters": {
            alias: {"uri": uri, "user": USER, "gpuType": alias.upper(), "priority": PRIORITIES[alias]}
            for alias, uri in uris.items()
        },
        "guardTimeRunning": GUARD_MINUTES,
        "timeScale": SCALE_MINUTES,
        "params": {"gpus": {"v100": 8, "a100": 4, "h100": 2}},
    }
    return {
        "protocolVersion": "super-2",
        "name": JOB,
        "prerequisites": [{"type": "dockerimage", "name": "image", "uri": "openpai/standard"}],
        "taskRoles": {
            "main": {
                "dockerImage": "image",
                "commands": ["python train.py --gpus <% $mcc.gpus %>"],
                "resourcePerInstance": {"cpu": 4, "memoryMB": 8192, "gpu": "<% $mcc.gpus %>"},
            }
        },
        "extras": {"com.microsoft.pai.runtimeplugin": [{"plugin": "super_scheduler", "parameters": parameters}]},
    }


# --------------------------------------------------------------------------------------------------------- the processes


def _start_clusters(directory: Path) -> Child:
    queues = [f"{alias}:{wait_ms}" for alias, wait_ms in QUEUES_MS.items()]
    arguments = ["services.simulator.openpai", *queues, "--token", TOKEN, "--user", USER]
    arguments += ["--notice-ms", "200", "--dying-ms", "200", "--no-limits"]
    return Child("the simulated clusters", arguments, directory / "openpai.log")


async def _uris(clusters: Child) -> dict[str, str]:
    """Where each cluster serves, by alias."""
    deadline = time.monotonic() + READY_WITHIN_S
    while not (said := clusters.log.read_text(errors="replace")).endswith("}\n"):
        clusters.check()
        if time.monotonic() > deadline:
            raise Unusable(f"{clusters.name} are not ready within {READY_WITHIN_S:.0f} s:\n{clusters.tail()}")
        await asyncio.sleep(0.02)
    found: dict[str, str] = json.loads(said.splitlines()[-1])["clusters"]
    return found


def _start_federator(directory: Path, nats: str, uris: dict[str, str]) -> Child:
    files = write_files(directory, uris, user=USER, token=TOKEN, poll_ms=POLL_MS)
    return Child("federator", ["services", "federator", "--nats", nats, *files], directory / "federator.log")


# --------------------------------------------------------------------------------------------------------- until its end


async def _submit(nats: str, document: str, children: list[Child]) -> None:
    """As `muster job submit` does, as soon as the federator listens."""
    deadline = time.monotonic() + READY_WITHIN_S
    connection = await Connection(nats).connect()
    try:
        while time.monotonic() < deadline:
            for child in children:
                child.check()
            with suppress(Unavailable):
                await micro.ask(connection, subjects.jobs(subjects.FEDERATION), "submit", {"document": document})
                return
            await asyncio.sleep(0.02)
    finally:
        await connection.close()
    raise Unusable(f"the federator is not ready within {READY_WITHIN_S:.0f} s:\n{children[-1].tail()}")


async def _until_settled(
    progress: Progress, children: list[Child], at_most_s: float, shown: Callable[[Progress], None]
) -> bool:
    """False when time was up first. Raises ChildFailed."""
    deadline = time.monotonic() + at_most_s
    while time.monotonic() < deadline:
        for child in children:
            child.check()
        await asyncio.sleep(LOOK_S)
        shown(progress)
        if progress.job is not None and progress.job.phase == SETTLED:
            return True
    return False


def _outcome(progress: Progress, settled: bool, report: Report, database: Path, statuses: dict[str, int]) -> Outcome:
    line = progress.line()
    return Outcome(
        cluster=progress.job.winner if progress.job is not None else "",
        settled=settled,
        line=line,
        story=explained(progress.commits, JOB) or [],
        report=report,
        seconds=round((line.until_ns - line.from_ns) / 1e9, 3) if line is not None else 0.0,
        log=str(database),
        unclean={name: status for name, status in statuses.items() if status},
    )
