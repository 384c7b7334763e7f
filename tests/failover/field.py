"""Muster's services as processes, each as its own user, over three NATS servers with TLS; gangs come all the time."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from deploy.certificates import Authority
from deploy.e2e.processes import Process
from deploy.e2e.workload import GANG_LABEL, nodes, pod, pod_group
from events import PodFinished, cloudevents, lease, object_store, subjects
from events.connection import Connection
from events.envelope import Stored, decode
from events.homes import open_log
from events.jetstream import JetStreamLog
from events.log import LogError
from events.permissions import configuration, users
from events.server import EmbeddedServer
from services.console.launch import STEPPED_DOWN
from services.simulator.cluster import SimulatedCluster
from services.simulator.kubelet import DURATION
from services.state.fold import State
from tests.server_cluster import ServerCluster, TlsFiles

CLUSTER = "failover"
REPLICAS = 3
NODES, GANG, EVERY_S = 40, 2, 0.1
LIFE_MS = 1000
"""How long a gang runs: there is always room."""
SNAPSHOT_AFTER_BYTES = 100_000
SNAPSHOTS = object_store.stream(CLUSTER)
STREAMS = (subjects.stream(CLUSTER), lease.stream(CLUSTER), cloudevents.stream(CLUSTER))
ROLES = ("ingest", "planner", "planner", "binder", "binder", "feed")
"""Two shards; a binder that stands by."""
WITHIN_S = 60.0


class Read(NamedTuple):
    """A commit as the reader saw it; `time_ns` is its writer's clock before he appended it."""

    stored: Stored
    time_ns: int
    cause: str


