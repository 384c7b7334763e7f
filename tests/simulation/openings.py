"""Rollouts of gangs whose pods open ports on their nodes: those that come open the same, others, or the same on another
address, where what is kept for them is kept with its ports; strangers want these, too. Seeds before `FROM` are without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.asks import ASKS, ODD, OPENING
from tests.simulation.planting import LATEST_FROM
from tests.simulation.rollouts import roll
from tests.simulation.told import GANG, MINIMUM

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

FROM = LATEST_FROM
WEIGHTS = {"opened": 1.0}
AFTER_S, PODS = (1.5, 4.0), 3
"""When the gang is rolled out; its pods at most."""
OPEN = range(len(ASKS) + len(ODD), len(ASKS) + len(ODD) + len(OPENING))


def opened(workload: Workload) -> None:
    """A gang that opens ports, stays and is rolled out soon."""
    rnd = workload.random
    name, pods, of = f"o{rnd.randrange(3)}", rnd.randint(2, PODS), rnd.choice(OPEN)
    workload.ends = {}
    for _ in range(pods):
        workload.pod({GANG: name, MINIMUM: str(pods)}, of=of)
    what = (workload, workload.namespace, name, OPEN, rnd.choice(OPEN))
    workload.server.loop.after(rnd.uniform(*AFTER_S), workload.attempt, roll, *what)


STEPS: dict[str, Callable[[Workload], None]] = {"opened": opened}
