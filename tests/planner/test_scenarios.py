"""First light: gangs and single pods through planner and binder."""

import events as ev
from services.state import snapshot
from tests.world import World, of_type


def test_a_gang_that_fits_is_bound_whole():
    world = World()
    for i in range(4):
        world.node(f"n{i}", cpu=2)
    uids = world.gang("train", 4, 4)
    world.settle()
    assert all(world.where(*uids))
    assert len(of_type([e for c in world.log.commits for e in _events(c)], ev.GangPermitted)) == 1


def _events(stored):
    from events.envelope import decode

    return decode(stored).events


def test_a_gang_that_does_not_fit_holds_nothing_and_says_why():
    world = World()
    world.node("n0", cpu=2)
    world.gang("train", 4, 4)
    refused = [event for event in world.plan() if event.groups == ("default/train",)]
    assert [event.reason for event in refused] == ["InsufficientRoom"]
    assert refused[0].node_reasons == {"Insufficient cpu": 1}
    assert (refused[0].needed, refused[0].placeable) == (4, 2)
    assert not world.state.claims


def test_replay_gives_the_same_digest():
    world = World()
    world.node("n0", cpu=3)
    world.gang("train", 4, 4)
    world.gang("small", 2, 2)
    world.pod("alone")
    world.settle()
    from services.state.fold import State

    again = State()
    for stored in world.log.commits:
        again.apply_stored(stored)
    assert snapshot.digest(again) == snapshot.digest(world.state)
    assert snapshot.digest(snapshot.decode(snapshot.encode(again))) == snapshot.digest(world.state)
