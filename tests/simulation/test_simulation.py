"""Seeds of the simulator of faults: whatever goes wrong, what must hold does (design, section 7).

A thousand, with all kinds of users, in blocks that pytest's processes share evenly; `make faults` runs more.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from services.simulator.traces import MODES
from tests.simulation import dlrm, set_back, shorten, versions
from tests.simulation import plan as planning
from tests.simulation.faults import (
    APART,
    BEYOND,
    DRAWS,
    FED,
    FURTHER,
    LATEST,
    LEASED,
    NEWEST,
    PARTED,
    SET_BACK,
    UPGRADED,
    WIDER,
    Draw,
)
from tests.simulation.plan import DENSE_OF, EVENTS, FAULTS, IN_TROUBLE, LOSSY_OF, PHASES_OF, Outcome, Plan, plan
from tests.simulation.planting import (
    AGAIN_FROM,
    BEYOND_FROM,
    DENSE,
    DENSE_FROM,
    DLRM,
    FED_FROM,
    FEDERATED,
    FURTHER_FROM,
    LATEST_FROM,
    LEASED_FROM,
    NEWEST_FROM,
    PARTED_FROM,
    SET_BACK_FROM,
    UNDONE_FROM,
    UPGRADED_FROM,
)
from tests.simulation.runner import histories
from tests.simulation.supervisor import SHARDS

ROOT = Path(__file__).resolve().parents[2]
BLOCK, FIRST = 25, 1
SEEDS = (
    *(UPGRADED_FROM, AGAIN_FROM, PARTED_FROM, DENSE_FROM, LEASED_FROM, FED_FROM, SET_BACK_FROM),
    *(BEYOND_FROM, FURTHER_FROM, LATEST_FROM, NEWEST_FROM),
    FIRST,
    *range(versions.FROM, 1_100, BLOCK),
)
"""The first of each block. Later seeds take twice as long, and CI runs thousands of them: one block of each kind. They
come first, lest one process has the longest left when the others are done."""
Kinds = frozenset[tuple[str, tuple[str, ...]]]
"""Of faults: what happens, and on which of what."""


def _kinds(*rows: Draw) -> Kinds:
    return frozenset((row.kind, row.on) for row in rows)


STRUCK_FROM = {
    NEWEST_FROM: _kinds(*WIDER, *NEWEST),
    LATEST_FROM: _kinds(*LATEST),
    FURTHER_FROM: _kinds(*FURTHER),
    BEYOND_FROM: _kinds(*BEYOND),
    SET_BACK_FROM: _kinds(*SET_BACK),
    FED_FROM: _kinds(*APART, *FED),
    LEASED_FROM: _kinds(*LEASED),
    PARTED_FROM: _kinds(*PARTED),
    UPGRADED_FROM: _kinds(*UPGRADED),
    FIRST: _kinds(*DRAWS),
}
"""The first of a block → faults that its seeds draw, and those before them did not. Each strikes in that block: one that
is drawn and never hits anything would look like one that does no harm."""
TRIED_FROM = {
    SET_BACK_FROM: {
        "log set back",
        *(f"log set back, {what}" for what in (set_back.WITH_SNAPSHOTS, set_back.UNDER_ALL)),
    },
    versions.FROM: {"versions switched", "switches without effect"},
    FIRST: {"starts from a snapshot", "snapshots left out", "commits purged"},
}
"""The first of a block → what some of its histories do."""
SCRIPT = """
from tests.simulation.plan import plan
from tests.simulation.world import World
for seed in (3, 16, 71):
    print(World(plan(seed)).run().digest)
