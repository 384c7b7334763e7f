"""Starvation: several that ask in one cycle, or before the binder answered, are not promised the same room."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from events.objects import ClassRoom, HostPort
from events.policy import DEFAULT_POLICY
from services.state.partitions import partition_of
from services.state.reservations import rooms
from tests.world import World, of_type

WEB = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)


class Node(NamedTuple):
    """Its cpus, and how many of them pods have that are not Muster's; all others are taken, too."""

    cpu: int
    stays: int


class Asker(NamedTuple):
    pods: int
    cpu: int
    priority: int
    ports: bool


NODES = st.lists(st.builds(Node, st.integers(1, 6), st.integers(0, 3)), min_size=1, max_size=4)
GANGS = st.lists(
    st.builds(Asker, st.integers(1, 4), st.integers(1, 3), st.integers(0, 1), st.booleans()), min_size=2, max_size=4
)


def full(nodes: list[Node], *, reservations: int = 9, shards: tuple[str, ...] = ("a",)) -> World:
    policy = msgspec.structs.replace(DEFAULT_POLICY, reserve_after_refusals=1, reservations=reservations)
    world = World(policy, shards=shards)
    world.node("noise", cpu=1)
    world.pod("noise-0", node="noise", candidate=False)
    for number, node in enumerate(nodes):
        world.node(f"n{number}", cpu=node.cpu)
        for i in range(node.cpu):
            world.pod(f"n{number}-{i}", node=f"n{number}", candidate=i >= node.stays, priority=-1)
    return world


def room_moves(world: World) -> None:
    """Something that none of them can use; backoffs are over."""
    world.deleted("noise-0")
    world.pod("noise-0", node="noise", candidate=False)
    world.pass_s(11)


def gang(world: World, name: str, asker: Asker) -> None:
    ports = WEB if asker.ports else ()
    world.gang(name, asker.pods, asker.pods, cpu=asker.cpu, priority=asker.priority, ports=ports)


@given(NODES, GANGS)
@settings(deadline=None, max_examples=80)
def test_what_one_cycle_asks_for_fits_together_and_is_granted(nodes: list[Node], askers: list[Asker]) -> None:
    """Within what each node has once everybody is gone who may ever go; each port on a node for one of them."""
    world = full(nodes)
    for number, asker in enumerate(askers):
        gang(world, f"g{number}", asker)
    world.plan()
    room_moves(world)
    requests = of_type(world.plan(), ev.RoomRequested)
    cpus: Counter[str] = Counter()
    with_port: list[str] = []
    for request in requests:
        asker = askers[int(request.group.removeprefix("default/g"))]
        promised = {node: pods for _, node, pods in rooms(request)}
        assert sum(promised.values()) == asker.pods
        for node, pods in promised.items():
            cpus[node] += pods * asker.cpu
        with_port += [node for node, pods in promised.items() if asker.ports for _ in range(pods)]
    for number, node in enumerate(nodes):
        assert cpus[f"n{number}"] <= max(0, node.cpu - node.stays)
    assert len(with_port) == len(set(with_port))
    answers = [event for event in world.judge() if isinstance(event, ev.RoomReserved | ev.RoomDeclined)]
    assert [type(answer) for answer in answers] == [ev.RoomReserved] * len(requests)


def asked(events: list[ev.Event]) -> dict[str, dict[str, int]]:
    """Gang → node → pods."""
    requests = of_type(events, ev.RoomRequested)
    return {one.group.removeprefix("default/"): {node: pods for _, node, pods in rooms(one)} for one in requests}


def half_free() -> World:
    """Two nodes of four cpu; half of the first is free."""
    world = full([Node(4, 0), Node(4, 0)])
    for i in range(2):
        world.deleted(f"n0-{i}")
    return world


def test_what_is_free_now_is_promised_once() -> None:
    """The second takes what will be free next, on either node: not the half that the first waits for."""
    world = half_free()
    for name in ("one", "two"):
        world.gang(name, 1, 1, cpu=3)
    world.plan()
    room_moves(world)
    assert asked(world.plan()) == {"one": {"n0": 1}, "two": {"n1": 1}}


def test_a_request_without_an_answer_counts_as_a_reservation() -> None:
    world = half_free()
    world.gang("one", 1, 1, cpu=3)
    world.plan()
    room_moves(world)
    assert asked(world.plan()) == {"one": {"n0": 1}}
    world.gang("two", 1, 1, cpu=3)
    world.plan()
    room_moves(world)
    assert asked(world.plan()) == {"two": {"n1": 1}}, "nobody has judged meanwhile"
    assert [event.group for event in of_type(world.judge(), ev.RoomReserved)] == ["default/one", "default/two"]


