"""What is between two phases of a long history: most of what was there goes, and what went for good comes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from services.simulator import resources
from tests.simulation import newcomers, upstream
from tests.simulation.told import ANOTHER_NAMESPACE

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

STAY = (0.0, 0.0, 0.1, 0.5)
"""How many of the pods, and of what declares gangs."""
GONE = ("pods", "podgroups", "workloads")
LEAST_NODES = 5
KINDS = (
    resources.PODGROUPS_CRD,
    resources.pod_groups_crd("scheduling.volcano.sh/v1beta1", status=False),
    resources.pod_groups_crd("/".join(upstream.KUBE_BATCH[:2])),
    resources.pod_groups_crd("/".join(newcomers.KOORDINATORS[:2]), status=False),
)


def turnover(workload: Workload) -> None:
    rnd, api = workload.random, workload.api
    stay = rnd.choice(STAY)
    for collection in list(api.by_path.values()):
        for key in list(collection.entries) if collection.resource.plural in GONE else ():
            if key[0] != workload.of_others and rnd.random() >= stay:
                workload.attempt(api.delete, collection, *key)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ANOTHER_NAMESPACE}}
    for made in (namespace, *KINDS):
        workload.attempt(api.apply_new, made)
    while len(api.nodes.entries) < LEAST_NODES:
        workload.node()


STEPS: dict[str, Callable[[Workload], None]] = {"turnover": turnover}
