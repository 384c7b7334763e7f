"""Which kind of history a plan is of: one cluster, or a federation of them."""

from __future__ import annotations

from tests.simulation.federation.history import Federation
from tests.simulation.plan import Plan
from tests.simulation.planting import FEDERATED, LONG_FEDERATED
from tests.simulation.world import World

History = World | Federation


def history(plan: Plan) -> History:
    return Federation(plan) if plan.workload in (FEDERATED, LONG_FEDERATED) else World(plan)