def test_what_a_lower_priority_asked_for_is_in_nobodys_way() -> None:
    world = half_free()
    world.gang("one", 1, 1, cpu=3)
    world.plan()
    room_moves(world)
    assert asked(world.plan()) == {"one": {"n0": 1}}
    world.gang("urgent", 1, 1, cpu=3, priority=9)
    world.plan()
    room_moves(world)
    assert asked(world.plan()) == {"urgent": {"n0": 1}}


def test_two_shards_that_ask_at_the_same_time_are_not_both_promised_what_never_leaves() -> None:
    """Neither knew of the other; the binder finds that a DaemonSet's room is nobody's."""
    world = full([Node(8, 2)], shards=("a", "b"))
    of = {shard: next(name for name in map("g{}".format, range(99)) if _owner(world, name) == shard) for shard in "ab"}
    for name in of.values():
        world.gang(name, 1, 1, cpu=4)
    for shard in "ab":
        world.plan(shard)
    room_moves(world)
    basis = world.state.sequence
    requests = [event for shard in "ab" for event in of_type(world.plan_without_appending(shard), ev.RoomRequested)]
    assert len(requests) == 2
    for shard, request in zip("ab", requests, strict=True):
        world.append(f"planner.{shard}", [request], cause="decide", basis=basis)
    answers = [event for event in world.judge() if isinstance(event, ev.RoomReserved | ev.RoomDeclined)]
    assert [(type(event).__name__, getattr(event, "reason", "")) for event in answers] == [
        ("RoomReserved", ""),
        ("RoomDeclined", "Overlap"),
    ]


def test_a_port_is_promised_once() -> None:
    """Whoever planned it."""
    world = full([Node(4, 0), Node(4, 0)])
    for name in ("one", "two", "three"):
        gang(world, name, Asker(1, 2, 0, ports=True))
    world.plan()
    room_moves(world)
    said = world.plan()
    assert sorted(node for nodes in asked(said).values() for node in nodes) == ["n0", "n1"]
    [third] = {"one", "two", "three"} - asked(said).keys()
    info = world.scheduling_class(2, ports=WEB)
    event = ev.RoomRequested(group=f"default/{third}", room=(ClassRoom(info, {"n0": 1}),))
    world.append("planner.a", [event], cause="by hand")
    assert [event.reason for event in of_type(world.judge(), ev.RoomDeclined)] == ["Overlap"]


def test_a_port_that_is_promised_is_in_the_way_of_nobody_who_opens_none() -> None:
    world = full([Node(4, 0)])
    gang(world, "one", Asker(1, 2, 0, ports=True))
    gang(world, "two", Asker(1, 2, 0, ports=False))
    world.plan()
    room_moves(world)
    assert asked(world.plan()) == {"one": {"n0": 1}, "two": {"n0": 1}}


def test_what_is_kept_on_a_node_that_is_gone_is_in_nobodys_way() -> None:
    """The binder has not ended it yet."""
    world = full([Node(4, 0)])
    gang(world, "one", Asker(1, 2, 0, ports=True))
    world.plan()
    room_moves(world)
    assert asked(world.plan()) == {"one": {"n0": 1}}
    assert of_type(world.judge(), ev.RoomReserved)
    world.node("n1", cpu=2)
    world.pod("n1-0", node="n1", cpu=2)
    gang(world, "two", Asker(1, 2, 0, ports=True))
    world.plan()
    world.facts(ev.NodeDeleted(name="n0", uid="uid-n0"))
    room_moves(world)
    assert asked(world.plan())["two"] == {"n1": 1}


def _owner(world: World, gang: str) -> str:
    return world.state.owners[partition_of(f"default/{gang}")]


def test_a_request_of_a_gang_that_is_gone_is_kept_from_nobody() -> None:
    """Nobody has declined it yet."""
    world = half_free()
    world.gang("one", 1, 1, cpu=3)
    world.plan()
    room_moves(world)
    assert asked(world.plan()) == {"one": {"n0": 1}}
    world.deleted("one-0")
    world.gang("two", 1, 1, cpu=3)
    world.plan()
    room_moves(world)
    assert asked(world.plan()) == {"two": {"n0": 1}}
