"""What users of kube-batch and of Kubernetes' own gangs do: groups that are declared before or after their pods, changed
and taken away; pods that say themselves how many of their owner's pods start together.

Kubernetes' own come in both forms that are read: a PodGroup (1.36), and a group of a Workload (1.35), of which a replica
key makes gangs of their own. Seeds before `FROM` are without them, so that they are the histories that they were.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from services.simulator import resources
from services.simulator.resources import Resource
from tests.simulation.asks import OF_GANGS

if TYPE_CHECKING:
    from services.simulator.api import Api
    from tests.simulation.workload import Workload

FROM = 600
"""The first seed with such users."""
KUBE_BATCH = ("scheduling.incubator.k8s.io", "v1alpha1", "podgroups")
NATIVE = ("scheduling.k8s.io", "v1alpha2", "podgroups")
WORKLOADS = ("scheduling.k8s.io", "v1alpha1", "workloads")
SERVED = (Resource(*NATIVE, "PodGroup", status=True), Resource(*WORKLOADS, "Workload"))
GROUP_NAME, MINIMUM = "scheduling.k8s.io/group-name", "scheduling.k8s.io/group-min-member"
MERGE = "application/merge-patch+json"
WEIGHTS = {"batch_group": 3, "owned": 2, "native_group": 3, "native_workload": 3, "minimum_changes": 2, "goes": 1.5}
Spec = dict[str, Any]


def serve(api: Api) -> None:
    api.apply_new(resources.pod_groups_crd("/".join(KUBE_BATCH[:2])))
    api.open_gates(SERVED)


def _around(workload: Workload, declare: Callable[[], None], pods: Callable[[], None]) -> None:
    """Declared first, or behind the pods."""
    for what in (declare, pods) if workload.random.random() < 0.5 else (pods, declare):
        workload.attempt(what)


def _declare(workload: Workload, where: tuple[str, str, str], kind: str, name: str, spec: Spec) -> None:
    """It is there with this spec from now on."""
    collection = workload.served(where)
    if (workload.namespace, name) in collection.entries:
        workload.api.patch(collection, workload.namespace, name, {"spec": spec}, MERGE, "")
    else:
        made = {"apiVersion": "/".join(where[:2]), "kind": kind, "metadata": workload.named(name), "spec": spec}
        workload.api.apply_new(made, define=False)


def _sizes(rnd: random.Random) -> tuple[int, int]:
    """Pods, and how many must start together: now and then fewer, or one more than there are."""
    pods = rnd.randint(2, 5)
    return pods, rnd.choice([pods, pods, pods, max(1, pods - 1), pods + 1])


def batch_group(workload: Workload) -> None:
    """A PodGroup of kube-batch's."""
    rnd = workload.random
    name, of, (pods, minimum) = f"b{rnd.randrange(3)}", rnd.randrange(OF_GANGS), _sizes(rnd)
    spec: Spec = {"minMember": minimum, "queue": rnd.choice(["default", "other"])}
    if rnd.random() < 0.6:
        spec["priorityClassName"] = rnd.choice(["high", "class-0", "class-1"])

    def make() -> None:
        for _ in range(pods):
            workload.pod({}, of=of, annotated={GROUP_NAME: name})

    _around(workload, lambda: _declare(workload, KUBE_BATCH, "PodGroup", name, spec), make)


def owned(workload: Workload) -> None:
    """The pods of one controller, without a PodGroup."""
    rnd = workload.random
    of, (pods, minimum) = rnd.randrange(OF_GANGS), _sizes(rnd)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": True}
    owner["uid"] = str(uuid.UUID(int=rnd.getrandbits(128), version=4))
    for _ in range(pods):
        workload.pod({}, of=of, annotated={MINIMUM: str(minimum)}, owners=[owner])


def native_group(workload: Workload) -> None:
    """A PodGroup of Kubernetes' own."""
    rnd = workload.random
    name, of, (pods, minimum) = f"w{rnd.randrange(3)}", rnd.randrange(OF_GANGS), _sizes(rnd)

    def make() -> None:
        for _ in range(pods):
            workload.pod({}, of=of, schedulingGroup={"podGroupName": name})

    spec = {"schedulingPolicy": _policy(rnd, minimum)}
    _around(workload, lambda: _declare(workload, NATIVE, "PodGroup", name, spec), make)


def native_workload(workload: Workload) -> None:
    """A Workload with a group of pods, or with replicas of it."""
    rnd = workload.random
    name, of, (pods, minimum) = f"w{rnd.randrange(3)}", rnd.randrange(OF_GANGS), _sizes(rnd)
    replicas = rnd.choice([[""], [""], ["0", "1"]])

    def make() -> None:
        for replica in replicas:
            ref = {"name": name, "podGroup": "workers", **({"podGroupReplicaKey": replica} if replica else {})}
            for _ in range(pods):
                workload.pod({}, of=of, workloadRef=ref)

    spec = {"podGroups": [{"name": "workers", "policy": _policy(rnd, minimum)}]}
    _around(workload, lambda: _declare(workload, WORKLOADS, "Workload", name, spec), make)


def _policy(rnd: random.Random, minimum: int) -> Spec:
    return {"gang": {"minCount": minimum}} if rnd.random() < 0.85 else {"basic": {}}


def minimum_changes(workload: Workload) -> None:
    """Of whichever is there."""
    rnd = workload.random
    where, name = _any(workload)
    minimum, gang = rnd.randint(1, 4), {"gang": {"minCount": rnd.randint(1, 4)}}
    specs: dict[tuple[str, str, str], Spec] = {
        KUBE_BATCH: {"minMember": minimum},
        NATIVE: {"schedulingPolicy": {"basic": None, **gang}},
        WORKLOADS: {"podGroups": [{"name": "workers", "policy": gang}]},
    }
    if name:
        _declare(workload, where, "", name, specs[where])


def goes(workload: Workload) -> None:
    """Whichever is there, while its pods stay."""
    where, name = _any(workload)
    if name:
        workload.api.delete(workload.served(where), workload.namespace, name)


def _any(workload: Workload) -> tuple[tuple[str, str, str], str]:
    served = [where for where in (KUBE_BATCH, NATIVE, WORKLOADS) if where in workload.api.by_path]
    here = workload.namespace
    there = [(where, key[1]) for where in served for key in workload.served(where).entries if key[0] == here]
    return workload.random.choice(there) if there else (NATIVE, "")


STEPS: dict[str, Callable[[Workload], None]] = {
    "batch_group": batch_group,
    "owned": owned,
    "native_group": native_group,
    "native_workload": native_workload,
    "minimum_changes": minimum_changes,
    "goes": goes,
}
