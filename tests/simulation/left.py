"""What is left in a state when all pods and gangs are gone: nothing of them, so that none grows with the years."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING

from services.simulator.errors import ApiError
from tests.simulation.turnover import GONE
from tests.simulation.witness import Violation

if TYPE_CHECKING:
    from services.state.fold import State
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


async def all_goes(world: World) -> None:
    """All pods, and all that declares gangs. Raises Violation."""
    for _ in range(2):  # what a controller made meanwhile, too
        for collection in world.kube.api.by_path.values():
            for key in list(collection.entries) if collection.resource.plural in GONE else ():
                with suppress(ApiError):  # its owner's end has ended it
                    world.kube.api.delete(collection, *key, {"gracePeriodSeconds": 0})
        await world.come_to_rest()
    for process in world.supervisor.deciders():
        if found := left(process.decider.state, world):
            raise Violation(f"everything is gone, and {process} has {found} (7.13)")


def left(state: State, world: World) -> str:
    """What is left of what went; empty: nothing."""
    tables = {one.name: getattr(state, one.name) for one in fields(state)}
    held = {name: value for name, value in tables.items() if isinstance(value, dict) and name not in STAYS}
    for name, value in (*held.items(), ("table.classes", state.table.classes), ("table.holders", state.table.holders)):
        if value:
            return f"{name}: {value}"
    there = {("Node", entry.object["metadata"]["uid"]) for entry in world.kube.api.nodes.entries.values()}
    if strange := {(one.kind, one.uid) for one in state.rejections.values()} - there:
        return f"rejections: {strange}"
    if any(state.table.ports.values()):
        return f"ports: {state.table.ports}"
    return next((f"{name}: {node.claims}" for name, node in state.nodes.items() if node.claims), "")
