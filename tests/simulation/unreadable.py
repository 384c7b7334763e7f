"""What cannot be taken as it is, and was before, or is later: nodes that offer nothing, or more than anybody can count,
and pods whose labels or annotations say nonsense. Most are mended some time later.

What lies on such a node stays there, and counts again when it does. Seeds before `FROM` are without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.planting import WIDER_FROM
from tests.simulation.told import KOORDINATOR, MINIMUM, MINIMUM_SAID, annotations, gang_of

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

FROM = WIDER_FROM
WEIGHTS = {"node_unreadable": 2, "pod_unreadable": 2}
OFFERS: tuple[dict[str, str] | None, ...] = (None, {"memory": "9E"}, {"cpu": "9E"})
"""A node that has said nothing yet; two with more than 2^52 of something."""
NONSENSE = (
    *((MINIMUM_SAID, minimum) for minimum in ("abc", "-1", "99999999999")),
    (f"{KOORDINATOR}/waiting-time", "soon"),
    (f"{KOORDINATOR}/groups", "["),
    (f"{KOORDINATOR}/mode", "Loose"),
    (f"{KOORDINATOR}/match-policy", "never"),
)
MENDED, WITHIN_S = 0.8, (0.2, 8.0)
"""How many are, and when."""


def node_unreadable(workload: Workload) -> None:
    name = workload.any_node()
    if name:
        offered = workload.api.nodes.entries["", name].object["status"].get("allocatable")
        offers = workload.random.choice(OFFERS)
        _for_a_while(workload, workload.api.nodes, ("", name), "status", "allocatable", offers, offered)


def pod_unreadable(workload: Workload) -> None:
    """One of a gang, wherever it is."""
    rnd = workload.random
    pod = workload.pick(lambda pod: bool(gang_of(pod)))
    if pod is not None:
        labels = pod["metadata"].get("labels") or {}
        if MINIMUM in labels:
            where, what, said, before = "labels", MINIMUM, "three", labels[MINIMUM]
        else:
            what, said = rnd.choice(NONSENSE)
            where, before = "annotations", annotations(pod).get(what)
        key = (workload.namespace, pod["metadata"]["name"])
        _for_a_while(workload, workload.api.pods, key, "metadata", where, {what: said}, {what: before})


def _for_a_while(
    workload: Workload, collection: Any, key: tuple[str, str], part: str, field: str, said: object, before: object
) -> None:
    """It says this, and later what it said before."""
    subresource = "" if part == "metadata" else part
    workload.patch(collection, *key, {part: {field: said}}, subresource)
    if workload.random.random() < MENDED:
        mended = (workload.patch, collection, *key, {part: {field: before}}, subresource)
        workload.server.loop.after(workload.random.uniform(*WITHIN_S), workload.attempt, *mended)


STEPS: dict[str, Callable[[Workload], None]] = {"node_unreadable": node_unreadable, "pod_unreadable": pod_unreadable}
