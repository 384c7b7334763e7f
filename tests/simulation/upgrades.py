"""An API server that is upgraded from Kubernetes 1.36 to 1.37, which counts otherwise what pods request that are being
resized: at once, or one server after the other, while either answers. And kubelets that tell much of such pods, some for
good. Seeds before `FROM` are without them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.asks import ASKS, ODD
from tests.simulation.faults import Fault
from tests.simulation.planting import UPGRADED_FROM
from tests.simulation.told import Object, uid_of

if TYPE_CHECKING:
    from tests.simulation.kube import Watch
    from tests.simulation.workload import Workload
    from tests.simulation.world import World

FROM = UPGRADED_FROM
WEIGHTS = {"told": 1.0}
MINORS = (36, 37)
AMOUNTS = ({"cpu": "500m"}, {"cpu": "1"}, {"cpu": "2"}, {"cpu": "1", "memory": "2Gi"}, {"memory": "1Gi"})
SOON_S, LATER_S = (0.3, 4.0), (0.2, 8.0)
PARTS = {"initContainers", "resources", "runtimeClassName"}
OF_PARTS = [place for place, (_, more) in enumerate((*ASKS, *ODD)) if PARTS & more.keys()]
"""Pods that ask for more than their containers do."""


class Servers:
    """Of the servers that answer, one or two."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._answering = MINORS[:1]

    @property
    def minor(self) -> int:
        """Of the newest."""
        return self._answering[-1]

    def tell(self) -> Object:
        """What one of them answers to `/version`."""
        minor = self._source.choice(self._answering)
        return {"major": "1", "minor": str(minor), "gitVersion": f"v1.{minor}.0", "platform": "simulated"}

    def upgrade(self, *, one_by_one: bool) -> None:
        self._answering = MINORS if one_by_one else MINORS[1:]


def strike(world: World, fault: Fault) -> bool:
    servers, one_by_one = world.kube.servers, fault.what == "one by one"
    if servers is None or servers.minor == MINORS[-1]:
        return False
    servers.upgrade(one_by_one=one_by_one)
    if one_by_one:
        world.loop.after(fault.for_s, _older_goes, world, servers, list(world.kube.watches))
    else:
        world.kube.restart(fault.for_s)
    return True


def _older_goes(world: World, servers: Servers, before: list[Watch]) -> None:
    """And with it the watches that it served: those of before, and some of the others."""
    servers.upgrade(one_by_one=False)
    for watch in list(world.kube.watches):
        if watch in before or world.source.random() < 0.5:
            watch.end()


def told(workload: Workload) -> None:
    """A pod that asks for more than its containers do, and one that is there; their kubelets tell of them soon."""
    rnd, after = workload.random, workload.server.loop.after
    there = workload.pick(_runs)
    if there is not None:
        _tell(workload, workload.namespace, there["metadata"]["name"])
    made = workload.pod({}, of=rnd.choice(OF_PARTS))
    after(rnd.uniform(*SOON_S), _tell, workload, workload.namespace, made)


def _tell(workload: Workload, namespace: str, name: str) -> None:
    """Of a pod, if it runs: of its containers or as a whole, what it has, what is allocated to it, or both."""
    rnd, entry = workload.random, workload.api.pods.entries.get((namespace, name))
    if entry is None or not _runs(entry.object):
        return
    spec = entry.object["spec"]
    of_containers, of_first = (
        [{"name": one["name"], **_said(rnd)} for one in spec.get(field, ())]
        for field in ("containers", "initContainers")
    )
    said: Object = {"containerStatuses": of_containers, "initContainerStatuses": of_first}
    if rnd.random() < 0.3:
        said |= _said(rnd)
    if rnd.random() < 0.2:
        said["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
    _kubelet_says(workload, (namespace, name), uid_of(entry.object), said)
    if rnd.random() < 0.3:
        nothing = {"containerStatuses": [], "initContainerStatuses": [], "conditions": []}
        nothing |= {"resources": None, "allocatedResources": None}
        after = workload.server.loop.after
        after(rnd.uniform(*LATER_S), _kubelet_says, workload, (namespace, name), uid_of(entry.object), nothing)


def _runs(pod: Object) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def _said(rnd: random.Random) -> Object:
    said: Object = {}
    if rnd.random() < 0.7:
        said["resources"] = {"requests": rnd.choice(AMOUNTS)}
    if rnd.random() < 0.7:
        said["allocatedResources"] = rnd.choice(AMOUNTS)
    return said


def _kubelet_says(workload: Workload, key: tuple[str, str], uid: str, status: Object) -> None:
    pod = workload.running(key, uid)
    if pod is None:
        return
    if "conditions" in status:
        others = [one for one in pod["status"].get("conditions") or () if one["type"] != "PodResizePending"]
        status = {**status, "conditions": [*others, *status["conditions"]]}
    workload.patch(workload.api.pods, *key, {"status": status}, "status")


STEPS: dict[str, Callable[[Workload], None]] = {"told": told}
