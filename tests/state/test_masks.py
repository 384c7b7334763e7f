"""What is kept of all nodes for each constraint is what a new look finds, whatever nodes came, changed and went."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import events as ev
from events.objects import PreferredTerm, SelectorRequirement, SelectorTerm, Taint, Toleration
from services.planner.placement import Room
from services.state import fits, masks, nodes
from services.state.class_info import ClassInfo
from services.state.nodes import NodeTable
from services.state.slices import at_once
from tests.facts import node, scheduling_class
from tests.state.test_fits import CLASSES, NODES, TERMS

WISHES = st.lists(st.builds(PreferredTerm, weight=st.integers(1, 100), term=TERMS), max_size=2).map(tuple)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.integers(0, 5), NODES),
        st.tuples(st.just("gone"), st.integers(0, 5), st.none()),
        st.tuples(st.just("asked"), st.integers(0, 3), st.sampled_from(["filtered", "preference", "both", "sliced"])),
    ),
    max_size=25,
)
FORGETFUL = (
    (nodes, "SPARE", 0),
    (nodes, "LABELS_KEPT", 1),
    (nodes, "SLICE_LOOKED", 0),
    (fits, "JUDGED", 1),
    (masks, "MASKED_BYTES", 3 * 64),
    (masks, "RECENT", 0),
)
AVOIDED = Taint(key="disk", value="slow", effect="PreferNoSchedule")


def known(table: NodeTable, info: ClassInfo) -> dict[str, Any]:
    """What the table says for the class, by the nodes' names."""
    preference = Room(table, "least-allocated")._preference(info)
    filtered, feasible = fits.filtered(table, info), fits.feasible(table, info)
    assert (filtered[~table.present] == fits.EMPTY).all()
    return {
        "filtered": {name: int(filtered[row]) for name, row in table.rows.items()},
        "admitted": {name: fits.admits(table, info, row) for name, row in table.rows.items()},
        "feasible": {name: bool(feasible[row]) for name, row in table.rows.items()},
        "preference": preference if preference is None else {n: int(preference[r]) for n, r in table.rows.items()},
        "why not": fits.why_not(table, table.allocatable, info, None),
    }


def afresh(table: NodeTable) -> NodeTable:
    """The same nodes and classes, of which nothing is known yet."""
    fresh = NodeTable()
    for fact in table.facts:
        if fact is not None:
            fresh.put(fact)
    for info in table.classes.values():
        fresh.add_class(info.fact)
    return fresh


@given(st.lists(st.tuples(CLASSES, WISHES), min_size=1, max_size=4), STEPS, st.booleans(), st.booleans())
@settings(deadline=None, max_examples=300)
def test_what_is_kept_is_what_a_new_look_finds(
    classes: list[tuple[dict[str, Any], tuple[PreferredTerm, ...]]], steps: list[Any], row_by_row: bool, forgetful: bool
) -> None:
    table = NodeTable()
    for number, (asked, wishes) in enumerate(classes):
        table.add_class(scheduling_class(str(number), **asked, preferred_affinity=wishes))
    with pytest.MonkeyPatch.context() as patch:
        if not row_by_row:
            patch.setattr(nodes, "PATCHED", (0, 1 << 30))
        for where, name, few in FORGETFUL if forgetful else ():
            patch.setattr(where, name, few)
        for what, number, detail in steps:
            name = f"n{number}"
            if what == "node":
                table.put(node(name, **detail))
            elif what == "gone" and name in table.rows:
                table.remove(name)
            elif what == "asked":
                info = table.classes[str(number % len(classes))]
                if detail == "sliced":
                    at_once(fits.filtered_in_slices(table, info))
                    at_once(Room(table, "binpack").preference_in_slices(info))
                    assert table.filtered.known(table, info)
                    continue
                if detail != "preference":
                    fits.filtered(table, info)
                if detail != "filtered":
                    Room(table, "binpack")._preference(info)
        fresh = afresh(table)
        for digest, info in table.classes.items():
            assert known(table, info) == known(fresh, fresh.classes[digest])


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
@pytest.mark.parametrize("before", ["4", "6", "x", None])
@pytest.mark.parametrize("after", ["4", "6", "x", None])
def test_a_node_of_another_label_is_looked_at_as_all_are(operator: str, before: str | None, after: str | None) -> None:
    """Alone, where the others are known."""
    values = () if operator in ("Exists", "DoesNotExist") else ("4",) if operator in ("In", "NotIn") else ("5",)
    term = SelectorTerm((SelectorRequirement(key="size", operator=operator, values=values),), ())
    table = NodeTable()
    table.add_class(scheduling_class("0", {"cpu_milli": 1, "pods": 1}, required_affinity=(term,)))
    for label in (before, after):
        table.put(node("n", {"cpu_milli": 8, "pods": 8}, labels={} if label is None else {"size": label}))
        fresh = afresh(table)
        assert known(table, table.classes["0"]) == known(fresh, fresh.classes["0"])


