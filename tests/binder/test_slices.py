"""A decision of the binder is judged in slices."""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise

import pytest

import events as ev
from events.objects import PreferredTerm, SelectorRequirement, SelectorTerm
from services.binder import bench, judge, pace, quorum, standing
from services.binder import core as binder
from services.state import commits
from tests.facts import scheduling_class
from tests.world import World, of_type


def test_slices_do_not_change_the_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict may need a look at all nodes: a binder that judges thousands of pods in one go loses its lease."""
    monkeypatch.setattr(commits, "SLICE_UNITS", 2)
    world = World()
    for number in range(10):
        world.node(f"n{number}", cpu=1)
        world.pod(f"p{number}")
        world.propose(f"pod/default/p{number}", {f"p{number}": f"n{number // 2}"})
    sliced: list[ev.Event] = []

    def decision() -> Generator[None, None, None]:
        sliced.extend((yield from binder.decide(world.state)))

    assert sum(1 for _ in decision()) >= 5
    assert len(of_type(sliced, ev.GangPermitted)) == len(of_type(sliced, ev.ProposalRefused)) == 5
    assert sliced == binder.decide_now(world.state)


def test_a_gang_whose_pods_are_of_a_class_each_is_judged_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 20,000 such pods kept a binder of 5,000 nodes from its lease."""
    monkeypatch.setattr(pace, "SLICE_CLASSES", 1)
    world, pods = World(), 20
    world.node("n0", cpu=300)
    for number in range(pods):
        world.pod(f"p{number}", "train", minimum=pods, cpu=1 + number)
    world.plan()
    assert sum(1 for _ in binder.decide(world.state)) >= pods
    assert [type(event) for event in world.judge()] == [ev.GangPermitted]


def test_a_large_gang_of_one_class_is_judged_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40,000 pods it was one slice of 157 ms."""
    monkeypatch.setattr(pace, "SLICE_PODS", 1)
    monkeypatch.setattr(pace, "MANY", 1)
    world, pods, looked = World(), 20, list[str]()
    for number in range(pods):
        world.node(f"n{number}", cpu=1)
    world.gang("train", pods, pods)
    world.plan()
    faults, room = standing.Standing._pod_fault, bench.Bench._room
    monkeypatch.setattr(standing.Standing, "_pod_fault", lambda *asked: looked.append("pod") or faults(*asked))
    monkeypatch.setattr(bench.Bench, "_room", lambda *asked: looked.append("room") or room(*asked))
    done = [len(looked) for _ in binder.decide(world.state)]
    slices = [looked[before:after] for before, after in pairwise([0, *done, len(looked)]) if before < after]
    assert slices == [["pod"]] * pods + [["room"] * pods], "the room is taken in one piece: of 40,000 pods in 20 ms"
    assert [type(event) for event in world.judge()] == [ev.GangPermitted]


def test_a_slice_is_over_by_counts_and_the_next_begins_at_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SLICE_CLASSES", 3)
    monkeypatch.setattr(pace, "SLICE_PODS", 3)
    looked = pace.Pace()
    assert [looked.over_before_class() for _ in range(7)] == [False, False, True] * 2 + [False]
    assert [looked.over_before_pods(pods) for pods in (1, 1, 1, 2, 2, 1, 9)] == [
        False,
        False,
        True,
        False,
        True,
        False,
        True,
    ]


def test_labels_that_pods_would_like_are_not_coded_by_the_binder() -> None:
    """It judges what must be; each was a column of all nodes, kept up from then on."""
    world = World()
    world.node("n0", labels={"zone": "a", "rack": "b"})
    wish = SelectorTerm((SelectorRequirement("zone", "Exists", ()),), ())
    likes = (PreferredTerm(1, wish),)
    world.facts(scheduling_class("c", {"cpu_milli": 1}, node_selector={"rack": "b"}, preferred_affinity=likes))
    world.pod("p", of="c")
    world.propose("pod/default/p", {"p": "n0"})
    assert of_type(binder.decide_now(world.state), ev.GangPermitted)
    assert list(world.state.table._labels) == ["rack"]


def test_a_large_gang_on_few_nodes_is_judged_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: of 40,000 pods on 400 nodes all but the first look was one slice, as only assignments were counted."""
    pods, steps = 20, list[str]()
    monkeypatch.setattr(pace, "MANY", pods)
    world = World()
    world.node("n0", cpu=pods)
    world.gang("train", pods, pods)
    (proposal,) = of_type(world.plan(), ev.GangPlaced)
    assert len(proposal.required) < pods
    reached, bindings = quorum.reached, judge.Judge._bindings
    monkeypatch.setattr(quorum, "reached", lambda *asked: steps.append("quorum") or reached(*asked))
    monkeypatch.setattr(judge.Judge, "_bindings", lambda *asked: steps.append("bindings") or bindings(*asked))
    done = [len(steps) for _ in binder.decide(world.state)]
    slices = [steps[before:after] for before, after in pairwise([0, *done, len(steps)]) if before < after]
    assert slices == [["quorum"], ["bindings"]]
    assert [type(event) for event in world.judge()] == [ev.GangPermitted]
