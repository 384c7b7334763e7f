"""What users, controllers, kubelets and other schedulers do to a small cluster.

A history's steps are drawn before it begins: when, what, and a number from which the step draws everything else. So one
can be left out, and the others still do the same things, as far as what they do them to is still there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from services.simulator import errors
from services.simulator.errors import ApiError
from services.simulator.kubelet import DURATION, EXIT_CODE
from tests.simulation import (
    changes,
    devices,
    edits,
    foretold,
    kinds,
    koordinator,
    newcomers,
    openings,
    races,
    releases,
    rollouts,
    turnover,
    unreadable,
    upgrades,
    upstream,
)
from tests.simulation.asks import ASKS, COMPARING, ODD, OF_GANGS, OPENING, PLAIN
from tests.simulation.planting import FURTHER_FROM, WIDER_FROM
from tests.simulation.told import (
    ANOTHER_NAMESPACE,
    GANG,
    GROUP_NAME,
    KOORDINATOR,
    MINIMUM,
    MINIMUM_SAID,
    NAMING,
    POD_GROUP,
    Object,
    annotations,
    gang_of,
    uid_of,
)

if TYPE_CHECKING:
    from tests.simulation.kube import ApiServer

VOLCANO = ("scheduling.volcano.sh", "v1beta1", "podgroups")
GANGS, ROLES = 6, ("r0", "r1", "r2", "r3")
"""Names of gangs, and of those that come in groups: few, so that they are used again."""
IN_ANOTHER = 3
"""How many of ten steps are taken in the other namespace."""
DEDICATED = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
AUTOSCALERS = (
    ("ToBeDeletedByClusterAutoscaler", "NoSchedule"),
    ("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"),
)
"""Taints whose values are times."""
MERGE = "application/merge-patch+json"

WEIGHTS = {
    "pod": 5,
    "burst": 2,
    "gang": 7,
    "declared_gang": 4,
    "gang_group": 2.5,
    "job": 2,
    "member": 3,
    "node": 2,
    "node_gone": 1.5,
    "node_changed": 3.5,
    "foreign": 2,
    "stolen": 1.5,
    "delete": 4,
    "delete_gang": 1.5,
    "fail": 2,
    "replaced": 3,
    "gates": 2,
    "label": 2,
    "resize": 1.5,
    "annotate": 2.5,
    "declare": 1,
    "minimum_moves": 2,
    "undeclare": 1,
    "priority_class": 1.5,
    "malformed": 1,
}
"""What happens, and how often against the rest."""


ELSEWHERE = (
    *(changes.STEPS, koordinator.STEPS, upstream.STEPS, unreadable.STEPS),
    *(kinds.STEPS, rollouts.STEPS, newcomers.STEPS, edits.STEPS, openings.STEPS, turnover.STEPS),
    *(devices.STEPS, releases.STEPS, foretold.STEPS, upgrades.STEPS),
)
"""Steps that are written elsewhere."""


class Step(msgspec.Struct, frozen=True):
    at_s: float
    what: str
    number: int


def draw(
    source: random.Random, count: int, from_s: float, until_s: float, weights: Mapping[str, float] = WEIGHTS
) -> list[Step]:
    """`count` steps between these two seconds of a history."""
    chosen = source.choices(list(weights), list(weights.values()), k=count)
    steps = [Step(round(source.uniform(from_s, until_s), 3), what, source.getrandbits(32)) for what in chosen]
    return sorted(steps, key=lambda step: step.at_s)


class Workload:
    """Steps against one API server."""

    namespace = "default"
    """In which the step that is taken makes pods and PodGroups, and looks for them."""
    of_others = ""
    """A namespace in which somebody else makes everything."""
    weights: Mapping[str, float] = WEIGHTS
    races: tuple[str, ...] = races.ANYTHING
    pod_groups = ("scheduling.x-k8s.io", "v1alpha1", "podgroups")
    """Those that are declared, changed and deleted."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.api = server, server.api
        self.random = random.Random(0)  # until it begins: a small history's faults may come before
        self.wider = False
        """Whether PodGroups that cannot be read have the names of gangs, an autoscaler taints nodes, and there is another
        namespace, with the same names."""
        self.newest = False
        """Whether nodes have racks, and PodGroups of Koordinator's are served."""
        self.further = False
        """Whether a kind that comes again has its statuses elsewhere."""
        self._made = 0
        self.ends: dict[str, str] = {}
        """How most pods of a step end: those that come together end together."""

    def begin(self, number: int) -> None:
        """The kinds and the nodes that are there at first."""
        if number >= upstream.FROM:
            upstream.serve(self.api)
        self.newest = number >= newcomers.FROM
        if self.newest:
            newcomers.serve(self.api)
        self.random = random.Random(number)
        self.wider, self.further = number >= WIDER_FROM, number >= FURTHER_FROM
        if self.wider:
            self.api.apply_new({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ANOTHER_NAMESPACE}})
        for _ in range(self.random.randint(5, 12)):
            self.node()

    def take(self, step: Step) -> None:
        self.random = random.Random(step.number)
        if self.wider:
            self.namespace = ANOTHER_NAMESPACE if step.number % 10 < IN_ANOTHER else Workload.namespace
        self.ends = self._end()
        self.step(step.what)

    def step(self, what: str) -> None:
        """One of its own, or else one that is written elsewhere."""
        own = getattr(self, what, None)
        if own is not None:
            self.attempt(own)
        else:
            self.attempt(next(steps[what] for steps in ELSEWHERE if what in steps), self)

    def race(self, kind: str, name: str) -> None:
        races.race(self, kind, name)

    def attempt(self, what: Callable[..., object], *arguments: Any) -> None:
        """Somebody else may have been faster, or the name is taken."""
        try:
            what(*arguments)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    # ----------------------------------------------------------------------------------------------------------- nodes

    def node(self) -> None:
        name = f"n{self.random.randrange(20)}"
        if ("", name) not in self.api.nodes.entries:
            self.api.apply_new({"apiVersion": "v1", "kind": "Node", **self._node(name)})

    def _node(self, name: str) -> Object:
        rnd = self.random
        offered = {"cpu": str(rnd.choice([2, 4, 8])), "memory": f"{rnd.choice([8, 16])}Gi"}
        offered["pods"] = str(rnd.choice([4, 110]))
        if rnd.random() < 0.4:
            offered["nvidia.com/gpu"] = "2"
        spec: Object = {"unschedulable": rnd.random() < 0.08}
        if rnd.random() < 0.12:
            spec["taints"] = [DEDICATED]
        if self.wider and rnd.random() < 0.3:  # as cluster-autoscaler does: hardly two are the same
            key, effect = rnd.choice(AUTOSCALERS)
            taint = {"key": key, "value": str(rnd.randrange(1_767_225_600, 1_767_226_600)), "effect": effect}
            spec["taints"] = [*spec.get("taints", ()), taint]
        labels = {"zone": rnd.choice("ab")}
        if self.newest and rnd.random() < 0.6:
            labels["rack"] = rnd.choice(["1", "3", "6", "x"])
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": offered},
        }

    def node_changed(self) -> None:
        name = self.any_node()
        if name:
            made = self._node(name)
            changed = {"metadata": {"labels": made["metadata"]["labels"]}} if self.random.random() < 0.5 else {}
            self.patch(self.api.nodes, "", name, {"spec": {"taints": None, **made["spec"]}, **changed})
            if self.random.random() < 0.5:
                allocatable = {"nvidia.com/gpu": None, **made["status"]["allocatable"]}
                self.patch(self.api.nodes, "", name, {"status": {"allocatable": allocatable}}, "status")

    def node_gone(self) -> None:
        """Its pods go some time later, or when it comes back; half of the time another has its name soon."""
        name = self.any_node()
        if name and len(self.api.nodes.entries) > 3:
            self.api.delete(self.api.nodes, "", name)
            if self.random.random() < 0.5:
                made = {"apiVersion": "v1", "kind": "Node", **self._node(name)}
                self.server.loop.after(self.random.uniform(0.0, 6.0), self.attempt, self.api.apply_new, made)
            for entry in list(self.api.pods.entries.values()):
                if entry.object["spec"].get("nodeName") == name and self.random.random() < 0.8:
                    self.server.loop.after(
                        self.random.uniform(0.5, 12.0), self.collect, entry.key, uid_of(entry.object)
                    )

    def collect(self, key: tuple[str, str], uid: str) -> None:
        entry = self.api.pods.entries.get(key)
        if entry is not None and uid_of(entry.object) == uid:
            self.api.delete(self.api.pods, *key, {"gracePeriodSeconds": 0})

    def any_node(self) -> str:
        names = [key[1] for key in self.api.nodes.entries]
        return self.random.choice(names) if names else ""

    # ------------------------------------------------------------------------------------------------------------ pods

    def pod(
        self,
        labels: Object | None = None,
        of: int | None = None,
        annotated: dict[str, str] | None = None,
        owners: list[Object] | None = None,
        **spec: Any,
    ) -> str:
        rnd = self.random
        self._made += 1
        name = f"web-{rnd.randrange(4)}" if labels is None and rnd.random() < 0.3 else f"p{self._made}"
        requests, spec_too = (*ASKS, *ODD, *OPENING, *COMPARING)[rnd.randrange(len(ASKS)) if of is None else of]
        resources, more = dict(requests), dict(spec_too)
        annotations = {**(annotated or {}), **(self.ends if rnd.random() < 0.7 else self._end())}
        if rnd.random() < 0.1 and "nodeName" not in spec:  # an API server takes no pod with both
            more["schedulingGates"] = [{"name": "wait"}]
        container = {"name": "c", "image": "i", "resources": {"requests": resources}, **more.pop("container", {})}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": labels or {},
                "annotations": annotations,
            },
            "spec": {
                "schedulerName": "muster",
                "priority": 0,
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                **more,
                **spec,
            },
        }
        if owners:
            pod["metadata"]["ownerReferences"] = owners
        if rnd.random() < 0.2:
            pod["spec"] |= {"priorityClassName": "high", "priority": 10}
        self.api.apply_new(pod, define=False)
        return name

    def _end(self) -> dict[str, str]:
        """After how long a pod ends, and how; or not by itself."""
        rnd = self.random
        if rnd.random() < 0.5:
            return {}
        return {DURATION: str(rnd.randrange(300, 5_000)), EXIT_CODE: rnd.choice(["0", "0", "1"])}

    def burst(self) -> None:
        of = self.random.randrange(PLAIN)
        for _ in range(self.random.randint(3, 6)):
            self.pod(of=of)

    def gang(self) -> None:
        """One whose pods say themselves how many must start together."""
        rnd = self.random
        name, pods, of = f"g{rnd.randrange(GANGS)}", rnd.randint(2, 6), rnd.randrange(OF_GANGS)
        minimum = rnd.choice([pods, pods, pods, max(1, pods - 1), pods + 1])
        mixed = rnd.random() < 0.2
        for _ in range(pods):
            self.pod({GANG: name, MINIMUM: str(minimum)}, of=rnd.randrange(OF_GANGS) if mixed else of)

    def declared_gang(self) -> None:
        """One that a PodGroup declares, before or after its pods."""
        rnd = self.random
        name, pods, of = f"g{rnd.randrange(GANGS)}", rnd.randint(2, 6), rnd.randrange(OF_GANGS)
        first = rnd.random() < 0.5
        if first:
            self.attempt(self._declare, name, pods)
        for _ in range(pods):
            self.pod({POD_GROUP: name}, of=of)
        if not first:
            self._declare(name, pods)

    def gang_group(self) -> None:
        """Two or three gangs that start together or not at all; seldom one of them does not name the others."""
        rnd = self.random
        names, of = rnd.sample(ROLES, rnd.choice([2, 2, 2, 3])), rnd.randrange(PLAIN)
        homes = [self.namespace] * len(names)
        if self.wider and rnd.random() < 0.2:
            homes[0] = ANOTHER_NAMESPACE
        group = json.dumps([f"{home}/{name}" for home, name in zip(homes, names, strict=True)])
        for self.namespace, name in zip(homes, names, strict=True):
            pods = rnd.randint(1, 3)
            told = {f"{KOORDINATOR}/name": name, MINIMUM_SAID: str(pods)}
            if rnd.random() < 0.9:
                told[f"{KOORDINATOR}/groups"] = group
            for _ in range(pods):
                self.pod({}, of=of, annotated=told)

    def job(self) -> None:
        """A PodGroup of Volcano's, with a minimum for each task, before or after its pods."""
        rnd = self.random
        name, tasks, of = (
            f"j{rnd.randrange(3)}",
            {"ps": rnd.randint(1, 2), "worker": rnd.randint(1, 3)},
            rnd.randrange(PLAIN),
        )
        spec: Object = {"minMember": sum(tasks.values()), "minTaskMember": tasks}
        if rnd.random() < 0.5:
            self.attempt(self._volcanos, name, spec)
        for task, minimum in tasks.items():
            told = {GROUP_NAME: name, "volcano.sh/task-spec": task}
            for _ in range(max(1, minimum + rnd.choice([-1, 0, 0, 0, 1]))):
                self.pod({}, of=of, annotated=told)
        self.attempt(self._volcanos, name, spec)

    def _volcanos(self, name: str, spec: Object) -> None:
        collection = self.served(VOLCANO)
        if (self.namespace, name) in collection.entries:
            self.patch(collection, self.namespace, name, {"spec": {"minTaskMember": None, **spec}})
        else:
            group = {"apiVersion": "/".join(VOLCANO[:2]), "kind": "PodGroup", "spec": spec}
            self.api.apply_new({**group, "metadata": self.named(name)}, define=False)

    def declare(self) -> None:
        self._declare(f"g{self.random.randrange(GANGS)}", self.random.randint(1, 4))

    def priority_class(self) -> None:
        name = f"class-{self.random.randrange(2)}"
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        collection = self.api.collection("scheduling.k8s.io/v1", "PriorityClass")
        if ("", name) in collection.entries:
            self.api.delete(collection, "", name)
        else:
            self.api.apply_new({**made, "value": self.random.randrange(100)}, define=False)

    def _declare(self, name: str, minimum: int) -> None:
        spec: Object = {"minMember": minimum}
        if self.random.random() < 0.4:
            spec["scheduleTimeoutSeconds"] = self.random.randint(1, 5)
        collection = self.declarations
        if (self.namespace, name) in collection.entries:
            self.patch(collection, self.namespace, name, {"spec": spec})
        else:
            group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
            self.api.apply_new({**group, "metadata": self.named(name), "spec": spec}, define=False)

    def named(self, name: str) -> Object:
        """The metadata of something new."""
        return {"name": name, "namespace": self.namespace}

    def minimum_moves(self, *, of: str = "") -> None:
        """Of a PodGroup that is there, or of the gang `of`, if one declares it: one more, or one fewer."""
        declaring = [self.served(path) for path in (self.pod_groups, VOLCANO) if path in self.api.by_path]
        there = [(one, key) for one in declaring for key in one.entries]
        named = [(one, key) for one, key in there if of in ("", key[1])]
        if named:
            declared, key = self.random.choice(named)
            minimum = int(declared.entries[key].object["spec"].get("minMember") or 0)
            moved = max(1, minimum + self.random.choice([-1, -1, 1]))
            self.patch(declared, *key, {"spec": {"minMember": moved}})

    def undeclare(self) -> None:
        keys = list(self.declarations.entries)
        if keys:
            self.api.delete(self.declarations, *self.random.choice(keys))

    @property
    def declarations(self) -> Any:
        return self.served(self.pod_groups)

    def served(self, path: tuple[str, str, str]) -> Any:
        """The objects of a kind. Raises ApiError 404 while it is not served."""
        if path not in self.api.by_path:
            raise errors.no_such_resource()
        return self.api.by_path[path]

    def member(self) -> None:
        """Another pod for a gang that is there: a replacement or a latecomer."""
        gang = self.pick(lambda pod: bool(gang_of(pod)))
        if gang is not None:
            self.beside(gang)

    def beside(self, pod: Object, of: int | None = None, **spec: Any) -> None:
        """Another pod of this one's gang."""
        labels = {key: value for key, value in pod["metadata"]["labels"].items() if key != MINIMUM}
        told = {key: value for key, value in annotations(pod).items() if not key.startswith("muster.dev/")}
        named = {field: pod["spec"][field] for field in NAMING if field in pod["spec"]}
        self.pod(labels, of, told, pod["metadata"].get("ownerReferences"), **named, **spec)

    def foreign(self) -> None:
        """A pod of somebody else's, on a node already."""
        name = self.any_node()
        if name:
            self.pod(of=self.random.randrange(PLAIN), schedulerName="default-scheduler", nodeName=name)

    def malformed(self) -> None:
        """Objects that cannot be taken as they are."""
        if self.random.random() < 0.5:
            self.pod({GANG: "g0", MINIMUM: "three"})
        else:
            self._declare(f"g{self.random.randrange(GANGS)}" if self.wider else "bad", -1)

    def again(self, pod: Object, name: str) -> None:
        """One like it."""
        metadata = {key: pod["metadata"].get(key) or {} for key in ("labels", "annotations")}
        spec = {field: value for field, value in pod["spec"].items() if field != "nodeName"}
        metadata |= {"name": name, "namespace": self.namespace}
        self.api.apply_new({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, define=False)

    def pick(self, fits: Callable[[Object], bool]) -> Object | None:
        """A pod in this namespace."""
        found = [entry.object for entry in self._here() if fits(entry.object)]
        return self.random.choice(found) if found else None

    def running(self, key: tuple[str, str], uid: str) -> Object | None:
        """The pod, if it is still that one, and runs."""
        entry = self.api.pods.entries.get(key)
        if entry is None or uid_of(entry.object) != uid or entry.object["status"]["phase"] != "Running":
            return None
        return entry.object

    def pods(self) -> list[Object]:
        """Those in this namespace."""
        return [entry.object for entry in self._here()]

    def _here(self) -> Iterator[Any]:
        return (entry for entry in self.api.pods.entries.values() if entry.key[0] == self.namespace)

    def change(self, pod: Object, patch: Object, subresource: str = "") -> None:
        self.patch(self.api.pods, self.namespace, pod["metadata"]["name"], patch, subresource)

    def patch(self, collection: Any, namespace: str, name: str, patch: Object, subresource: str = "") -> None:
        self.api.patch(collection, namespace, name, patch, MERGE, subresource)
