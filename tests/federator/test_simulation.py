"""Seeded histories: nothing is violated, and whatever rule is broken on purpose, they find it."""

from collections import Counter

import pytest

from tests.federator import plants, simulation

HISTORIES = 2_000
PART = 250
WITHIN = 5_000
"""Histories after which a planted bug counts as not found."""
FIRST = {"R9 a silent holder is placed": 2_900}
"""The first history that is tried, where thousands before it find nothing."""
FAULTS = {
    "429",
    "append of a replaced process",
    "cancelled by its user",
    "clock skew",
    "crash",
    "decommissioned",
    "deleted by hand",
    "foreign job of the same name",
    "forgotten",
    "given up",
    "late submission",
    "lost answer",
    "lost request",
    "partition",
    "paused and replaced",
    "paused, and goes on",
    "refuses for good",
    "started from a snapshot",
    "stop refused",
    "submitted again",
    "submission refused",
}


@pytest.mark.parametrize("first", range(0, HISTORIES, PART))
def test_nothing_is_violated(first: int) -> None:
    faults: Counter[str] = Counter()
    for seed in range(first, first + PART):
        violation, count = simulation.run(seed)
        assert not violation, f"seed {seed}"
        faults += count
    assert set(faults) == FAULTS


def test_one_seed_is_one_history() -> None:
    for seed in range(5):
        one, other = simulation.World(seed), simulation.World(seed)
        one.run()
        other.run()
        assert one.log == other.log


@pytest.mark.parametrize("name", plants.PLANTS)
def test_a_rule_that_is_broken_on_purpose_is_found(name: str) -> None:
    with plants.planted(name):
        _, seeds, violation = plants.found(name, WITHIN, FIRST.get(name, 0))
    assert seeds, violation


def test_every_rule_has_its_plants() -> None:
    assert {name.split()[0] for name in plants.PLANTS} == {f"R{number}" for number in range(1, 23)}
