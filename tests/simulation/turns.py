"""An admin who changes the policy just when something depends on it: as room is asked for or kept for a gang that
starves, and as the rest of a gang is to be evicted, which a budget turns away meanwhile.

First the policy is one under which that comes soon; what then stands is not to stand any longer. What must hold of it is
asked behind each decision of the binder (`allowed`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from events.policy import DEFAULT_POLICY
from services.state.fold import State
from tests.simulation.faults import Fault

if TYPE_CHECKING:
    from tests.simulation.world import World

TURNED_AWAY_S = 8.0
"""For so long the evictions that are to be called off are turned away; or one of them is on its way still."""
IN_DOUBT = Fault(at_s=0.0, kind="late, refused meanwhile", on="evict", slot="binder", for_s=6.0)


class Turn(NamedTuple):
    before: dict[str, Any]
    due: Callable[[State], bool]
    """Whether there is something that the change ends."""
    after: dict[str, Any]


KEEPS = {"reserve_after_refusals": 1, "reservation_hold_ms": 10_000, "backoff_initial_ms": 200, "lookahead_pods": 1_024}
TURNS = {
    "nothing asked for": Turn(
        {**KEEPS, "reservations": 2}, lambda state: bool(state.room_requests), {"reserve_after_refusals": 0}
    ),
    "nothing kept": Turn(
        {**KEEPS, "reservations": 2}, lambda state: bool(state.reservations), {"reserve_after_refusals": 0}
    ),
    "less kept": Turn({**KEEPS, "reservations": 4}, lambda state: len(state.reservations) > 1, {"reservations": 1}),
    "nobody evicted": Turn(
        {"replacement_policy": "evict", "replacement_hold_ms": 1_000},
        lambda state: bool(state.evictions),
        {"replacement_policy": "keep"},
    ),
}


def strike(world: World, fault: Fault) -> bool:
    """It strikes when its time has come, if that is before the history is calm."""
    _set(world, TURNS[fault.what].before)
    world.turns.append(fault)
    return False


def landed(world: World) -> None:
    """Something stands in the log: has the time of one come?"""
    for fault in [one for one in world.turns if TURNS[one.what].due(world.witness.state)]:
        world.turns.remove(fault)
        if fault.what == "nobody evicted" and world.kube.source.random() < 0.5:
            world.kube.turn_away("binder", "evict", 429, TURNED_AWAY_S)
        elif fault.what == "nobody evicted":
            world.faults.arm(IN_DOUBT)
        world.loop.after(fault.for_s, _turn, world, fault)


def _turn(world: World, fault: Fault) -> None:
    if not world.calm:
        _set(world, TURNS[fault.what].after)
        world.faults.hits[fault.name] += 1
        world.tried[f"policy turned, {fault.what}"] += 1


def _set(world: World, some: dict[str, Any]) -> None:
    """Of the policy in force; of another than the default, which keeps room for minutes."""
    policy = world.witness.state.policy
    world.set_policy(replace(world.any_policy() if policy in (None, DEFAULT_POLICY) else policy, **some))
