"""What others do to pods that are there: they are bound, deleted, changed, or fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.told import GANG, MINIMUM, OURS, POD_GROUP, Object, gang_of, pending

if TYPE_CHECKING:
    from tests.simulation.workload import Workload


def stolen(workload: Workload) -> None:
    """Another scheduler binds one of ours."""
    pod = workload.pick(lambda pod: pending(pod) and not pod["spec"].get("schedulingGates"))
    node = workload.any_node()
    if pod is not None and node:
        workload.api.bind(workload.namespace, pod["metadata"]["name"], {"target": {"kind": "Node", "name": node}})


def delete(workload: Workload) -> None:
    pod = workload.pick(lambda pod: True)
    if pod is not None:
        workload.api.delete(workload.api.pods, workload.namespace, pod["metadata"]["name"])


def delete_gang(workload: Workload) -> None:
    pod = workload.pick(lambda pod: bool(gang_of(pod)))
    if pod is not None:
        for other in [other for other in workload.pods() if gang_of(other) == gang_of(pod)]:
            workload.api.delete(workload.api.pods, workload.namespace, other["metadata"]["name"])


def replaced(workload: Workload) -> None:
    """A member of a gang fails, and somebody makes another in its place."""
    fail(workload, True)
    workload.server.loop.after(workload.random.uniform(0.001, 1.0), workload.attempt, workload.member)


def fail(workload: Workload, member: bool = False) -> None:
    """A pod that is on a node fails for good: refused by its kubelet, or on its own."""
    pod = workload.pick(lambda pod: pod["status"]["phase"] == "Running" and bool(gang_of(pod) or not member))
    if pod is not None:
        reason = {"reason": "OutOfcpu"} if workload.random.random() < 0.5 else {}
        workload.change(pod, {"status": {"phase": "Failed", **reason}}, "status")


def gates(workload: Workload) -> None:
    """A pod may be scheduled from now on."""
    pod = workload.pick(lambda pod: pending(pod) and bool(pod["spec"].get("schedulingGates")))
    if pod is not None:
        workload.change(pod, {"spec": {"schedulingGates": None}})


def label(workload: Workload) -> None:
    """A pod joins a gang, or leaves its own."""
    pod = workload.pick(lambda pod: pod["spec"]["schedulerName"] in OURS)
    if pod is not None:
        relabel(workload, pod)


def relabel(workload: Workload, pod: Object) -> None:
    gang = workload.random.choice([None, "g0", "g1"])
    labels = {GANG: gang, MINIMUM: "2" if gang and workload.random.random() < 0.5 else None, POD_GROUP: None}
    workload.change(pod, {"metadata": {"labels": labels}})


def resize(workload: Workload) -> None:
    """A pod asks for another amount of cpu from now on, wherever it is."""
    pod = workload.pick(lambda pod: pod["status"]["phase"] in ("Pending", "Running") and "cpu" in requests(pod))
    if pod is not None:
        (container,) = pod["spec"]["containers"]
        asked = {**requests(pod), "cpu": workload.random.choice(["500m", "1", "2", "3"])}
        workload.change(pod, {"spec": {"containers": [{**container, "resources": {"requests": asked}}]}}, "resize")


def requests(pod: Object) -> dict[str, str]:
    found: dict[str, str] = pod["spec"]["containers"][0].get("resources", {}).get("requests") or {}
    return found


def annotate(workload: Workload) -> None:
    """Nothing that matters changes, but for the resourceVersion."""
    for _ in range(workload.random.randint(1, 3)):
        pod = workload.pick(pending)
        if pod is not None:
            told = {"example.dev/seen": str(workload.random.random())}
            workload.change(pod, {"metadata": {"annotations": told}})
    if workload.wider:
        for key in list(workload.declarations.entries):
            told = {"example.dev/seen": str(workload.random.random())}
            workload.patch(workload.declarations, *key, {"metadata": {"annotations": told}})


STEPS: dict[str, Callable[[Workload], None]] = {
    "stolen": stolen,
    "delete": delete,
    "delete_gang": delete_gang,
    "replaced": replaced,
    "fail": fail,
    "gates": gates,
    "label": label,
    "resize": resize,
    "annotate": annotate,
}