"""


def _never(kinds: Kinds, outcome: Outcome) -> Kinds:
    """Without those that struck."""
    return frozenset(
        (kind, ons) for kind, ons in kinds if not any(f"{on} {kind}".strip() in outcome.faults for on in ons)
    )


@pytest.mark.parametrize("first", SEEDS)
def test_whatever_goes_wrong_what_must_hold_does(first: int) -> None:
    never, untried = STRUCK_FROM.get(first, _kinds()), set(TRIED_FROM.get(first, ()))
    for outcome in histories(range(first, first + BLOCK)):
        assert not outcome.violation, f"make faults SEEDS=1 FROM={outcome.seed}: {outcome.violation}"
        assert outcome.events >= EVENTS
        assert sum(outcome.faults.values()) >= FAULTS
        assert outcome.seen["PlannerTaken"] >= len(SHARDS) >= 2
        never = _never(never, outcome)
        untried -= {what for what, times in outcome.tried.items() if times}
    assert not never
    assert not untried


@pytest.mark.parametrize("first", range(0, 8, 4))
def test_the_services_of_a_trace_hold_up_in_both_modes(first: int) -> None:
    """Gang groups of two roles on a cluster that just fits them, Strict and NonStrict in turn."""
    bound: Counter[str] = Counter()
    for outcome in histories(range(first, first + 4), DLRM):
        again = f"make faults WORKLOAD=dlrm SEEDS=1 FROM={outcome.seed}"
        assert not outcome.violation, f"{again}: {outcome.violation}"
        assert sum(outcome.faults.values()) >= FAULTS
        bound[dlrm.mode(outcome.seed)] += outcome.seen["PodBound"]
    assert min(bound[mode] for mode in MODES) > 20


@pytest.mark.parametrize("first", [0, 4, BEYOND_FROM, BEYOND_FROM + 4, UNDONE_FROM, DENSE_FROM, PARTED_FROM])
def test_a_federator_over_whole_clusters_keeps_what_it_promises(first: int) -> None:
    told: Counter[str] = Counter()
    for outcome in histories(range(first, first + 4), FEDERATED):
        again = f"make faults WORKLOAD=federated SEEDS=1 FROM={outcome.seed}"
        assert not outcome.violation, f"{again}: {outcome.violation}"
        assert outcome.events >= IN_TROUBLE
        assert sum(outcome.faults.values()) >= FAULTS
        told.update(outcome.seen)
    assert min(told[one] for one in ("JobPlaced", "StopIntended", "RemainsCleared", "GangPermitted")) > 0


@pytest.mark.parametrize("workload", DENSE_OF | LOSSY_OF)
def test_dense_and_lossy_histories_have_more_faults(workload: str) -> None:
    seeds = range(LEASED_FROM, LEASED_FROM + 3)
    for seed in seeds:
        more, other = plan(seed, workload), plan(seed, (DENSE_OF | LOSSY_OF)[workload])
        assert more.steps == other.steps
        assert more.faults[: len(other.faults)] == other.faults
        assert len(more.faults) > len(other.faults)
    for outcome in histories(seeds, workload):
        assert not outcome.violation, f"{workload}, {outcome.seed}: {outcome.violation}"


def test_of_later_seeds_one_in_three_is_dense() -> None:
    for before in range(DENSE_FROM - 30, DENSE_FROM):
        assert plan(before).faults != plan(before, DENSE).faults
    dense = [seed for seed in range(DENSE_FROM, DENSE_FROM + 90) if plan(seed).faults == plan(seed, DENSE).faults]
    assert 20 < len(dense) < 40


@pytest.mark.parametrize("workload", PHASES_OF)
def test_what_one_phase_left_the_next_goes_on_with(workload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few phases of a long history: each has all that a history has, and comes to rest."""
    phases = 3
    monkeypatch.setattr(planning, "PHASES", phases)
    (outcome,) = histories([BEYOND_FROM], workload)
    assert not outcome.violation, f"{workload}, {phases} phases, {outcome.seed}: {outcome.violation}"
    assert outcome.events >= phases * IN_TROUBLE
    assert sum(outcome.faults.values()) >= phases * FAULTS


def test_each_service_of_the_trace_comes_in_its_turn_and_in_both_modes() -> None:
    services = len(dlrm.trace())
    for seed in (0, 1, services - 1):
        (lead,) = {str(row["app_name"]) for row in dlrm.trace()[seed]}
        for turn in (seed, seed + services):
            pods = [row for service in dlrm.chosen(turn) for row in service]
            assert lead in {row["app_name"] for row in pods}
            assert len(pods) <= dlrm.TOGETHER
        assert dlrm.mode(seed) != dlrm.mode(seed + services)


def test_one_seed_is_one_history_whatever_the_hashes_of_strings() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
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

    monkeypatch.setattr(shorten, "history", World)
    items, _ = shorten.shorten(chosen, "Violation: something else (7.1)", 1_000.0)
    assert items == culprits
    assert shorten.command(chosen, items).endswith("replay 0 --steps 3,17 --faults none")


@pytest.mark.parametrize("behind", [True, False], ids=["what came behind its end", "the whole alone"])
def test_a_history_that_fails_with_no_less_is_replayed_with_all_that_it_takes(
    behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was printed replayed a history that passes."""
    chosen = plan(0)

    class World:
        def __init__(self, given: Plan) -> None:
            self.plan = given

        def run(self) -> Outcome:
            fails = chosen.steps[-1] in self.plan.steps if behind else not self.plan.exact
            return Outcome(0, violation="Violation: something (7.1)" if fails else "")

    monkeypatch.setattr(shorten, "history", World)
    items, world = shorten.shorten(chosen, "Violation: something (7.1)", chosen.steps[0].at_s)
    last = len(chosen.steps) - 1
    assert items == ([("step", last)] if behind else None)
    assert world.run().violation
    told = f" --steps {last} --faults none" if behind else ""
    assert shorten.command(chosen, items) == f".venv/bin/python -m tests.simulation replay 0{told}"
