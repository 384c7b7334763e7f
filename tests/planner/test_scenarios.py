"""A gang's way to its nodes, in events: given these, when a core decides, then these.

`World` (`tests/world.py`) plays the services by hand over a log in memory: `node` and `gang` append the facts that ingest
would, `plan` and `judge` what the cores decide over the state as it stands, `bind` what the API server and then ingest
say. All of Muster's rules are tested in this form, beside each rule's own sentences (`tests/planner/rules`,
`tests/binder/rules`). Where to read on: `services/state`, which says what these events mean.
"""

import events as ev
from events.envelope import decode
from services.state import snapshot
from services.state.fold import State
from tests.world import World


def names(events: list[ev.Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_a_gang_that_fits_is_bound_whole() -> None:
    world = World()
    for i in range(2):
        world.node(f"n{i}", cpu=2)
    begins = len(world.log.commits)
    uids = world.gang("train", 4, minimum=4)

    assert names(world.plan()) == ["GangPlaced"]  # by a planner shard: a node for each of the four, in one event
    assert names(world.judge()) == ["GangPermitted"]  # by the binder: the permit, and the intent to bind
    world.bind()

    assert sorted(world.where(*uids)) == ["n0", "n0", "n1", "n1"]
    told = [event for stored in world.log.commits[begins:] for event in decode(stored).events]
    assert names(told) == [
        "SchedulingClassObserved",
        *["PodObserved"] * 4,
        "GangPlaced",
        "GangPermitted",
        *["PodBound", "PodAssigned"] * 4,
    ]


def test_a_gang_that_does_not_fit_holds_nothing_and_says_why() -> None:
    world = World()
    world.node("n0", cpu=2)
    world.gang("train", 4, minimum=4)
    refused = [event for event in world.plan() if event.groups == ("default/train",)]
    assert [event.reason for event in refused] == ["InsufficientRoom"]
    assert refused[0].node_reasons == {"Insufficient cpu": 1}
    assert (refused[0].needed, refused[0].placeable) == (4, 2)
    assert not world.state.claims


def test_replay_gives_the_same_digest() -> None:
    world = World()
    world.node("n0", cpu=3)
    world.gang("train", 4, minimum=4)
    world.gang("small", 2, minimum=2)
    world.pod("alone")
    world.settle()
    again = State()
    for stored in world.log.commits:
        again.apply_stored(stored)
    assert snapshot.digest(again) == snapshot.digest(world.state)
    assert snapshot.digest(snapshot.decode(snapshot.encode(again))) == snapshot.digest(world.state)