class Field:
    """Get one from `running`."""

    def __init__(
        self, directory: Path, servers: ServerCluster, cluster: SimulatedCluster, tls: TlsFiles, every_s: float
    ) -> None:
        self.directory, self.servers, self.cluster, self.every_s = directory, servers, cluster, every_s
        self.services: dict[str, Process] = {}
        self.read: list[Read] = []
        self.finished = 0
        """Pods, as the log says."""
        self.state = State()
        self.made = 0
        """Gangs, all of the same size."""
        self.making = True
        self.operator: Connection
        self.log: JetStreamLog
        self._tls = tls
        self._replaced: set[str] = set()

    def login(self, user: str) -> dict[str, Any]:
        return {"user": user, "password": f"of {user}", "ca_file": str(self._tls.authority)}

    def environment(self, user: str) -> dict[str, str]:
        return {
            "MUSTER_NATS_URL": self.servers.url,
            "MUSTER_NATS_USER": user,
            "MUSTER_NATS_PASSWORD": f"of {user}",
            "MUSTER_NATS_CA_FILE": str(self._tls.authority),
            "MUSTER_CLUSTER": CLUSTER,
            "MUSTER_LOG_REPLICAS": str(REPLICAS),
            "MUSTER_KUBECONFIG": str(self.directory / "kubeconfig"),
            "MUSTER_SHARD": "auto",
            "MUSTER_SNAPSHOT_AFTER_BYTES": str(SNAPSHOT_AFTER_BYTES),
            "MUSTER_LOG_LEVEL": "debug",
            "MUSTER_LOG_FORMAT": "json",
        }

    def start(self, role: str) -> None:
        name = f"{role}-{len(self.services)}"
        command = [sys.executable, "-m", "services", role]
        self.services[name] = Process(name, command, self.directory / f"{name}.log", self.environment(role))

    def stop(self) -> None:
        """All together; an end that took too long is a kill."""
        for service in self.services.values():
            if service.alive:
                service.popen.terminate()
        for service in self.services.values():
            service.stop()

    async def muster(self, *words: str, user: str) -> tuple[int, dict[str, Any]]:
        """A command of Muster's with --json: exit code, and what it says."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services", *words, "--json"),
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | self.environment(user),
        )
        out, _ = await process.communicate()
        return process.returncode or 0, json.loads(out.splitlines()[-1]) if out else {}

    # -------------------------------------------------------------------------------------------------- what goes on

    async def make_gangs(self) -> None:
        while True:
            if self.making:
                name = f"gang-{self.made:05}"
                self.cluster.create(pod_group(name, GANG))
                for member in range(GANG):
                    one = pod(f"{name}-{member}", labels={GANG_LABEL: name}, gpus=0, cpu="100m", memory="64Mi")
                    one["metadata"]["annotations"] = {DURATION: str(LIFE_MS)}
                    self.cluster.create(one)
                self.made += 1
            await asyncio.sleep(self.every_s)

    async def follow(self) -> None:
        async for batch in self.log.follow():
            for stored in batch:
                self._note(stored)

    def _note(self, stored: Stored) -> None:
        assert stored.sequence == len(self.read) + 1, "a reader skips nothing"
        commit = decode(stored)
        self.read.append(Read(stored, commit.header.time_ns, commit.header.cause))
        self.finished += sum(isinstance(event, PodFinished) for event in commit.events)
        self.state.apply_stored(stored)

    async def until(self, condition: Callable[[], object], what: str, within_s: float = WITHIN_S) -> None:
        """Raises AssertionError for what never comes, or when a service has ended but for being replaced."""
        deadline_s = time.monotonic() + within_s
        while not condition():
            for service in [one for one in self.services.values() if not one.alive and one.name not in self._replaced]:
                assert service.popen.returncode == STEPPED_DOWN, f"{service.popen.returncode}:\n{service.tail()}"
                self._replaced.add(service.name)
                self.start(service.name.partition("-")[0])
            assert time.monotonic() < deadline_s, f"waited {within_s:.0f} s for {what}"
            await asyncio.sleep(0.02)

    @property
    def stepped_down(self) -> int:
        """How many services were replaced, and started again."""
        return len(self._replaced)

    async def goes_on(self) -> None:
        """Until all gangs are bound that are made in the next second."""
        made = self.made + round(1 / self.every_s)
        await self.until(lambda: self.bound() >= made, "gangs to be bound")

    def bound(self) -> int:
        """Gangs of which all members have a node in the cluster."""
        return sum(bool(one["spec"].get("nodeName")) for one in self.cluster.list("Pod", "default")) // GANG

    async def rest(self) -> None:
        """No more gangs; until every pod ran to its end, and the log says so."""
        self.making = False
        await self.until(lambda: self.finished == self.made * GANG, "all pods to be bound and to finish")

    # ------------------------------------------------------------------------------------------------- the servers

    async def placement(self, stream: str) -> tuple[str, list[dict[str, Any]]]:
        """(the stream's leader; what it says of its other replicas). Raises LogError."""
        found = json.loads(await self.operator.ask(f"$JS.API.STREAM.INFO.{stream}"))["cluster"]
        return found.get("leader", ""), found.get("replicas", [])

    async def leader(self) -> EmbeddedServer:
        """Of the log."""
        return self.servers.servers[(await self.placement(subjects.stream(CLUSTER)))[0]]

    async def follower(self) -> EmbeddedServer:
        _, others = await self.placement(subjects.stream(CLUSTER))
        return self.servers.servers[others[0]["name"]]

    async def whole(self, streams: Sequence[str] = STREAMS) -> None:
        """Until each stream has a leader and two replicas that have everything."""
        async with asyncio.timeout(WITHIN_S):
            while not all([await self.is_whole(name) for name in streams]):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def is_whole(self, stream: str) -> bool:
        with suppress(LogError):
            leader, others = await self.placement(stream)
            return bool(leader) and sum(one["current"] and not one.get("offline") for one in others) == REPLICAS - 1
        return False

    # ------------------------------------------------------------------------------------------------ what came of it

    def silence_s(self, since_ns: int, cause: str = "") -> float:
        """The longest time between two commits since then, by their writers' clocks; of this `cause` alone, if given."""
        times = sorted(one.time_ns for one in self.read if cause in ("", one.cause))
        return max((later - earlier for earlier, later in pairwise(times) if later >= since_ns), default=0) / 1e9

    def taken(self) -> int:
        """How often a writer's subject was taken."""
        return sum(one.cause == "taken" for one in self.read)

    def acknowledged(self) -> list[tuple[int, str]]:
        """(sequence, message id): what the services say that they were told."""
        lines = (line for service in self.services.values() for line in service.log.read_text().splitlines())
        said = [json.loads(line) for line in lines if '"acknowledged"' in line]
        return [(one["sequence"], one["id"]) for one in said]


def certificates(directory: Path) -> TlsFiles:
    authority = Authority()
    issued = authority.issue(["127.0.0.1"])
    files = TlsFiles(directory / "ca.pem", directory / "server.pem", directory / "server.key")
    for file, text in zip(files, (authority.certificate, issued.certificate, issued.key), strict=True):
        file.write_text(text)
    return files


@asynccontextmanager
async def running(directory: Path, every_s: float = EVERY_S) -> AsyncIterator[Field]:
    """All of it, until gangs are bound. `every_s`: between two of them."""
    tls = certificates(directory)
    passwords = {user: f"of {user}" for user in users()}
    async with AsyncExitStack() as stack:
        servers = ServerCluster(directory / "nats", extra=configuration(CLUSTER, passwords), tls=tls)
        stack.callback(servers.stop)
        servers.start()
        cluster = await stack.enter_async_context(SimulatedCluster())
        cluster.load(nodes(NODES))
        cluster.write_kubeconfig(directory / "kubeconfig")
        field = Field(directory, servers, cluster, tls, every_s)
        for role in ROLES:
            field.start(role)
        stack.callback(field.stop)
        field.operator = await Connection(servers.url).connect(**field.login("operator"))
        stack.push_async_callback(field.operator.close)
        log = await open_log(servers.url, CLUSTER, create=True, replicas=REPLICAS, **field.login("operator"))
        assert isinstance(log, JetStreamLog)
        field.log = log
        stack.push_async_callback(log.close)
        for work in (field.follow(), field.make_gangs()):
            task = asyncio.create_task(work)
            stack.push_async_callback(_cancelled, task)
        await field.until(lambda: field.bound() > 5, "the first gangs to be bound")
        yield field


async def _cancelled(task: asyncio.Task[None]) -> None:
    """Raises what it raised before."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
