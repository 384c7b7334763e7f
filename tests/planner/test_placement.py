"""Placement in one step: what pod after pod, node after node would do."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from events.objects import HostPort, PreferredTerm, SelectorRequirement, SelectorTerm, Taint, Toleration
from services.planner.placement import CHUNK_PODS, CPU, MEMORY, SHARES_KEPT, Left, Placed, Places, Room, Shapes, split
from services.state.nodes import RECOUNTED, NodeTable
from tests import facts
from tests.facts import scheduling_class
from tests.world import World

GIB = 1 << 30
SCORES = st.sampled_from(["least-allocated", "binpack"])
WEB = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)


class Ask(NamedTuple):
    """A class to place: what a pod of it asks for, how many pods, and the group's seed."""

    cpu_milli: int
    memory_bytes: int
    gpu: int
    zone: str
    ports: bool
    pods: int
    seed: int


def node(name: str, cpu_milli: int, memory_bytes: int, gpu: int, zone: str) -> ev.NodeObserved:
    offered = {"cpu_milli": cpu_milli, "memory_bytes": memory_bytes, "pods": 16, "nvidia.com/gpu": gpu}
    return facts.node(name, offered, labels={"zone": zone})


def class_of(ask: Ask) -> ev.SchedulingClassObserved:
    return scheduling_class(
        digest=str((ask.cpu_milli, ask.memory_bytes, ask.gpu, ask.zone, ask.ports)),
        requests={
            "cpu_milli": ask.cpu_milli,
            "memory_bytes": ask.memory_bytes,
            "pods": 1,
            "nvidia.com/gpu": ask.gpu,
        },
        node_selector={"zone": ask.zone} if ask.zone else {},
        host_ports=WEB if ask.ports else (),
    )


# Powers of two: each share is exact, so that the naive arithmetic has nothing to round.
NODES = st.lists(
    st.tuples(
        st.sampled_from([1024, 2048, 8192]),
        st.sampled_from([1 * GIB, 4 * GIB, 16 * GIB]),
        st.sampled_from([0, 4]),
        st.sampled_from("ab"),
    ),
    min_size=1,
    max_size=8,
)
ASKS = st.lists(
    st.builds(
        Ask,
        st.sampled_from([0, 256, 512, 1024]),
        st.sampled_from([0, 256 << 20, GIB]),
        st.sampled_from([0, 0, 1, 2]),
        st.sampled_from(["", "", "a"]),
        st.sampled_from([False, False, False, True]),
        st.integers(1, 40),
        st.integers(0, 2**32 - 1),
    ),
    min_size=1,
    max_size=5,
)


def table_of(nodes: list[tuple[int, int, int, str]], asks: list[Ask]) -> NodeTable:
    table = NodeTable()
    for number, (cpu_milli, memory_bytes, gpu, zone) in enumerate(nodes):
        table.put(node(f"n{number}", cpu_milli, memory_bytes, gpu, zone))
    for ask in asks:
        if class_of(ask).digest not in table.classes:
            table.add_class(class_of(ask))
    return table


class Naive:
    """One pod at a time, with Python's integers: the best score, then the seed's order of the nodes' ranks."""

    def __init__(self, table: NodeTable, score: str) -> None:
        self.binpack = score == "binpack"
        self.nodes = {name: dict(table.facts[row].allocatable) for name, row in table.rows.items()}  # type: ignore[union-attr]
        self.offered = {name: dict(offered) for name, offered in self.nodes.items()}
        self.zones = {name: table.facts[row].labels["zone"] for name, row in table.rows.items()}  # type: ignore[union-attr]
        self.rank = {name: int(table.rank()[row]) for name, row in table.rows.items()}
        self.web: set[str] = set()

    def place(self, ask: Ask) -> dict[str, int]:
        placed: dict[str, int] = {}
        for _ in range(ask.pods):
            fitting = [name for name in self.nodes if self.fits(name, ask)]
            if not fitting:
                break
            name = min(fitting, key=lambda name: (-self.score(name, ask), self.tie(name, ask)))
            for resource, amount in class_of(ask).requests.items():
                self.nodes[name][resource] -= amount
            if ask.ports:
                self.web.add(name)
            placed[name] = placed.get(name, 0) + 1
        return placed

    def fits(self, name: str, ask: Ask) -> bool:
        left = self.nodes[name]
        enough = all(amount <= left[resource] for resource, amount in class_of(ask).requests.items() if amount)
        return enough and ask.zone in ("", self.zones[name]) and not (ask.ports and name in self.web)

    def score(self, name: str, ask: Ask) -> int:
        counted = ["cpu_milli", "memory_bytes", *(["nvidia.com/gpu"] if ask.gpu else [])]
        if not (ask.cpu_milli or ask.memory_bytes or ask.gpu):
            counted.append("pods")
        asked, share = class_of(ask).requests, 0
        for resource in counted:
            offered = self.offered[name][resource]
            share += (self.nodes[name][resource] - asked[resource]) * (1 << 30) // offered if offered else 0
        return -(share >> 20) if self.binpack else share >> 20

    def tie(self, name: str, ask: Ask) -> int:
        return self.rank[name] * (ask.seed | 1) % (1 << 32)


