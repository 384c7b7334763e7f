"""Whatever went wrong: when all pods and gangs are gone, nothing is left of them in any state, so that none grows with
the years."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields

import pytest

from services.simulator.errors import ApiError
from services.state.fold import State
from tests.simulation.plan import plan
from tests.simulation.world import World

STAYS = {
    "owners": "of partitions",
    "holders": "of writers",
    "supports": "of writers",
    "shards": "of writers",
    "clocks": "of writers",
    "nodes": "they are there",
    "rejections": "of nodes that are there and cannot be read",
    "priority_classes": "they are there",
    "snapshots": "the last two",
    "ignored": "of events, by type",
    "resources": "of nodes",
}
"""Collections of a state that may hold something when there is no pod, and of what."""


GONE = ("pods", "podgroups", "workloads")


class Emptied(World):
    """At its end all pods are deleted, and all that declares gangs."""

    def __init__(self, seed: int) -> None:
        super().__init__(plan(seed))
        self.left: list[State] = []

    async def _history(self) -> None:
        await super()._history()
        for _ in range(2):  # what a controller made meanwhile, too
            for collection in self.kube.api.by_path.values():
                for key in list(collection.entries) if collection.resource.plural in GONE else ():
                    with suppress(ApiError):  # its owner's end has ended it
                        self.kube.api.delete(collection, *key, {"gracePeriodSeconds": 0})
            await self.come_to_rest()
        self.left = [process.decider.state for process in self.supervisor.deciders()]

    def nodes_there(self) -> set[tuple[str, str]]:
        nodes = self.kube.api.nodes.entries.values()
        return {("Node", entry.object["metadata"]["uid"]) for entry in nodes}


@pytest.mark.parametrize("seed", [*range(1_000, 1_004), 1_012])  # the last has a node that stays unreadable
def test_what_is_gone_leaves_nothing(seed: int) -> None:
    world = Emptied(seed)
    outcome = world.run()
    assert not outcome.violation
    assert world.left
    for state in world.left:
        tables = {one.name: getattr(state, one.name) for one in fields(state)}
        collections = {name: value for name, value in tables.items() if isinstance(value, dict)}
        assert {name: value for name, value in collections.items() if value and name not in STAYS} == {}
        assert {(one.kind, one.uid) for one in state.rejections.values()} <= world.nodes_there()
        assert state.table.classes == {}
        assert not any(state.table.ports.values())
        assert state.table.holders == {}
        assert state.nodes, "or there was nothing to leave"
        assert not any(node.claims for node in state.nodes.values())
