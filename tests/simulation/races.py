"""What is faster than a request that is on its way: to what it is about, or to anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.changes import fail
from tests.simulation.told import MINIMUM_SAID, annotations, gang_of, pending, uid_of

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

ANYTHING = ("fail", "fail", "delete", "node_changed", "node_gone", "stolen", "foreign", "gates", "label", "annotate")
"""Steps that may come first, whatever the request is about."""


def race(workload: Workload, kind: str, name: str) -> None:
    """Something happens to a pod, its node or its group at the worst moment. `name` may be another object's, or a
    commit's events."""
    if kind == "anything":
        for what in workload.random.choices(workload.races, k=3):
            workload.step(what)
    elif kind in OF_GANGS:
        workload.attempt(OF_GANGS[kind], workload, name)
    else:
        workload.attempt(_of_pod, workload, kind, name)


def _of_pod(workload: Workload, kind: str, name: str) -> None:
    """Of the pod, its node or its group."""
    entry = workload.api.pods.entries.get((workload.namespace, name))
    if entry is None:
        return
    pod = entry.object
    match kind:
        case "pod deleted":
            workload.api.delete(workload.api.pods, workload.namespace, name)
        case "pod made anew":
            workload.api.delete(workload.api.pods, workload.namespace, name, {"gracePeriodSeconds": 0})
            workload.again(pod, name)
        case "pod annotated":
            workload.patch(
                workload.api.pods, workload.namespace, name, {"metadata": {"annotations": {"example.dev/race": "1"}}}
            )
        case "pod stolen":
            if pending(pod) and not pod["spec"].get("schedulingGates"):
                workload.api.bind(workload.namespace, name, {"target": {"kind": "Node", "name": workload.any_node()}})
        case "node deleted":
            workload.node_gone()
        case "group deleted":
            gone = [key for key in workload.declarations.entries if key[1] == gang_of(pod)]
            for key in gone:
                workload.api.delete(workload.declarations, *key)
        case _:
            raise NotImplementedError(kind)


def member_fails(workload: Workload, _: str) -> None:
    fail(workload, True)


def member_goes(workload: Workload, events: str) -> None:
    """One that waits, and that they name."""
    pod = workload.pick(lambda pod: pending(pod) and bool(gang_of(pod)) and uid_of(pod) in events)
    if pod is not None:
        workload.api.delete(workload.api.pods, workload.namespace, pod["metadata"]["name"])


def minimum_rises(workload: Workload, events: str) -> None:
    """Of a gang of which they name somebody who waits: its PodGroup's, or what its pods say."""
    waiting = [entry.object for entry in workload.api.pods.entries.values() if pending(entry.object)]
    gangs = list({gang_of(pod): None for pod in waiting if gang_of(pod) and uid_of(pod) in events})
    if not gangs:
        return
    gang = workload.random.choice(gangs)
    declared = workload.declarations.entries.get((workload.namespace, gang))
    if declared is not None:
        minimum = int(declared.object["spec"].get("minMember") or 0)
        workload.patch(workload.declarations, workload.namespace, gang, {"spec": {"minMember": minimum + 1}})
    for pod in [pod for pod in waiting if gang_of(pod) == gang and MINIMUM_SAID in annotations(pod)]:
        told = {MINIMUM_SAID: str(int(annotations(pod)[MINIMUM_SAID]) + 1)}
        workload.change(pod, {"metadata": {"annotations": told}})


OF_GANGS: dict[str, Callable[[Workload, str], None]] = {
    "member fails": member_fails,
    "member goes": member_goes,
    "minimum rises": minimum_rises,
}
"""What makes a proposal too small for its gang when it comes just before it."""