def by_name(table: NodeTable, placed: Placed) -> dict[str, int]:
    found: dict[str, int] = {}
    for row, pods in placed:
        fact = table.facts[row]
        assert fact is not None
        found[fact.name] = found.get(fact.name, 0) + pods
    return found


@given(NODES, ASKS, SCORES)
@settings(deadline=None, max_examples=200)
def test_place_equals_pod_at_a_time_greedy(nodes: list[tuple[int, int, int, str]], asks: list[Ask], score: str) -> None:
    table = table_of(nodes, asks)
    room, naive = Room(table, score), Naive(table, score)
    for ask in asks:
        placed = room.place(table.classes[class_of(ask).digest], ask.pods, ask.seed)
        assert by_name(table, placed) == naive.place(ask)
    for name, expected in naive.nodes.items():
        left = room.free[table.rows[name]].tolist()
        for resource, amount in expected.items():
            assert resource not in table.resources.columns or left[table.resources.columns[resource]] == amount


@given(NODES, ASKS, SCORES)
@settings(deadline=None)
def test_no_place_has_less_than_nothing_left_and_undo_gives_all_of_it_back(
    nodes: list[tuple[int, int, int, str]], asks: list[Ask], score: str
) -> None:
    table = table_of(nodes, asks)
    room, fresh = Room(table, score), Room(table, score)
    taken = []
    for ask in asks:
        info = table.classes[class_of(ask).digest]
        taken.append((ask, info, room.place(info, ask.pods, ask.seed)))
        assert (room.free[table.present] >= 0).all()
    for _, info, placed in reversed(taken):
        room.undo(info, placed)
    assert (room.free == fresh.free).all()
    for ask, info, placed in taken:
        assert room.place(info, ask.pods, ask.seed) == placed


@pytest.mark.parametrize(
    ("pods", "first", "rest"),
    [
        (0, [], [(7, 2), (3, 1)]),
        (1, [(7, 1)], [(7, 1), (3, 1)]),
        (2, [(7, 2)], [(3, 1)]),
        (3, [(7, 2), (3, 1)], []),
    ],
)
def test_where_places_are_split_no_node_is_left_with_no_pods(pods: int, first: Placed, rest: Placed) -> None:
    assert split([(7, 2), (3, 1)], pods) == (first, rest)


@given(NODES, ASKS, ASKS, SCORES, st.data())
@settings(deadline=None)
def test_of_room_that_is_lent_nobody_else_has_any_whatever_was_taken_of_it(
    nodes: list[tuple[int, int, int, str]], kept: list[Ask], asks: list[Ask], score: str, data: st.DataObject
) -> None:
    """While it is lent, there is as much as if nobody had it. Then nobody has more than before, or than was left."""
    table, without = table_of(nodes, kept + asks), Room(table_of(nodes, kept + asks), score)
    places: Places = {}
    for ask in kept:
        info = table.classes[class_of(ask).digest]
        placed = Room(table, score).place(info, ask.pods, ask.seed)
        for row, pods in placed:
            places.setdefault(info, []).append((row, pods))
            for _ in range(pods):
                table.claim(row, info, 1, False)
    before, room = Room(table, score), Room(table, score)
    loan = room.lend(places)
    for ask in asks:
        info, pods = table.classes[class_of(ask).digest], data.draw(st.integers(0, 4))
        assert room.place(info, pods, ask.seed) == without.place(info, pods, ask.seed)
    room.keep_again(loan)
    assert (room.free == np.minimum(before.free, without.free)).all()
    for info in table.classes.values():
        if info.fact.host_ports:
            free = before.ports_free(info) & without.ports_free(info)
            assert (room.ports_free(info) == free).all()


