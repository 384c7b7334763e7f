"""Seeded histories: nothing is violated, and whatever rule is broken on purpose, they find it."""

import subprocess
import sys
from collections import Counter

import pytest

from tests.federator import plants, simulation
from tests.federator.simulation import __main__ as command

HISTORIES = 2_000
PART = 250
WITHIN = 5_000
"""Histories after which a planted bug counts as not found."""
FIRST = {
    "R4 another alias": 350,
    "R4 the latest start": 350,
    "R6 in whole points": 510,
    "R7 nobody takes over": 60,
    "R8 extra times of the first": 80,
    "R9 a holder that is not known is heard": 520,
    "R9 a silent holder is placed": 2_920,
    "R12 a lost holder holds": 80,
    "R12 another attempt of the holder holds": 80,
    "R16 an unwanted one in doubt is given up": 400,
    "R16 any refusal settles it": 220,
    "R18 a foreign one of its name is taken for it": 290,
    "R18 the winner that runs again is stopped": 2_310,
    "R18 what runs again is not seen to end": 220,
    "R20 another run of its name is taken for it": 120,
    "R20 gone although another attempt may land": 120,
    "R20 a run is the only one although it was in doubt": 120,
    "R22 what was given up is forgotten": 50,
}
"""The first history that is tried, where many before it find nothing."""
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
    "restored",
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
        assert not violation, f"python -m tests.federator.simulation --replay {seed}"
        faults += count
    assert set(faults) - {"runs again"} == FAULTS, "what comes of a restore in one of ten"


def test_many_run_in_processes_that_are_spawned() -> None:
    """As Python 3.14 starts them. They import no package's ``__main__``: the pool waited for ever."""
    spawned = (
        "import multiprocessing, runpy; multiprocessing.set_start_method('spawn'); "
        "runpy.run_module('tests.federator.simulation', run_name='__main__', alter_sys=True)"
    )
    command = [sys.executable, "-c", spawned, "--seeds", "2", "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1].startswith("2 histories from 0")


def test_a_history_that_an_exception_ends_is_one_that_fails_and_says_which() -> None:
    """It ended the run of all, and nobody knew by which seed."""

    class Ends(simulation.World):
        def run(self) -> None:
            raise KeyError("gone")

    assert simulation.run(3, Ends)[0] == "KeyError: 'gone'"


def test_a_failing_seed_is_told_with_what_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = next(iter(plants.PLANTS))
    monkeypatch.setattr("sys.argv", ["simulation", "--seeds", "1", "--from", "7", "--plant", name, "--workers", "1"])
    monkeypatch.setattr(command, "work", told)
    assert command.main() == 1
    lines = capsys.readouterr().out.splitlines()
    again = f"replay it: python -m tests.federator.simulation --replay 7 --plant '{name}'"
    assert lines[:2] == ["seed 7: something", again]


def told(given: tuple[int, int, str, str]) -> tuple[list[tuple[int, str]], Counter[str]]:
    return [(given[0], "something")], Counter()


def test_one_seed_is_one_history() -> None:
    for seed in range(5):
        one, other = simulation.World(seed), simulation.World(seed)
        one.run()
        other.run()
        assert one.log == other.log


@pytest.mark.parametrize("name", plants.PLANTS)
def test_a_rule_that_is_broken_on_purpose_is_found(name: str) -> None:
    with plants.planted(name):
        _, seeds, violation = plants.found(name, WITHIN, first := FIRST.get(name, 0))
    assert seeds, violation
    assert simulation.run(first + seeds - 1)[0] == "", "found without the plant"


def test_every_rule_has_its_plants() -> None:
    assert {name.split()[0] for name in plants.PLANTS} == {f"R{number}" for number in range(1, 23)}
