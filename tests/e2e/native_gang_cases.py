"""Random small lives of Kubernetes' own gangs for `test_native_gangs`: what a cluster's users do, step by step.

Nodes stand in zones. A pod selects one zone, and all pods of a zone ask for the same: a zone has so many slots, and how
many pods of a gang find one does not depend on who chooses the nodes. Gangs have more or fewer pods than their minCount,
in one zone or in two; beside them are single pods. Everything follows from one number, and from what was bound after each
step. What is known to differ is not drawn: members of gangs that succeed, or go slowly (`test_native_gangs` has both).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, NamedTuple

from deploy.e2e.api import Object
from deploy.e2e.native_gangs import native_gangs
from deploy.e2e.workload import node

SCHEDULER = "beside"
NAMESPACES = ("default", "team")
"""A gang's name may stand in both: it is two gangs."""
ASKS: dict[str, dict[str, str]] = {
    "a": {"cpu": "1", "memory": "1Gi"},
    "b": {"cpu": "100m", "memory": "100Mi", "nvidia.com/gpu": "2"},
    "c": {"memory": "3Gi"},
}
"""Zone → what each of its pods asks for."""
PRIORITIES = (0, 10, 20, 30, 40, 50, 60)
KINDS = ("members", "members", "members", "delete", "delete", "group", "group", "end", "gate", "node", "single")
"""What may happen in a step, as often as it stands here."""
Status = Literal["pending", "bound"]
Verb = Literal["create", "delete", "terminate", "succeed", "fail", "ungate"]


class Act(NamedTuple):
    """One request: what is done to which object."""

    verb: Verb
    obj: Object


class Gang(NamedTuple):
    namespace: str
    name: str
    zones: tuple[str, ...]


@dataclass
class Life:
    """A cluster as its users made it so far: what the draw goes by."""

    slots: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ASKS, 0))
    pods: dict[str, Object] = field(default_factory=dict)
    """``namespace/name`` → pod, of those that were not deleted."""
    leaving: set[str] = field(default_factory=set)
    """Pods that are being deleted: they keep their room."""
    ended: set[str] = field(default_factory=set)
    """Pods that have finished: they have given it back."""
    groups: dict[tuple[str, str], Object] = field(default_factory=dict)

    def apply(self, act: Act) -> None:
        obj = act.obj
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        if obj["kind"] == "Node":
            self.slots[obj["metadata"]["labels"]["zone"]] += obj["slots"]
        elif obj["kind"] == "PodGroup":
            if act.verb == "create":
                self.groups[key] = obj
            elif act.verb == "delete":
                del self.groups[key]
        elif obj["kind"] == "Pod":
            self._pod("/".join(key), act)

    def _pod(self, name: str, act: Act) -> None:
        if act.verb == "create":
            self.pods[name] = act.obj
        elif act.verb == "delete":
            del self.pods[name]
            self.leaving.discard(name)
            self.ended.discard(name)
        elif act.verb == "ungate":
            del self.pods[name]["spec"]["schedulingGates"]
        else:
            (self.leaving if act.verb == "terminate" else self.ended).add(name)


