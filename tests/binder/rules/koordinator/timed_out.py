"""A Koordinator gang that waits at permit, and one whose waiting time is over: for tests."""

import events as ev
from events.objects import Declaration
from tests.world import World, of_type

KOORDINATOR = "koordinator/v1alpha1"
TRAIN = Declaration(min_member=3, waiting_time_ms=5_000, said=("min_member", "waiting_time_ms"))


def member(world: World, number: int, declared: Declaration = TRAIN, **of: bool) -> str:
    return world.pod(f"train-{number}", "train", dialect=KOORDINATOR, declared=declared, **of)


def waiting(held: int = 2, pods: int = 3) -> tuple[World, list[str]]:
    """A Koordinator gang of a minimum of three, of which `held` pods wait at permit, for five seconds."""
    world = World()
    world.node("n0")
    uids = [member(world, number) for number in range(pods)]
    world.propose("default/train", dict.fromkeys(uids[:held], "n0"))
    assert [event.waiting_ms for event in of_type(world.judge(), ev.GangHeld)] == [5_000]
    return world, uids


def ended() -> tuple[World, list[str]]:
    """Its time is over, and the binder says so; its pods do not yet."""
    world, uids = waiting()
    world.pass_s(6)
    world.judge()
    return world, uids


def over() -> tuple[World, list[str]]:
    """Its time is over, its pods say so, and the planner knows."""
    world, uids = ended()
    world.mark()
    world.plan()
    return world, uids
