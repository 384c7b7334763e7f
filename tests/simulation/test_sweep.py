"""Sweeps: small histories are what they are meant to be, and a gang survives each crash and each lost answer between an
intent, its effect and its outcome.

All of them, of all kinds and in pairs: `python -m tests.simulation sweep`.
"""

from __future__ import annotations

import pytest

from tests.simulation import sweep
from tests.simulation.faults import Fault
from tests.simulation.runner import histories, run_many
from tests.simulation.small import CRASHES, PREFIX, SCRIPTS, Place

GANG = PREFIX + "gang"


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_faults_a_history_is_what_it_is_meant_to_be(script: str) -> None:
    (outcome,) = histories([0], PREFIX + script)
    assert not outcome.violation
    assert not outcome.faults


def test_a_gang_is_bound_wherever_a_crash_or_a_lost_answer_strikes() -> None:
    kinds = (*CRASHES, "unanswered")
    found = sweep.swept("gang")
    first = found.faults[: len(sweep.paired(found.places))]
    steps = {number: fault for number, fault in enumerate(first, 1) if fault.kind in kinds}
    places = {(on, kind) for on in ("append", "bind", "patch") for kind in kinds}
    assert {(fault.on, fault.kind) for fault in steps.values()} >= places
    for outcome in histories(steps, GANG):
        again = f"python -m tests.simulation replay {outcome.seed} --workload {GANG}"
        assert not outcome.violation, f"{again}: {outcome.violation}"
        assert sum(outcome.faults.values()) == 1


def test_a_fault_strikes_the_request_that_it_is_meant_for_and_no_other() -> None:
    places = sweep.swept("gang").places
    third = Place("bind", "binder", 3, 0.0)
    assert [place[:3] for place in places if place.on == "bind"][-1] == third[:3]
    fault = Fault(at_s=0.0, kind="crash after", on="bind", slot="binder", nth=3)
    world = sweep.run("gang", fault)
    assert world.faults.hits == {"bind crash after": 1}
    assert next(place for place in world.places if place[:3] == third[:3]).at_s == world.struck_s


def test_one_that_strikes_nothing_is_no_history_that_passed() -> None:
    world = sweep.run("gang", Fault(at_s=0.0, kind="lost", on="evict", slot="binder", nth=1))
    assert "0 of 1 faults struck" in world.outcome.violation


def test_it_can_fail() -> None:
    planted = ("--plant", "intents forgotten", "--workload", GANG)
    failed = run_many(0, 16, extra=planted, until_failure=True, workers=1).failed
    assert failed
    assert 0 not in failed
