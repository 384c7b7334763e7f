"""Everything that runs: the control plane, three NATS servers, Muster's services under their supervisors."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import Counter
from contextlib import AsyncExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

from deploy.certificates import Authority
from deploy.e2e.api import Api
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.processes import Process
from deploy.nats import new_password
from events.log import LogError
from events.permissions import FEDERATION_OPERATOR, FEDERATOR, KEEPER, READER, configuration, users
from events.server import ServerError
from events.subjects import FEDERATION
from tests.chaos import audit, feeding, isolation
from tests.chaos.federation import Members
from tests.chaos.kept_log import KeptLog
from tests.chaos.network import Network
from tests.chaos.plan import APISERVER, CLIENTS, ETCD, GUEST, NATS, SERVICES, SUBSCRIBER, Variant
from tests.chaos.supervisor import Slot
from tests.e2e.cluster import NAMESPACE, install, until
from tests.server_cluster import ServerCluster, TlsFiles

CLUSTER = "chaos"
FINISHING = Path(__file__).with_name("finishing.yaml")
DISK_MEGABYTES = 512
STARTS_WITHIN_S = 300.0
FEED_BYTES = 100 << 20
"""JetStream sets them aside on each disk, and refuses a stream for which there is not so much."""
SNAPSHOT_BYTES, FEDERATION_SNAPSHOT_BYTES = 500_000, 50_000
"""A snapshot now and then within one run: starts come from them."""


def role_of(service: str) -> str:
    return service.partition("-")[0]


class Field:
    """`start` it with a stack that ends all of it."""

    def __init__(
        self, directory: Path, network: Network, variant: Variant, members: Members, *, small_disks: bool
    ) -> None:
        self.directory, self.network, self.variant, self.members = directory, network, variant, members
        self.small_disks = small_disks
        self.passwords = {role: new_password() for role in users()}
        self.control_plane = ControlPlane(directory / "control-plane", audit.flags(directory), durable=True)
        self.tls = _certificates(directory)
        extra = configuration(CLUSTER, self.passwords)
        self.nats = ServerCluster(directory / "nats", name="chaos", extra=extra, tls=self.tls)
        self.log = self._kept_log(CLUSTER, reader=READER, keeper=KEEPER)
        self.federation_log = self._kept_log(FEDERATION, reader=FEDERATION_OPERATOR, keeper=FEDERATION_OPERATOR)
        self.slots: dict[str, Slot] = {}
        self.kwok: Process | None = None
        self.busy: set[str] = set()
        """Servers that are down, stopped or full just now."""
        self.ended_alone: Counter[str] = Counter()
        """Servers that ended although nobody killed them."""
        self.api: Api
        self._supervised: list[asyncio.Task[None]] = []

    def _kept_log(self, cluster: str, *, reader: str, keeper: str) -> KeptLog:
        archive, furthest_ms = self.directory / f"archive-{cluster}.db", max(self.variant.clock_offsets_ms.values())
        roles: dict[str, Any] = {"reader": reader, "login": self.login(reader), "keeper": keeper}
        return KeptLog(self.muster, self.nats.url, cluster, archive, **roles, furthest_ms=furthest_ms)

    # ------------------------------------------------------------------------------------------------------- beginning

    async def start(self, stack: AsyncExitStack) -> None:
        stack.callback(self.control_plane.stop)
        plane = self.control_plane
        await asyncio.to_thread(plane.start)
        self.api = await stack.enter_async_context(Api(plane.url, plane.admin_token, plane.certificate))
        await install(self.api)
        self.kwok = await asyncio.to_thread(plane.start_kubelets, FINISHING)
        stack.callback(self.nats.stop)
        for name in NATS:
            if self.small_disks:
                isolation.small_disk(self.directory / "nats" / name, DISK_MEGABYTES)
            await self.start_nats(name)
        stack.push_async_callback(self.members.pai.stop)
        await self.members.start(self.directory / "federation")
        for service in SERVICES:
            self.slots[service] = await self._slot(service)
        stack.push_async_callback(self._stop_services)
        self._supervised = [asyncio.create_task(slot.keep()) for slot in self.slots.values()]
        self.resume_services()
        await until(self._policy_is_ours, "the policy is set", timeout_s=STARTS_WITHIN_S)
        await until(self._federation_is_there, "a federator has begun", timeout_s=STARTS_WITHIN_S)

    async def _policy_is_ours(self) -> bool:
        words = [word for pair in self.variant.policy.items() for word in pair]
        return (await self.muster("policy", "set", self.nats.url, *words, role="admin"))[0] == 0

    async def _federation_is_there(self) -> bool:
        with suppress(LogError):
            await (await self.federation_log.open()).close()
            return True
        return False

    async def _slot(self, service: str) -> Slot:
        role = role_of(service)
        ways = [await self.network.way(service, server.port) for server in self.nats.servers.values()]
        urls = ",".join(f"nats://127.0.0.1:{way}" for way in ways)
        asked: list[str | Path] = [role, "--cluster", CLUSTER]
        if service == SUBSCRIBER:
            asked = ["subscribe", self.variant.pattern, "--durable", service, "--json", "--cluster", CLUSTER]
        elif role == FEDERATOR:
            asked = [role, *self.members.flags]
        command: list[str | Path] = [sys.executable, "-m", "services", *asked, "--nats", urls]
        if role == "planner":
            command += ["--shard", "auto"]
        if service in CLIENTS:
            command += ["--kubeconfig", await self._kubeconfig(service, role)]
        environment = self.environment(role) | {
            "MUSTER_LOG_LEVEL": "debug",
            "MUSTER_SNAPSHOT_AFTER_BYTES": str(FEDERATION_SNAPSHOT_BYTES if role == FEDERATOR else SNAPSHOT_BYTES),
            "MUSTER_FEED_MAX_BYTES": str(FEED_BYTES),
            "MUSTER_BIND_CONCURRENCY": str(self.variant.bind_concurrency),
            "MUSTER_CLOCK_OFFSET_MS": str(self.variant.clock_offsets_ms[service]),
        }
        log = self.directory / "logs" / f"{service}.log"
        log.parent.mkdir(exist_ok=True)
        return Slot(service, command, log, environment, self.network.group(service))

    async def _kubeconfig(self, service: str, account: str) -> Path:
        plane = self.control_plane
        token = await self.api.token_for(NAMESPACE, account)
        written = plane.kubeconfig(f"system:serviceaccount:{NAMESPACE}:{account}", token).read_text()
        way = await self.network.way(service, plane.port)
        file = plane.directory / f"{service}.kubeconfig"
        file.write_text(written.replace(plane.url, f"https://127.0.0.1:{way}"))
        return file

    # ------------------------------------------------------------------------------------------------------- processes

    def environment(self, role: str) -> dict[str, str]:
        """By which a process reaches NATS in this role."""
        return {
            "MUSTER_NATS_USER": role,
            "MUSTER_NATS_PASSWORD": self.passwords[role],
            "MUSTER_NATS_CA_FILE": str(self.tls.authority),
            "MUSTER_LOG_REPLICAS": str(len(NATS)),
            "MUSTER_LOG_FORMAT": "json",
        }

    async def muster(
        self, *words: str, role: str, within_s: float = 120.0, clock_offset_ms: int = 0, cluster: str = CLUSTER
    ) -> tuple[int, str, str]:
        """A command of Muster's: exit code, stdout, stderr. It is killed when its time is over (TimeoutError)."""
        command = [sys.executable, "-m", "services", *words, "--cluster", cluster]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | self.environment(role) | {"MUSTER_CLOCK_OFFSET_MS": str(clock_offset_ms)},
        )
        try:
            async with asyncio.timeout(within_s):
                out, err = await process.communicate()
        except BaseException:
            with suppress(ProcessLookupError):  # it has ended in the same turn
                process.kill()
            await process.wait()
            raise
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def published(self) -> list[feeding.Published]:
        """What the feed holds. Raises LogError."""
        return await feeding.published(self.nats.url, CLUSTER, **self.login("operator"))

    def delivered(self) -> list[feeding.Published]:
        """What the subscriber printed."""
        return feeding.printed(self.slots[SUBSCRIBER].log)

    def login(self, user: str) -> dict[str, Any]:
        return {"user": user, "password": self.passwords[user], "ca_file": str(self.tls.authority)}

    def resume_services(self) -> None:
        """All but the guest are wanted."""
        for slot in self.slots.values():
            if slot.name != GUEST:
                slot.wanted.set()

    async def end_services(self) -> dict[str, int]:
        """Told to end, and not started again; their exit codes. Raises TimeoutError."""
        for slot in self.slots.values():
            slot.wanted.clear()
        running = [slot for slot in self.slots.values() if slot.alive]
        await asyncio.gather(*(slot.end() for slot in running))
        return {slot.name: slot.process.popen.returncode for slot in running if slot.process is not None}

    async def _stop_services(self) -> None:
        for task in self._supervised:
            task.cancel()
        for slot in self.slots.values():
            if slot.process is not None:
                slot.process.kill()

    # --------------------------------------------------------------------------------------------------------- servers

    async def start_nats(self, name: str) -> None:
        """Again and again until it takes connections: its disk may be full, the machine slow."""
        server, group = self.nats.servers[name], self.network.group(f"nats {name}")

        def start() -> None:
            with isolation.group(group) if group else nullcontext():
                server.start()

        async with asyncio.timeout(STARTS_WITHIN_S):
            while True:
                try:
                    return await asyncio.to_thread(start)
                except (ServerError, OSError):
                    await asyncio.sleep(0.5)

    async def start_control(self, name: str) -> None:
        """Etcd or the apiserver, again and again until it is ready: one needs the other."""
        plane = self.control_plane
        start = {ETCD: plane.start_etcd, APISERVER: plane.start_apiserver}[name]
        async with asyncio.timeout(STARTS_WITHIN_S):
            while True:
                try:
                    return await asyncio.to_thread(start)
                except (RuntimeError, TimeoutError):
                    self.control(name).kill()

    def control(self, name: str) -> Process:
        return self.control_plane.processes[{ETCD: "etcd", APISERVER: "kube-apiserver"}[name]]

    @property
    def client_ports(self) -> list[int]:
        return [server.port for server in self.nats.servers.values()]

    @property
    def routes(self) -> dict[str, int]:
        """The port at which each NATS server listens for its peers."""
        found = {
            name: re.search(r'listen: "127.0.0.1:(\d+)"', server.extra) for name, server in self.nats.servers.items()
        }
        return {name: int(match[1]) for name, match in found.items() if match}

    async def mend(self) -> None:
        """Starts what ended although nobody killed it, and counts it."""
        for name, server in self.nats.servers.items():
            if not server.alive:
                self.ended_alone[f"nats {name}"] += 1
                server.kill()
                await self.start_nats(name)
        for name in (ETCD, APISERVER):
            if not self.control(name).alive:
                self.ended_alone[name] += 1
                await self.start_control(name)
        if self.kwok is not None and not self.kwok.alive:
            self.ended_alone["kwok"] += 1
            self.kwok = await asyncio.to_thread(self.control_plane.start_kubelets, FINISHING)


def _certificates(directory: Path) -> TlsFiles:
    """The servers' own, of an authority that is nobody else's."""
    authority = Authority("muster-chaos")
    issued = authority.issue(["127.0.0.1"])
    files = TlsFiles(directory / "ca.pem", directory / "server.pem", directory / "server.key")
    for file, text in zip(files, (authority.certificate, issued.certificate, issued.key), strict=True):
        file.write_text(text)
    return files
