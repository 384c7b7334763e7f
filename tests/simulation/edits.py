"""What users, controllers and kubelets change about what is there: how a gang is declared, while it waits, is proposed,
held or bound; what pods tolerate; finalizers that keep what is deleted; taints that drive pods away, drains; resizes that
a kubelet carries out, or cannot. Seeds before `FROM` are without them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.changes import requests
from tests.simulation.newcomers import KOORDINATORS, POLICIES
from tests.simulation.planting import NEWEST_FROM
from tests.simulation.told import KOORDINATOR, MINIMUM, MINIMUM_SAID, Object, annotations, gang_of, uid_of

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

FROM = NEWEST_FROM
WEIGHTS = {
    "redeclared": 5,
    "regrouped": 3,
    "minimum_said": 2,
    "tolerates": 1.5,
    "finalized": 2.5,
    "driven_away": 1.5,
    "drained": 1.5,
    "resizing": 2,
}
TRACKING = "batch.kubernetes.io/job-tracking"
"""A Job's controller has it on each of its pods until it has counted it."""
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
TOLERATED: tuple[Object, ...] = (
    {**UNREACHABLE, "operator": "Exists", "tolerationSeconds": 300},
    {"key": "dedicated", "operator": "Equal", "value": "x", "effect": "NoSchedule"},
    {"operator": "Exists"},
)


def _redeclaration(workload: Workload, pod: Object) -> dict[str, str | None]:
    """One annotation of Koordinator's, changed or taken away."""
    rnd, said_now = workload.random, annotations(pod).get(MINIMUM_SAID, "")
    minimum = int(said_now) if said_now.isdecimal() else 2
    said: dict[str, list[str | None]] = {
        "mode": ["Strict", "NonStrict", None],
        "match-policy": [*POLICIES, None],
        "waiting-time": ["1s", "3s", "8s", "0s", None],
        "min-available": [str(minimum + 1), str(max(1, minimum - 1))],
        "total-number": [str(minimum), str(minimum + 1), str(minimum + 2), None],
        "groups": ["[]", None],
    }
    field = rnd.choice(list(said))
    return {f"{KOORDINATOR}/{field}": rnd.choice(said[field])}


def redeclared(workload: Workload) -> None:
    """A gang of Koordinator's says something else: all its pods one after the other, one of them, or its PodGroup."""
    pod = workload.pick(_koordinators)
    if pod is None:
        return
    change = _redeclaration(workload, pod)
    declaring = workload.api.by_path.get(KOORDINATORS)
    if (
        declaring is not None
        and (workload.namespace, gang_of(pod)) in declaring.entries
        and workload.random.random() < 0.6
    ):
        workload.patch(declaring, workload.namespace, gang_of(pod), {"metadata": {"annotations": change}})
    elif workload.random.random() < 0.3:
        workload.change(pod, {"metadata": {"annotations": change}})
    else:
        _say(workload, gang_of(pod), {"annotations": change})


def regrouped(workload: Workload) -> None:
    """Two gangs that are there name each other from now on, or one of them the other; or one leaves its group."""
    rnd = workload.random
    gangs = list(dict.fromkeys(gang_of(pod) for pod in workload.pods() if _koordinators(pod)))
    if not gangs:
        return
    chosen = rnd.sample(gangs, min(len(gangs), 2))
    group = json.dumps([f"{workload.namespace}/{name}" for name in chosen])
    for name in chosen if rnd.random() < 0.7 else chosen[:1]:
        said = group if len(chosen) > 1 and rnd.random() < 0.8 else "[]"
        _say(workload, name, {"annotations": {f"{KOORDINATOR}/groups": said}})


def minimum_said(workload: Workload) -> None:
    """Of a gang whose pods have it as a label, by all of them."""
    pod = workload.pick(lambda pod: MINIMUM in (pod["metadata"].get("labels") or {}))
    if pod is not None:
        _say(workload, gang_of(pod), {"labels": {MINIMUM: str(workload.random.randint(1, 5))}})


def _say(workload: Workload, gang: str, metadata: Object) -> None:
    """All pods of the gang, at once or one after the other."""
    rnd, namespace = workload.random, workload.namespace
    spread_s = rnd.choice([0.0, 0.0, 0.3, 2.0])
    for pod in [pod for pod in workload.pods() if gang_of(pod) == gang]:
        patch = (workload.patch, workload.api.pods, namespace, pod["metadata"]["name"], {"metadata": metadata})
        if spread_s:
            workload.server.loop.after(rnd.uniform(0.0, spread_s), workload.attempt, *patch)
        else:
            workload.attempt(*patch)


def _koordinators(pod: Object) -> bool:
    return bool(gang_of(pod)) and any(key.startswith(KOORDINATOR) for key in annotations(pod))


def tolerates(workload: Workload) -> None:
    """One toleration more, which anybody may add to a pod wherever it is."""
    pod = workload.pick(lambda pod: True)
    if pod is not None:
        more = workload.random.choice(TOLERATED)
        workload.change(pod, {"spec": {"tolerations": [*pod["spec"].get("tolerations", ()), more]}})


