"""Users who come from elsewhere with what they have: Koordinator's PodGroups with annotations, pods of that scheduler's
name, whole gangs that a queue of jobs (Kueue) keeps behind a gate, gangs of which another scheduler has a part, PodGroups
that are refused, clusters without a node for a while. Seeds before `FROM` are without them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from services.simulator import resources
from services.simulator.traces import KOORDINATORS_LABEL
from tests.simulation.asks import ASKS, ODD, OF_GANGS, PLAIN
from tests.simulation.planting import NEWEST_FROM
from tests.simulation.told import GANG, GROUP_NAME, KOORDINATOR, MINIMUM, Object, gang_of, uid_of

if TYPE_CHECKING:
    from services.simulator.api import Api
    from tests.simulation.workload import Workload

FROM = NEWEST_FROM
WEIGHTS = {
    "community": 3,
    "community_roles": 2,
    "queued": 2,
    "partly": 1.5,
    "odd": 3,
    "not_supported": 1,
    "no_nodes": 0.5,
}
KOORDINATORS = ("scheduling.sigs.k8s.io", "v1alpha1", "podgroups")
VOLCANO = ("scheduling.volcano.sh", "v1beta1", "podgroups")
POLICIES = ("once-satisfied", "waiting-and-running", "only-waiting")
NAMES = ("k0", "k1", "c0", "c1")
"""Two of them are names of gangs that annotations alone declare, too (`koordinator`)."""
GATE = [{"name": "kueue.x-k8s.io/admission"}]


def serve(api: Api) -> None:
    api.apply_new(resources.pod_groups_crd("/".join(KOORDINATORS[:2]), status=False))
    overhead = {"podFixed": {"cpu": "250m", "memory": "128Mi"}}
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}}
    api.apply_new({**runtime, "handler": "kata", "overhead": overhead})


def community(workload: Workload) -> None:
    """One gang of Koordinator's, by a PodGroup."""
    rnd = workload.random
    _gang(workload, rnd.choice(NAMES), rnd.randint(2, 5), rnd.randrange(OF_GANGS), {})


def community_roles(workload: Workload) -> None:
    """Some that wait for each other: the PodGroups say so, and seldom one does not."""
    rnd = workload.random
    names, of = rnd.sample(NAMES, 2), rnd.randrange(PLAIN)
    group = {f"{KOORDINATOR}/groups": json.dumps([f"{workload.namespace}/{name}" for name in names])}
    for name in names:
        _gang(workload, name, rnd.randint(1, 3), of, group if rnd.random() < 0.9 else {})


