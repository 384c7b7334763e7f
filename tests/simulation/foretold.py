"""Resources that are asked for before any node offers them: by pods that somebody else put onto nodes, and by ours, which
wait. Then a node offers it, where they are or elsewhere, and perhaps not for long. Seeds before `FROM` are without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.devices import asking, goes, offer
from tests.simulation.planting import BEYOND_FROM
from tests.simulation.told import GANG, MINIMUM

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

FROM = BEYOND_FROM
WEIGHTS = {"foretold": 1.0}
RESOURCES = tuple(f"example.dev/foretold-{number}" for number in range(3))
AT_ONCE_S, OFFERED_S, GONE_S = (0.0, 0.25), (0.25, 6.0), (0.5, 6.0)
"""When it is offered, mostly before a kubelet has refused who is there, or later; and for how long."""


def foretold(workload: Workload) -> None:
    rnd, after = workload.random, workload.server.loop.after
    resource, node, pods = rnd.choice(RESOURCES), workload.any_node(), rnd.randint(1, 3)
    for _ in range(rnd.randint(1, 2)):
        there = rnd.choice([node, workload.any_node()])
        workload.pod(of=0, schedulerName="default-scheduler", nodeName=there, containers=asking(resource))
    for _ in range(pods):
        workload.pod({GANG: f"f{rnd.randrange(2)}", MINIMUM: str(pods)}, of=0, containers=asking(resource))
    offered_s = rnd.uniform(*(AT_ONCE_S if rnd.random() < 0.7 else OFFERED_S))
    after(offered_s, workload.attempt, offer, workload, node, resource, str(rnd.randint(1, 4)))
    if rnd.random() < 0.5:
        after(offered_s + rnd.uniform(*GONE_S), workload.attempt, goes, workload, resource)


STEPS: dict[str, Callable[[Workload], None]] = {"foretold": foretold}
