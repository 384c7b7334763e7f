"""A planner's cycle is planned in slices, changes nothing, and leaves nothing."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from itertools import pairwise

import msgspec
import pytest

import events as ev
from events import envelope
from events.objects import PreferredTerm, SelectorRequirement, SelectorTerm
from events.policy import DEFAULT_POLICY, Profile
from services.planner import attempt, core, limits, placement
from services.planner.rules.queue_orders import QUEUE_ORDERS
from services.state import cohorts, commits, fits, nodes, rank
from services.state.nodes import NodeTable
from services.state.records import Group
from tests.facts import pod, scheduling_class
from tests.world import World, of_type


def columns_made(patch: pytest.MonkeyPatch) -> list[str]:
    """The labels that are coded from here on, each time that one is."""
    made, coded = list[str](), NodeTable.labels

    def labels(table: NodeTable, key: str) -> object:
        if key not in table._labels:
            made.append(key)
        return coded(table, key)

    patch.setattr(NodeTable, "labels", labels)
    return made


def crowded() -> World:
    world = World()
    for i in range(30):
        world.node(f"n{i}", cpu=4)
    for i in range(12):
        world.gang(f"g{i}", 5, 4, cpu=1 + i % 3)
    for i in range(20):
        world.pod(f"p{i}", cpu=1 + i % 5)
    return world


def test_slices_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Core work runs in slices […] with a yield between, inside one cycle and one commit (design, section 5)."""
    world = crowded()
    whole = envelope.encode_events(core.decide_now(world.state, "a"))
    monkeypatch.setattr(core, "SLICE_ROWS", 0)
    sliced: list[core.PlannerEvent] = []

    def cycle() -> Generator[None, None, None]:
        sliced.extend((yield from core.decide(world.state, "a")))

    assert sum(1 for _ in cycle()) > 10
    assert envelope.encode_events(sliced) == whole


class Counted(dict[str, Group]):
    """Groups, and how often one was looked up."""

    looked_up = 0

    def __getitem__(self, key: str) -> Group:
        self.looked_up += 1
        return super().__getitem__(key)


def test_the_groups_that_wait_are_listed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: each cycle began with a slice of 60 to 85 ms where 200,000 pods waited."""
    monkeypatch.setattr(cohorts, "SLICE_LISTED", 2)
    world = crowded()
    whole = cohorts.waiting(world.state)
    world.state.groups = groups = Counted(world.state.groups)
    turns = [groups.looked_up for _ in core.decide(world.state, "a")]
    assert turns[: len(whole) // 2] == list(range(2, len(whole) + 1, 2))


@pytest.mark.parametrize("room", [1, 300])
def test_a_gang_whose_pods_are_of_a_class_each_is_planned_in_slices(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 20,000 such pods kept a planner from its lease for three seconds."""
    monkeypatch.setattr(core, "SLICE_ROWS", 0)
    monkeypatch.setattr(attempt, "SLICE_PARTS", 1)
    world, pods = World(), 20
    world.node("n0", cpu=room)
    for number in range(pods):
        world.pod(f"p{number}", "train", minimum=pods, cpu=1 + number)
    assert len(list(core.decide(world.state, "a"))) >= pods
    assert [type(event) for event in world.plan()] == [ev.GangPlaced if room > pods else ev.GroupsRefused]


def test_a_large_gang_of_one_class_is_placed_and_named_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40,000 pods all steps were one slice, and so was the proposal: 145 ms."""
    monkeypatch.setattr(core, "SLICE_ROWS", 0)
    monkeypatch.setattr(placement, "CHUNK_PODS", 2)
    monkeypatch.setattr(commits, "PODS_SURELY_FIT", 0)
    world, pods, steps = World(), 20, list[int]()
    world.node("n0", cpu=300)
    world.gang("train", pods, pods)
    step = placement.Room._step
    monkeypatch.setattr(placement.Room, "_step", lambda *asked: steps.append(1) or step(*asked))
    named = limits.excess
    monkeypatch.setattr(limits, "excess", lambda *asked: steps.append(1) or named(*asked))
    done = [len(steps) for _ in core.decide(world.state, "a")]
    assert max(after - before for before, after in pairwise([0, *done, len(steps)])) == 1
    assert len(steps) == pods // 2 + 1
    assert [type(event) for event in world.plan()] == [ev.GangPlaced]


def test_the_nodes_are_sorted_and_their_labels_coded_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first cycle over 50,000 nodes began with a slice of 53 to 165 ms."""
    monkeypatch.setattr(rank, "SLICE_NAMES", 1)
    monkeypatch.setattr(nodes, "SLICE_LOOKED", 0)
    world, count, labels = World(), 20, ("zone", "rack", "row")
    for number in range(count):
        world.node(f"n{number}", labels=dict.fromkeys(labels, str(number)))
    world.facts(
        scheduling_class("c", {"cpu_milli": 1}, node_selector=dict.fromkeys(labels, "7")), pod("p", "c", created_ns=1)
    )
    hashed, done, turns = rank._hash, columns_made(monkeypatch), list[int]()
    monkeypatch.setattr(rank, "_hash", lambda name: done.append(name) or hashed(name))
    for _ in core.decide(world.state, "a"):
        turns.append(len(done))
    assert max(after - before for before, after in pairwise([0, *turns, len(done)])) == 1
    assert len(done) == count + len(labels)
    assert len(list(core.decide(world.state, "a"))) < count, "once"


