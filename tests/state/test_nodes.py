"""The table of nodes: rows that come and go, room counted for claims that were there before."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import events as ev
from events.objects import HostPort, SelectorRequirement, SelectorTerm, Taint, Toleration
from services.state import fits, nodes, rank
from services.state.masks import EVERY
from services.state.nodes import NodeTable
from services.state.resources import BASE_RESOURCES
from services.state.slices import at_once
from tests.facts import node, scheduling_class
from tests.world import GI, World


def fact(name: str, version: int = 1, uid: str = "", **allocatable: int) -> ev.NodeObserved:
    return node(name, allocatable, uid=uid, version=str(version))


def held(world: World, name: str) -> int:
    """cpu_milli that the binder counts on the node."""
    table = world.state.table
    return int(table.held[table.rows[name], 0])


def test_claims_on_unknown_nodes_are_kept_until_the_node_appears() -> None:
    """Design, section 2: a pod may be seen before its node."""
    world = World()
    world.pod("early", node="n0", cpu=3)
    assert world.state.nodes["n0"].fact is None
    assert "n0" not in world.state.table.rows
    world.node("n0", cpu=4)
    assert held(world, "n0") == 3_000
    world.pod("late", cpu=2)
    world.settle()
    assert world.where("late") == [""]


def test_claims_outlive_the_node_and_count_on_its_successor() -> None:
    world = World()
    world.node("n0", cpu=4)
    world.pod("alone", cpu=3)
    world.settle()
    world.facts(ev.NodeDeleted(name="n0", uid="uid-n0"))
    assert world.state.claims["alone"].node == "n0"
    world.facts(fact("n0", uid="another", cpu_milli=8_000, pods=10))
    assert held(world, "n0") == 3_000
    world.deleted("alone")
    assert held(world, "n0") == 0


ANYWHERE, HERE = (HostPort(host_ip=address, protocol="TCP", port=443) for address in ("0.0.0.0", "10.0.0.1"))


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("ports", [(ANYWHERE, HERE), (HERE, HERE), (HERE, ANYWHERE, HERE)])
def test_a_node_may_go_while_one_port_is_held_at_several_addresses(
    ports: tuple[HostPort, ...], elsewhere: bool
) -> None:
    world = World()
    world.node("n0")
    world.node("n1")
    for name in ("first", "second"):
        world.pod(name, ports=ports, node="n0", candidate=False)
    if elsewhere:
        world.pod("third", ports=ports[:1], node="n1", candidate=False)
    table = world.state.table
    world.facts(ev.NodeDeleted(name="n0", uid="uid-n0"))
    assert [list(rows) for rows in table.holders.values()] == ([[table.rows["n1"]]] if elsewhere else [])
    world.deleted("second")
    world.facts(fact("n0", uid="another", cpu_milli=8_000, pods=10))
    assert table.ports[table.rows["n0"]] == {port: ports.count(port) for port in ports}
    world.deleted("first")
    world.facts(ev.NodeDeleted(name="n1", uid="uid-n1"))
    assert not table.holders


def test_the_order_of_the_nodes_is_kept_up_as_they_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a new table's, whatever came before; and only the node that comes or goes is looked at."""
    table, hashed = NodeTable(), []
    for i in range(50):
        table.put(fact(f"n{i}", cpu_milli=1_000))
    table.rank()
    once = rank._hash
    monkeypatch.setattr(rank, "_hash", lambda name: hashed.append(name) or once(name))
    for i in range(0, 50, 2):
        table.remove(f"n{i}")
        table.rank()
    for i in range(50, 60):
        table.put(fact(f"n{i}", cpu_milli=1_000))
        table.rank()
    assert len(hashed) == 35
    anew = NodeTable()
    for name in table.rows:
        anew.put(fact(name, cpu_milli=1_000))
    ranks = {name: int(table.rank()[row]) for name, row in table.rows.items()}
    assert ranks == {name: int(anew.rank()[row]) for name, row in anew.rows.items()}
    assert sorted(ranks.values()) == list(range(1, 36))


STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 7)), max_size=60)
"""A node by number, and what it says from now on; -1: it is gone."""


