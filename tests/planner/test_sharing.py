"""Several shards plan almost as one would: who goes first, and whose nodes."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from events.objects import PreferredTerm, SelectorRequirement, SelectorTerm, Taint
from events.policy import DEFAULT_POLICY
from services.planner.placement import Room
from services.planner.sharing import own_nodes
from services.state.nodes import NodeTable
from services.state.partitions import partition_of
from tests import facts
from tests.facts import scheduling_class
from tests.world import World, of_type, refusals

GIB = 1 << 30


def names(world: World, shard: str, count: int, prefix: str = "p") -> list[str]:
    """Names of single pods that are this shard's to plan for."""
    found = []
    number = 0
    while len(found) < count:
        name = f"{prefix}{number}"
        number += 1
        if world.state.owners[partition_of(f"pod/default/{name}")] == shard:
            found.append(name)
    return found


def placed(events: list[ev.Event]) -> dict[str, str]:
    """uid → node."""
    return {
        uid: a.node
        for event in of_type(events, ev.GangPlaced)
        for a in (*event.required, *event.optional)
        for uid in a.pods
    }


def contest(world: World, theirs: int, ours: int) -> tuple[list[str], list[str]]:
    """Single pods of shard b, of a higher priority, and of shard a."""
    high, low = names(world, "b", theirs), names(world, "a", ours)
    for name in high:
        world.pod(name, priority=5)
    for name in low:
        world.pod(name, priority=1)
    return high, low


def policy(lookahead_pods: int) -> World:
    return World(msgspec.structs.replace(DEFAULT_POLICY, lookahead_pods=lookahead_pods), shards=("a", "b"))


# ------------------------------------------------------------------------------------------------------------ look-ahead


def test_a_shard_leaves_room_for_another_shards_pods_of_a_higher_priority() -> None:
    world = policy(100)
    world.node("n0", cpu=3)
    theirs, ours = contest(world, 2, 3)
    events = world.plan("a")
    assert list(placed(events)) == [ours[0]], "room for one is left, and nothing is said of the others' pods"
    assert [event.groups for event in of_type(events, ev.GroupsRefused)] == [
        tuple(f"pod/default/{name}" for name in ours[1:])
    ]
    assert list(placed(world.plan("b"))) == theirs
    assert not of_type(world.judge(), ev.ProposalRefused)


def behind_others() -> tuple[World, list[str], str]:
    """Shard a leaves the only node to a gang of shard b's; its pods, and a's, which found no room behind them."""
    world = policy(100)
    world.node("n0", cpu=2)
    gang = next(f"g{i}" for i in range(99) if world.state.owners[partition_of(f"default/g{i}")] == "b")
    theirs, ours = world.gang(gang, 2, 2, priority=5), names(world, "a", 1)[0]
    world.pod(ours, priority=1)
    assert refusals(world.plan("a")) == ["BehindOthers"]
    return world, theirs, ours


@pytest.mark.parametrize("deleted", [1, 2])
def test_if_the_others_do_not_take_the_room_after_all_who_was_behind_them_has_it_after_its_backoff(
    deleted: int,
) -> None:
    """The other gang is deleted, or lacks a pod: of neither does a fact about room tell."""
    world, theirs, ours = behind_others()
    for name in theirs[:deleted]:
        world.deleted(name)
    assert not placed(world.plan("b"))
    assert not world.plan("a"), "it backs off"
    world.pass_s(2)
    assert list(placed(world.plan("a"))) == [ours]


def test_if_they_take_it_who_was_behind_them_waits_for_room_and_its_condition_stays() -> None:
    world, theirs, ours = behind_others()
    group = world.state.groups[f"pod/default/{ours}"]
    condition = world.state.cohorts[group.cohort].condition
    assert list(placed(world.plan("b"))) == theirs
    world.judge()
    world.pass_s(2)
    assert refusals(world.plan("a")) == ["InsufficientRoom"]
    assert world.state.cohorts[group.cohort].condition == condition
    world.pass_s(30)
    assert not world.plan("a")


def test_who_is_refused_before_the_others_had_their_turn_is_not_behind_them() -> None:
    world = policy(100)
    world.node("n0", cpu=2)
    world.pod(names(world, "b", 1)[0], priority=5)
    large, small = names(world, "a", 2)
    world.pod(large, cpu=9, priority=9)
    world.pod(small, cpu=9, priority=1)
    assert refusals(world.plan("a")) == ["InsufficientRoom", "BehindOthers"]


def test_without_it_the_lower_priority_may_be_first() -> None:
    world = policy(0)
    world.node("n0", cpu=3)
    _, ours = contest(world, 2, 3)
    assert list(placed(world.plan("a"))) == ours


