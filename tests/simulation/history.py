"""Which kind of history a plan is of, and who plans it: one cluster, a federation of them, or a small one of a sweep."""

from __future__ import annotations

from tests.simulation import plan as drawn
from tests.simulation import sweep
from tests.simulation.federation.history import Federation
from tests.simulation.plan import Plan
from tests.simulation.planting import FEDERATIONS
from tests.simulation.world import World

History = World | Federation
WORKLOADS = (*drawn.WORKLOADS, *sweep.WORKLOADS)


def plan(seed: int, workload: str) -> Plan:
    """What the seed says; of a sweep, what the number says."""
    return sweep.plan(seed, workload) if workload in sweep.WORKLOADS else drawn.plan(seed, workload)


def history(plan: Plan) -> History:
    if plan.workload in sweep.WORKLOADS:
        return sweep.history(plan)
    return Federation(plan) if plan.workload in FEDERATIONS else World(plan)