class Draw:
    """What one number chooses."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.life = Life()
        self.made = 0
        zones = list(ASKS)
        names = [("default", "train"), (self.one(NAMESPACES), "serve"), ("team", "train")]
        self.gangs = [
            Gang(namespace, name, tuple(self.chance.sample(zones, self.one((1, 1, 1, 2)))))
            for namespace, name in names[: self.chance.randint(1, 3)]
        ]
        self.steps = self.chance.randint(4, 9)
        self.mixed = self.sometimes(0.25) and not native_gangs().as_one
        """Whether pods of one gang have priorities of their own."""
        self.priorities: dict[Gang, int] = {}
        """Of gangs whose pods, and PodGroup, have to have the same all the time."""

    def sometimes(self, share: float) -> bool:
        return self.chance.random() < share

    def one(self, of: Any) -> Any:
        return self.chance.choice(list(of))

    def first(self) -> list[Act]:
        """Nodes, most PodGroups, and most gangs' first pods; priorities, which say who goes first, are here alone."""
        acts = [self.node(zone) for zone in ASKS for _ in range(self.chance.randint(0, 3))]
        priorities = self.chance.sample(PRIORITIES, len(self.gangs) + 1)
        for gang in self.gangs:
            priority = priorities.pop()
            if native_gangs().as_one:
                self.priorities[gang] = priority
            if self.sometimes(0.8):
                acts += self.declared(gang)
            acts += self.members(gang, self.chance.randint(1, 5), priority)
        acts += [self.single(priorities[0]) for _ in range(self.chance.randint(0, 3))]
        return self.done(acts)

    def next(self, seen: Mapping[str, Status]) -> list[Act]:
        """`seen`: of the pods about whose status there is agreement."""
        return self.done(self.something(seen))

    def done(self, acts: list[Act]) -> list[Act]:
        for act in acts:
            self.life.apply(act)
        return acts

    def something(self, seen: Mapping[str, Status]) -> list[Act]:
        gang = self.one(self.gangs)
        kind = self.one(KINDS)
        if kind == "members":
            return self.members(gang, self.chance.randint(1, 3))
        if kind == "single":
            return [self.single()]
        if kind == "node":
            return [self.node(self.one(gang.zones))]
        if kind == "group":
            return self.group(gang)
        return self.to_pods(kind, seen)

    def to_pods(self, kind: str, seen: Mapping[str, Status]) -> list[Act]:
        life = self.life
        alive = {name: pod for name, pod in sorted(life.pods.items()) if name in seen and name not in life.ended}
        if kind == "gate":
            gated = [pod for pod in alive.values() if "schedulingGates" in pod["spec"]]
            return [Act("ungate", self.one(gated))] if gated else []
        if kind == "delete":
            return [Act("delete", pod) for pod in self.some(alive.values())]
        running = [pod for name, pod in alive.items() if seen[name] == "bound" and name not in life.leaving]
        return [Act(self.end(pod), pod) for pod in self.some(running)]

    def some(self, pods: Iterable[Object]) -> list[Object]:
        found = list(pods)
        return self.chance.sample(found, min(len(found), self.one((1, 1, 2))))

    def end(self, pod: Object) -> Verb:
        """Of a gang's member it must not depend on what we count, and the kube-scheduler does not."""
        ends: tuple[Verb, ...] = ("terminate", "succeed", "fail")
        return "fail" if "schedulingGroup" in pod["spec"] else self.one(ends)

    def group(self, gang: Gang) -> list[Act]:
        """Its PodGroup comes, goes, is another one, or is to go and stays as long as it has pods."""
        found = self.life.groups.get(gang[:2])
        if found is None:
            return self.declared(gang)
        how = self.one(("deleted", "deleted", "another", "another", "protected"))
        if how == "protected":
            return [Act("terminate", found)]
        return [Act("delete", found), *(self.declared(gang) if how == "another" else ())]

    # --------------------------------------------------------------------------------------------------------- objects

    def node(self, zone: str) -> Act:
        self.made += 1
        return Act("create", node_of(zone, f"node-{self.made}", self.chance.randint(1, 3)))

    def declared(self, gang: Gang) -> list[Act]:
        """Its PodGroup, sometimes from a Workload's template."""
        self.made += 1
        basic = self.sometimes(0.15)
        policy: Object = {"basic": {}} if basic else {"gang": {"minCount": self.one((1, 2, 2, 3, 3, 4, 5))}}
        group = pod_group(gang.namespace, gang.name, policy, self.priorities.get(gang, 0))
        if self.sometimes(0.7):
            return [Act("create", group)]
        templates = {"podGroupTemplates": [{"name": "worker", "schedulingPolicy": policy}]}
        metadata = named(gang.namespace, f"workload-{self.made}")
        workload = native("Workload", metadata, templates)
        template = {"workloadName": metadata["name"], "podGroupTemplateName": "worker"}
        group["spec"]["podGroupTemplateRef"] = {"workload": template}
        return [Act("create", workload), Act("create", group)]

    def members(self, gang: Gang, count: int, priority: int = 0) -> list[Act]:
        gated = self.one((0, 0, 0.3)) * (not native_gangs().as_one)
        priority = self.priorities.get(gang, priority)
        return [
            self.pod(
                gang.namespace,
                gang.name,
                self.one(gang.zones),
                self.one(PRIORITIES) if self.mixed else priority,
                gang.name,
                gated=self.sometimes(gated),
            )
            for _ in range(count)
        ]

    def single(self, priority: int = 0) -> Act:
        return self.pod("default", "single", self.one(ASKS), priority, gated=self.sometimes(0.1))

    def pod(self, namespace: str, name: str, zone: str, priority: int, group: str = "", *, gated: bool) -> Act:
        self.made += 1
        return Act("create", pod(namespace, f"{name}-{self.made}", zone, priority, group, gated=gated))


def named(namespace: str, name: str) -> Object:
    return {"namespace": namespace, "name": name}


def pod_group(namespace: str, name: str, policy: Object, priority: int = 0) -> Object:
    spec: Object = {"schedulingPolicy": policy}
    if priority:
        spec["priorityClassName"] = f"p{priority}"
    return native("PodGroup", named(namespace, name), spec)


def native(kind: str, metadata: Object, spec: Object) -> Object:
    return {"apiVersion": native_gangs().api_version, "kind": kind, "metadata": metadata, "spec": spec}


def pod(namespace: str, name: str, zone: str, priority: int = 0, group: str = "", *, gated: bool = False) -> Object:
    container = {"name": "c", "image": "busybox", "resources": {"requests": ASKS[zone], "limits": ASKS[zone]}}
    spec: Object = {"schedulerName": SCHEDULER, "containers": [container], "nodeSelector": {"zone": zone}}
    if priority:
        spec["priorityClassName"] = f"p{priority}"
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    if gated:
        spec["schedulingGates"] = [{"name": "example.com/wait"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named(namespace, name), "spec": spec}


def node_of(zone: str, name: str, slots: int) -> Object:
    """A node with so many slots: cpus with a rest, devices, or as many pods as it may have."""
    rooms: dict[str, dict[str, Any]] = {
        "a": {"cpu": f"{slots}500m"},
        "b": {"gpus": 2 * slots + 1},
        "c": {"pods": slots},
    }
    made = node(name, **rooms[zone])
    made["metadata"]["labels"]["zone"] = zone
    return made | {"slots": slots}
