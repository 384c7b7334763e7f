"""Starvation: the nodes that will be free first, against a choice pod by pod."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from events.objects import ClassRoom, HostPort, SelectorRequirement, SelectorTerm
from events.policy import DEFAULT_POLICY
from services.planner.rules.starvation.node_choice import BEYOND, HOPELESS, Prospect, choose, nearest
from services.state.nodes import Ints, NodeTable
from services.state.open_ports import OpenPorts
from services.state.slices import at_once
from tests import facts
from tests.facts import scheduling_class
from tests.world import World, of_type

SEED = 77


class Node(NamedTuple):
    """What it has, what of that could be had once everything left, and what is free now (below 0: overdrawn)."""

    cpu: int
    memory: int
    stays: int
    runs: int
    tainted: bool


NODES = st.lists(
    st.builds(Node, st.integers(1, 9), st.integers(1, 9), st.integers(0, 3), st.integers(0, 12), st.booleans()),
    min_size=1,
    max_size=7,
)


def table_of(nodes: list[Node]) -> tuple[NodeTable, Ints, Ints]:
    """The table; for each row what there could ever be, and what there is now."""
    table = NodeTable()
    for number, node in enumerate(nodes):
        offered = {"cpu_milli": node.cpu * 100, "memory_bytes": node.memory * 10, "pods": 50}
        table.put(facts.node(f"n{number}", offered, unschedulable=node.tainted))
    table.add_class(scheduling_class("a", {"cpu_milli": 100, "memory_bytes": 7, "pods": 1}))
    table.add_class(scheduling_class("b", {"cpu_milli": 130, "pods": 1}))
    limit = table.allocatable.copy()
    for number, node in enumerate(nodes):
        row = table.rows[f"n{number}"]
        limit[row, :2] -= (node.stays * 50, node.stays * 3)
    now = limit.copy()
    for number, node in enumerate(nodes):
        row = table.rows[f"n{number}"]
        now[row, :2] -= (node.runs * 90, node.runs * 5)
    return table, limit, now


def level(offers: Ints, now: Ints, asks: dict[int, int], pods: int) -> int:
    """How much of itself the node must still give back for so many pods, in 1/1024."""
    for found in range(BEYOND):
        if all(now[c] + (offers[c] * found >> 10) >= amount * pods for c, amount in asks.items()):
            return found
    return BEYOND


def naive(table: NodeTable, digest: str, limit: Ints, now: Ints, pods: int) -> dict[int, int]:
    """Every pair (node, k-th pod on it) that there could ever be, by level; the first of them."""
    asks = table.classes[digest].amounts
    pairs = []
    for name, row in table.rows.items():
        if table.facts[row].unschedulable:  # type: ignore[union-attr]
            continue
        for k in range(1, pods + 1):
            if any(limit[row, c] < amount * k for c, amount in asks.items()):
                break
            tie = int(table.rank()[row]) * (SEED | 1) % (1 << 32)
            pairs.append((level(table.allocatable[row], now[row], asks, k), tie, k, row, name))
    chosen: dict[int, int] = {}
    for _, _, _, row, _ in sorted(pairs)[:pods]:
        chosen[row] = chosen.get(row, 0) + 1
    return chosen


@given(NODES, st.sampled_from("ab"), st.integers(1, 30))
@settings(deadline=None, max_examples=300)
def test_the_places_of_the_lowest_levels_are_taken(nodes: list[Node], digest: str, pods: int) -> None:
    table, limit, now = table_of(nodes)
    found = dict(nearest(table, table.classes[digest], limit, now, pods, SEED))
    assert found == naive(table, digest, limit, now, pods)


@given(NODES, st.integers(0, 9), st.integers(0, 9), st.integers(1, 12))
@settings(deadline=None, max_examples=300)
def test_what_is_chosen_is_enough_and_never_more_than_there_could_be(
    nodes: list[Node], a: int, b: int, needed: int
) -> None:
    table, limit, now = table_of(nodes)
    parts = [(table.classes["a"], a), (table.classes["b"], b)]
    needs = [((0, 1), min(needed, a + b))]
    found = at_once(choose(table, Prospect(now, limit, limit, OpenPorts()), parts, needs, [[0, 1], [1, 0]], SEED))
    if not a or not b:
        most = sum(naive(table, "a" if a else "b", limit, now, a + b).values())
        assert (found is None) == (most < min(needed, a + b))
    if found is None:
        return
    assert sum(pods for room in found for pods in room.nodes.values()) == min(needed, a + b)
    used = np.zeros_like(limit)
    for room in found:
        assert sum(room.nodes.values()) <= {"a": a, "b": b}[room.scheduling_class]
        for node, pods in room.nodes.items():
            assert not nodes[int(node[1:])].tainted
            for column, amount in table.classes[room.scheduling_class].columns:
                used[table.rows[node], column] += pods * amount
    assert ((used <= limit) | (used == 0)).all()


@given(NODES, st.integers(1, 12), st.permutations(range(7)))
@settings(deadline=None)
def test_rows_mean_nothing(nodes: list[Node], pods: int, order: list[int]) -> None:
    table, limit, now = table_of(nodes)
    found = at_once(
        choose(
            table, Prospect(now, limit, limit, OpenPorts()), [(table.classes["a"], pods)], [((0,), pods)], [[0]], SEED
        )
    )
    other = NodeTable()
    for number in [n for n in order if n < len(nodes)]:
        fact = table.facts[table.rows[f"n{number}"]]
        assert fact is not None
        other.put(fact)
    for info in table.classes.values():
        other.add_class(info.fact)
    there = np.zeros_like(other.allocatable), np.zeros_like(other.allocatable)
    for name, row in other.rows.items():
        there[0][row], there[1][row] = limit[table.rows[name]], now[table.rows[name]]
    prospect = Prospect(there[1], there[0], there[0], OpenPorts())
    again = at_once(choose(other, prospect, [(other.classes["a"], pods)], [((0,), pods)], [[0]], SEED))
    assert again == found


def test_nodes_for_pods_of_a_class_each_are_chosen_in_slices() -> None:
    """For 6,000 such pods that never fit 5,000 nodes it took twenty seconds, each time that they were tried."""
    table, pods = NodeTable(), 20
    table.put(facts.node("n0", {"cpu_milli": 1_000, "pods": 2 * pods}))
    for number in range(pods):
        table.add_class(scheduling_class(f"c{number}", {"cpu_milli": 100, "pods": 1}))
    parts = [(info, 1) for info in table.classes.values()]
    room, of_all = table.allocatable, tuple(range(pods))
    slices = choose(
        table, Prospect(room, room, room, OpenPorts()), parts, [(of_all, pods)], [of_all, of_all[::-1]], SEED
    )
    assert sum(1 for _ in slices) >= 2 * pods


def test_large_quantities_stay_exact() -> None:
    """Bytes up to 2^52, and a node that holds far more than it offers."""
    table = NodeTable()
    for name in "ab":
        table.put(facts.node(name, {"memory_bytes": 1 << 52, "pods": 9}))
    table.add_class(scheduling_class("big", {"memory_bytes": 1 << 51, "pods": 1}))
    now = table.allocatable.copy()
    now[table.rows["a"], 1] = -(1 << 53)
    now[table.rows["b"], 1] = (1 << 51) - 1
    found = dict(nearest(table, table.classes["big"], table.allocatable, now, 3, SEED))
    assert found == {table.rows["b"]: 2, table.rows["a"]: 1}


# ------------------------------------------------------------------------------------------- what will be free, and when


def asked(world: World, gang: str = "default/train") -> dict[str, int]:
    """The nodes that the gang asks for, once it starves."""
    (room,) = all_of(world, gang)
    return room.nodes


def all_of(world: World, gang: str) -> tuple[ClassRoom, ...]:
    """What it asks for, by class."""
    for turn in range(9):
        world.deleted(f"noise-{turn}")
        world.pod(f"noise-{turn + 1}", node="noise", candidate=False)
        world.pass_s(11)
        for event in world.plan():
            if isinstance(event, ev.RoomRequested) and event.group == gang:
                return event.room
        world.judge()
    raise AssertionError("it never asks")


def full(*nodes: str) -> World:
    """Nodes of four cpu, each full of pods of one cpu named after it; something comes and goes on another node."""
    world = World()
    world.node("noise", cpu=1)
    world.pod("noise-0", node="noise", candidate=False)
    for node in nodes:
        world.node(node, cpu=4)
        for i in range(4):
            world.pod(f"{node}-{i}", node=node)
    return world


def test_most_room_soonest() -> None:
    world = full("a", "b", "c")
    world.finished("b-0")
    world.gang("train", 2, 2, cpu=2)
    assert asked(world) == {"b": 1, "a": 1} or asked(world) == {"b": 1, "c": 1}


def test_what_is_leaving_counts_as_free() -> None:
    world = full("a", "b", "c")
    for i in range(3):
        world.terminating(f"c-{i}")
    world.gang("train", 1, 1, cpu=3.5)
    assert asked(world) == {"c": 1}


def test_pods_of_a_higher_priority_leave_last() -> None:
    world = full("a", "b")
    for i in range(4):
        world.pod(f"a-{i}", node="a", priority=7)
    world.finished("a-0")
    world.gang("train", 2, 2, cpu=2)
    assert asked(world) == {"b": 2}, "on a there is more room now, but the next of its kind will pass"


def test_where_nothing_else_does_their_room_is_asked_for_too() -> None:
    world = full("a")
    for i in range(4):
        world.pod(f"a-{i}", node="a", priority=7)
    world.gang("train", 2, 2, cpu=2)
    assert asked(world) == {"a": 2}


@pytest.mark.parametrize("gang", [f"g{number}" for number in range(4)])
def test_what_is_free_is_taken_once_by_pods_of_different_classes(gang: str) -> None:
    world = World()
    world.node("noise", cpu=1)
    world.pod("noise-0", node="noise", candidate=False)
    for node, cpu, free in (("a", 4, 2), ("b", 4, 1), ("c", 8, 0)):
        world.node(node, cpu=cpu)
        world.pod(node, node=node, cpu=cpu - free)
    classes = [world.scheduling_class(cpu=cpu) for cpu in (5, 2, 1)]
    for number, digest in enumerate(classes):
        world.pod(f"{gang}-{number}", gang, minimum=3, of=digest)
    found = {room.scheduling_class: room.nodes for room in all_of(world, f"default/{gang}")}
    assert found == dict(zip(classes, ({"c": 1}, {"a": 1}, {"b": 1}), strict=True))


@pytest.mark.parametrize("whose", ["reserved for another", "proposed for one that goes by itself"])
def test_room_is_counted_once_whoever_has_it(whose: str) -> None:
    """No request that the binder would decline: of the four cpu two stay, and three are asked for."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, reservations=2))
    world.node("noise", cpu=1)
    world.pod("noise-0", node="noise", candidate=False)
    world.node("a", cpu=4)
    if whose == "reserved for another":
        world.pod("runs", node="a", cpu=4)
        world.gang("other", 2, 2)
        assert asked(world, "default/other") == {"a": 2}
        assert of_type(world.judge(), ev.RoomReserved)
    else:
        world.pod("stays", node="a", cpu=2, candidate=False)
        world.pod("runs", node="a", cpu=1)
    world.gang("train", 3, 3)
    details = []
    for turn in range(9):
        world.pod(f"passes-{turn}", node="noise", candidate=False)
        world.deleted(f"passes-{turn}")
        world.pass_s(11)
        if whose != "reserved for another":
            world.pod(f"comes-{turn}")
            world.propose(f"pod/default/comes-{turn}", {f"comes-{turn}": "a"})
        said = world.plan()
        assert not of_type(said, ev.RoomRequested)
        details += [one.detail for one in of_type(said, ev.GroupsRefused) if "default/train" in one.groups]
        world.judge()
        world.deleted(f"comes-{turn}")
    assert details[-1].endswith(HOPELESS)


