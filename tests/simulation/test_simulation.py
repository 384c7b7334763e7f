"""Seeds of the simulator of faults: whatever goes wrong, what must hold does (design, section 7).

A share of the seeds, in blocks for pytest's processes; `make faults` runs as many as one likes.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import shorten
from tests.simulation.world import EVENTS, FAULTS, SHARDS, Outcome, Plan, plan, run

ROOT = Path(__file__).resolve().parents[2]
BLOCKS, BLOCK = 20, 15


@pytest.mark.parametrize("block", range(BLOCKS))
def test_whatever_goes_wrong_what_must_hold_does(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        outcome = run(plan(seed))
        assert not outcome.violation, f"make faults SEEDS=1 FROM={seed}: {outcome.violation}"
        assert outcome.events >= EVENTS
        assert sum(outcome.faults.values()) >= FAULTS
    assert len(SHARDS) >= 2
    gc.collect()


def test_one_seed_is_one_history_whatever_the_hashes_of_strings() -> None:
    digests = {
        subprocess.run(
            [
                sys.executable,
                "-c",
                "from tests.simulation.world import *\nfor s in (3, 16, 71): print(run(plan(s)).digest)",
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    }
    assert len(digests) == 1
    assert len(digests.pop().split()) == 3


def test_a_history_without_faults_is_shortened_to_nothing_more_than_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A violation that two of many steps cause together is shortened to these two."""
    chosen = plan(0)
    culprits = [("step", 3), ("step", 17)]

    class World:
        def __init__(self, given: Plan) -> None:
            self.plan = given

        def run(self) -> Outcome:
            both = all(chosen.steps[index] in self.plan.steps for _, index in culprits)
            return Outcome(0, violation="Violation: something (7.1)" if both else "")

    monkeypatch.setattr(shorten, "World", World)
    items, _ = shorten.shorten(chosen, "Violation: something else (7.1)", 1_000.0)
    assert items == culprits
    assert shorten.command(0, items).endswith("replay 0 --steps 3,17 --faults none")
