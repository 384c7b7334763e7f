"""Muster as it is deployed: each service an OS process of its own, under a service account of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from deploy.e2e.api import Api, ApiError, Object
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.processes import Process
from deploy.e2e.workload import GANG_LABEL
from deploy.nats import new_password
from events.homes import open_log
from events.permissions import configuration, users
from events.server import EmbeddedServer
from services.state.fold import State
from services.state.records import BOUND_CLAIM, FAILED, PERMITTED, SUCCEEDED

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "deploy" / "manifests"
COMMAND = Path(sys.executable).with_name("muster")
NAMESPACE = "muster-system"
WITH_ACCOUNT = ("ingest", "binder")
"""Services that talk to the API; the others have no token at all."""


def documents(file: Path) -> list[Object]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


async def install(api: Api) -> None:
    """Applies what Muster needs in a cluster: its namespace, the PodGroup CRD, accounts and roles."""
    for name in ("00-namespace.yaml", "10-podgroup-crd.yaml", "20-rbac.yaml"):
        for document in documents(MANIFESTS / name):
            await api.apply(document)

    async def served() -> bool:
        try:
            await api.get("/apis/scheduling.x-k8s.io/v1alpha1/podgroups")
        except ApiError:
            return False
        return True

    await until(served, "PodGroups are served")


async def clear(api: Api) -> None:
    """Removes every workload, pod, group and node."""
    for path in (
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/apps/v1/namespaces/default/replicasets",
        "/apis/apps/v1/namespaces/default/daemonsets",
        "/apis/batch/v1/namespaces/default/jobs",
        "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/events",
        "/api/v1/nodes",
    ):
        await api.delete(path)

    async def empty() -> bool:
        await api.delete("/api/v1/namespaces/default/pods")  # a controller may have made another one
        return not await api.items("/api/v1/pods") and not await api.items("/api/v1/nodes")

    await until(empty, "the cluster is empty")


async def until(condition: Callable[[], Awaitable[object]], what: str, *, timeout_s: float = 90) -> None:
    """Polls until the condition holds; TimeoutError says what did not come."""
    deadline = time.monotonic() + timeout_s
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s} s")
        await asyncio.sleep(0.1)


class Muster:
    """One cluster's log and the services on it. Several of one kind may run: one of them is active."""

    cluster = "e2e"

    def __init__(self, control_plane: ControlPlane, api: Api, directory: Path) -> None:
        self.control_plane, self.api, self.directory = control_plane, api, directory
        self.passwords = {user: new_password() for user in users()}
        self.nats = EmbeddedServer(directory / "nats", extra=configuration(self.cluster, self.passwords))
        self.kubeconfigs: dict[str, Path] = {}
        self.processes: list[Process] = []
        self.forgiven: list[Process] = []
        """Processes that are expected to end by themselves: replaced writers."""

    async def prepare(self) -> None:
        self.nats.start()
        for account in WITH_ACCOUNT:
            token = await self.api.token_for(NAMESPACE, account)
            user = f"system:serviceaccount:{NAMESPACE}:{account}"
            self.kubeconfigs[account] = self.control_plane.kubeconfig(user, token)

    def start(self, service: str, *flags: str, environment: dict[str, str] | None = None) -> Process:
        """``muster SERVICE …`` as a process; returns at once."""
        command = [str(COMMAND), service, "--nats", self.nats.url, "--cluster", self.cluster, *flags]
        if service in self.kubeconfigs:
            command += ["--kubeconfig", str(self.kubeconfigs[service])]
        name = f"{service}-{len(self.processes)}"
        settings = self.credentials(service) | (environment or {})
        process = Process(name, command, self.directory / f"{name}.log", settings)
        self.processes.append(process)
        return process

    def credentials(self, role: str) -> dict[str, str]:
        """The environment by which a process proves its role to NATS, which holds it to what that role may do."""
        return {"MUSTER_NATS_USER": role, "MUSTER_NATS_PASSWORD": self.passwords[role], "MUSTER_LOG_FORMAT": "text"}

    def start_all(self, **environment: str) -> dict[str, Process]:
        """Ingest, planner and binder, by name."""
        return {name: self.start(name, environment=environment) for name in ("ingest", "planner", "binder")}

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.stop(timeout_s=10)
        self.nats.stop()

    def show_logs(self) -> None:
        for process in self.processes:
            print(f"---- {process.name} (pid {process.pid}, exit {process.popen.returncode}), {process.log}")
            print(process.tail(60))

    async def bound(self) -> dict[str, str]:
        """pod name → node, of the pods in the default namespace that have one."""
        pods = await self.api.items("/api/v1/namespaces/default/pods")
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}

    async def count(self, chosen: str) -> int:
        """How many pods of the default namespace a field selector chooses."""
        path = f"/api/v1/namespaces/default/pods?fieldSelector={quote(chosen)}&includeObject=None"
        return len(await self.api.names(path))

    async def until_bound(self, count: int, *, timeout_s: float = 120) -> dict[str, str]:
        """Waits until at least so many pods have a node; returns them as `bound` does."""
        found = 0

        async def enough() -> bool:
            nonlocal found
            self.check_alive()
            found = await self.count("spec.nodeName!=")
            return found >= count

        try:
            await until(enough, f"{count} pods are bound", timeout_s=timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {found} are") from None
        return await self.bound()

    def check_alive(self) -> None:
        """A service that ended by itself is an error at once; those that the test ended are not."""
        for process in self.processes:
            code = process.popen.poll()
            assert code in (None, 0, -9) or process in self.forgiven, f"{process.name}: exit {code}\n{process.tail()}"

    async def condition(self, pod: str) -> Object:
        """The PodScheduled condition of a pod; {} while it has none."""
        conditions = (await self.api.get(f"/api/v1/namespaces/default/pods/{pod}"))["status"].get("conditions", [])
        return next((one for one in conditions if one["type"] == "PodScheduled"), {})

    async def verify(self) -> Object:
        """``muster verify`` on the live log: every decision must come out again. Returns what it printed."""
        command = [str(COMMAND), "verify", self.nats.url, "--cluster", self.cluster, "--strict", "50", "--json"]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | self.credentials("reader")
        )
        out, err = await process.communicate()
        assert process.returncode == 0, f"muster verify: exit {process.returncode}\n{out.decode()}\n{err.decode()}"
        answer: Object = json.loads(out.decode().strip().splitlines()[-1])
        return answer

    async def check(self) -> None:
        """What must hold of the cluster and of the log once things have settled."""
        await check_room(self.api)
        await check_gangs(self.api)
        await self.check_agreement()
        assert (await self.verify())["verified"]

    async def set_policy(self, *flags: str) -> None:
        """``muster policy set`` with these."""
        command = [str(COMMAND), "policy", "set", self.nats.url, "--cluster", self.cluster, *flags]
        environment = os.environ | self.credentials("admin")
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, env=environment)

    async def until_folded(self, holds: Callable[[State], Awaitable[bool]], what: str) -> State:
        """The log's state, once this holds of it."""
        log = await open_log(self.nats.url, self.cluster, user="reader", password=self.passwords["reader"])
        state = State()

        async def folded() -> bool:
            async for batch in log.read(state.sequence):
                for stored in batch:
                    state.apply_stored(stored)
            return await holds(state)

        try:
            await until(folded, what)
        finally:
            await log.close()
        return state

    async def check_agreement(self) -> None:
        """The log comes to say what the cluster says: the same pods on the same nodes, and no room claimed for others."""
        ours: dict[str, str] = {}
        theirs: dict[str, str] = {}

        async def agree(state: State) -> bool:
            live = [pod for pod in state.pods.values() if pod.status not in (SUCCEEDED, FAILED)]
            ours.clear()
            ours.update({pod.fact.uid: pod.node for pod in live if pod.node})
            theirs.clear()
            theirs.update(await occupied(self.api))
            return ours == theirs

        try:
            state = await self.until_folded(agree, "the log and the cluster agree")
        except TimeoutError as error:
            differing = dict(ours.items() ^ theirs.items())
            raise AssertionError(f"{error}: {len(differing)} pods differ, e.g. {list(differing.items())[:5]}") from None
        claimed = {uid: claim.node for uid, claim in state.claims.items() if claim.stage in (PERMITTED, BOUND_CLAIM)}
        assert not claimed.items() - theirs.items(), "room is claimed for pods that are not there"


