"""The federator with 10,000 concurrent jobs over 20 clusters: ``python -m benchmarks.federation``.

*cores*: the fold and the rules alone, in CPU seconds of this process: a whole log folded; a poll's answer without news,
and one in which a hundredth of the jobs begin to run; all jobs decided.

*process*: `muster federator` as a process, on a real NATS server and OpenPAI clusters over HTTP, which run in processes
of their own (`benchmarks.federation_clusters`) and count what they are asked. The log and the clusters' jobs are made
beforehand: every job is submitted everywhere and waits. Then, one after the other:

- *start*: from the process' start to its first answer to a request;
- *polls*: some rounds in which nothing happens. Asserted: each cluster is asked for one list in each poll, and nothing
  else, however many jobs it has;
- *decisions*: some of the jobs begin to run on one cluster. From the answer that is decided on to the last decision, and
  to the last stop seen: each of these jobs is stopped on all other clusters;
- *submissions*: more jobs, by requests, as `muster job submit` makes them, until every cluster has accepted them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import events as ev
from benchmarks.arguments import any_number, at_least, new_file, some
from benchmarks.federation_clusters import TOKEN, USER, Clusters, name_of, protocol_of
from events import Event, envelope, micro, subjects
from events.connection import Connection
from events.federation import Contender, RunSeen
from events.homes import open_log
from events.jetstream import JetStreamLog
from events.log import EventLog, LogError
from events.server import EmbeddedServer
from services.console.demo.federator import write_files
from services.console.processes import Child, stop
from services.federator import core, observing
from services.federator.backends import RUNNING, WAITING, Listing, Run
from services.federator.records import RACING, account_of
from services.federator.state import State
from services.writer import Writer

GUARD_MS = 1_000
POLL_MS = 10_000
ROUNDS = 3
NEWS = 100
"""One of so many jobs begins to run between two polls."""
EVENTS = 1_000
"""Of one commit of the log that is made beforehand."""
SECOND_NS = 1_000_000_000
WITHIN_S = 600.0
MB = 1_000_000


class Size:
    """How many of what."""

    def __init__(self, jobs: int, clusters: int) -> None:
        self.jobs = [f"job-{number:05}" for number in range(jobs)]
        self.aliases = [f"c{number:02}" for number in range(clusters)]


# ------------------------------------------------------------------------------------------------------ the log before it


def history(size: Size, uris: dict[str, str], began_ns: int) -> Iterator[list[Event]]:
    """Commits: every job is accepted, submitted to every cluster, taken there, and seen to wait."""
    yield [ev.FederatorTaken(holder="before")]
    yield [ev.Ticked(time_ns=began_ns, jumped_ns=0)]
    yield from _commits(_federated(size, uris))
    yield from _commits(
        ev.SubmissionAccepted(job=name, cluster=alias, uid="", adopted=False)
        for name in size.jobs
        for alias in size.aliases
    )
    for alias in size.aliases:
        seen = tuple(RunSeen(job=name, cluster=alias, state=WAITING, attempt=0, started_ns=0) for name in size.jobs)
        yield [ev.ClusterObserved(account=account_of(USER, uris[alias]), asked_ns=0, runs=seen)]


def _federated(size: Size, uris: dict[str, str]) -> Iterator[Event]:
    for name in size.jobs:
        yield ev.JobFederated(
            job=name,
            name=name,
            digest="0" * 64,
            guard_ms=GUARD_MS,
            scale_ms=60_000,
            clusters=tuple(
                Contender(
                    cluster=alias, uri=uris[alias], user=USER, gpu_type="", priority_milli=0, name=name_of(name, alias)
                )
                for alias in size.aliases
            ),
        )


def _commits(events: Iterator[Event]) -> Iterator[list[Event]]:
    gathered: list[Event] = []
    for event in events:
        gathered.append(event)
        if len(gathered) >= (50 if isinstance(event, ev.JobFederated) else EVENTS):
            yield gathered
            gathered = []
    if gathered:
        yield gathered


# ----------------------------------------------------------------------------------------------------------- the cores


class Cores:
    """A state, and answers to it."""

    def __init__(self, size: Size) -> None:
        self.size, self.state, self.now_ns = size, State(), SECOND_NS
        self.uris = {alias: f"http://{alias}.example" for alias in size.aliases}
        self.runs = {alias: {name: run_of(name, alias, WAITING) for name in size.jobs} for alias in size.aliases}
        self.asked: dict[str, int] = {}

    def append(self, said: Sequence[Event]) -> None:
        self.state.apply(self.state.sequence + 1, said)

    def seen(self, alias: str) -> list[Event]:
        """What one list adds to the log, as the service takes it."""
        account = account_of(USER, self.uris[alias])
        listing = Listing(runs=tuple(self.runs[alias].values()), clock_ms=0)
        said = observing.observed(
            self.state,
            account,
            listing,
            asked_ns=self.now_ns,
            now_ns=self.now_ns,
            before_ns=self.asked.get(alias, -1),
        )
        self.asked[alias] = self.now_ns
        return [] if said is None else [observing.ticked(self.state, self.now_ns), said]

    def poll(self, alias: str) -> bool:
        """One list; whether it was written down."""
        said = self.seen(alias)
        if said:
            self.append(said)
        return bool(said)

    def decide(self) -> int:
        """How many events."""
        count = 0
        while said := core.decide(self.state):
            self.append(said)
            count += len(said)
        return count


def cores(size: Size) -> dict[str, object]:
    made = Cores(size)
    commits = list(history(size, made.uris, SECOND_NS))
    events = sum(map(len, commits))
    fold_s = _cpu(lambda: [made.append(commit) for commit in commits])
    first, second = size.aliases[:2]
    for alias in size.aliases:
        made.poll(alias)
    quiet_s = _cpu(lambda: [made.poll(alias) for alias in size.aliases]) / len(size.aliases)
    news: list[float] = []
    for starting in range(10):
        for name in size.jobs[starting::NEWS]:
            made.runs[second][name] = run_of(name, second, RUNNING)
        made.now_ns += SECOND_NS // 100
        news.append(_cpu(lambda: made.poll(second)))
    made.now_ns += SECOND_NS // 100
    for name in size.jobs:
        made.runs[first][name] = run_of(name, first, RUNNING)
    made.poll(first)
    made.now_ns += 2 * SECOND_NS
    ended_s = _cpu(lambda: made.poll(first))
    counted: list[int] = []
    deciding_s = _cpu(lambda: counted.append(made.decide()))
    assert not any(job.phase == RACING for job in made.state.jobs.values())
    return {
        "jobs": len(size.jobs),
        "clusters": len(size.aliases),
        "fold_events_per_s": round(events / fold_s),
        "fold_whole_log_s": round(fold_s, 2),
        "poll_without_news_ms": round(quiet_s * 1_000, 1),
        "poll_with_news_ms": round(sum(news) / len(news) * 1_000, 1),
        "poll_that_ends_all_guard_times_ms": round(ended_s * 1_000, 1),
        "decisions": counted[0],
        "decisions_per_s": round(counted[0] / deciding_s),
    }


def run_of(name: str, alias: str, state: str) -> Run:
    return Run(name=name_of(name, alias), uid="", state=state, attempt=0, started_ms=0)


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


# --------------------------------------------------------------------------------------------------------- the process


class Federator:
    """`muster federator` as a process, and who asks it."""

    def __init__(self, directory: Path, server: EmbeddedServer, uris: dict[str, str], profile: Path | None) -> None:
        self._arguments = ["cProfile", "-o", str(profile), "-m"] if profile else []
        self._arguments += ["services", "federator", "--nats", server.url]
        self._arguments += write_files(directory, uris, user=USER, token=TOKEN, poll_ms=POLL_MS)
        self._log = directory / "federator.log"
        self.child: Child
        self.connection = Connection(server.url)

    async def start(self, job: str) -> float:
        """Seconds until it answers for this job."""
        await self.connection.connect()
        began = time.monotonic()
        self.child = Child("federator", self._arguments, self._log)
        while True:
            self.child.check()
            try:
                await self.ask("status", name=job)
                return time.monotonic() - began
            except LogError:
                assert time.monotonic() - began < WITHIN_S, self.child.tail()
                await asyncio.sleep(0.01)

    async def ask(self, verb: str, **request: str) -> Any:
        return await micro.ask(self.connection, subjects.jobs(subjects.FEDERATION), verb, request)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self, what: str = "VmRSS") -> int:
        for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith(what):
                return round(int(line.split()[1]) * 1024 / MB)
        raise AssertionError(what)


class Followed:
    """The federation's log as it grows: its fold, and when the federator said what."""

    def __init__(self) -> None:
        self.state = State()
        self.count: dict[str, int] = {}
        self.decided_ns: list[int] = []
        """Times of the commits that are decisions."""
        self.seen_ns = 0
        """Of the last commit before the first of them."""
        self.decisions = 0

    async def follow(self, log: EventLog, after: int) -> None:
        async for batch in log.follow(after):
            for stored in batch:
                header = envelope.header_of(stored)
                if header is None or header.writer != "federator":
                    continue
                events = envelope.decode_events(stored)
                for event in events:
                    self.count[type(event).__name__] = self.count.get(type(event).__name__, 0) + 1
                if header.cause == "decide":
                    self.decided_ns.append(header.time_ns)
                    self.decisions += len(events)
                elif not self.decided_ns:
                    self.seen_ns = header.time_ns
            await asyncio.sleep(0)

    async def until(self, event: str, count: int) -> None:
        async with asyncio.timeout(WITHIN_S):
            while self.count.get(event, 0) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def process(
    size: Size, starting: int, submitted: int, profile: Path | None, directory: Path
) -> dict[str, object]:
    found: dict[str, object] = {"jobs": len(size.jobs), "clusters": len(size.aliases)}
    with EmbeddedServer(directory / "nats") as server, Clusters(size.aliases) as clusters:
        uris = clusters.uris
        clusters.fill(size.jobs)
        log = await open_log(server.url, subjects.FEDERATION, create=True)
        assert isinstance(log, JetStreamLog)
        writer = Writer(log, "federator")
        for commit in history(size, uris, time.time_ns()):
            await writer.append(commit, basis=0, cause="outcome")
        federator = Federator(directory, server, uris, profile)
        try:
            found["start_s"] = round(await federator.start(size.jobs[-1]), 2)
            found["start_cpu_s"] = round(federator.cpu_s(), 2)
            found["memory_mb"] = federator.memory_mb()
            await _polls(clusters, federator, found)
            followed = Followed()
            following = asyncio.create_task(followed.follow(log, await log.end()))
            try:
                if starting:
                    await _decisions(size, clusters, federator, followed, starting, found)
                if submitted:
                    await _submissions(size, uris, federator, followed, submitted, found)
            finally:
                following.cancel()
            found["memory_at_most_mb"] = federator.memory_mb("VmHWM")
        finally:
            stop([federator.child])
            await federator.connection.close()
            await log.close()
    return found