def finalized(workload: Workload) -> None:
    """Pods of a Job, of which one is deleted, or they end: they go when their controller has counted them."""
    rnd = workload.random
    pod = workload.pick(
        lambda pod: not pod["metadata"].get("finalizers") and "deletionTimestamp" not in pod["metadata"]
    )
    if pod is None:
        return
    together = [other for other in workload.pods() if gang_of(other) and gang_of(other) == gang_of(pod)] or [pod]
    for one in together:
        workload.change(one, {"metadata": {"finalizers": [TRACKING]}})
        key = (workload.namespace, one["metadata"]["name"])
        workload.server.loop.after(rnd.uniform(2.0, 10.0), counted, workload, key, uid_of(one))
    workload.api.delete(workload.api.pods, workload.namespace, pod["metadata"]["name"])


def counted(workload: Workload, key: tuple[str, str], uid: str) -> None:
    """Its controller has seen that it is over, or about to be."""
    entry = workload.api.pods.entries.get(key)
    if entry is not None and uid_of(entry.object) == uid:
        workload.patch(workload.api.pods, *key, {"metadata": {"finalizers": None}})


def driven_away(workload: Workload) -> None:
    """A node is silent: its pods are deleted, but for those that tolerate that, and it comes back."""
    name = workload.any_node()
    if name:
        _taint(workload, name, UNREACHABLE, {})
        _leave(workload, name, lambda pod: not any("key" not in one or one["key"] == UNREACHABLE["key"] for one in pod))


def drained(workload: Workload) -> None:
    """A node is cordoned, its pods are evicted, and it is back some time later."""
    name = workload.any_node()
    if name:
        _taint(workload, name, CORDONED, {"unschedulable": True})
        _leave(workload, name, lambda _: True)


def _taint(workload: Workload, name: str, taint: Object, spec: Object) -> None:
    there = _taints(workload, name)
    if taint in there:
        return
    workload.patch(workload.api.nodes, "", name, {"spec": {"taints": [*there, taint], **spec}})
    workload.server.loop.after(workload.random.uniform(1.0, 10.0), workload.attempt, _untaint, workload, name, taint)


def _untaint(workload: Workload, name: str, taint: Object) -> None:
    left = [one for one in _taints(workload, name) if one != taint]
    workload.patch(workload.api.nodes, "", name, {"spec": {"taints": left or None, "unschedulable": False}})


def _taints(workload: Workload, name: str) -> list[Object]:
    entry = workload.api.get(workload.api.nodes, "", name)
    return list(entry.object["spec"].get("taints") or ())


def _leave(workload: Workload, node: str, goes: Callable[[list[Object]], bool]) -> None:
    for entry in list(workload.api.pods.entries.values()):
        pod = entry.object
        if pod["spec"].get("nodeName") == node and goes(pod["spec"].get("tolerations") or []):
            after_s = workload.random.uniform(0.0, 3.0)
            workload.server.loop.after(after_s, workload.attempt, _evict, workload, entry.key, uid_of(pod))


def _evict(workload: Workload, key: tuple[str, str], uid: str) -> None:
    entry = workload.api.pods.entries.get(key)
    if entry is not None and uid_of(entry.object) == uid:
        workload.api.evict(*key, {})


def resizing(workload: Workload) -> None:
    """A pod that runs is resized, and its kubelet says how far it is: it has the former amount, then the new one; or it
    never can."""
    rnd = workload.random
    pod = workload.pick(lambda pod: pod["status"]["phase"] == "Running" and "cpu" in requests(pod))
    if pod is None:
        return
    (container,), had = pod["spec"]["containers"], requests(pod)
    asked = {**had, "cpu": rnd.choice(["500m", "1", "2", "3"])}
    resized = {**container, "resources": {**container["resources"], "requests": asked}}
    resized["resources"].pop("limits", None)
    workload.change(pod, {"spec": {"containers": [resized]}}, "resize")
    never = rnd.random() < 0.3
    key, uid = (workload.namespace, pod["metadata"]["name"]), uid_of(pod)
    _kubelet_says(workload, key, uid, had, had, "Infeasible" if never else rnd.choice(["Deferred", ""]))
    if not never:
        steps = [(asked, had), (asked, asked)] if rnd.random() < 0.5 else [(asked, asked)]
        for number, (allocated, has) in enumerate(steps, 1):
            workload.server.loop.after(
                number * rnd.uniform(0.2, 2.0), _kubelet_says, workload, key, uid, allocated, has
            )


def _kubelet_says(
    workload: Workload,
    key: tuple[str, str],
    uid: str,
    allocated: dict[str, str],
    has: dict[str, str],
    pending: str = "",
) -> None:
    pod = workload.running(key, uid)
    if pod is None:
        return
    others = [one for one in pod["status"].get("conditions", ()) if one["type"] != "PodResizePending"]
    waits: list[Any] = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    said = {"name": "c", "resources": {"requests": has}, "allocatedResources": allocated}
    statuses = [one | said for one in pod["status"].get("containerStatuses", ())]
    status = {"containerStatuses": statuses, "conditions": [*others, *waits]}
    workload.patch(workload.api.pods, *key, {"status": status}, "status")


STEPS: dict[str, Callable[[Workload], None]] = {
    "redeclared": redeclared,
    "regrouped": regrouped,
    "minimum_said": minimum_said,
    "tolerates": tolerates,
    "finalized": finalized,
    "driven_away": driven_away,
    "drained": drained,
    "resizing": resizing,
}