def _gang(workload: Workload, name: str, pods: int, of: int, told: dict[str, str]) -> None:
    """Its PodGroup comes before its pods, between them or behind; some of the pods say something themselves."""
    rnd = workload.random
    minimum = rnd.choice([pods, pods, max(1, pods - 1), pods + 1])
    told = {**told, **_said(workload, minimum)}
    spec: Object = {"minMember": minimum}
    if rnd.random() < 0.5:
        spec["scheduleTimeoutSeconds"] = rnd.randint(1, 6)
    scheduler = rnd.choice(["muster", "koord-scheduler"])
    own = _said(workload, minimum) if rnd.random() < 0.3 else {}
    before = rnd.choice([0, pods // 2, pods])
    for number in range(pods + 1):
        if number == before:
            workload.attempt(_declare, workload, KOORDINATORS, name, spec, told)
        if number < pods:
            workload.pod({KOORDINATORS_LABEL: name}, of=of, annotated=own, schedulerName=scheduler)


def _said(workload: Workload, minimum: int) -> dict[str, str]:
    """Seldom any field that nobody asked for."""
    rnd, told = workload.random, dict[str, str]()
    if rnd.random() < 0.5:
        told["mode"] = rnd.choice(["NonStrict", "Strict"])
    if rnd.random() < 0.4:
        told["match-policy"] = rnd.choice(POLICIES)
    if rnd.random() < 0.4:
        told["total-number"] = str(max(0, minimum + rnd.choice([-1, 0, 1, 2])))
    return {f"{KOORDINATOR}/{field}": value for field, value in told.items()}


def _declare(
    workload: Workload, where: tuple[str, str, str], name: str, spec: Object, told: dict[str, str] | None = None
) -> None:
    """It is there with this from now on."""
    collection, metadata = workload.served(where), {"annotations": told or {}}
    if (workload.namespace, name) in collection.entries:
        workload.patch(collection, workload.namespace, name, {"spec": spec, "metadata": metadata})
    else:
        made = {"apiVersion": "/".join(where[:2]), "kind": "PodGroup", "spec": spec}
        workload.api.apply_new({**made, "metadata": workload.named(name) | metadata}, define=False)


def queued(workload: Workload) -> None:
    """A gang behind a gate, which is let in as a whole, onto nodes of one zone perhaps."""
    rnd = workload.random
    name, pods, of = f"q{rnd.randrange(2)}", rnd.randint(2, 5), rnd.randrange(PLAIN)
    for _ in range(pods):
        workload.pod({GANG: name, MINIMUM: str(pods)}, of=of, schedulingGates=GATE)
    zone = rnd.choice([None, None, "a", "b"])
    workload.server.loop.after(rnd.uniform(0.5, 6.0), _let_in, workload, workload.namespace, name, zone)


def _let_in(workload: Workload, namespace: str, name: str, zone: str | None) -> None:
    workload.namespace = namespace
    for pod in [pod for pod in workload.pods() if gang_of(pod) == name and pod["spec"].get("schedulingGates")]:
        narrowed = {"nodeSelector": {"zone": zone}} if zone else {}
        workload.attempt(workload.change, pod, {"spec": {"schedulingGates": None, **narrowed}})


def partly(workload: Workload) -> None:
    """A gang of which some pods are another scheduler's, which binds them some time."""
    rnd = workload.random
    name, pods, of = f"g{rnd.randrange(3)}", rnd.randint(2, 4), rnd.randrange(PLAIN)
    for number in range(pods):
        theirs = {"schedulerName": "default-scheduler"} if number % 2 else {}
        made = workload.pod({GANG: name, MINIMUM: str(pods)}, of=of, **theirs)
        if theirs:
            bound = (workload.attempt, _bound, workload, workload.namespace, made)
            workload.server.loop.after(rnd.uniform(0.2, 8.0), *bound)


def _bound(workload: Workload, namespace: str, name: str) -> None:
    node = workload.any_node()
    if node:
        workload.api.bind(namespace, name, {"target": {"kind": "Node", "name": node}})


def odd(workload: Workload) -> None:
    """Pods, a gang or single ones, that ask in ways of which there are many."""
    rnd = workload.random
    of, pods = len(ASKS) + rnd.randrange(len(ODD)), rnd.randint(1, 4)
    labels = {GANG: f"g{rnd.randrange(3)}", MINIMUM: str(pods)} if rnd.random() < 0.5 else None
    for _ in range(pods):
        workload.pod(labels, of=of)


NOT_SUPPORTED: tuple[Object, ...] = (
    {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}},
    {"networkTopology": {"mode": "soft"}},
    {"subGroupPolicy": [{"name": "workers", "subGroupSize": 2}]},
    {"minTaskMember": {"ps": -1}},
    {"minTaskMember": ["ps"]},
    {"priorityClassName": 7},
)
"""What a PodGroup of Volcano's may say, and is refused but for the second."""


def not_supported(workload: Workload) -> None:
    """A Volcano job whose PodGroup is refused, and mended some time later."""
    rnd = workload.random
    name, of, pods = f"j{rnd.randrange(3)}", rnd.randrange(PLAIN), rnd.randint(2, 3)
    said = rnd.choice(NOT_SUPPORTED)
    mended: dict[str, Any] = {**dict.fromkeys(said), "minMember": pods}
    workload.attempt(_declare, workload, VOLCANO, name, {"minMember": pods, **said})
    for _ in range(pods):
        workload.pod({}, of=of, annotated={GROUP_NAME: name, "volcano.sh/task-spec": "worker"})

    def mend(namespace: str) -> None:
        workload.namespace = namespace
        _declare(workload, VOLCANO, name, mended)

    if rnd.random() < 0.7:
        workload.server.loop.after(rnd.uniform(0.5, 8.0), workload.attempt, mend, workload.namespace)


def no_nodes(workload: Workload) -> None:
    """All are scaled away, with what is on them; new ones come some time later."""
    rnd = workload.random
    for _, name in list(workload.api.nodes.entries):
        workload.api.delete(workload.api.nodes, "", name)
    for entry in list(workload.api.pods.entries.values()):
        if entry.object["spec"].get("nodeName"):
            workload.server.loop.after(rnd.uniform(0.1, 4.0), workload.collect, entry.key, uid_of(entry.object))
    workload.server.loop.after(rnd.uniform(1.0, 5.0), _nodes_come, workload)


def _nodes_come(workload: Workload) -> None:
    for _ in range(workload.random.randint(3, 8)):
        workload.attempt(workload.node)


STEPS: dict[str, Callable[[Workload], None]] = {
    "community": community,
    "community_roles": community_roles,
    "queued": queued,
    "partly": partly,
    "odd": odd,
    "not_supported": not_supported,
    "no_nodes": no_nodes,
}
