"""What users of Koordinator do: gangs that accumulate, match policies, waiting times that run out, and what they do then.

Rivals ask for something of which there is little: room comes piece by piece, each gets a part, and nobody enough.
Seeds before `FROM` are without all this, so that they are the histories that the plants' figures are of. What comes later
within a step is drawn with it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from events import dialects
from services.simulator.errors import ApiError
from tests.simulation.asks import OF_GANGS, PLAIN

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

FROM = 400
"""The first seed with such users: plants are looked for before it."""
PREFIX = "gang.scheduling.koordinator.sh"
TIMEOUT = dialects.TIMEOUT_ANNOTATION
NAMES = ("k0", "k1", "k2", "k3")
POLICIES = (dialects.ONCE_SATISFIED, dialects.WAITING_AND_RUNNING, dialects.ONLY_WAITING)
SCARCE, NODES, EACH = "example.dev/scarce", ("s0", "s1"), 2
"""A resource of which two nodes have a little each."""
MERGE = "application/merge-patch+json"
WEIGHTS = {"accumulates": 2, "roles": 2, "waves": 3, "rivals": 5, "impatient": 3, "user_acts": 2}


def _declared(rnd: random.Random, name: str, minimum: int, **more: str) -> dict[str, str]:
    """The annotations of a gang's pods: seldom any field that nobody asked for."""
    told = {"name": name, "min-available": str(minimum), "mode": rnd.choice(["NonStrict", "NonStrict", "Strict"])}
    if rnd.random() < 0.5:
        told["waiting-time"] = f"{rnd.randint(1, 8)}s"
    if rnd.random() < 0.3:
        told["match-policy"] = rnd.choice(POLICIES)
    return {f"{PREFIX}/{field}": value for field, value in {**told, **more}.items()}


def accumulates(workload: Workload) -> None:
    """A NonStrict gang, now and then with pods to spare."""
    rnd = workload.random
    pods, of = rnd.randint(2, 6), rnd.randrange(OF_GANGS)
    told = _declared(rnd, rnd.choice(NAMES), max(1, pods - rnd.choice([0, 0, 1])), mode="NonStrict")
    for _ in range(pods):
        workload.pod({}, of=of, annotated=told)


def roles(workload: Workload) -> None:
    """A group of gangs, each with a mode, a policy and a waiting time of its own."""
    rnd = workload.random
    names, of = rnd.sample(NAMES, rnd.choice([2, 2, 3])), rnd.randrange(PLAIN)
    group = json.dumps([f"{workload.namespace}/{name}" for name in names])
    for name in names:
        pods = rnd.randint(1, 3)
        told = _declared(rnd, name, pods, groups=group)
        for _ in range(pods):
            workload.pod({}, of=of, annotated=told)


def waves(workload: Workload) -> None:
    """A gang with a match policy, and pods that come later: as many as it needs, or fewer."""
    rnd = workload.random
    pods, of = rnd.randint(2, 4), rnd.randrange(PLAIN)
    policy = {"match-policy": rnd.choice(POLICIES)}
    told = _declared(rnd, rnd.choice(NAMES), pods, **policy)

    def wave(size: int) -> None:
        for _ in range(size):
            workload.pod({}, of=of, annotated=told)

    wave(pods)
    for _ in range(rnd.randint(1, 2)):
        workload.server.loop.after(rnd.uniform(1.0, 6.0), workload.attempt, wave, rnd.randint(1, pods))