async def _polls(clusters: Clusters, federator: Federator, found: dict[str, object]) -> None:
    """Rounds in which nothing happens."""
    await asyncio.sleep(POLL_MS / 1_000)  # the first answers after a start are written down
    before, cpu_s, began = clusters.counts(), federator.cpu_s(), time.monotonic()
    await asyncio.sleep(ROUNDS * POLL_MS / 1_000)
    asked = {alias: _less(count, before[alias]) for alias, count in clusters.counts().items()}
    passed_s, cpu_s = time.monotonic() - began, federator.cpu_s() - cpu_s
    most = int(passed_s * 1_000 / (0.9 * POLL_MS)) + 1
    for alias, count in asked.items():
        assert set(count) == {"list"}, (alias, count)
        assert 1 <= count["list"] <= most, (alias, count, most)
    lists = sum(count["list"] for count in asked.values())
    found["lists"] = lists
    found["lists_for_each_cluster_in_each_poll"] = round(lists / len(asked) / (passed_s * 1_000 / (0.95 * POLL_MS)), 2)
    found["cpu_ms_for_each_poll_of_a_cluster"] = round(cpu_s / lists * 1_000, 1)
    found["cpu_share"] = round(cpu_s / passed_s, 3)


async def _decisions(
    size: Size, clusters: Clusters, federator: Federator, followed: Followed, starting: int, found: dict[str, object]
) -> None:
    """Some jobs begin to run on the first cluster."""
    cpu_s, began = federator.cpu_s(), time.monotonic()
    clusters.run(size.aliases[0], size.jobs[:starting])
    await followed.until("JobPlaced", starting)
    found["decided_jobs"] = starting
    found["decisions_per_s"] = round(followed.decisions * 1e9 / (followed.decided_ns[-1] - followed.seen_ns))
    await followed.until("JobSettled", starting)
    found["until_settled_s"] = round(time.monotonic() - began, 1)
    found["until_settled_cpu_s"] = round(federator.cpu_s() - cpu_s, 1)
    stops = {alias: count["stop"] for alias, count in clusters.counts().items() if count.get("stop")}
    found["stops"] = sum(stops.values())
    assert sum(stops.values()) >= starting * (len(size.aliases) - 1)


