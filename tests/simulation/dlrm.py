"""The services of a real cluster as a workload: the DLRM trace's gang groups, on a cluster that just fits them.

A service is two gangs, CN and HN, useless without each other: Koordinator's PodGroups in one GangGroup, Strict in one
half of the seeds and NonStrict in the other. A seed takes one of the trace's services, each in its turn, and others at
random. What has more pods than `MOST` is cut to that, both roles alike; nodes are as many as first fit decreasing takes
for all of them. Services come, go as a whole and come again; pods fail and are made again by a controller; nodes are
cordoned, or vanish and come back; users act on what has timed out.

The trace is read from ../shared; where that is not there, a small one is drawn that has its form.
"""

from __future__ import annotations

import csv
import random
from collections import deque
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from services.simulator import resources, traces
from tests.dialects.trace import Row, drawn, write
from tests.shared import SHARED
from tests.simulation import edits, koordinator, newcomers
from tests.simulation.planting import LATEST_FROM
from tests.simulation.told import Object
from tests.simulation.workload import Workload

if TYPE_CHECKING:
    from tests.simulation.kube import ApiServer

TRACE = SHARED / "traces" / traces.DLRM
GROUPS = ("scheduling.sigs.k8s.io", "v1alpha1", "podgroups")
COUNT, MOST, TOGETHER = (6, 12), 200, 250
"""How many services a seed takes; pods that one may have, and all of them."""
DRAWN = 40
"""Services of the drawn trace."""
WEIGHTS = {
    "service": 2,
    "gone": 1.5,
    "replaced": 4,
    "fail": 1,
    "delete": 1.5,
    "member": 1,
    "node_gone": 1.5,
    "node_changed": 2,
    "annotate": 2,
    "user_acts": 2,
}

USERS = {newcomers: (1, 3), edits: (2, 4)}
"""Those that later seeds have besides, and how many of their steps, at least and at most."""


@cache
def trace() -> list[list[Row]]:
    """Its services, each with its instances."""
    rows = csv.DictReader(TRACE.read_text().splitlines()) if TRACE.is_file() else drawn(DRAWN)
    services: dict[object, list[Row]] = {}
    for row in rows:
        services.setdefault(row["app_name"], []).append(row)
    return list(services.values())


def _cut(service: list[Row]) -> list[Row]:
    """Of each role the same part, so that there are not more than `MOST`."""
    part = min(1.0, MOST / len(service))
    roles = [[row for row in service if row["role"] == role] for role in ("CN", "HN")]
    return [row for role in roles for row in role[: max(1, int(len(role) * part))]]


def chosen(seed: int) -> list[list[Row]]:
    """The services of a seed."""
    source, services = random.Random(f"{seed}/services"), trace()
    picked = [_cut(services[seed % len(services)])]
    wanted = source.randint(*COUNT)
    for index in source.sample(range(len(services)), len(services)):
        pods = sum(map(len, picked))
        if len(picked) < wanted and index != seed % len(services) and pods + len(services[index]) <= TOGETHER:
            picked.append(services[index])
    source.shuffle(picked)
    return picked


def mode(seed: int) -> str:
    """Each service comes in both."""
    return list(traces.MODES)[(seed + seed // len(trace())) % 2]


class Services(Workload):
    """They come one after the other, as steps say."""

    namespace = "dlrm"
    weights = WEIGHTS
    races = ("fail", "fail", "delete", "node_changed", "node_gone", "stolen", "annotate")
    pod_groups = GROUPS

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self._absent: deque[str] = deque()
        self._objects: dict[str, list[Object]] = {}
        self._copies = 0

    def begin(self, number: int) -> None:
        if number >= LATEST_FROM:
            newcomers.serve(self.api)
        else:
            self.api.apply_new(resources.pod_groups_crd("/".join(GROUPS[:2]), status=False))
        with TemporaryDirectory() as directory:
            path = write(Path(directory) / traces.DLRM, [row for service in chosen(number) for row in service])
            for obj in traces.dlrm(path, gang_groups=mode(number)):
                if obj["kind"] == "Node":
                    self.api.apply_new(obj)
                else:
                    self._objects.setdefault(_service(obj), []).append(obj)
        self._absent.extend(self._objects)

    def service(self) -> None:
        """The next one that is not there, its PodGroups before its pods or behind them."""
        if not self._absent:
            return
        objects = self._objects[self._absent.popleft()]
        groups = [obj for obj in objects if obj["kind"] == "PodGroup"]
        pods = [obj for obj in objects if obj["kind"] == "Pod"]
        self._copies += 1
        first = self.random.random() < 0.5
        for group in groups if first else ():
            self.attempt(self.api.apply_new, group)
        for pod in pods:
            self.again(pod, f"{pod['metadata']['name']}-{self._copies}")
        for group in () if first else groups:
            self.attempt(self.api.apply_new, group)

    def gone(self) -> None:
        """A service is taken away, and may come again."""
        there = [name for name in self._objects if name not in self._absent]
        if there:
            self._take_away(self.random.choice(there))

    def _take_away(self, name: str) -> None:
        for collection in (self.api.pods, self.declarations):
            for key, entry in list(collection.entries.items()):
                if _service(entry.object) == name:
                    self.attempt(self.api.delete, collection, *key)
        self._absent.append(name)

    def member(self) -> None:
        """A service's controller makes a pod again; others' pods, which took the room, have none."""
        pod = self.pick(lambda pod: _service(pod) in self._objects)
        if pod is not None:
            self._copies += 1
            self.again(pod, f"again-{self._copies}")

    def node_changed(self) -> None:
        """Cordoned, for some seconds."""
        name = self.any_node()
        if name:
            self._cordon(name, True)
            self.server.loop.after(self.random.uniform(1.0, 12.0), self.attempt, self._cordon, name, False)

    def _cordon(self, name: str, cordoned: bool) -> None:
        self.patch(self.api.nodes, "", name, {"spec": {"unschedulable": cordoned}})

    def node_gone(self) -> None:
        """It comes back: the cluster just fits its services."""
        name = self.any_node()
        if not name:
            return
        node = self.api.nodes.entries["", name].object
        made = {**node, "metadata": {"name": name, "labels": node["metadata"]["labels"]}}
        self.api.delete(self.api.nodes, "", name)
        for key, entry in list(self.api.pods.entries.items()):
            if entry.object["spec"].get("nodeName") == name and self.random.random() < 0.8:
                uid = str(entry.object["metadata"]["uid"])
                self.server.loop.after(self.random.uniform(0.5, 12.0), self.collect, key, uid)
        self.server.loop.after(self.random.uniform(1.0, 10.0), self.attempt, self.api.apply_new, made)

    def user_acts(self) -> None:
        """On a service that has timed out: its annotations are taken off, or it is made anew."""
        timed_out = [
            one.object
            for one in self.api.pods.entries.values()
            if koordinator.timed_out(one.object) and _service(one.object) in self._objects
        ]
        if not timed_out:
            return
        name = _service(self.random.choice(timed_out))
        if self.random.random() < 0.4:
            self._take_away(name)
            self.service()
            return
        for pod in [pod for pod in timed_out if _service(pod) == name]:
            self.change(pod, {"metadata": {"annotations": {koordinator.TIMEOUT: None}}})


def _service(obj: Any) -> str:
    """`app-0`, whose gangs are app-0-cn and app-0-hn: of a pod or a PodGroup."""
    labels = obj["metadata"].get("labels") or {}
    gang = labels.get(traces.KOORDINATORS_LABEL) or obj["metadata"]["name"]
    return str(gang).rpartition("-")[0]