def test_its_own_running_pods_stay() -> None:
    world = World()
    world.node("noise", cpu=1)
    world.pod("noise-0", node="noise", candidate=False)
    for node in ("a", "b"):
        world.node(node, cpu=4)
    world.pod("train-0", "train", minimum=2, cpu=3, node="a")
    world.pod("other", cpu=4, node="b")
    world.pod("train-1", "train", minimum=2, cpu=3)
    assert asked(world) == {"b": 1}


def test_room_that_is_nominated_stays() -> None:
    """It is for a member of a gang that runs."""
    world = World(msgspec.structs.replace(DEFAULT_POLICY, replacement_hold_ms=600_000))
    world.node("noise", cpu=1)
    world.pod("noise-0", node="noise", candidate=False)
    for node in ("a", "b"):
        world.node(node, cpu=4)
        world.pod(node, cpu=2, node=node)
    for i in range(2):
        world.pod(f"job-{i}", "job", minimum=2, node="a")
    world.pod("other", cpu=2, node="b")
    world.deleted("job-1")
    assert of_type(world.judge(), ev.RoomNominated)
    world.terminating("a")
    world.gang("train", 1, 1, cpu=3.5)
    assert asked(world) == {"b": 1}


# ---------------------------------------------------------------------------------------- what stays, though others leave


