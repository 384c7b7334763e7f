"""Planted bugs: every one still fits the code that it is planted in, and those that show early are found.

`python -m tests.simulation plants` plants them all; how many seeds each took stands in docs/reliability.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.plants import PLANTS
from tests.simulation.runner import run_many

ROOT = Path(__file__).resolve().parents[2]
EARLY = (
    "permit before capacity",
    "lost release",
    "clock read",
    "retry without look-up",
    "intent given up in doubt",
    "outcome without effect",
    "binding without preconditions",
    "synced too early",
    "ports not planned",
    "label forgotten",
    "node's change missed",
    "preferred is required",
    "first page",
    "unreadable node kept",
)
"""Found within a few seeds, whatever else changes: one for each kind of invariant."""
PASSED_OVER = {
    "intent given up in doubt": 1,
    "outcome without effect": 1,
    "binding without preconditions": 6,
    "ports not planned": 1,
    "preferred is required": 1,
    "first page": 1,
}
"""Seeds that find nothing."""
WITHIN = 24


@pytest.mark.parametrize("name", PLANTS)
def test_every_planted_bug_still_fits_the_code(name: str) -> None:
    for module in PLANTS[name].modules:
        path = ROOT / module.replace(".", "/")
        source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
        for old, new in PLANTS[name].changes_of(module):
            assert source.count(old) == 1, f"{module} has moved on: {old!r}"
            source = source.replace(old, new)
        compile(source, module, "exec")


def test_there_are_at_least_twenty() -> None:
    assert len(PLANTS) >= 20


@pytest.mark.parametrize("name", EARLY)
def test_the_simulator_finds_it(name: str) -> None:
    """By one process: a second has to import everything, too, and goes on where the first has found it."""
    first = PLANTS[name].first + PASSED_OVER.get(name, 0)
    tally = run_many(first, WITHIN, extra=("--plant", name), until_failure=True, workers=1)
    assert tally.failed, f"{name}: not within {WITHIN} seeds"
    violation = tally.failed[min(tally.failed)].violation
    assert violation.startswith("Violation: "), f"it only crashes: {violation}"
