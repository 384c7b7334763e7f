"""The table of nodes against one that has each resource for each node: resources that no node offers, or that begin or
cease to be offered, while pods that ask for them wait, are planned, or were put on nodes by others."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from services.binder.bench import Bench
from services.planner.placement import Room
from services.state import fits, snapshot
from services.state.fold import State
from services.state.nodes import NodeTable
from services.state.records import PROPOSED
from services.state.resources import BASE_RESOURCES, NOWHERE, Resources
from tests import facts
from tests.facts import scheduling_class
from tests.state import naive
from tests.world import World

NAMES = ["example.com/a", "example.com/b", "example.com/c"]
OFFERS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), max_size=2)
ASKS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2), max_size=3)
NODES = st.sampled_from(["n0", "n1"])
CLASSES = st.sampled_from(["c0", "c1", "c2"])
PODS = st.integers(0, 5)


class Everything:
    """Each resource of each node, as dictionaries. Claims on a node that is gone are counted again when it is back."""

    def __init__(self) -> None:
        self.table = NodeTable()
        self.nodes: dict[str, dict[str, int]] = {}
        self.classes: dict[str, dict[str, int]] = {}
        self.claims: list[tuple[str, str, bool]] = []
        """Node, class, and whether it is proposed alone."""
        self.names: list[str | None] = list(BASE_RESOURCES)

    def step(self, step: tuple) -> None:
        match step:
            case "node", name, offers:
                known = name in self.nodes
                offered = self.nodes[name] = {"cpu_milli": 8, **offers}
                self.table.put(facts.node(name, offered))
                if not known:
                    self._count([claim for claim in self.claims if claim[0] == name], 1)
                self._mention(offered)
            case "gone", name, _ if name in self.nodes:
                del self.nodes[name]
                self.table.remove(name)
            case "class", digest, asks if digest not in self.classes:
                asked = self.classes[digest] = {"cpu_milli": 1, **asks}
                self.table.add_class(scheduling_class(digest, asked))
                self._mention(asked)
            case "dropped", digest, _ if digest in self.classes:
                self._count([claim for claim in self.claims if claim[1] == digest], -1)
                self.claims = [claim for claim in self.claims if claim[1] != digest]
                del self.classes[digest]
                self.table.drop_class(digest)
            case "claimed", name, (digest, proposed) if digest in self.classes:
                self._count([(name, digest, proposed)], 1)
                self.claims.append((name, digest, proposed))
            case "accepted", _, number if self.claims[number:] and self.claims[number][2]:
                name, digest, _ = self.claims[number]
                self.claims[number] = name, digest, False
                if name in self.nodes:
                    self.table.accept(self.table.rows[name], self.table.classes[digest])
            case "released", _, number if self.claims[number:]:
                self._count([self.claims.pop(number)], -1)
            case "looked", _, _:
                self.check()
        self._mention({})

    def _count(self, claims: list[tuple[str, str, bool]], sign: int) -> None:
        for name, digest, proposed in claims:
            if name in self.nodes:
                self.table.claim(self.table.rows[name], self.table.classes[digest], sign, proposed)

    def _mention(self, amounts: dict[str, int]) -> None:
        """New resources get the first places that are free, and what nobody mentions any more loses its own."""
        for name in (name for name, amount in amounts.items() if amount and name not in self.names):
            if None in self.names:
                self.names[self.names.index(None)] = name
            else:
                self.names.append(name)
        mentioned = [*self.nodes.values(), *self.classes.values()]
        left = {name for each in mentioned for name, amount in each.items() if amount} | set(BASE_RESOURCES)
        self.names = [name if name in left else None for name in self.names]

    def taken(self, node: str, proposed: bool) -> Counter[str]:
        found: Counter[str] = Counter()
        for name, digest, is_proposed in self.claims:
            if (name, is_proposed) == (node, proposed):
                found.update(self.classes[digest])
        return found

    def check(self) -> None:
        table = self.table
        assert table.resources.names == self.names
        assert table.rows.keys() == self.nodes.keys()
        free = table.allocatable - table.held - table.proposed
        left: dict[str, Counter[str]] = {}
        for name, offered in self.nodes.items():
            row, held, proposed = table.rows[name], self.taken(name, False), self.taken(name, True)
            left[name] = Counter(offered)
            left[name].subtract(held + proposed)
            for resource, column in table.resources.columns.items():
                there = table.allocatable[row, column], table.held[row, column], table.proposed[row, column]
                assert there == (offered.get(resource, 0), held[resource], proposed[resource])
            wanting = [claim for claim in self.claims if claim[0] == name and table.classes[claim[1]].unoffered]
            assert free[row, NOWHERE] == -len(wanting)
            over = [one for one in self.names if one is not None and held[one] > offered.get(one, 0)]
            assert list(table.overdrawn(row).items()) == [(one, (held[one], offered.get(one, 0))) for one in over]
            assert bool(over) == bool((table.held[row] > table.allocatable[row]).any())
        for digest, said in self.classes.items():
            info = table.classes[digest]
            asked = {resource: amount for resource, amount in said.items() if amount}
            pods = {
                name: max(0, min(of_node[resource] // amount for resource, amount in asked.items()))
                for name, of_node in left.items()
            }
            capacity, roomy = fits.capacity(free, info), fits.has_room(free, info)
            assert {name: int(capacity[row]) for name, row in table.rows.items()} == pods
            assert {name: bool(roomy[row]) for name, row in table.rows.items()} == {n: k > 0 for n, k in pods.items()}
            assert pods == {
                name: next(k for k in range(10) if not fits.take(free[row].tolist(), info, k + 1))
                for name, row in table.rows.items()
            }
            lacking = [one for of_node in left.values() for one, amount in asked.items() if of_node[one] < amount]
            why = {naive.WORDS.get(one, f"Insufficient {one}"): nodes for one, nodes in Counter(lacking).items()}
            assert list(fits.why_not(table, free, info, None).items()) == sorted(why.items())
            most = {one: max((offered.get(one, 0) for offered in self.nodes.values()), default=0) for one in asked}
            size = max((amount << 20) // max(most[one], 1) for one, amount in asked.items())
            assert fits.sizes(table, [info]) == [(size, digest)]


TABLE_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), NODES, OFFERS),
        st.tuples(st.just("gone"), NODES, st.none()),
        st.tuples(st.just("class"), CLASSES, ASKS),
        st.tuples(st.just("dropped"), CLASSES, st.none()),
        st.tuples(st.just("claimed"), NODES, st.tuples(CLASSES, st.booleans())),
        st.tuples(st.just("claimed"), NODES, st.tuples(CLASSES, st.booleans())),
        st.tuples(st.just("accepted"), st.none(), PODS),
        st.tuples(st.just("released"), st.none(), PODS),
        st.tuples(st.just("looked"), st.none(), st.none()),
    ),
    min_size=12,
    max_size=40,
)
BEGIN = [("node", "n0", {}), ("class", "c0", {"example.com/a": 1, "example.com/b": 2})]


@given(TABLE_STEPS)
@settings(deadline=None, max_examples=600)
def test_a_table_without_columns_for_what_nobody_has_says_what_one_with_all_of_them_says(steps: list[tuple]) -> None:
    everything = Everything()
    for step in BEGIN + steps:
        everything.step(step)
    everything.check()


# ----------------------------------------------------------------------------------------------------------- in a log

LOG_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), NODES, OFFERS),
        st.tuples(st.just("gone"), NODES, st.none()),
        st.tuples(st.just("pod"), PODS, st.tuples(CLASSES, st.one_of(st.just(""), NODES))),
        st.tuples(st.just("proposed"), PODS, NODES),
        st.tuples(st.just("deleted"), PODS, st.none()),
        st.tuples(st.sampled_from(["planned", "judged"]), st.none(), st.none()),
    ),
    min_size=12,
    max_size=30,
)


def apply(world: World, step: tuple, asks: list[dict[str, int]]) -> None:
    match step:
        case "node", name, offers:
            world.facts(facts.node(name, {"cpu_milli": 8_000, "pods": 4, **offers}, version=world.version()))
        case "gone", name, _:
            world.facts(ev.NodeDeleted(name=name, uid=name))
        case "pod", number, (digest, node):
            there = world.state.pods.get(f"p{number}")
            node = there.node if there is not None and there.node else node
            of = scheduling_class(digest, {"cpu_milli": 1_000, "pods": 1, **asks[int(digest[1:])]})
            pod = facts.pod(f"p{number}", digest, version=world.version(), node=node, candidate=not node)
            world.facts(of, pod)
        case "proposed", number, node:
            waiting = sorted(world.state.ready)
            for group in waiting[number : number + 1]:
                world.propose(group, {group.removeprefix("pod/default/"): node})
        case "deleted", number, _:
            world.deleted(f"p{number}")
        case "planned", _, _:
            world.plan()
        case "judged", _, _:
            world.judge()


def said_of(state: State) -> dict[str, Any]:
    """What follows from the table for each class, and for each claim."""
    table, room, bench = state.table, Room(state.table, "least-allocated"), Bench(state)
    left = table.allocatable - table.held - table.proposed
    return {
        "why not": {digest: fits.why_not(table, left, info, None) for digest, info in table.classes.items()},
        "holds too much": {
            claim.uid: (
                room.overdrawn(info := table.classes[claim.scheduling_class], table.rows[claim.node]),
                claim.stage != PROPOSED and bench.crowded(claim.node, info),
            )
            for claim in state.claims.values()
            if claim.node in table.rows
        },
    }


def naively(state: State) -> dict[str, Any]:
    nodes = {name: node.fact for name, node in state.nodes.items() if node.fact is not None}
    left = {name: naive.free(state, node) for name, node in nodes.items()}
    held = {name: naive.free(state, node, proposed=False) for name, node in nodes.items()}

    def why_not(of: ev.SchedulingClassObserved) -> dict[str, int]:
        return dict(sorted(Counter(why for node in nodes.values() for why in naive.reasons(state, node, of)).items()))

    def below(there: dict[str, int], digest: str) -> bool:
        return any(there.get(name, 0) < 0 for name, amount in state.classes[digest].fact.requests.items() if amount)

    return {
        "why not": {digest: why_not(of_class.fact) for digest, of_class in state.classes.items()},
        "holds too much": {
            claim.uid: (
                below(left[claim.node], claim.scheduling_class),
                claim.stage != PROPOSED and below(held[claim.node], claim.scheduling_class),
            )
            for claim in state.claims.values()
            if claim.node in nodes
        },
    }


@given(st.lists(ASKS, min_size=3, max_size=3), LOG_STEPS)
@settings(deadline=None, max_examples=150)
def test_what_a_class_finds_does_not_depend_on_where_the_fold_began(asks: list[dict], steps: list[tuple]) -> None:
    world = World()
    for step in steps:
        apply(world, step, asks)
        data = snapshot.encode(world.state)
        again = snapshot.decode(data)
        assert snapshot.encode(again) == data
        assert said_of(world.state) == said_of(again) == naively(world.state)


def test_what_pods_invent_is_no_column_of_the_nodes() -> None:
    """300 pods that ask for 62 resources of their own each were 872 MB of a table of 1,000 nodes."""
    table = NodeTable()
    for number in range(1_000):
        table.put(facts.node(f"n{number}", {"cpu_milli": 32_000, "pods": 110}))
    for number in range(300):
        table.add_class(scheduling_class(f"c{number}", {"cpu_milli": 1, **{f"e/{number}-{at}": 1 for at in range(62)}}))
        table.claim(number, table.classes[f"c{number}"], 1, False)
    assert len(table.resources.names) == 4 + 300 * 62
    assert table.allocatable.shape[1] == table.held.shape[1] == table.requests.shape[1] == 5
    table.put(facts.node("n0", {"cpu_milli": 32_000, "pods": 110, "e/7-7": 1}))
    assert table.allocatable.shape[1] == 6
    assert table.held[:, table.resources.columns["e/7-7"]].nonzero()[0].tolist() == [7]


def test_what_a_snapshot_records_of_them_begins_with_what_each_node_has() -> None:
    with pytest.raises(LookupError, match="cpu"):
        Resources(["cpu", "memory_bytes"])