@given(NODES, ASKS, SCORES, st.data())
@settings(deadline=None, max_examples=50)
def test_what_is_kept_between_cycles_is_what_a_new_look_finds(
    nodes: list[tuple[int, int, int, str]], asks: list[Ask], score: str, data: st.DataObject
) -> None:
    """Claims come and go, and now and then a node does: the kept room places as one that is counted anew."""
    table = table_of(nodes, asks)
    claimed: list[tuple[int, Ask]] = []
    for ask in asks * 3:
        info = table.classes[class_of(ask).digest]
        kept, remembered = Room(table, score), dict(table.cache)
        table.cache.clear()
        fresh = Room(table, score)
        table.cache.update(remembered)
        assert (kept.free == fresh.free).all()
        assert (kept._least <= fresh._least).all()
        placed = kept.place(info, ask.pods, ask.seed)
        assert placed == fresh.place(info, ask.pods, ask.seed)
        for row, pods in placed:
            for _ in range(pods):
                table.claim(row, info, 1, proposed=data.draw(st.booleans()))
        claimed += [(row, ask) for row, _ in placed]
        if claimed and data.draw(st.booleans()):
            row, other = claimed.pop(data.draw(st.integers(0, len(claimed) - 1)))
            table.claim(row, table.classes[class_of(other).digest], -1, proposed=False)
        if data.draw(st.integers(0, 4)) == 0:
            table.put(node("late", 8192, 16 * GIB, 4, "a"))


def test_of_resources_that_nobody_asks_for_together_any_more_little_is_kept() -> None:
    """Where no node changes for weeks, each set that some pod had asked for stayed."""
    offered = {f"example.com/r{kind}": 4 for kind in range(9)}
    table = NodeTable()
    table.put(facts.node("n1", {"cpu_milli": 4_000, "pods": 110, **offered}))
    for number, names in enumerate(combinations(offered, 3)):
        table.add_class(scheduling_class("gone", {"pods": 1, **dict.fromkeys(names, 1)}))
        info = table.classes["gone"]
        assert Room(table, "least-allocated").place(info, 1, number) == [(0, 1)]
        table.claim(0, info, 1, proposed=False)
        table.claim(0, info, -1, proposed=False)
        table.drop_class("gone")
    assert number > SHARES_KEPT
    assert len(Left.of(table)._shares) == SHARES_KEPT


def test_what_a_pod_takes_is_remembered_without_its_class() -> None:
    """A thousand that were gone, each as large as a pod may be, were half a gigabyte until a node changed."""
    table = table_of([(8192, 16 * GIB, 0, "a")], [])
    for number in range(5):
        table.add_class(scheduling_class("gone", {"cpu_milli": 1024, "pods": 1}, node_selector={"zone": "a"}))
        info = table.classes["gone"]
        assert Room(table, "least-allocated").place(info, 1, number) == [(0, 1)]
        table.drop_class("gone")
    assert list(Shapes.of(table)._taken) == [((CPU, 1024), (MEMORY, 0))]


def test_shapes_are_sorted_anew_when_a_node_changes_not_when_many_pods_are_claimed() -> None:
    """Under load each cycle has more claims than are told row by row; sorting all nodes was a fifth of it."""
    ask = Ask(1, 0, 0, "", False, 1, 5)
    table = table_of([(1024, GIB, 0, "a"), (2048, GIB, 0, "a")], [ask])
    before = Room(table, "least-allocated")._left
    for sign in (1, -1):
        for _ in range(RECOUNTED):
            table.claim(0, table.classes[class_of(ask).digest], sign, proposed=False)
    after = Room(table, "least-allocated")._left
    assert after is not before
    assert after.shapes is before.shapes
    table.put(node("late", 8192, GIB, 4, "a"))
    assert len(Room(table, "least-allocated")._left.shapes.inverse) == len(after.shapes.inverse) + 1


@pytest.mark.parametrize("score", ["least-allocated", "binpack"])
def test_more_pods_than_one_step_takes(score: str) -> None:
    """Several steps use a row more than once; undo gives each of them back."""
    ask = Ask(1, 0, 0, "", False, 3 * CHUNK_PODS + 7, 5)
    table = NodeTable()
    for number in range(3):
        fact = node(f"n{number}", 8192, GIB, 0, "a")
        table.put(ev.NodeObserved(**{**as_dict(fact), "allocatable": {"cpu_milli": 8192, "pods": 1_000}}))
    table.add_class(class_of(ask))
    info = table.classes[class_of(ask).digest]
    room = Room(table, score)
    placed = room.place(info, ask.pods, ask.seed)
    assert sum(pods for _, pods in placed) == ask.pods
    used = sorted(by_name(table, placed).values())
    assert used == [775] if score == "binpack" else used[-1] - used[0] <= 8, "8 of 8192 are below a score's resolution"
    room.undo(info, placed)
    assert (room.free == Room(table, score).free).all()
    assert room.place(info, ask.pods, ask.seed) == placed


