"""What tests of groups that wait ask of a world."""

from __future__ import annotations

import events as ev
from tests.world import World, of_type


def phase(world: World, key: str = "default/train") -> str:
    return world.state.groups[key].phase


def refused(events: list[ev.Event]) -> list[tuple[str, int]]:
    return [(event.reason, event.attempt) for event in of_type(events, ev.GroupsRefused)]


def full() -> World:
    """A node that is full of somebody else's pod."""
    world = World()
    world.node("n0", cpu=4)
    world.pod("wedge", node="n0", candidate=False, cpu=4)
    return world