async def _submissions(
    size: Size, uris: dict[str, str], federator: Federator, followed: Followed, count: int, found: dict[str, object]
) -> None:
    """More jobs, by requests, eight at a time."""
    cpu_s, began, before = federator.cpu_s(), time.monotonic(), followed.count.get("SubmissionAccepted", 0)
    wanted = iter([f"more-{number:05}" for number in range(count)])

    async def client() -> None:
        for name in wanted:
            await federator.ask("submit", document=json.dumps(document(name, uris)))

    await asyncio.gather(*(client() for _ in range(8)))
    accepted_s = time.monotonic() - began
    await followed.until("SubmissionAccepted", before + count * len(size.aliases))
    found["submitted_jobs_per_s"] = round(count / accepted_s, 1)
    found["submissions_per_s"] = round(count * len(size.aliases) / (time.monotonic() - began), 1)
    found["cpu_ms_for_each_submission"] = round((federator.cpu_s() - cpu_s) / count / len(size.aliases) * 1_000, 2)


def document(name: str, uris: dict[str, str]) -> dict[str, Any]:
    """A multi-cluster job (JSON is YAML)."""
    parameters = {
        "clusters": {alias: {"uri": uri, "user": USER} for alias, uri in uris.items()},
        "params": {"gpus": dict.fromkeys(uris, 1)},
    }
    role = protocol_of(name)["taskRoles"]["main"] | {"commands": ["train --gpus <% $mcc.gpus %>"]}
    return protocol_of(name) | {
        "protocolVersion": "super-2",
        "taskRoles": {"main": role},
        "extras": {"com.microsoft.pai.runtimeplugin": [{"plugin": "super_scheduler", "parameters": parameters}]},
    }


def _less(count: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {verb: number - before.get(verb, 0) for verb, number in count.items() if number > before.get(verb, 0)}


def main() -> None:
    parser = argparse.ArgumentParser(description="A federator of many jobs over many clusters.")
    parser.add_argument("--jobs", type=some, default=10_000)
    parser.add_argument("--clusters", type=at_least(2), default=20)
    parser.add_argument("--starting", type=any_number, default=500, help="jobs that begin to run, of all at most")
    parser.add_argument("--submitted", type=any_number, default=100, help="jobs that are submitted by requests")
    parser.add_argument("--profile", type=new_file, metavar="FILE", help="cProfile's, of the federator")
    parser.add_argument("--only", choices=("cores", "process"))
    asked = parser.parse_args()
    size = Size(asked.jobs, asked.clusters)
    if asked.only != "process":
        print(json.dumps({"cores": cores(size)}), flush=True)
    if asked.only != "cores":
        with tempfile.TemporaryDirectory() as directory:
            starting = min(asked.starting, asked.jobs)
            found = asyncio.run(process(size, starting, asked.submitted, asked.profile, Path(directory)))
        print(json.dumps({"process": found}), flush=True)


if __name__ == "__main__":
    main()
