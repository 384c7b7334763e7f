"""Rollouts that change what a gang's pods ask for, on nodes that are full: some go, and for each another comes that asks
for something else. Seeds before `FROM` are without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from services.simulator.quantities import milli
from tests.simulation.planting import NEWEST_FROM
from tests.simulation.told import GANG, MINIMUM, Object, gang_of, uid_of

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

FROM = NEWEST_FROM
"""The first seed with them."""
WEIGHTS = {"deployment": 1.0, "rolled": 1.0}
AFTER_S, WITHIN_S = (3.0, 8.0), (0.001, 1.5)
"""When a Deployment is rolled out, and for how long what it deletes has no replacement."""
PODS, AT_ONCE = 4, 2
"""At most."""
BEFORE, ANEW = (0, 3), (5, 7, 10, 12)
"""Of `ASKS`: what pods ask for before, and anew, no more cpu."""
PINNED = 0.7
"""Of the new ones, how many go to a certain node."""
STRANGERS, SMALLEST = 2, 7
"""How many others come with each, and what of `ASKS` they ask for."""
ENDED = ("Succeeded", "Failed")


def deployment(workload: Workload) -> None:
    """A gang that is rolled out soon."""
    rnd = workload.random
    name, pods, of = f"d{rnd.randrange(3)}", rnd.randint(2, PODS), rnd.choice(BEFORE)
    for _ in range(pods):
        workload.pod({GANG: name, MINIMUM: str(pods)}, of=of)
    workload.server.loop.after(rnd.uniform(*AFTER_S), workload.attempt, _roll, workload, workload.namespace, name)


def rolled(workload: Workload) -> None:
    """Any gang."""
    pod = workload.pick(lambda pod: pod["status"]["phase"] == "Running" and bool(gang_of(pod)))
    if pod is not None:
        _roll(workload, workload.namespace, gang_of(pod))


def _roll(workload: Workload, namespace: str, gang: str) -> None:
    roll(workload, namespace, gang, ANEW, SMALLEST)


def roll(workload: Workload, namespace: str, gang: str, anew: Sequence[int], strangers: int) -> None:
    """Some of the gang's pods go; those that come ask for one of `anew`, others that come with them for `strangers`."""
    workload.namespace, rnd = namespace, workload.random
    ours = [pod for pod in workload.pods() if pod["status"]["phase"] == "Running" and gang_of(pod) == gang]
    of = rnd.choice(anew)
    for _, node in list(workload.api.nodes.entries):
        _fill(workload, node)
    for pod in rnd.sample(ours, min(len(ours), rnd.randint(1, AT_ONCE))):
        _leave(workload, pod)
        workload.server.loop.after(rnd.uniform(*WITHIN_S), workload.attempt, _come, workload, pod, of, strangers)


def _fill(workload: Workload, node: str) -> None:
    """It offers no more cpu than its pods ask for from now on."""
    pods = [entry.object for entry in workload.api.pods.entries.values()]
    here = [pod["spec"] for pod in pods if pod["spec"].get("nodeName") == node and pod["status"]["phase"] not in ENDED]
    asked = [container["resources"].get("requests", {}) for spec in here for container in spec["containers"]]
    cpu = sum(milli(requests.get("cpu", 0)) for requests in asked)
    workload.patch(workload.api.nodes, "", node, {"status": {"allocatable": {"cpu": f"{cpu}m"}}}, "status")


def _leave(workload: Workload, pod: Object) -> None:
    if workload.random.random() < 0.5:
        workload.change(pod, {"status": {"phase": "Failed", "reason": "OutOfcpu"}}, "status")
    else:
        workload.collect((workload.namespace, pod["metadata"]["name"]), uid_of(pod))


def _come(workload: Workload, pod: Object, of: int, strangers: int) -> None:
    """Most go where the one was whose place they take, as those do that have a volume there. Others would, too."""
    workload.namespace = pod["metadata"]["namespace"]
    there = [{"key": "metadata.name", "operator": "In", "values": [pod["spec"]["nodeName"]]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": there}]}}
    pinned = {"affinity": {"nodeAffinity": required}} if workload.random.random() < PINNED else {}
    workload.beside(pod, of, **pinned)
    for _ in range(STRANGERS):
        workload.pod(of=strangers, **pinned)


STEPS: dict[str, Callable[[Workload], None]] = {"deployment": deployment, "rolled": rolled}