def rivals(workload: Workload) -> None:
    """Two gangs want most of what is scarce, of which somebody else has half. It comes free while both wait."""
    rnd = workload.random
    _scarce_nodes(workload)
    for pod in _pods(workload):
        if SCARCE in pod["spec"]["containers"][0].get("resources", {}).get("requests", {}):
            workload.api.delete(workload.api.pods, pod["metadata"]["namespace"], pod["metadata"]["name"])
    for _ in range(2):
        ends = {"muster.dev/duration-ms": str(rnd.randrange(3_000, 5_000)), "muster.dev/exit-code": "0"}
        _scarce_pod(workload, ends)
    names, of_both = rnd.sample(NAMES, 2), {"waiting-time": f"{rnd.randint(8, 16)}s"}
    more: list[dict[str, Any]] = [{}, {"priorityClassName": "high", "priority": 10}]
    for name, spec, from_s in zip(names, more, (1.0, 1.5), strict=True):
        told = _declared(rnd, name, 3, **of_both, mode="NonStrict" if rnd.random() < 0.9 else "Strict")
        workload.server.loop.after(
            from_s + rnd.uniform(0.0, 0.7), workload.attempt, _scarce_gang, workload, told, 3, spec
        )


def impatient(workload: Workload) -> None:
    """A gang that holds all that is scarce, lacks one more, and runs out of time; then its user acts, or does nothing."""
    rnd = workload.random
    _scarce_nodes(workload)
    name, pods = rnd.choice(NAMES), EACH * len(NODES) + 1
    told = _declared(rnd, name, pods, **{"mode": "NonStrict", "waiting-time": f"{rnd.randint(1, 4)}s"})
    _scarce_gang(workload, told, pods, {})
    if rnd.random() < 0.8:
        what = rnd.choice(list(ACTS))
        workload.server.loop.after(rnd.uniform(2.5, 8.0), _act, workload, workload.namespace, name, what)


def user_acts(workload: Workload) -> None:
    """On whichever gang has timed out."""
    found = [pod for pod in _pods(workload) if timed_out(pod)]
    if found:
        pod = workload.random.choice(found)
        home = pod["metadata"]["namespace"]
        _act(workload, home, _told(pod, "name"), workload.random.choice(list(ACTS)))


STEPS: dict[str, Callable[[Workload], None]] = {
    "accumulates": accumulates,
    "roles": roles,
    "waves": waves,
    "rivals": rivals,
    "impatient": impatient,
    "user_acts": user_acts,
}

ACTS: dict[str, Callable[[dict[str, Any]], dict[str, str | None] | None]] = {
    "deletes": lambda pod: None,
    "takes the annotation off": lambda pod: {TIMEOUT: None},
    "lowers the minimum": lambda pod: {f"{PREFIX}/min-available": "2"},
}
"""What a user does to each pod of a gang that has timed out: annotations that are changed, or None: it is deleted."""


def _act(workload: Workload, namespace: str, gang: str, what: str) -> None:
    api, here = workload.api, [pod for pod in _pods(workload) if pod["metadata"]["namespace"] == namespace]
    for pod in [pod for pod in here if _told(pod, "name") == gang and timed_out(pod)]:
        name, change = pod["metadata"]["name"], ACTS[what](pod)
        try:
            if change is None:
                api.delete(api.pods, namespace, name)
            else:
                api.patch(api.pods, namespace, name, {"metadata": {"annotations": change}}, MERGE, "")
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def _scarce_nodes(workload: Workload) -> None:
    api = workload.api
    for name in NODES:
        if ("", name) not in api.nodes.entries:
            offered = {"cpu": "8", "memory": "16Gi", "pods": "110", SCARCE: str(EACH)}
            node = {"metadata": {"name": name, "labels": {"zone": "a"}}, "spec": {}, "status": {"allocatable": offered}}
            api.apply_new({"apiVersion": "v1", "kind": "Node", **node})


def _scarce_gang(workload: Workload, told: dict[str, str], pods: int, spec: dict[str, Any]) -> None:
    for _ in range(pods):
        _scarce_pod(workload, told, **spec)


def _scarce_pod(workload: Workload, told: dict[str, str], **spec: Any) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", SCARCE: "1"}}}
    workload.pod({}, of=0, annotated=told, containers=[container], **spec)


def _pods(workload: Workload) -> list[dict[str, Any]]:
    return [entry.object for entry in workload.api.pods.entries.values()]


def timed_out(pod: dict[str, Any]) -> bool:
    return _told(pod, "timeout") == "true"


def _told(pod: dict[str, Any], field: str) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(f"{PREFIX}/{field}", ""))
