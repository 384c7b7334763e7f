"""Starvation: who is on the nodes, against a count claim by claim."""

from __future__ import annotations

import numpy as np
import pytest

from services.planner.rules.starvation.occupants import occupants
from services.state import fits, queueing
from services.state.fold import State
from services.state.nodes import Ints
from services.state.records import NOMINATED, TERMINATING, Claim, Group
from services.state.slices import at_once
from tests.walk.walk import Walk


def when(state: State, group: Group, claim: Claim) -> str:
    """When the claim's room is the group's to have."""
    pod = state.pods.get(claim.uid)
    if claim.stage == NOMINATED or pod is None:
        return "stays"
    if pod.status == TERMINATING:
        return "leaves"
    named = fits.nodes_named(state.table.classes[claim.scheduling_class]) is not None
    if not pod.fact.candidate or named or pod.group == group.key:
        return "stays"
    other = state.groups.get(pod.group)
    priority = pod.fact.priority if other is None else queueing.priority(state, other)
    return "lower" if priority <= queueing.priority(state, group) else "higher"


def check(state: State) -> None:
    table, there = state.table, at_once(occupants(state))
    ports = {info.number: info for info in table.classes.values() if info.ports}
    for group in state.groups.values():
        sums: dict[str, Ints] = {
            key: np.zeros_like(table.allocatable) for key in ("leaves", "lower", "higher", "stays")
        }
        opened = []
        for claim in state.claims.values():
            row, info = table.rows.get(claim.node), table.classes[claim.scheduling_class]
            if row is not None:
                found = when(state, group, claim)
                sums[found][row] += table.requests[info.number]
                if found == "stays" and info.ports:
                    opened.append((row, info.number))
        found_sums = at_once(there.sums(group, queueing.priority(state, group)))
        for found_of, which in zip(found_sums, ("leaves", "lower", "higher"), strict=True):
            assert (found_of == sums[which]).all()
        assert [(row, info.number) for row, info in there.opened(group, ports)] == opened


@pytest.mark.parametrize("seed", range(8))
def test_columns_say_what_claims_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:  # as with some ten thousand claims
        monkeypatch.setattr("services.planner.rules.starvation.occupants.SLICE_CLAIMS", 2)
    walk = Walk(seed)
    for _ in range(6):
        walk.walk(40)
        check(walk.state)
