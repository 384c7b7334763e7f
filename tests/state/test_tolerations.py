"""What a class tolerates is found by looking it up; here, as Kubernetes says it, by one toleration at a time."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from events.objects import Taint, Toleration
from services.state import fits, nodes
from services.state.integers import OF_TAINTS, read
from services.state.nodes import NodeTable
from services.state.tolerations import Tolerations
from tests.facts import node, scheduling_class

KEYS = st.sampled_from(["", "gpu", "sla", "node.kubernetes.io/unschedulable"])
EFFECTS = st.sampled_from(["", "NoSchedule", "NoExecute", "PreferNoSchedule"])
VALUES = st.sampled_from(["", "a", "-5", "0", "5", "6", "007", "-0", "+6", "1_0", str((1 << 63) - 1), str(1 << 63)])
OPERATORS = st.sampled_from(["", "Equal", "Exists", "Gt", "Lt", "Near"])
SAID = st.lists(st.builds(Toleration, key=KEYS, operator=OPERATORS, value=VALUES, effect=EFFECTS), max_size=8)
TAINTS = st.builds(Taint, key=KEYS, value=VALUES, effect=EFFECTS)


def tolerates(one: Toleration, taint: Taint) -> bool:
    """Kubernetes' ToleratesTaint: empty effect and empty key with Exists match everything."""
    if one.effect not in ("", taint.effect) or one.key not in ("", taint.key):
        return False
    match one.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return bool(one.key) and one.value == taint.value
        case "Gt" | "Lt":
            found, wanted = read(taint.value, OF_TAINTS), read(one.value, OF_TAINTS)
            if found is None or wanted is None:
                return False
            return found > wanted if one.operator == "Gt" else found < wanted
    return False


def below(number: int) -> Toleration:
    return Toleration(key="sla", operator="Lt", value=str(number), effect="")


@given(SAID, TAINTS)
@settings(max_examples=2000)
@example([below(6), below(5)], Taint(key="sla", value="5", effect="NoSchedule"))
@example([below(5), below(6)], Taint(key="sla", value="5", effect="NoSchedule"))
@example([Toleration(key="", operator="Gt", value="5", effect="")], Taint(key="sla", value="6", effect="NoSchedule"))
def test_a_taint_is_covered_if_one_of_them_tolerates_it(said: list[Toleration], taint: Taint) -> None:
    assert Tolerations(said).cover(taint) is any(tolerates(one, taint) for one in said)


@given(SAID, st.lists(TAINTS, max_size=5))
def test_the_first_that_keeps_the_pod_off_is_the_one(said: list[Toleration], taints: list[Taint]) -> None:
    off = (t for t in taints if t.effect != "PreferNoSchedule" and not any(tolerates(one, t) for one in said))
    assert Tolerations(said).untolerated(taints) == next(off, None)


class Compared(str):
    """A value, and how often one was compared with another."""

    times = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)


def test_a_taint_is_not_compared_with_each_toleration() -> None:
    """Nodes with 5,000 taints and a pod with 6,000 tolerations of one key were one slice of nine seconds."""
    said = [Toleration(key="gpu", operator="Equal", value=Compared(number), effect="") for number in range(300)]
    known = Tolerations(said)
    Compared.times = 0
    for number in range(300, 600):
        assert not known.cover(Taint(key="gpu", value=Compared(number), effect="NoSchedule"))
    assert Compared.times < 300


def test_taints_are_judged_in_slices_and_count_as_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 classes, where each of 5,000 nodes has a taint of its own, were one slice of 640 ms: half of that to say why."""
    table, count = NodeTable(), 40
    for number in range(count):
        table.put(node(f"n{number}", {"pods": 8}, taints=(Taint(key="of", value=str(number), effect="NoSchedule"),)))
    table.add_class(scheduling_class("c", {"pods": 1}))
    info, sets = table.classes["c"], count + 1
    monkeypatch.setattr(fits, "JUDGED", 10)
    monkeypatch.setattr(nodes, "SLICE_LOOKED", 0)
    assert sum(1 for _ in fits.filtered_in_slices(table, info)) == 5
    assert table.rows_looked_at == sets * nodes.FACT_ROWS
    assert fits.why_not(table, table.allocatable, info, None)
    assert table.rows_looked_at == 2 * sets * nodes.FACT_ROWS
    table.put(node("n0", {"pods": 8}))
    fits.filtered(table, info)
    assert table.rows_looked_at == (2 * sets + 1) * nodes.FACT_ROWS
