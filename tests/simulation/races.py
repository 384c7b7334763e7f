"""What is faster than a request that is on its way: to what it is about, or to anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation import devices
from tests.simulation.changes import fail, relabel
from tests.simulation.told import MINIMUM_SAID, OURS, Object, annotations, gang_of, pending, uid_of

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

ANYTHING = (
    *(
        "fail",
        "fail",
        "delete",
        "node_changed",
        "node_gone",
        "stolen",
        "foreign",
        "gates",
        "label",
        "annotate",
        "resize",
    ),
    "minimum_moves",
)
"""Steps that may come first, whatever the request is about."""


def race(workload: Workload, kind: str, name: str) -> None:
    """Something happens to a pod, its node or its group at the worst moment. `name` may be another object's, or a
    commit's events."""
    if kind == "anything":
        for what in workload.random.choices(workload.races, k=3):
            workload.step(what)
    elif kind in OF_COMMITS:
        workload.attempt(OF_COMMITS[kind], workload, name)
    else:
        ours = (one for one in workload.api.pods.entries.values() if one.object["spec"]["schedulerName"] in OURS)
        workload.namespace = next((one.key[0] for one in ours if one.key[1] == name), workload.namespace)
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
        case "pod relabelled":
            relabel(workload, pod)
        case "group changed":
            workload.minimum_moves(of=gang_of(pod))
        case "pod stolen":
            node = workload.any_node()
            if pending(pod) and not pod["spec"].get("schedulingGates") and node:
                workload.api.bind(workload.namespace, name, {"target": {"kind": "Node", "name": node}})
        case "node deleted":
            workload.node_gone()
        case "group deleted":
            gone = [key for key in workload.declarations.entries if key[1] == gang_of(pod)]
            for key in gone:
                workload.api.delete(workload.declarations, *key)
        case _:
            raise NotImplementedError(kind)


def _named(workload: Workload, events: str) -> list[Object]:
    """Pods that wait and that a commit names."""
    waiting = [entry.object for entry in workload.api.pods.entries.values() if pending(entry.object)]
    return [pod for pod in waiting if uid_of(pod) in events]


def member_fails(workload: Workload, _: str) -> None:
    fail(workload, True)


def member_goes(workload: Workload, events: str) -> None:
    """One that waits, and that they name."""
    named = [pod for pod in _named(workload, events) if gang_of(pod)]
    if named:
        pod = workload.random.choice(named)
        workload.api.delete(workload.api.pods, pod["metadata"]["namespace"], pod["metadata"]["name"])


def minimum_rises(workload: Workload, events: str) -> None:
    """Of a gang of which they name somebody who waits: its PodGroup's, or what its pods say."""
    gangs = list({gang_of(pod): None for pod in _named(workload, events) if gang_of(pod)})
    if not gangs:
        return
    gang = workload.random.choice(gangs)
    workload.namespace = next(pod["metadata"]["namespace"] for pod in _named(workload, events) if gang_of(pod) == gang)
    declared = workload.declarations.entries.get((workload.namespace, gang))
    if declared is not None:
        minimum = int(declared.object["spec"].get("minMember") or 0)
        workload.patch(workload.declarations, workload.namespace, gang, {"spec": {"minMember": minimum + 1}})
    waiting = [pod for pod in workload.pods() if pending(pod)]
    for pod in [pod for pod in waiting if gang_of(pod) == gang and annotations(pod).get(MINIMUM_SAID, "").isdecimal()]:
        told = {MINIMUM_SAID: str(int(annotations(pod)[MINIMUM_SAID]) + 1)}
        workload.change(pod, {"metadata": {"annotations": told}})


def minimum_moves(workload: Workload, events: str) -> None:
    """Of a gang of which they name somebody who waits."""
    gangs = list({gang_of(pod): None for pod in _named(workload, events) if gang_of(pod)})
    if gangs:
        workload.minimum_moves(of=workload.random.choice(gangs))


def label_moves(workload: Workload, events: str) -> None:
    """Of a pod that waits, and that they name."""
    named = _named(workload, events)
    if named:
        pod = workload.random.choice(named)
        workload.namespace = pod["metadata"]["namespace"]
        relabel(workload, pod)


def room_taken(workload: Workload, events: str) -> None:
    """A pod of somebody else's, which asks for the same, is where one of those goes that they name."""
    places = _places(events)
    going = [pod for pod in _named(workload, events) if ("", places.get(uid_of(pod), "")) in workload.api.nodes.entries]
    if going:
        of = workload.random.choice([pod for pod in going if _opens_ports(pod)] or going)
        spec = {"containers": of["spec"]["containers"], "schedulerName": "default-scheduler"}
        workload.pod(of=0, nodeName=places[uid_of(of)], **spec)


def device_goes(workload: Workload, events: str) -> None:
    """What one of those asks for that they name is offered nowhere any more."""
    asked = [device for pod in _named(workload, events) for device in devices.asked_by(pod)]
    if asked:
        devices.goes(workload, workload.random.choice(asked))


def _places(events: str) -> dict[str, str]:
    """UID → the node to which a proposal or a permit sends it."""
    places = {}
    for event in json.loads(events):
        for node, pods in (*event.get("required", ()), *event.get("optional", ()), *event.get("bindings", ())):
            places.update((pod if isinstance(pod, str) else pod[0], node) for pod in pods)
    return places


def _opens_ports(pod: Object) -> bool:
    return bool(pod["spec"]["containers"][0].get("ports"))


OF_COMMITS: dict[str, Callable[[Workload, str], None]] = {
    "member fails": member_fails,
    "member goes": member_goes,
    "minimum rises": minimum_rises,
    "minimum moves": minimum_moves,
    "label moves": label_moves,
    "room taken": room_taken,
    "device goes": device_goes,
}
"""What a commit on its way does not know: it makes a proposal too small for its gang, or comes between it and its
verdict."""