WEB = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)


def own_node(name: str) -> SelectorTerm:
    """As the DaemonSet controller has a pod go to one node alone."""
    requirement = SelectorRequirement(key="metadata.name", operator="In", values=(name,))
    return SelectorTerm(match_expressions=(), match_fields=(requirement,))


def test_a_port_of_a_pod_that_never_leaves_stays_open() -> None:
    world = full("a", "b")
    for i in range(3):
        world.finished(f"a-{i}")
    world.pod("daemon", node="a", candidate=False, cpu=0.1, ports=WEB)
    world.gang("train", 1, 1, cpu=2, ports=WEB)
    assert asked(world) == {"b": 1}, "on a there is more room now, and never that port"


def test_so_does_one_of_the_gangs_own() -> None:
    world = full("b")
    world.node("a", cpu=4)
    world.pod("train-0", "train", minimum=2, node="a", ports=WEB)
    world.pod("train-1", "train", minimum=2, cpu=2, ports=WEB)
    assert asked(world) == {"b": 1}


def test_one_that_may_leave_is_waited_for() -> None:
    world = full("a", "b")
    for i in range(3):
        world.finished(f"a-{i}")
    world.pod("other", node="a", cpu=0.1, ports=WEB)
    world.gang("train", 1, 1, cpu=2, ports=WEB)
    assert asked(world) == {"a": 1}


