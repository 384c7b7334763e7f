"""Device plugins: what a node offers comes with one, is nothing while that starts anew, and goes with it, whoever runs
there. Pods ask for it, ours and others', also where no node offers it any more. Seeds before `FROM` are without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.planting import FURTHER_FROM
from tests.simulation.told import GANG, MINIMUM, Object

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

FROM = FURTHER_FROM
WEIGHTS = {"plugged": 2.0, "replugged": 1.5, "unplugged": 1.0, "wants_device": 3.0, "has_device": 1.5}
DEVICES = tuple(f"example.dev/device-{number}" for number in range(2))
AWAY_S = (0.1, 5.0)


def plugged(workload: Workload) -> None:
    rnd = workload.random
    offer(workload, workload.any_node(), rnd.choice(DEVICES), str(rnd.randint(1, 4)))


def replugged(workload: Workload) -> None:
    """For a moment a kubelet says that there is none."""
    rnd = workload.random
    device, there = _offered(workload)
    for node, amount in there.items():
        offer(workload, node, device, rnd.choice(["0", None]))
        workload.server.loop.after(rnd.uniform(*AWAY_S), workload.attempt, offer, workload, node, device, amount)


def unplugged(workload: Workload) -> None:
    """It is offered nowhere any more."""
    device, _ = _offered(workload)
    goes(workload, device)


def goes(workload: Workload, device: str) -> None:
    for _, node in list(workload.api.nodes.entries):
        offer(workload, node, device, None)


def wants_device(workload: Workload) -> None:
    """A pod or a gang of ours."""
    rnd = workload.random
    pods = rnd.randint(1, 3)
    labels = {GANG: f"v{rnd.randrange(3)}", MINIMUM: str(pods)} if rnd.random() < 0.6 else None
    containers = asking(rnd.choice(DEVICES))
    for _ in range(pods):
        workload.pod(labels, of=0, containers=containers)


def has_device(workload: Workload) -> None:
    """A pod of somebody else's, on a node that may offer none: its plugin is gone, and in half of them it comes again."""
    rnd, node, device = workload.random, workload.any_node(), workload.random.choice(DEVICES)
    if node:
        if rnd.random() < 0.5:
            goes(workload, device)
            workload.server.loop.after(rnd.uniform(*AWAY_S), workload.attempt, offer, workload, node, device, "2")
        workload.pod(of=0, schedulerName="default-scheduler", nodeName=node, containers=asking(device))


def asked_by(pod: Object) -> list[str]:
    requests = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
    return [device for device in DEVICES if device in requests]


def asking(device: str) -> list[Object]:
    return [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", device: "1"}}}]


def _offered(workload: Workload) -> tuple[str, dict[str, str]]:
    """One of those that some node offers, and how many by node."""
    nodes = {
        key[1]: entry.object["status"].get("allocatable") or {} for key, entry in workload.api.nodes.entries.items()
    }
    offered = [device for device in DEVICES if any(device in has for has in nodes.values())]
    device = workload.random.choice(offered or DEVICES)
    return device, {node: has[device] for node, has in nodes.items() if device in has}


def offer(workload: Workload, node: str, device: str, amount: str | None) -> None:
    if ("", node) in workload.api.nodes.entries:
        workload.patch(workload.api.nodes, "", node, {"status": {"allocatable": {device: amount}}}, "status")


STEPS: dict[str, Callable[[Workload], None]] = {
    "plugged": plugged,
    "replugged": replugged,
    "unplugged": unplugged,
    "wants_device": wants_device,
    "has_device": has_device,
}
