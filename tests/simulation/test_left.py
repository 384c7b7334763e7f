"""Whatever went wrong: when all pods and gangs are gone, nothing is left of them in any state, so that none grows with
the years. Long histories end so, too."""

from __future__ import annotations

import pytest

from services.state.fold import State
from tests.simulation import left
from tests.simulation.plan import plan
from tests.simulation.world import World


class Emptied(World):
    def __init__(self, seed: int) -> None:
        super().__init__(plan(seed))
        self.states: list[State] = []

    async def _history(self) -> None:
        await super()._history()
        await left.all_goes(self)
        self.states = [process.decider.state for process in self.supervisor.deciders()]


@pytest.mark.parametrize("seed", [*range(1_000, 1_004), 1_012])  # the last has a node that stays unreadable
def test_what_is_gone_leaves_nothing(seed: int) -> None:
    world = Emptied(seed)
    outcome = world.run()
    assert not outcome.violation
    assert world.states
    for state in world.states:
        assert state.nodes, "or there was nothing to leave"


def test_what_is_left_is_told() -> None:
    """Or nobody would look at the states at all."""
    world = Emptied(1_000)
    world.run()
    (state, *_) = world.states
    assert not left.left(state, world)
    state.lost["u1"] = "default/g"  # type: ignore[assignment]
    assert left.left(state, world).startswith("lost")