def test_while_nobody_waits_for_room_each_of_equal_priority_is_planned_by_its_shard_alone() -> None:
    """Looking ahead is paid for in every cycle; equal groups have room enough, or the log's order decides."""
    world = policy(100)
    world.node("n0", cpu=2)
    for name in names(world, "b", 2):
        world.pod(name, created_s=1)
    ours = names(world, "a", 2)
    for name in ours:
        world.pod(name, created_s=2)
    assert list(placed(world.plan("a"))) == ours


def test_where_room_is_short_who_is_longer_in_the_queue_goes_first_whoever_plans_for_him() -> None:
    world = policy(100)
    world.node("n0", cpu=2)
    too_large = names(world, "a", 1, "large")[0]
    world.pod(too_large, cpu=9)
    world.plan("a")
    theirs, ours = names(world, "b", 2), names(world, "a", 3)
    for name in theirs:
        world.pod(name, created_s=2)
    for number, name in enumerate(ours):
        world.pod(name, created_s=1 + 2 * number)
    assert list(placed(world.plan("a"))) == ours[:1]
    assert list(placed(world.plan("b"))) == theirs[:1]


def test_a_higher_priority_of_the_shards_own_goes_before_theirs() -> None:
    world = policy(100)
    world.node("n0", cpu=3)
    for name in names(world, "b", 2):
        world.pod(name, priority=5)
    high, low = names(world, "a", 2)
    world.pod(low, priority=1)
    world.pod(high, priority=9)
    assert list(placed(world.plan("a"))) == [high]


def test_a_gang_that_would_not_fit_takes_nothing_in_the_look_ahead_either() -> None:
    world = policy(100)
    world.node("n0", cpu=3)
    gang = next(f"g{i}" for i in range(99) if world.state.owners[partition_of(f"default/g{i}")] == "b")
    world.gang(gang, 4, 4, priority=9)
    ours = names(world, "a", 3)
    for name in ours:
        world.pod(name, priority=1)
    assert list(placed(world.plan("a"))) == ours


def test_what_does_not_fit_in_the_look_ahead_is_not_this_shards_to_refuse() -> None:
    world = policy(lookahead_pods=100)
    world.node("n0", cpu=4)
    gang = next(name for i in range(100) if world.state.owners[partition_of(f"default/{(name := f'g{i}')}")] == "b")
    world.gang(gang, 8, 8, priority=9)
    (own,) = names(world, "a", 1)
    world.pod(own)
    assert placed(world.plan("a")) == {own: "n0"}
    assert not world.state.ignored
    assert refusals(world.plan("b")) == ["InsufficientRoom"]


def test_the_look_ahead_is_bounded() -> None:
    world = policy(2)
    world.node("n0", cpu=6)
    _, ours = contest(world, 5, 6)
    assert list(placed(world.plan("a"))) == sorted(ours)[:4]


def test_the_others_pods_are_thought_where_their_own_shard_would_put_them() -> None:
    world = policy(100)
    for i in range(16):
        world.node(f"n{i}", cpu=1)
    contest(world, 5, 3)
    thought = set(placed(world.plan("a")).values())
    said = set(placed(world.plan_without_appending("b")).values())
    assert not thought & said
    world.plan("b")
    assert not of_type(world.judge(), ev.ProposalRefused)


# ------------------------------------------------------------------------------------------------------------- own nodes


def mine(name: str, shards: int, index: int) -> bool:
    return zlib.crc32(name.encode()) % shards == index


def test_a_shard_fills_its_own_nodes_first_and_then_takes_the_others() -> None:
    world = World(shards=("a", "b"))
    for i in range(8):
        world.node(f"n{i}", cpu=1)
    own = {f"n{i}" for i in range(8) if mine(f"n{i}", 2, 0)}
    ours = names(world, "a", 8)
    for name in ours:
        world.pod(name)
    where = list(placed(world.plan("a")).values())
    assert set(where[: len(own)]) == own
    assert len(set(where)) == 8


def test_whose_a_node_is_depends_on_its_name_and_on_how_many_shards_own_partitions() -> None:
    world = World(shards=("a", "b", "c"))
    for i in range(30):
        world.node(f"n{i}")
    table = world.state.table
    found = {shard: own_nodes(table, ["a", "b", "c"], shard) for shard in "abc"}
    for index, shard in enumerate("abc"):
        for name, row in table.rows.items():
            assert bool(found[shard][row]) == mine(name, 3, index)  # type: ignore[index]
    for name, row in table.rows.items():
        assert bool(own_nodes(table, ["a", "b"], "a")[row]) == mine(name, 2, 0), "as soon as c has left"  # type: ignore[index]
    assert own_nodes(table, ["a"], "a") is None
    assert own_nodes(table, ["a", "b"], "z") is None


