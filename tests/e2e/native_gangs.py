"""Which pods of Kubernetes' own gangs are bound: our cores beside the kube-scheduler's, on random small clusters.

    python -m tests.e2e.native_gangs [--from 0] [--seeds 100]

The kube-scheduler is that of ``.build/bin`` with its gates for gangs on, and without preemption. After each step of a
cluster's life both come to rest, and as many pods must be bound of each gang in each zone. Ours are asked with the
objects as the API server lists them, and with their own bindings instead of the others': ingest's difference to what the
log says, then the cores as `muster simulate` runs them. Where several groups want the last room, who goes first is left
open, but for the first step: everything in it is there before the kube-scheduler starts, so that the higher priority
goes first.

Needs the binaries of `python -m deploy.e2e.build`.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

import events as ev
from deploy.e2e.api import MERGE, Api, ApiError, Object, path_of
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.native_gangs import native_gangs
from deploy.e2e.processes import free_port
from deploy.e2e.workload import node
from events.policy import DEFAULT_POLICY
from services.console.remarks import READ
from services.console.simulate import Simulation
from services.ingest.differ import Ingest
from services.state.records import SUCCEEDED
from tests.e2e.cluster import until
from tests.e2e.native_gang_cases import NAMESPACES, PRIORITIES, SCHEDULER, Act, Draw, Life, Status, pod_group

PROBE = {"key": "probe", "value": "", "effect": "NoSchedule"}
"""Keeps everybody else off the nodes of probes."""
METRIC = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
Place = tuple[str, str, str]
"""Namespace, gang or '', zone: pods of one place are alike."""


# ------------------------------------------------------------------------------------------------- the kube-scheduler's


class Theirs:
    """A kube-scheduler with its own gangs, and when it is at rest."""

    def __init__(self, plane: ControlPlane, api: Api) -> None:
        self.api = api
        self.probes = 0
        backoff = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
        profile = {"schedulerName": SCHEDULER, "plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}
        public = "--authorization-always-allow-paths=/metrics,/readyz"
        port = free_port()
        self.url = f"https://127.0.0.1:{port}/metrics"
        flags = (*native_gangs().scheduler_flags, public, f"--secure-port={port}")
        self.process = plane.start_scheduler({"profiles": [profile], **backoff}, *flags)

    async def rest(self) -> dict[str, str]:
        """Pod → node, once it knows all that there is and has tried it in vain."""
        await self.probe()
        await self.tried()
        before: dict[str, str] | None = None
        while before != (now := await self.bound()):
            before = now
            await self.probe()
        return now

    async def bound(self) -> dict[str, str]:
        return {
            name: pod["spec"]["nodeName"]
            for name, pod in (await pods_of(self.api)).items()
            if "nodeName" in pod["spec"]
        }

    async def probe(self) -> None:
        """Until it knows every node, PodGroup and pod that is there now: it puts a pod of a group on a node, all of them
        created after the others."""
        self.probes += 1
        name = f"probe-{self.probes}"
        there = node(name)
        there["spec"] = {"taints": [PROBE]}
        group = pod_group("default", name, {"gang": {"minCount": 1}})
        spec = {
            "schedulerName": SCHEDULER,
            "containers": [{"name": "c", "image": "busybox"}],
            "nodeSelector": {"kubernetes.io/hostname": name},
            "tolerations": [{"key": "probe", "operator": "Exists"}],
            "schedulingGroup": {"podGroupName": name},
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
        await self.api.create(there)
        await create(self.api, group)
        await self.api.create(pod)

        async def bound() -> bool:
            assert self.process.alive, self.process.tail()
            return "nodeName" in (await self.api.get(path_of(pod)))["spec"]

        await until(bound, "the kube-scheduler binds the probe")

    async def tried(self) -> None:
        """Until its queues are empty, or it has tried once more what it tries again and again: gangs without room."""
        first: float | None = None
        waiting = waiting_gangs(await groups_of(self.api), (await pods_of(self.api)).values())

        async def enough() -> bool:
            nonlocal first
            numbers = await self.metrics()
            tries = numbers["scheduler_podgroup_schedule_attempts_total"]
            first = tries if first is None else first
            return numbers["active"] + numbers["backoff"] == 0 or tries > first + waiting

        await until(enough, "the kube-scheduler has tried what waits")

    async def metrics(self) -> dict[str, float]:
        """Sums by name; of pending pods by queue."""
        found: defaultdict[str, float] = defaultdict(float)
        async with aiohttp.ClientSession() as session, session.get(self.url, ssl=False) as got:
            for name, labels, value in METRIC.findall(await got.text()):
                queue = labels.partition('queue="')[2].rstrip('"')
                found[queue if name == "scheduler_pending_pods" else name] += float(value)
        return found


# ----------------------------------------------------------------------------------------------------------------- ours


class Ours:
    """A log in memory with the cores around it; the cluster is what the API server lists, with our own bindings."""

    def __init__(self) -> None:
        self.simulation = Simulation()
        self.simulation.begin(DEFAULT_POLICY)

    def rest(self, objects: Iterable[Object]) -> dict[str, str]:
        """Pod → node, once the cores have nothing more to say of these objects."""
        bound = self.bound()
        core = Ingest.of(self.simulation.state, {SCHEDULER})
        by_kind: dict[Any, list[Object]] = {kind: [] for kind in READ.values()}
        for obj in objects:
            if (kind := READ.get((obj["apiVersion"], obj["kind"]))) is not None:
                by_kind[kind].append(as_ours(obj, bound))
        facts: list[ev.Event] = []
        for kind, items in by_kind.items():
            page = {"metadata": {"resourceVersion": "0"}, "items": items}
            for seen in kind.page(msgspec.json.encode(page))[1]:
                facts += core.observe(seen)
        for name in {kind.name for kind in by_kind}:
            listed = {obj["metadata"]["uid"] for kind, items in by_kind.items() if kind.name == name for obj in items}
            facts += core.missing(name, listed)
        self.simulation.append("ingest", [*facts, ev.ClusterSynced(nodes=0, pods=0)], "facts")
        self.simulation.settle()
        return self.bound()

    def bound(self) -> dict[str, str]:
        pods = self.simulation.state.pods.values()
        return {
            f"{pod.fact.namespace}/{pod.fact.name}": pod.node for pod in pods if pod.node or pod.status == SUCCEEDED
        }


def as_ours(obj: Object, bound: Mapping[str, str]) -> Object:
    """With our binding; its versions leave room for those that the simulation's own writes count."""
    version = str(int(obj["metadata"]["resourceVersion"]) * 1_000)
    obj = obj | {"metadata": obj["metadata"] | {"resourceVersion": version}}
    if obj["kind"] != "Pod":
        return obj
    spec = {key: value for key, value in obj["spec"].items() if key != "nodeName"}
    where = bound.get(full_name(obj))
    return obj | {"spec": spec | ({"nodeName": where} if where else {})}