@given(STEPS)
@example([(0, 2), (2, 1), (0, 3), (0, -1), (2, 1)])
def test_nodes_that_offer_the_same_have_one_code(steps: list[tuple[int, int]]) -> None:
    table, said = NodeTable(), dict[int, int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "SPARE", 0)
        for number, offers in steps:
            if offers >= 0:
                table.put(fact(f"n{number}", cpu_milli=1_000 * (offers % 2), gpu=offers // 2))
                if said.get(number) != offers:  # who says the same again gets no code
                    assert table.shapes <= 2 * len(table.rows) + 1
                said[number] = offers
            elif said.pop(number, None) is not None:
                table.remove(f"n{number}")
            codes = table.shape_codes[: table.size].tolist()
            offered = [tuple(row) for row in table.allocatable[: table.size].tolist()]
            assert len(set(codes)) == len(set(offered)) == len(set(zip(codes, offered, strict=True)))
            assert max(codes, default=0) < table.shapes


@given(STEPS)
def test_a_class_finds_the_nodes_whose_taints_it_tolerates(steps: list[tuple[int, int]]) -> None:
    table, taints = NodeTable(), dict[str, tuple[Taint, ...]]()
    tolerated = Toleration(key="t", operator="Equal", value="3", effect="")
    table.add_class(scheduling_class("x", {"pods": 1}, tolerations=(tolerated,)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "SPARE", 0)
        for number, value in steps:
            name = f"n{number}"
            if value >= 0:
                taints[name] = (Taint(key="t", value=str(value), effect="NoSchedule"),) if value else ()
                table.put(node(name, {"pods": 1}, taints=taints[name]))
                assert len(table.taint_sets) <= 2 * len(taints) + 1
            elif taints.pop(name, None) is not None:
                table.remove(name)
            fitting = fits.feasible(table, table.classes["x"])
            expected = {table.rows[one] for one, said in taints.items() if not said or said[0].value == "3"}
            assert set(np.flatnonzero(fitting).tolist()) == expected


def test_taints_that_nodes_had_once_mean_nothing_for_those_that_are_there() -> None:
    """cluster-autoscaler's have the time in their value: each is a set of its own, be the node gone with the last."""
    table = NodeTable()
    table.add_class(scheduling_class("x", {"pods": 1}))
    table.put(node("n0", {"pods": 1}))
    table.put(node("n1", {"pods": 1}))
    for time_s in range(nodes.SPARE + 10):
        leaving = Taint(key="DeletionCandidateOfClusterAutoscaler", value=str(time_s), effect="NoSchedule")
        table.put(node("n1" if time_s < nodes.SPARE else "n0", {"pods": 1}, taints=(leaving,)))
        if time_s == nodes.SPARE - 1:
            table.remove("n1")
        assert fits.feasible(table, table.classes["x"]).tolist()[:2] == [time_s < nodes.SPARE, False]


def test_what_nodes_offered_once_has_no_code_for_ever() -> None:
    table = NodeTable()
    for i in range(10 * nodes.SPARE):
        table.put(fact("n", cpu_milli=i))
    assert table.shapes <= 2 + nodes.SPARE + 1


def test_a_node_that_nobody_claims_is_forgotten() -> None:
    world = World()
    world.node("n0")
    world.facts(ev.NodeDeleted(name="n0", uid="uid-n0"))
    assert not world.state.nodes
    world.pod("early", node="n1")
    world.deleted("early")
    assert not world.state.nodes


def test_the_deletion_of_an_earlier_node_of_that_name_is_inert() -> None:
    world = World()
    world.node("n0")
    world.facts(fact("n0", uid="second", cpu_milli=1))
    world.facts(ev.NodeDeleted(name="n0", uid="uid-n0"))
    assert "n0" in world.state.table.rows


def test_an_older_fact_of_the_same_node_is_dropped_of_another_is_not() -> None:
    world = World()
    world.facts(fact("n0", 10, cpu_milli=10), fact("n0", 9, cpu_milli=9))
    assert world.state.table.allocatable[0, 0] == 10
    world.facts(fact("n0", 8, uid="again", cpu_milli=8))
    assert world.state.table.allocatable[0, 0] == 8


def test_a_resource_that_a_node_stops_offering_is_gone() -> None:
    world = World()
    world.node("n0", gpu=4)
    world.pod("alone", gpu=1)
    world.node("n0")
    world.settle()
    assert world.where("alone") == [""]


def test_a_resource_that_no_node_offers_is_missing_everywhere() -> None:
    world = World()
    world.node("n0")
    world.pod("alone", gpu=1)
    (refused,) = world.plan()
    assert isinstance(refused, ev.GroupsRefused)
    assert refused.node_reasons == {"Insufficient nvidia.com/gpu": 1}


def test_a_node_without_allocatable_takes_nobody() -> None:
    world = World()
    world.facts(fact("n0"))
    world.pod("alone")
    world.pod("greedy", cpu=0, memory_gi=0)
    world.settle()
    assert world.where("alone", "greedy") == ["", ""]


def test_a_shrunk_node_keeps_its_claims_and_takes_nobody() -> None:
    """Later excess (a shrunk node, a foreign pod) is no reason to move anybody (design, 7.2)."""
    world = World()
    world.node("n0", cpu=4)
    world.pod("alone", cpu=3)
    world.settle()
    world.node("n0", cpu=2)
    world.pod("late", cpu=1)
    world.settle()
    assert world.where("alone", "late") == ["n0", ""]
    assert held(world, "n0") == 3_000


def test_a_resized_pod_counts_with_what_it_asks_for_now() -> None:
    world = World()
    world.node("n0", cpu=4)
    world.pod("alone", cpu=1)
    world.settle()
    world.pod("alone", cpu=3, node="n0")
    assert held(world, "n0") == 3_000
    assert [found.pods for found in world.state.classes.values()] == [1]
    world.deleted("alone")
    assert held(world, "n0") == 0


def test_large_quantities_stay_exact() -> None:
    """Quantities up to 2^52: sums of them are exact in 64 bits."""
    table = NodeTable()
    table.put(fact("n0", memory_bytes=(1 << 52) - 1))
    table.add_class(scheduling_class("x", {"memory_bytes": (1 << 52) - 1}))
    for _ in range(1_000):
        table.claim(0, table.classes["x"], 1, False)
    assert int(table.held[0, 1]) == 1_000 * ((1 << 52) - 1)


@pytest.mark.parametrize("nodes", [1, 63, 64, 65, 200])
def test_the_table_grows_and_reuses_rows(nodes: int) -> None:
    table = NodeTable()
    for i in range(nodes):
        assert table.put(fact(f"n{i}", cpu_milli=i)) == i
    table.remove("n0")
    assert not table.present[0]
    assert table.put(fact("new", cpu_milli=7)) == 0
    assert table.size == nodes
    assert [int(cpu) for cpu in table.allocatable[: table.size, 0]] == [7, *range(1, nodes)]


def test_labels_follow_the_node() -> None:
    world = World()
    world.node("n0", labels={"zone": "a"})
    table = world.state.table
    codes, column = table.labels("zone")
    assert column[table.rows["n0"]] == codes["a"]
    world.node("n0", labels={"zone": "b"})
    world.node("n1")
    codes, column = table.labels("zone")
    assert column[table.rows["n0"]] == codes["b"]
    assert column[table.rows["n1"]] == 0


@given(st.sets(st.text("abcdef-.0123", min_size=1, max_size=12), min_size=1, max_size=40), st.integers(0, 99))
def test_rank_depends_on_the_names_alone(names: set[str], seed: int) -> None:
    one, other = NodeTable(), NodeTable()
    shuffled = sorted(names)
    random.Random(seed).shuffle(shuffled)
    other.put(fact("x" * 20))
    for name in sorted(names):
        one.put(fact(name))
    for name in shuffled:
        other.put(fact(name))
    assert len(set(other.rank()[: other.size].tolist())) == len(names) + 1
    other.remove("x" * 20)
    ranks = {name: int(one.rank()[one.rows[name]]) for name in names}
    assert ranks == {name: int(other.rank()[other.rows[name]]) for name in names}
    assert sorted(ranks.values()) == list(range(1, len(names) + 1))


def test_memory_is_bytes() -> None:
    world = World()
    world.node("n0", memory_gi=3)
    assert world.state.table.allocatable[0, 1] == 3 * GI


def test_resources_get_the_first_places_that_are_free_again() -> None:
    """Whichever became free first."""
    table = NodeTable()
    for at in (1, 2, 3):
        table.add_class(scheduling_class(f"of {at}", {f"a/{at}": 1}))
    table.put(node("n0", {"a/2": 1}))
    for at in (3, 2, 1):
        table.drop_class(f"of {at}")
    table.add_class(scheduling_class("many", {f"b/{at}": 1 for at in range(5)}))
    assert table.resources.names[len(BASE_RESOURCES) :] == ["b/0", "a/2", "b/1", "b/2", "b/3", "b/4"]


def test_a_label_that_no_node_has_is_looked_for_on_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod may ask for thousands of them. Those that nodes have keep their columns meanwhile."""
    looked: list[str] = []
    code = NodeTable._label_code
    monkeypatch.setattr(NodeTable, "_label_code", staticmethod(lambda *asked: looked.append(asked[2]) or code(*asked)))
    table = NodeTable()
    for name in ("n1", "n2"):
        table.put(node(name, {"pods": 1}, labels={"zone": name}))
    for key in ("zone", *(f"none-{number}" for number in range(nodes.LABELS_KEPT + 1)), "zone"):
        table.labels(key)
    assert looked == ["zone", "zone"]
    table.put(node("n1", {"pods": 1}, labels={"none-1": "a"}))
    assert table.labels("none-1")[0] == {"a": 1}
    table.put(node("n1", {"pods": 1}))
    table.remove("n2")
    assert (table.labels("none-1")[1].any(), dict(table._keys)) == (False, {})


def test_of_labels_that_no_node_has_nothing_is_kept() -> None:
    """Whoever compares them names others each time, and no node need change for weeks."""
    table = NodeTable()
    table.put(node("n1", {"pods": 110}, labels={"size": "4"}))
    for key in ("size", *(f"thought-of-{number}" for number in range(20))):
        larger = SelectorRequirement(key=key, operator="Gt", values=("3",))
        term = SelectorTerm(match_expressions=(larger,), match_fields=())
        assert at_once(fits.term_mask(table, term, EVERY))[table.rows["n1"]] == (key == "size")
    assert list(table.cache) == [("numbers", "size")]