def test_two_classes_of_the_gang_that_open_one_port_go_to_different_nodes() -> None:
    world = full("a", "b")
    for i in range(3):
        world.finished(f"a-{i}")
    for name, memory_gi in (("one", 1), ("two", 2)):
        world.pod(name, "train", minimum=2, cpu=2, memory_gi=memory_gi, ports=WEB)
    assert [room.nodes for room in all_of(world, "default/train")] in ([{"a": 1}, {"b": 1}], [{"b": 1}, {"a": 1}])


def test_who_goes_leaves_though_it_is_the_gangs_own() -> None:
    world = full("b")
    world.node("a", cpu=4)
    world.pod("train-0", "train", minimum=1, cpu=3, node="a")
    world.terminating("train-0")
    world.pod("train-1", "train", minimum=1, cpu=3)
    assert asked(world) == {"a": 1}


def test_pods_that_run_stay_its_own_where_its_gangs_became_one_group_since() -> None:
    """Their claims have the key of the group that they were of."""
    world = full("b")
    world.node("a", cpu=4)
    both = {"groups": ("default/apart", "default/train")}
    world.koordinator("default/train", 1, 1)
    world.assigned("train-0", "a")
    world.koordinator("default/train", 1, 1, both)
    fact = world.state.pods["train-0"].fact
    assert fact.gang is not None
    world.pod("apart-0", "apart", dialect="koordinator/v1alpha1", declared=fact.gang.declared, cpu=4)
    assert world.state.groups["default/apart"].gangs == ("default/apart", "default/train")
    assert asked(world, "default/apart") == {"b": 1}


def test_pods_of_one_node_alone_stay_though_muster_schedules_them() -> None:
    """DaemonSets', where the default scheduler's pods are Muster's, too."""
    world = full("a", "b")
    for i in range(4):
        world.finished(f"a-{i}")
    world.pod("daemon", node="a", cpu=1, priority=-5, affinity=(own_node("a"),))
    world.pod("small", node="a", cpu=1)
    world.gang("train", 1, 1, cpu=4)
    assert asked(world) == {"b": 1}
