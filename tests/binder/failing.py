"""A gang that runs on nodes that it fills, and the ways in which a member may fail."""

from __future__ import annotations

import msgspec

from events.policy import DEFAULT_POLICY
from tests.world import World


def running(replacement: str = "keep", pods: int = 3, minimum: int = 3, **asks) -> tuple[World, list[str]]:
    """A gang that fills its nodes, one pod on each."""
    policy = msgspec.structs.replace(DEFAULT_POLICY, replacement_policy=replacement, replacement_hold_ms=30_000)
    world = World(policy)
    for i in range(pods):
        world.node(f"n{i}", cpu=1)
    uids = world.gang("train", pods, minimum, **asks)
    world.settle()
    assert sorted(world.where(*uids)) == [f"n{i}" for i in range(pods)]
    return world, uids


def fail(world: World, uid: str, how: str) -> None:
    match how:
        case "OutOfcpu":
            world.finished(uid, succeeded=False, reason="OutOfcpu")
        case "deleted":
            world.deleted(uid)
        case "terminating, deleted":
            world.terminating(uid)
            assert world.judge() == []
            world.deleted(uid)


FAILURES = ["OutOfcpu", "deleted", "terminating, deleted"]