class Node(NamedTuple):
    cpu_milli: int
    memory_bytes: int
    zone: str
    avoided: int
    own: bool


NODES = st.lists(
    st.builds(
        Node,
        st.sampled_from([1024, 2048, 8192]),
        st.sampled_from([1 * GIB, 4 * GIB]),
        st.sampled_from("ab"),
        st.integers(0, 3),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)
WISHES = st.lists(st.tuples(st.integers(1, 100), st.sampled_from("ab")), max_size=3)


def table_of(nodes: list[Node], wishes: list[tuple[int, str]]) -> NodeTable:
    table = NodeTable()
    for number, node in enumerate(nodes):
        taints = tuple(Taint(key=f"t{i}", value="", effect="PreferNoSchedule") for i in range(node.avoided))
        offered = {"cpu_milli": node.cpu_milli, "memory_bytes": node.memory_bytes, "pods": 16}
        table.put(facts.node(f"n{number}", offered, labels={"zone": node.zone}, taints=taints))
    preferred = tuple(
        PreferredTerm(
            weight=weight,
            term=SelectorTerm(
                match_expressions=(SelectorRequirement(key="zone", operator="In", values=(zone,)),), match_fields=()
            ),
        )
        for weight, zone in wishes
    )
    table.add_class(
        scheduling_class("one", {"cpu_milli": 256, "memory_bytes": 128 << 20, "pods": 1}, preferred_affinity=preferred)
    )
    return table


@given(NODES, WISHES, st.sampled_from(["least-allocated", "binpack"]), st.integers(1, 60), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=200)
def test_with_several_shards_preference_goes_before_own_and_own_before_the_score(
    nodes: list[Node], wishes: list[tuple[int, str]], score: str, pods: int, seed: int
) -> None:
    """Pod after pod: the best level that has room, in it the best score, in it the seed's order."""
    table = table_of(nodes, wishes)
    room = Room(table, score)
    own = room.free[:, 0] * 0
    for number, node in enumerate(nodes):
        own[table.rows[f"n{number}"]] = node.own
    room.own = own
    found: dict[int, int] = {}
    for row, many in room.place(table.classes["one"], pods, seed):
        found[row] = found.get(row, 0) + many

    whole = sum(weight for weight, _ in wishes) or 1
    sign = -1 if score == "binpack" else 1
    rank = table.rank()
    left = [[node.cpu_milli, node.memory_bytes, 16] for node in nodes]
    expected: dict[int, int] = {}
    for _ in range(pods):
        keys = []
        for number, node in enumerate(nodes):
            cpu, memory, slots = left[number]
            if cpu < 256 or memory < 128 << 20 or not slots:
                continue
            wished = sum(weight * 1024 // whole for weight, zone in wishes if zone == node.zone)
            share = ((cpu - 256) << 30) // node.cpu_milli + ((memory - (128 << 20)) << 30) // node.memory_bytes
            row = table.rows[f"n{number}"]
            tie = int(rank[row]) * (seed | 1) % (1 << 32)
            keys.append((1024 * node.avoided - wished, not node.own, -sign * (share >> 20), tie, number))
        if not keys:
            break
        number = min(keys)[-1]
        for column, amount in enumerate((256, 128 << 20, 1)):
            left[number][column] -= amount
        row = table.rows[f"n{number}"]
        expected[row] = expected.get(row, 0) + 1
    assert found == expected


def test_a_node_with_ever_so_many_taints_is_avoided_all_the_same() -> None:
    """Beyond what a key has bits for, preferences are equal: none is taken for its opposite."""
    table = table_of([Node(8192, 4 * GIB, "a", avoided, own=True) for avoided in (0, 3, 40)], [])
    room = Room(table, "least-allocated")
    room.own = room.free[:, 0] * 0 + 1
    room.own[table.rows["n0"]] = 0
    assert [row for row, _ in room.place(table.classes["one"], 48, 7)] == [table.rows[f"n{i}"] for i in range(3)]


@given(NODES, st.sampled_from(["least-allocated", "binpack"]), st.integers(1, 60), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_who_owns_every_node_places_as_a_single_shard_does(nodes: list[Node], score: str, pods: int, seed: int) -> None:
    table = table_of([node._replace(avoided=0) for node in nodes], [])
    one, all_own = Room(table, score), Room(table, score)
    all_own.own = all_own.free[:, 0] * 0 + 1
    assert one.place(table.classes["one"], pods, seed) == all_own.place(table.classes["one"], pods, seed)
