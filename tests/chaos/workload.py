"""What users, controllers and kubelets do meanwhile: gangs and single pods come, finish and go, in too small a cluster.

Which step comes next is chosen from the seed; what it is done to is what the witness saw last. A step may fail half way,
as the API server is hurt too: then half a gang is there, and waits, as it would for anybody.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp

from deploy.e2e.api import MERGE, Api, ApiError, Object
from deploy.e2e.workload import GANG_LABEL, gang, node, pod, pod_group
from tests.chaos.witness import PODS, Seen, Witness

NODES = 24
CPUS = 8
LIVE_PODS = 260
"""Pending and running together: more than there are CPUs, so that somebody always waits."""
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
STEP_S = (0.1, 0.7)
FINISHES = {"chaos/finishes": "true"}
TOO_LARGE = NODES * CPUS + 8
KEPT_FINISHED = 12
"""Finished gangs that nobody has cleared away yet."""

TROUBLE = (ApiError, aiohttp.ClientError, OSError, TimeoutError)
PRIORITIES = {"chaos-low": -10, "chaos-high": 1000}
NOT_FOUND, CONFLICT = 404, 409

Step = Callable[[], Awaitable[object]]


class Workload:
    """`run` until told to `rest`."""

    def __init__(self, api: Api, witness: Witness, seed: int) -> None:
        self.api, self.witness = api, witness
        self.random = random.Random(f"workload {seed}")
        self.made = 0
        self.steps: dict[str, tuple[int, Step]] = {
            "gang": (30, self.create_gang),
            "singles": (14, self.create_singles),
            "replace a member": (8, self.replace_member),
            "delete a gang": (5, self.delete_gang),
            "delete a single": (5, self.delete_single),
            "clear finished": (16, self.clear_finished),
            "annotate": (6, self.annotate),
            "cordon": (3, self.cordon),
            "lose a node": (1, self.lose_node),
            "too large": (1, self.create_too_large),
        }
        self._cordoned: set[str] = set()
        self._lost_nodes: set[str] = set()
        self.minimum: dict[str, int] = {}
        """Of the gangs that were created, half of a creation included."""
        self.touched: set[str] = set()
        """Gangs of which a member was deleted alone."""

    async def prepare(self) -> None:
        await self.api.create_all(_node(number) for number in range(NODES))
        for name, value in PRIORITIES.items():
            await self.api.create(_priority_class(name, value))

    async def run(self) -> None:
        """For ever."""
        names = list(self.steps)
        weights = [weight for weight, _ in self.steps.values()]
        while True:
            await asyncio.sleep(self.random.uniform(*STEP_S))
            name = self.random.choices(names, weights)[0]
            with suppress(*TROUBLE):
                await self.steps[name][1]()

    async def rest(self) -> None:
        """Undo what would keep the cluster from coming to rest: nodes that are cordoned or lost."""
        while self._cordoned or self._lost_nodes:
            with suppress(*TROUBLE):
                if self._cordoned:
                    await self._set_cordon(min(self._cordoned), cordoned=False)
                else:
                    await self._bring_back(min(self._lost_nodes))

    # ----------------------------------------------------------------------------------------------------------- steps

    async def create_gang(self) -> None:
        if len(self._live()) > LIVE_PODS:
            return
        rnd = self.random
        size = rnd.choice([2, 3, 4, 6, 8, 12, 16, 24, 40])
        await self._create(size, max(1, size - rnd.choice([0, 0, 1, 3])))

    async def create_too_large(self) -> None:
        """No room will ever do."""
        if sum(least >= TOO_LARGE for least in self.minimum.values()) < 2:
            await self._create(TOO_LARGE, TOO_LARGE)

    async def _create(self, size: int, least: int) -> None:
        rnd = self.random
        self.made += 1
        name = f"g{self.made:05d}"
        self.minimum[name] = least
        asks: dict[str, Any] = {"cpu": rnd.choice(["500m", "1", "1", "2"]), "memory": "1Gi", "gpus": 0}
        finishes = FINISHES if rnd.random() < 0.85 else {}
        if priority := rnd.choice(["", "", *PRIORITIES]):
            asks["priorityClassName"] = priority
        things = [pod_group(name, least, timeout_s=rnd.choice([None, 3, 8]))]
        things += [_labelled(member, finishes) for member in gang(name, size, **asks)]
        if rnd.random() < 0.2:
            things.append(things.pop(0))  # its PodGroup comes last
        for thing in things:
            await self.api.create(thing)

    async def create_singles(self) -> None:
        if len(self._live()) > LIVE_PODS:
            return
        for _ in range(self.random.choice([1, 2, 5, 9])):
            self.made += 1
            finishes = FINISHES if self.random.random() < 0.9 else {}
            cpu = self.random.choice(["250m", "1", "3"])
            await self.api.create(_labelled(pod(f"s{self.made:05d}", cpu=cpu, gpus=0), finishes))

    async def replace_member(self) -> None:
        """As a controller would, after a pod was lost."""
        members = [seen for seen in self._live() if seen.gang]
        if members:
            lost = self.random.choice(members)
            self.touched.add(lost.gang)
            before = await self.api.get(f"{PODS}/{lost.name}")
            await self.api.delete(f"{PODS}/{lost.name}")
            self.made += 1
            kept = ("schedulerName", "containers", "priorityClassName")
            spec = {name: before["spec"][name] for name in kept if name in before["spec"]}
            name, labels = f"{lost.gang}-r{self.made:05d}", before["metadata"]["labels"]
            meta = {"name": name, "namespace": "default", "labels": labels}
            await self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    async def delete_gang(self) -> None:
        names = sorted({seen.gang for seen in self._live() if seen.gang})
        if names:
            await self._delete(self.random.choice(names))

    async def delete_single(self) -> None:
        singles = [seen for seen in self.witness.pods.values() if not seen.gang]
        if singles:
            await self.api.delete(f"{PODS}/{self.random.choice(singles).name}")

    async def clear_finished(self) -> None:
        """Gangs and pods that have done their work, the oldest first."""
        done = [seen for seen in self.witness.pods.values() if not seen.live]
        live = {seen.gang for seen in self._live()}
        finished = sorted({seen.gang for seen in done if seen.gang} - live)
        for name in finished[: max(0, len(finished) - KEPT_FINISHED)]:
            await self._delete(name)
        for seen in [seen for seen in done if not seen.gang][:10]:
            await self.api.delete(f"{PODS}/{seen.name}")

    async def cordon(self) -> None:
        name = f"node-{self.random.randrange(NODES):05d}"
        await self._set_cordon(name, cordoned=name not in self._cordoned)

    async def annotate(self) -> None:
        """Somebody writes to a pod that waits: its resourceVersion moves on under whatever is intended for it."""
        waiting = [seen for seen in self._live() if not seen.node]
        for seen in self.random.sample(waiting, min(5, len(waiting))):
            body = {"metadata": {"annotations": {"chaos/number": str(self.random.random())}}}
            await self.api.call("PATCH", f"{PODS}/{seen.name}", body, MERGE)

    async def lose_node(self) -> None:
        """With its pods; or one that was lost comes back."""
        if self._lost_nodes:
            await self._bring_back(min(self._lost_nodes))
            return
        name = _node(self.random.randrange(NODES))["metadata"]["name"]
        on_it = [seen for seen in self.witness.pods.values() if seen.node == name]
        self.touched |= {seen.gang for seen in on_it}
        self._lost_nodes.add(name)
        await self.api.delete(f"/api/v1/nodes/{name}")
        for seen in on_it:
            await self.api.delete(f"{PODS}/{seen.name}")

    # --------------------------------------------------------------------------------------------------------- helpers

    async def _bring_back(self, name: str) -> None:
        """It may never have gone."""
        self._cordoned.discard(name)
        try:
            await self.api.create(_node(int(name.rpartition("-")[2])))
        except ApiError as error:
            if error.status != CONFLICT:
                raise
        self._lost_nodes.discard(name)

    async def _delete(self, name: str) -> None:
        """The group first, or its pods first."""
        self.touched.add(name)  # it may fail half way
        group, pods = f"{GROUPS}/{name}", f"{PODS}?labelSelector={GANG_LABEL}%3D{name}"
        for path in (group, pods) if self.random.random() < 0.5 else (pods, group):
            await self.api.delete(path)
        self.minimum.pop(name, None)

    async def _set_cordon(self, name: str, *, cordoned: bool) -> None:
        if cordoned:
            self._cordoned.add(name)
        try:
            await self.api.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": cordoned}}, MERGE)
        except ApiError as error:
            if error.status != NOT_FOUND:  # a node that is lost is none to cordon
                raise
        if not cordoned:
            self._cordoned.discard(name)

    def _live(self) -> list[Seen]:
        return [seen for seen in self.witness.pods.values() if seen.live and not seen.terminating]


def _node(number: int) -> Object:
    return node(f"node-{number:05d}", cpu=str(CPUS), memory="64Gi", gpus=0, kubelet=True)


def _priority_class(name: str, value: int) -> Object:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def _labelled(thing: Object, labels: dict[str, str]) -> Object:
    thing["metadata"]["labels"] |= labels
    return thing
