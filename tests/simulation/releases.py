"""What users say with newer releases of Kubernetes: tolerations that compare numbers, PodGroups with a priority of their
own or with a topology, which is refused, Workloads and PodGroups that are made anew, as their spec may not change, and
resources of a pod as a whole that its kubelet has given it. Seeds before `FROM` are without them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.asks import ASKS, COMPARING, ODD, OPENING, PLAIN
from tests.simulation.planting import FURTHER_FROM
from tests.simulation.told import GANG, MINIMUM, Object, uid_of
from tests.simulation.upstream import KUBE_BATCH, NATIVE, WORKLOADS

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

FROM = FURTHER_FROM
WEIGHTS = {"compares": 2.0, "ranked": 1.5, "near_each_other": 1.0, "made_anew": 2.5, "given": 1.5}
BEFORE = len(ASKS) + len(ODD) + len(OPENING)
AWAY_S = (0.0, 3.0)
NEAR = {"topology": [{"key": "topology.kubernetes.io/rack"}]}
GIVEN = ("500m", "1", "2", "4")


def compares(workload: Workload) -> None:
    """Pods, a gang or single ones, that ask in ways which are rare."""
    rnd = workload.random
    of, pods = BEFORE + rnd.randrange(len(COMPARING)), rnd.randint(1, 4)
    labels = {GANG: f"g{rnd.randrange(3)}", MINIMUM: str(pods)} if rnd.random() < 0.5 else None
    for _ in range(pods):
        workload.pod(labels, of=of)


def ranked(workload: Workload) -> None:
    """A gang whose PodGroup has the priority, which its pods may not have."""
    _native(workload, {"priority": workload.random.choice([-5, 0, 10, 1_000])})


def near_each_other(workload: Workload) -> None:
    """A gang whose PodGroup is refused, and soon made anew without that."""
    rnd, namespace = workload.random, workload.namespace
    name = _native(workload, {"schedulingConstraints": NEAR})
    workload.server.loop.after(rnd.uniform(*AWAY_S), workload.attempt, _anew, workload, NATIVE, (namespace, name), {})


def _native(workload: Workload, more: Object) -> str:
    rnd = workload.random
    name, pods, of = f"n{rnd.randrange(3)}", rnd.randint(1, 4), rnd.randrange(PLAIN)
    spec = {"schedulingPolicy": {"gang": {"minCount": pods}}, **more}
    group = {"apiVersion": "/".join(NATIVE[:2]), "kind": "PodGroup", "metadata": workload.named(name), "spec": spec}
    workload.attempt(workload.api.apply_new, group)
    for _ in range(pods):
        workload.pod({}, of=of, schedulingGroup={"podGroupName": name})
    return name


def made_anew(workload: Workload) -> None:
    """What declares a gang is deleted and made anew, at once or soon, with another minimum and another UID."""
    rnd, api = workload.random, workload.api
    kinds = [where for where in (NATIVE, WORKLOADS, KUBE_BATCH, workload.pod_groups) if where in api.by_path]
    there = [(where, key) for where in kinds for key in api.by_path[where].entries if key[0] == workload.namespace]
    if there:
        where, key = rnd.choice(there)
        least = rnd.randint(1, 4)
        specs: dict[Any, Object] = {
            NATIVE: {"schedulingPolicy": {"gang": {"minCount": least}}},
            WORKLOADS: {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": least}}}]},
        }
        _anew(workload, where, key, specs.get(where, {"minMember": least}))


def _anew(workload: Workload, where: tuple[str, str, str], key: tuple[str, str], spec: Object) -> None:
    """With this spec; none: with its own, but for what was refused."""
    rnd, api = workload.random, workload.api
    old = workload.served(where).entries[key].object if key in workload.served(where).entries else None
    if old is None:
        return
    kept = {field: value for field, value in old["spec"].items() if field != "schedulingConstraints"}
    made = {"apiVersion": "/".join(where[:2]), "kind": workload.served(where).resource.kind, "spec": spec or kept}
    made["metadata"] = {"namespace": key[0], "name": key[1]}
    api.delete(workload.served(where), *key)
    make = partial(api.apply_new, made, define=False)
    if rnd.random() < 0.5:
        make()
    else:  # the kind may be gone by then, and come again otherwise
        workload.server.loop.after(rnd.uniform(*AWAY_S), workload.attempt, make)


def given(workload: Workload) -> None:
    """A pod that asks for something as a whole has been given, and uses, something else for a while, and then that."""
    rnd = workload.random
    pod = workload.pick(lambda pod: bool(pod["spec"].get("resources")) and pod["status"]["phase"] == "Running")
    if pod is not None:
        key, asked = (workload.namespace, pod["metadata"]["name"]), pod["spec"]["resources"]["requests"]
        had = {**asked, "cpu": rnd.choice(GIVEN)}
        _kubelet_says(workload, key, uid_of(pod), had, {**asked, "cpu": rnd.choice(GIVEN)})
        workload.server.loop.after(rnd.uniform(0.2, 6.0), _kubelet_says, workload, key, uid_of(pod), asked, asked)


def _kubelet_says(workload: Workload, key: tuple[str, str], uid: str, has: Object, allocated: Object) -> None:
    if workload.running(key, uid) is not None:
        status = {"resources": {"requests": has}, "allocatedResources": allocated}
        workload.patch(workload.api.pods, *key, {"status": status}, "status")


STEPS: dict[str, Callable[[Workload], None]] = {
    "compares": compares,
    "ranked": ranked,
    "near_each_other": near_each_other,
    "made_anew": made_anew,
    "given": given,
}