async def occupied(api: Api) -> dict[str, str]:
    """Pod UID → node, of all pods that occupy one."""
    return {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"]
        for pod in await api.items("/api/v1/pods")
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed")
    }


async def check_room(api: Api) -> None:
    """No node holds more than it offers."""
    used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for pod in await api.items("/api/v1/pods"):
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            used[pod["spec"]["nodeName"]]["pods"] += 1000
            for container in pod["spec"]["containers"]:
                for name, quantity in container.get("resources", {}).get("requests", {}).items():
                    used[pod["spec"]["nodeName"]][name] += thousandths(quantity)
    offered = {node["metadata"]["name"]: node["status"]["allocatable"] for node in await api.items("/api/v1/nodes")}
    over = [
        f"{node}: {name} {amount} of {offered[node].get(name, '0')}"
        for node, amounts in used.items()
        for name, amount in amounts.items()
        if node in offered and amount > thousandths(offered[node].get(name, "0"))
    ]
    assert not over, f"nodes over their allocatable (in thousandths): {over}"


async def check_gangs(api: Api) -> None:
    """No gang is half bound: of each gang none of the live pods has a node, or at least the minimum."""
    groups = await api.items("/apis/scheduling.x-k8s.io/v1alpha1/podgroups")
    minimum = {group["metadata"]["name"]: group["spec"]["minMember"] for group in groups}
    bound: dict[str, int] = defaultdict(int)
    for pod in await api.items("/api/v1/namespaces/default/pods"):
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"):
            bound[pod["metadata"].get("labels", {}).get(GANG_LABEL, "")] += 1
    half = {name: f"{bound[name]} of {least}" for name, least in minimum.items() if 0 < bound[name] < least}
    assert not half, f"gangs half bound: {half}"


SUFFIXES = {"": 1000, "m": 1, "k": 10**6, "M": 10**9, "G": 10**12, "Ki": 1000 << 10, "Mi": 1000 << 20, "Gi": 1000 << 30}


def thousandths(quantity: str) -> int:
    """A quantity as these tests write it, in thousandths of its unit."""
    match = re.fullmatch(r"(\d+)(\w*)", quantity)
    assert match, f"quantity {quantity!r}: expected digits and a suffix"
    return int(match[1]) * SUFFIXES[match[2]]


def by_name(things: Iterable[Object]) -> dict[str, Any]:
    return {thing["metadata"]["name"]: thing for thing in things}