def own(number: int) -> ev.SchedulingClassObserved:
    """A class with a constraint of its own: it goes to one host, and would rather go to those with a disk."""
    host = SelectorRequirement(key="host", operator="In", values=(f"n{number}",))
    disk = SelectorRequirement(key="disk", operator="Exists", values=())
    return scheduling_class(
        f"c{number}",
        {"cpu_milli": 1, "pods": 1},
        required_affinity=(SelectorTerm((host,), ()),),
        preferred_affinity=(PreferredTerm(weight=1, term=SelectorTerm((disk,), ())),),
        tolerations=(Toleration(key="t", operator="Equal", value=str(number), effect=""),),
    )


def table_of(hosts: int, classes: int) -> NodeTable:
    table = NodeTable()
    for number in range(hosts):
        table.put(node(f"n{number}", {"cpu_milli": 8, "pods": 8}, labels={"host": f"n{number}"}))
    for number in range(classes):
        table.add_class(own(number))
    return table


def test_a_node_that_changed_is_looked_at_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(200, 3)
    looked: list[Any] = []
    evaluate = fits._filtered
    monkeypatch.setattr(fits, "_filtered", lambda *asked: (looked.append(asked[2]), evaluate(*asked))[1])
    for info in table.classes.values():
        fits.filtered(table, info)
    assert looked == [masks.EVERY] * 3
    looked.clear()
    for number in (7, 9):
        table.put(node(f"n{number}", {"cpu_milli": 8, "pods": 8}))
        fits.filtered(table, table.classes["c0"])
    for info in table.classes.values():
        fits.filtered(table, info)
    assert [rows.tolist() for rows in looked] == [[7], [9], [7, 9], [7, 9]]
    assert not fits.feasible(table, table.classes["c0"])[7]


@pytest.mark.parametrize(("changed", "together"), [(16, False), (17, True)])
def test_many_that_changed_are_looked_at_together(changed: int, together: bool) -> None:
    table = table_of(200, 1)
    version = table.version
    for number in range(changed):
        table.put(node(f"n{number}", {"cpu_milli": 8, "pods": 8}))
    assert (table.changed_since(version) is masks.EVERY) == together


def test_more_rows_are_looked_at_when_there_are_more() -> None:
    table = table_of(64, 65)
    for info in table.classes.values():
        fits.filtered(table, info)
    table.put(node("n64", {"cpu_milli": 8, "pods": 8}, labels={"host": "n64"}))
    for number, info in enumerate(table.classes.values()):
        assert np.flatnonzero(fits.feasible(table, info)).tolist() == [number]


def missed(table: NodeTable, classes: range) -> int:
    """How many masks are computed when each of these classes is asked for in turn."""
    before = table.filtered._missed
    for number in classes:
        fits.filtered(table, table.classes[f"c{number}"])
    return table.filtered._missed - before


def test_a_queue_with_more_constraints_than_masks_finds_most_of_those_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masks, "MASKED_BYTES", 60 * 64)
    table = table_of(8, 100)
    assert missed(table, range(100)) == 100
    misses = [missed(table, range(100)) for _ in range(20)]
    assert max(misses) <= 100 - 60 + masks.RECENT + 1
    assert sum(misses) < 20 * 50
    assert len(table.filtered) == 60


def test_classes_that_take_turns_keep_their_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "MASKED_BYTES", 60 * 64)
    table = table_of(8, 100)
    missed(table, range(90))
    assert [missed(table, range(90, 94)) for _ in range(3)] == [4, 0, 0]


def test_masks_that_nobody_asks_for_any_more_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "MASKED_BYTES", 60 * 64)
    table = table_of(8, 100)
    missed(table, range(60))
    for _ in range(10):
        missed(table, range(60, 100))
    assert missed(table, range(60, 100)) == 0


def test_a_node_to_avoid_counts_from_when_it_is_one() -> None:
    """Before, there was nothing to prefer."""
    table = table_of(3, 0)
    table.add_class(scheduling_class("x", {"pods": 1}))
    info = table.classes["x"]
    assert Room(table, "binpack")._preference(info) is None
    table.put(node("n1", {"cpu_milli": 8, "pods": 8}, taints=(AVOIDED,)))
    preference = Room(table, "binpack")._preference(info)
    assert preference is not None
    assert preference[:3].tolist() == [0, -1024, 0]
    table.put(node("n1", {"cpu_milli": 8, "pods": 8}))
    assert Room(table, "binpack")._preference(info) is None