def test_pods_that_ask_for_nothing_are_spread_by_their_number() -> None:
    """The kube-scheduler scores them as if they asked for a little; by cpu and memory alone all went to one node."""
    ask = Ask(0, 0, 0, "", False, 12, 5)
    table = table_of([(1024, GIB, 0, "a")] * 3, [ask])
    room = Room(table, "least-allocated")
    assert by_name(table, room.place(table.classes[class_of(ask).digest], 12, ask.seed)) == {"n0": 4, "n1": 4, "n2": 4}


def test_for_those_who_ask_for_cpu_alone_the_number_of_pods_does_not_count() -> None:
    world = World()
    world.node("n0", cpu=9)
    world.node("n1", cpu=8)
    world.facts(scheduling_class("nothing", {"pods": 1}), scheduling_class("cpu", {"cpu_milli": 1_000, "pods": 1}))
    for i in range(50):
        world.pod(f"idle-{i}", of="nothing", node="n0")
    world.pod("one", of="cpu")
    world.settle()
    assert world.where("one") == ["n0"], "which has the larger share of its cpu left"


def as_dict(fact: ev.NodeObserved) -> dict:
    return {name: getattr(fact, name) for name in fact.__struct_fields__}


@given(NODES, ASKS, SCORES)
@settings(deadline=None)
def test_all_at_once_is_one_after_the_other(
    nodes: list[tuple[int, int, int, str]], asks: list[Ask], score: str
) -> None:
    table = table_of(nodes, asks)
    room, single = Room(table, score), Room(table, score)
    for ask in asks:
        info = table.classes[class_of(ask).digest]
        placed = room.place(info, ask.pods, ask.seed)
        alone = [entry for _ in range(ask.pods) for entry in single.place(info, 1, ask.seed)]
        assert by_name(table, placed) == by_name(table, alone)


def test_least_allocated_spreads_and_binpack_fills() -> None:
    table = table_of([(8192, 16 * GIB, 0, "a")] * 4, [])
    ask = Ask(1024, GIB, 0, "", False, 4, 1)
    table.add_class(class_of(ask))
    info = table.classes[class_of(ask).digest]
    assert sorted(by_name(table, Room(table, "least-allocated").place(info, 4, 1)).values()) == [1, 1, 1, 1]
    assert list(by_name(table, Room(table, "binpack").place(info, 4, 1)).values()) == [4]


def test_equal_nodes_are_tried_in_another_order_by_another_group() -> None:
    table = table_of([(8192, 16 * GIB, 0, "a")] * 8, [])
    ask = Ask(1024, GIB, 0, "", False, 1, 1)
    table.add_class(class_of(ask))
    info = table.classes[class_of(ask).digest]
    first = {Room(table, "least-allocated").place(info, 1, seed)[0][0] for seed in range(0, 2**32, 2**28 + 12_345)}
    assert len(first) > 3


def test_a_preferred_node_goes_before_an_emptier_one() -> None:
    world = World()
    world.node("n0", cpu=8, labels={"disk": "ssd"})
    world.node("n1", cpu=16)
    world.pod("holder", node="n0", candidate=False, cpu=4)
    term = SelectorTerm(
        match_expressions=(SelectorRequirement(key="disk", operator="Exists", values=()),), match_fields=()
    )
    fact = world.state.classes[world.scheduling_class()].fact
    wish = (PreferredTerm(weight=1, term=term),)
    world.facts(msgspec.structs.replace(fact, digest="wish", preferred_affinity=wish))
    world.pod("plain")
    world.pod("picky", of="wish")
    world.settle()
    assert world.where("plain", "picky") == ["n1", "n0"]


def test_for_what_fits_nowhere_nodes_are_not_compared() -> None:
    """Most of what waits fits nowhere, and is looked at again whenever a node changes."""
    world = World()
    world.node("n0", cpu=1, labels={"disk": "ssd"})
    term = SelectorTerm(
        match_expressions=(SelectorRequirement(key="disk", operator="Exists", values=()),), match_fields=()
    )
    fact = world.state.classes[world.scheduling_class(cpu=2)].fact
    wish = (PreferredTerm(weight=1, term=term),)
    world.facts(msgspec.structs.replace(fact, digest="wish", preferred_affinity=wish))
    world.pod("picky", of="wish")
    world.settle()
    assert world.where("picky") == [""]
    table = world.state.table
    assert (len(table.filtered), len(table.preferences)) == (1, 0)