@pytest.mark.parametrize("asked", ["node_selector", "preferred_affinity"])
def test_labels_are_not_coded_for_a_class_of_which_it_is_known_where_it_fits(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where more labels are asked for than are kept, each placement coded those of its class again, for nothing."""
    monkeypatch.setattr(nodes, "LABELS_KEPT", 1)
    world, labels = World(), ("zone", "rack", "row")
    world.node("n0", labels=dict.fromkeys(labels, "7"))
    wish = SelectorTerm(tuple(SelectorRequirement(label, "Exists", ()) for label in labels), ())
    asks = {"node_selector": dict.fromkeys(labels, "7"), "preferred_affinity": (PreferredTerm(1, wish),)}
    world.facts(scheduling_class("c", {"cpu_milli": 1}, **{asked: asks[asked]}))
    made = columns_made(monkeypatch)
    world.pod("p0", of="c")
    assert of_type(world.plan(), ev.GangPlaced)
    assert set(made) == set(labels)
    made.clear()
    world.pod("p1", of="c")
    assert of_type(world.plan(), ev.GangPlaced)
    assert made == []


def many(labels: tuple[str, ...], times: int) -> SelectorTerm:
    """A term that asks for each of these labels, one after the other, so often."""
    return SelectorTerm(tuple(SelectorRequirement(label, "NotIn", ("8",)) for label in labels * times), ())


@pytest.mark.parametrize("asked", ["required_affinity", "preferred_affinity"])
def test_more_labels_than_are_kept_are_looked_at_in_slices_and_coded_once(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were coded in slices, had made room for each other by then, and were coded again in one slice of three
    seconds."""
    monkeypatch.setattr(nodes, "LABELS_KEPT", 1)
    monkeypatch.setattr(nodes, "SLICE_LOOKED", 0)
    world, labels, times = World(), ("zone", "rack", "row"), 5
    world.node("n0", labels=dict.fromkeys(labels, "7"))
    term = many(labels, times)
    asks = {"required_affinity": (term,), "preferred_affinity": (PreferredTerm(1, term),)}
    world.facts(scheduling_class("c", {"cpu_milli": 1}, **{asked: asks[asked]}), pod("p", "c", created_ns=1))
    made, looked, label_mask, turns = columns_made(monkeypatch), list[int](), fits._label_mask, list[int]()
    monkeypatch.setattr(fits, "_label_mask", lambda *given: looked.append(1) or label_mask(*given))
    for _ in core.decide(world.state, "a"):
        turns.append(len(looked))
    assert max(after - before for before, after in pairwise([0, *turns, len(looked)])) == 1
    assert len(looked) == len(labels) * times
    assert sorted(made) == sorted(labels)
    assert of_type(world.plan(), ev.GangPlaced)


def test_a_node_that_changed_is_looked_at_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each constraint of those that wait: 60 pods of 8,000 expressions were one slice of a second."""
    world, waiting = World(), 12
    for number in range(30):
        world.node(f"n{number}", labels={"zone": "a"})
    for number in range(waiting):
        term = SelectorTerm(tuple(SelectorRequirement("zone", "In", (f"{number}-{at}",)) for at in range(40)), ())
        world.facts(scheduling_class(f"c{number}", {"cpu_milli": 1}, required_affinity=(term,)))
        world.pod(f"p{number}", of=f"c{number}")
    world.plan()
    world.pass_s(60)
    world.node("n0", labels={"zone": "b"})
    monkeypatch.setattr(core, "SLICE_ROWS", 1000)
    assert sum(1 for _ in core.decide(world.state, "a")) > waiting


def test_deciding_changes_nothing() -> None:
    """Deciding mutates nothing (design, rule 3)."""
    world = crowded()
    assert world.plan_without_appending() == world.plan_without_appending()


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("order", sorted(QUEUE_ORDERS))
def test_a_cycle_is_gone_with_its_decision(order: str, no_collection: None) -> None:
    """It has a copy of the room of every node, and services look for garbage seldom. Under `kube-batch` the queue may end
    between the two turns of a gang; then a soak found hundreds of cycles that waited for a collection."""
    profile = Profile(name=order, queue_order=order, node_score="binpack")
    world = World(msgspec.structs.replace(DEFAULT_POLICY, profile=profile, cycle_pods=1))
    world.node("n0", cpu=8)
    world.gang("train", 4, 2)
    assert world.plan()
    assert not [one for one in gc.get_objects() if type(one) is core.Cycle]