# ------------------------------------------------------------------------------------------------------------ comparing


def full_name(obj: Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def place_of(pod: Object) -> Place:
    gang = pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")
    return pod["metadata"]["namespace"], gang, pod["spec"]["nodeSelector"]["zone"]


def alike(pod: Object, first: bool) -> tuple[str, ...]:
    """Of pods for which this is equal it does not matter which are bound. Priorities of one gang's pods say who goes
    first where all of them are there: later the first may be bound before the others come."""
    return (*place_of(pod), pod["spec"].get("priorityClassName", "") if first else "")


def path(obj: Object) -> str:
    """The path of one object; Kubernetes' own gangs' kinds, too."""
    if obj["apiVersion"] != native_gangs().api_version:
        return path_of(obj)
    kind, namespace = obj["kind"].lower(), obj["metadata"]["namespace"]
    return f"/apis/{obj['apiVersion']}/namespaces/{namespace}/{kind}s/{obj['metadata']['name']}"


async def create(api: Api, obj: Object) -> None:
    sent = {key: value for key, value in obj.items() if key != "slots"}
    await api.call("POST", path(obj).rpartition("/")[0], sent)


async def act(api: Api, done: Act) -> None:
    verb, obj = done
    where = path(obj)
    if verb == "create":
        await create(api, obj)
    elif verb == "ungate":
        await api.call("PATCH", where, {"spec": {"schedulingGates": None}}, MERGE)
    elif verb in ("succeed", "fail"):
        phase = {"succeed": "Succeeded", "fail": "Failed"}[verb]
        await api.call("PATCH", where + "/status", {"status": {"phase": phase}}, MERGE)
    else:
        await api.delete(where, grace_s=3600 if verb == "terminate" else 0)
        if obj["kind"] == "PodGroup":
            await unprotected(api, where)


async def unprotected(api: Api, group: str) -> None:
    """Takes the finalizer off, by which Kubernetes keeps a PodGroup as long as it has pods."""
    try:
        await api.call("PATCH", group, {"metadata": {"finalizers": None}}, MERGE)
    except ApiError as error:
        if error.status != 404:
            raise


async def pods_of(api: Api) -> dict[str, Object]:
    found = await api.items("/api/v1/pods")
    return {full_name(pod): pod for pod in found if not pod["metadata"]["name"].startswith("probe-")}


async def groups_of(api: Api) -> list[Object]:
    version = native_gangs().api_version
    found = await api.items(f"/apis/{version}/podgroups")
    return [{"apiVersion": version, "kind": "PodGroup"} | one for one in found]


async def objects_of(api: Api) -> list[Object]:
    """What is there, but for the probes, as ingest would list it."""
    nodes: list[Object] = [{"apiVersion": "v1", "kind": "Node"} | one for one in await api.items("/api/v1/nodes")]
    groups = await groups_of(api)
    pods = [{"apiVersion": "v1", "kind": "Pod"} | one for one in (await pods_of(api)).values()]
    return [one for one in (*nodes, *groups) if not one["metadata"]["name"].startswith("probe-")] + pods


def waiting_gangs(groups: Iterable[Object], pods: Iterable[Object]) -> int:
    """How many have pods enough, and one without a node."""
    total, pending = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for pod in pods:
        key = place_of(pod)[:2]
        total[key] += 1
        pending[key] += "nodeName" not in pod["spec"]
    least = {(group["metadata"]["namespace"], group["metadata"]["name"]): minimum(group) for group in groups}
    return sum(bool(pending[key]) and total[key] >= of for key, of in least.items())


def minimum(group: Object) -> int:
    """Of a PodGroup; 0 where nothing has to start together."""
    return int(group["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 0))


class Both:
    """The kube-scheduler and our cores over one cluster."""

    def __init__(self, plane: ControlPlane, api: Api) -> None:
        self.plane, self.api = plane, api
        self.theirs: Theirs | None = None
        self.ours = Ours()

    async def step(self, acts: Iterable[Act]) -> tuple[dict[str, str], dict[str, str]]:
        """What is bound after these, at rest: theirs and ours. The first step's are there before anybody starts."""
        for one in acts:
            await act(self.api, one)
        self.theirs = self.theirs or Theirs(self.plane, self.api)
        return await self.theirs.rest(), self.ours.rest(await objects_of(self.api))

    async def end(self) -> None:
        if self.theirs is not None:
            self.theirs.process.stop()
        await clear(self.api)


class Outcome(NamedTuple):
    steps: int
    """Steps that were compared."""
    bound: int
    """Members of gangs that were bound in the end."""
    open: bool
    """Whether it ended where both may be right: several groups wanted the last room."""
    differences: list[str]


async def compared(plane: ControlPlane, api: Api, seed: int) -> Outcome:
    """One life, until the two differ."""
    draw, both = Draw(seed), Both(plane, api)
    acts, told = draw.first(), list[str]()
    before: tuple[Bound, Bound] = {}, {}
    try:
        for step in range(draw.steps):
            told += [f"  {step}: {said(one)}" for one in acts]
            their, our = await both.step(acts)
            found = differences(draw.life, (our, their), before, first=not step)
            members = sum(name in our and "schedulingGroup" in pod["spec"] for name, pod in draw.life.pods.items())
            if found:
                may = contended(draw.life, before[0], first=not step)
                return Outcome(step + 1, members, may, [] if may else [*told, *found])
            before = our, their
            same = [name for name in draw.life.pods if (name in our) == (name in their)]
            seen: dict[str, Status] = {name: "bound" if name in our else "pending" for name in same}
            acts = draw.next(seen)
        return Outcome(draw.steps, members, False, [])
    finally:
        await both.end()


def said(done: Act) -> str:
    verb, obj = done
    what = f"{verb} {obj['kind']} {obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
    if verb != "create":
        return what
    if obj["kind"] == "Node":
        return f"{what} with {obj['slots']} in {obj['metadata']['labels']['zone']}"
    if obj["kind"] == "PodGroup":
        return f"{what} {obj['spec']['schedulingPolicy']}"
    if obj["kind"] == "Pod":
        gate = ", gated" if "schedulingGates" in obj["spec"] else ""
        return f"{what} of {place_of(obj)[1:]}, {obj['spec'].get('priorityClassName', 'p0')}{gate}"
    return what


Bound = Mapping[str, str]
"""Pod → node."""


def differences(life: Life, now: tuple[Bound, Bound], before: tuple[Bound, Bound], *, first: bool) -> list[str]:
    """Of (ours, theirs), after this step and before it."""
    our, their = now
    ours, theirs = (Counter(alike(life.pods[name], first) for name in bound if name in life.pods) for bound in now)
    found = [
        f"{pods}: they bound {theirs[pods]}, we {ours[pods]}"
        for pods in sorted({*ours, *theirs})
        if ours[pods] != theirs[pods]
    ]
    if found:
        found += [f"  only they: {name}" for name in sorted(their.keys() - our.keys())]
        found += [f"  only we: {name}" for name in sorted(our.keys() - their.keys())]
    for who, bound, earlier in zip(("we", "they"), now, before, strict=True):
        found += [f"{who}: {said}" for said in below_minimum(life, bound, earlier)]
    return found


def below_minimum(life: Life, bound: Bound, before: Bound) -> list[str]:
    """Gangs of which pods were bound in this step, and that have fewer than must start together."""
    found = []
    for (namespace, name), group in life.groups.items():
        least = minimum(group)
        having = [one for one in bound if one in life.pods and place_of(life.pods[one])[:2] == (namespace, name)]
        if not set(having) <= before.keys() and len(having) < least:
            found.append(f"{namespace}/{name} has {len(having)} of {least}")
    return found


def contended(life: Life, before: Bound, *, first: bool) -> bool:
    """Whether in some zone pods of several groups want more than there is, and nothing says who goes first.

    Room of pods that have ended is free: they count for their gang alone.
    """
    wants: dict[str, Counter[str]] = {zone: Counter() for zone in life.slots}
    held: Counter[str] = Counter()
    highest: Counter[str] = Counter()
    for name, pod in life.pods.items():
        namespace, gang, zone = place_of(pod)
        if name in before:
            held[zone] += name not in life.ended
        elif "schedulingGates" not in pod["spec"]:
            key = f"{namespace}/{gang}" if gang else "single"
            wants[zone][key] += 1
            highest[key] = max(highest[key], int(pod["spec"].get("priorityClassName", "p0")[1:]))
    return any(
        len(of) > 1
        and sum(of.values()) > life.slots[zone] - held[zone]
        and not (first and len({highest[key] for key in of}) == len(of))
        for zone, of in wants.items()
    )


# ------------------------------------------------------------------------------------------------------------ exploring


async def prepare(api: Api) -> None:
    """Namespaces and priority classes."""
    for namespace in NAMESPACES:
        await api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for value in PRIORITIES:
        of = {"kind": "PriorityClass", "metadata": {"name": f"p{value}"}, "value": value}
        await api.apply({"apiVersion": "scheduling.k8s.io/v1"} | of)


async def clear(api: Api) -> None:
    for namespace in NAMESPACES:
        await api.delete(f"/api/v1/namespaces/{namespace}/pods")
        for kind in ("podgroups", "workloads"):
            await api.delete(f"/apis/{native_gangs().api_version}/namespaces/{namespace}/{kind}")
    await asyncio.gather(*(unprotected(api, path(group)) for group in await groups_of(api)))
    await api.delete("/api/v1/nodes")


async def explore(plane: ControlPlane, first: int, seeds: int) -> int:
    """How many lives differ."""
    ended: Counter[str] = Counter()
    async with Api(plane.url, plane.admin_token, plane.certificate) as api:
        await prepare(api)
        for seed in range(first, first + seeds):
            outcome = await compared(plane, api, seed)
            ended["differ" if outcome.differences else "open" if outcome.open else "agree"] += 1
            ended["steps"] += outcome.steps
            ended["bound"] += outcome.bound
            print("\n".join([f"seed {seed}: {dict(ended)}", *outcome.differences]), flush=True)
    return ended["differ"]


def main() -> int:
    parser = argparse.ArgumentParser(description="Kubernetes' own gangs: ours beside the kube-scheduler's.")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    wanted = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="muster-native-") as directory,
        ControlPlane(Path(directory), native_gangs().apiserver_flags) as plane,
    ):
        return int(asyncio.run(explore(plane, wanted.first, wanted.seeds)) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