def test_what_fits_nowhere_changes_no_later_choice() -> None:
    """As older logs have it: what nodes have left is rounded, and was counted down from the first class that asked, even
    one that fits nowhere."""
    table = NodeTable()
    for name, memory_bytes, gpus, zone in (("large", 24_000 * GIB, 0, "b"), ("n0", GIB, 128, "a"), ("n1", GIB, 0, "a")):
        offered = {"cpu_milli": 1024, "memory_bytes": memory_bytes, "pods": 128, "nvidia.com/gpu": gpus}
        table.put(facts.node(name, offered, labels={"zone": zone}))
    unit = 1 << 15  # bytes: beside a node as large as that, memory is counted in these
    nowhere, gpu, plain, half = (
        Ask(0, memory_bytes, gpu, zone, False, 1, 1)
        for memory_bytes, gpu, zone in ((unit, 0, "c"), (2 * unit - 1, 1, "a"), (unit, 0, "a"), (150 * unit, 0, "a"))
    )
    for ask in (nowhere, gpu, plain, half):
        table.add_class(class_of(ask))
    infos = {ask: table.classes[class_of(ask).digest] for ask in (nowhere, gpu, plain, half)}
    table.claim(table.rows["n1"], infos[half], 1, proposed=False)
    room = Room(table, "least-allocated")
    assert not room.place(infos[nowhere], 1, 1)
    assert by_name(table, room.place(infos[gpu], 100, 1)) == {"n0": 100}
    assert by_name(table, room.place(infos[plain], 1, 1)) == {"n0": 1}


def test_prefer_no_schedule_comes_last() -> None:
    world = World()
    world.node("n0", cpu=64, taints=(Taint(key="x", value="", effect="PreferNoSchedule"),))
    world.node("n9", cpu=64, taints=(Taint(key="x", value="", effect="NoSchedule"),))
    world.node("n1", cpu=2)
    for name in "abc":
        world.pod(name)
        world.settle()
    assert world.where("a", "b", "c") == ["n1", "n1", "n0"]


def test_prefer_no_schedule_is_nothing_to_who_tolerates_it() -> None:
    world = World()
    world.node("n0", cpu=64, taints=(Taint(key="x", value="", effect="PreferNoSchedule"),))
    world.node("n1", cpu=2)
    world.pod("plain")
    fact = world.state.classes[world.scheduling_class()].fact
    exists = Toleration(key="x", operator="Exists", value="", effect="PreferNoSchedule")
    world.facts(msgspec.structs.replace(fact, digest="tolerant", tolerations=(exists,)))
    world.pod("tolerant", of="tolerant")
    world.settle()
    assert world.where("plain", "tolerant") == ["n1", "n0"]


def test_quantities_at_the_limit_do_not_overflow() -> None:
    table = NodeTable()
    for number in range(3):
        table.put(node(f"n{number}", (1 << 52) - 1, (1 << 52) - 1, 4, "a"))
    ask = Ask((1 << 50) + 1, (1 << 50) + 1, 1, "", False, 12, 9)
    table.add_class(class_of(ask))
    for score in ("least-allocated", "binpack"):
        room = Room(table, score)
        assert sum(pods for _, pods in room.place(table.classes[class_of(ask).digest], 12, 9)) == 9
        assert int(np.min(room.free)) >= 0


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("score", ["least-allocated", "binpack"])
@pytest.mark.parametrize("held_milli", [10**8, 10**9, 9 * 10**9, 10**12, 10**14, 1 << 52])
def test_however_much_more_is_held_than_a_node_offers_it_is_full(held_milli: int, score: str, shared: bool) -> None:
    """`100M` that was meant to be `100m`, of a pod with a node. As it was, the key's bits ran over from 9M on: pods that
    ask for memory alone went there before they went to an empty node."""
    table, asks = NodeTable(), Ask(0, GIB, 0, "", ports=False, pods=3, seed=7)
    for name in ("full", "empty"):
        table.put(node(name, 4_000, 16 * GIB, 0, "a"))
    for held in (class_of(asks), scheduling_class(digest="held", requests={"cpu_milli": held_milli, "pods": 1})):
        table.add_class(held)
    table.claim(table.rows["full"], table.classes["held"], 1, proposed=False)
    room = Room(table, score)
    room.own = np.zeros(len(table.present), np.int64) if shared else None
    (chosen,) = {row for row, _ in room.place(table.classes[class_of(asks).digest], 3, 7)}
    assert chosen == table.rows["empty" if score == "least-allocated" else "full"]
