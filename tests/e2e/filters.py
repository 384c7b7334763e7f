"""Which nodes take a pod, and why the others do not: our filters beside the kube-scheduler's, on random small clusters.

    python -m tests.e2e.filters [--from 0] [--seeds 100]

The kube-scheduler is that of ``.build/bin`` with its default filters and one extender: a webhook that is told which nodes
are left for a pod, and turns all of them down. So a pod is a question about every node at once, no answer changes the
next one, and the pod's condition counts the other nodes by reason. Ours are asked with the objects as the API server
lists them, its defaults filled in: the filters about every node, and the cores as `muster simulate` runs them, pod by
pod.

What is known to differ is evened out: we name the taint, and order reasons by name. Needs the binaries of `python -m
deploy.e2e.build`. Run like this, tolerations compare numbers, too, which v1.36 has behind a gate.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from deploy.e2e.api import MERGE, Api, ApiError, Object, path_of
from deploy.e2e.control_plane import ControlPlane
from deploy.e2e.release import installed_minor
from events.policy import DEFAULT_POLICY
from services.console.simulate import Simulation
from services.planner.ports import Ports
from services.state import fits
from services.state.records import Pod
from tests.e2e.cluster import until
from tests.e2e.filter_cases import RUNTIME, Cluster, cluster

SCHEDULER = "asked"
QUESTIONS = 50
"""Pods that ask, of each cluster; the API server refuses one in ten."""
LEFT = "left"
"""What the extender says of the nodes that it turns down."""
REASON = re.compile(r"(\d+) (.+?)(?=, \d+ |$)")
SENTENCE = re.compile(r"\.(?: |$)")
GATES = "--feature-gates=TaintTolerationComparisonOperators=true"


class Answer(NamedTuple):
    """About one pod: the nodes that take it, and how many do not, by reason."""

    takes: frozenset[str]
    reasons: dict[str, int]


def counted(message: str) -> dict[str, int]:
    """``0/4 nodes are available: 3 Insufficient cpu, 1 Too many pods.`` → each reason's count, whatever the taint.

    A reason without a count is for all nodes; without any, the whole message is the reason. What follows in sentences of
    their own is left out.
    """
    head, _, told = message.partition(" nodes are available: ")
    reasons = SENTENCE.split(told, maxsplit=1)[0]
    counts: Counter[str] = Counter()
    for count, reason in REASON.findall(reasons):
        counts[re.sub(r"untolerated taint.*", "untolerated taint(s)", reason)] += int(count)
    if not counts:
        return {reasons: int(head.partition("/")[2])} if reasons else {message: 1}
    del counts[LEFT]
    return dict(counts)


# ------------------------------------------------------------------------------------------------- the kube-scheduler's


class Asked:
    """A kube-scheduler that binds nothing, and says of each pod where it would."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.left: dict[str, frozenset[str]] = {}
        """Pod → nodes, of the pods for which any were left."""

    async def filter(self, request: web.Request) -> web.Response:
        """The extender: notes which nodes are left, and takes none."""
        asked = await request.json()
        names = asked["NodeNames"]
        self.left[asked["Pod"]["metadata"]["name"]] = frozenset(names)
        return web.json_response({"NodeNames": [], "FailedNodes": dict.fromkeys(names, LEFT)})

    async def answers(self, pods: Iterable[Object]) -> dict[str, Answer]:
        """About pods that were created, by name."""
        missing = {pod["metadata"]["name"] for pod in pods}
        found: dict[str, Answer] = {}

        async def answered() -> bool:
            for pod in await self.api.items("/api/v1/namespaces/default/pods"):
                name = pod["metadata"]["name"]
                for condition in pod["status"].get("conditions", []) if name in missing else ():
                    if condition["type"] == "PodScheduled":
                        found[name] = Answer(self.left.get(name, frozenset()), counted(condition["message"]))
                        missing.discard(name)
            return not missing

        await until(answered, "the kube-scheduler answers")
        return found

    async def know_all(self) -> None:
        """Until it knows every node and pod that is there now: it puts a pod on a node that was created after them."""
        last = {"metadata": {"name": "last"}, "status": {"allocatable": {"pods": "110"}}}
        await self.api.create({"apiVersion": "v1", "kind": "Node"} | last)
        named = {"key": "metadata.name", "operator": "In", "values": ["last"]}
        required = {"nodeSelectorTerms": [{"matchFields": [named]}]}
        spec = {
            "schedulerName": SCHEDULER,
            "containers": [{"name": "c", "image": "busybox"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        }
        probe = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": spec}

        async def known() -> bool:
            await self.api.create(probe)
            answer = (await self.answers([probe]))["probe"]
            await self.api.delete(path_of(probe))
            return bool(answer.takes)

        self.left.pop("probe", None)
        await until(known, "the kube-scheduler knows the last node")


@asynccontextmanager
async def asked_scheduler(plane: ControlPlane, api: Api, *flags: str) -> AsyncIterator[Asked]:
    """The kube-scheduler with its extender; and the RuntimeClass that some pods name."""
    asked = Asked(api)
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/filter", asked.filter)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    extender = {"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True}
    profile = {"schedulerName": SCHEDULER, "plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}
    runtimes = "/apis/node.k8s.io/v1/runtimeclasses"
    await api.call("POST", runtimes, RUNTIME)
    scheduler = plane.start_scheduler({"profiles": [profile], "extenders": [extender]}, *flags)
    try:
        yield asked
    finally:
        scheduler.stop()
        await runner.cleanup()
        await api.delete(f"{runtimes}/{RUNTIME['metadata']['name']}")


# ----------------------------------------------------------------------------------------------------------------- ours


def ours(others: list[Object], pod: Object) -> tuple[Answer, str]:
    """What our filters say of the pod, and where the cores put it; else why it waits."""
    simulation = Simulation()
    simulation.begin(DEFAULT_POLICY)
    simulation.observe([*others, pod], installed_minor())
    seen = simulation.state.pods.get(pod["metadata"]["uid"])
    answer = Answer(frozenset(), {}) if seen is None else filtered(simulation, seen)
    simulation.settle()
    told = simulation.answer()
    name = f"default/{pod['metadata']['name']}"
    return answer, told["bound"].get(name) or told["waiting"][name]


def filtered(simulation: Simulation, pod: Pod) -> Answer:
    table = simulation.state.table
    info = table.classes[pod.fact.scheduling_class]
    free = table.allocatable - table.held
    ports = Ports(table).free(info) if info.ports else None
    takes = fits.feasible(table, info) & fits.has_room(free, info)
    if ports is not None:
        takes = takes & ports
    why = ", ".join(f"{count} {reason}" for reason, count in fits.why_not(table, free, info, ports).items())
    nodes = frozenset(node for node, row in table.rows.items() if takes[row])
    return Answer(nodes, counted(f"0/{len(table.rows)} nodes are available: {why}.") if why else {})


# ------------------------------------------------------------------------------------------------------------ comparing


async def created(api: Api, things: Iterable[Object]) -> list[Object]:
    """Creates those that the API server takes, and returns them."""

    async def create(thing: Object) -> Object | None:
        try:
            return await api.create(thing)
        except ApiError as error:
            if error.status not in (403, 422):
                raise
            return None

    return [thing for thing in await asyncio.gather(*map(create, things)) if thing is not None]


async def fill(api: Api, case: Cluster) -> None:
    """Nodes, and the pods on them."""
    await created(api, case.nodes)
    occupants = await created(api, (pod for pod, _ in case.occupants))
    statuses = {pod["metadata"]["name"]: status for pod, status in case.occupants}
    for pod in occupants:
        status = statuses[pod["metadata"]["name"]]
        terminating = status["phase"] == "Terminating"
        if status["phase"]:
            known = status | ({"phase": "Running"} if terminating else {})
            await api.call("PATCH", path_of(pod) + "/status", {"status": known}, MERGE)
        if terminating:
            await api.delete(path_of(pod), grace_s=3600)


async def differences(api: Api, asked: Asked, seed: int) -> AsyncIterator[tuple[int, str]]:
    """For each pod of a cluster that asks: about how many nodes, and what differs ('': nothing)."""
    case = cluster(seed, QUESTIONS, SCHEDULER)
    await fill(api, case)
    await asked.know_all()
    theirs = await asked.answers(await created(api, case.questions))
    nodes = [{"apiVersion": "v1", "kind": "Node"} | node for node in await api.items("/api/v1/nodes")]
    listed = await api.items("/api/v1/namespaces/default/pods")
    pods = {pod["metadata"]["name"]: {"apiVersion": "v1", "kind": "Pod"} | pod for pod in listed}
    occupants = [pod for name, pod in pods.items() if name not in theirs]
    for name, answer in theirs.items():
        yield len(nodes), compared(answer, *ours([*nodes, *occupants], pods[name]), name)
    for path in ("/api/v1/namespaces/default/pods", "/api/v1/nodes"):
        await api.delete(path)


def compared(theirs: Answer, mine: Answer, outcome: str, name: str) -> str:
    found = []
    if theirs.takes != mine.takes:
        found.append(
            f"only they take it: {sorted(theirs.takes - mine.takes)}, only we: {sorted(mine.takes - theirs.takes)}"
        )
    if theirs.reasons != mine.reasons:
        found.append(f"they say {theirs.reasons}, we {mine.reasons}")
    if theirs.takes and outcome not in theirs.takes:
        found.append(f"it would have room on {sorted(theirs.takes)}, and ours is: {outcome}")
    if not theirs.takes and theirs.reasons != counted(outcome):
        found.append(f"they say {theirs.reasons}, and ours is: {outcome}")
    return f"{name}: {'; '.join(found)}" if found else ""


async def explore(plane: ControlPlane, first: int, seeds: int) -> int:
    """How many pods are answered differently."""
    questions = pods = differ = 0
    async with (
        Api(plane.url, plane.admin_token, plane.certificate) as api,
        asked_scheduler(plane, api, GATES) as asked,
    ):
        for seed in range(first, first + seeds):
            async for nodes, difference in differences(api, asked, seed):
                questions, pods = questions + nodes, pods + 1
                if difference:
                    differ += 1
                    print(difference, flush=True)
            print(f"seed {seed}: {differ} of {pods} pods differ, {questions} questions", flush=True)
    return differ


def main() -> int:
    parser = argparse.ArgumentParser(description="Our filters beside the kube-scheduler's.")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    wanted = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="muster-filters-") as directory,
        ControlPlane(Path(directory), [GATES]) as plane,
    ):
        return int(asyncio.run(explore(plane, wanted.first, wanted.seeds)) > 0)


if __name__ == "__main__":
    raise SystemExit(main())
