"""Running many seeds: how a run ends, what is printed of a seed that fails, what is counted, and that none is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from tests.simulation import __main__ as command
from tests.simulation import runner
from tests.simulation.counter import Counted
from tests.simulation.plan import Outcome, plan
from tests.simulation.planting import MIXED
from tests.simulation.runner import Seen, Tally, run_many

LAST_LINE = re.compile(r"\d+ seeds, (\d+) violations, \d+\.\d virtual hours, \d+ faults")


def tally(seeds: range, failed: tuple[int, ...] = ()) -> Tally:
    found = Tally()
    for seed in seeds:
        violation = "Violation: something (7.1)" if seed in failed else ""
        found.count(Outcome(seed, events=300, faults={"crash": 5}, virtual_s=3600.0, violation=violation))
    return found


@pytest.mark.parametrize("failed", [(), (3,), (1, 2, 3, 5)])
def test_a_run_ends_with_one_line_and_with_1_if_anything_was_violated(
    failed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = [Counted()]
    monkeypatch.setattr(command, "run_many", lambda first, seeds, **_: tally(range(first, first + seeds), failed))
    monkeypatch.setattr(command.counter, "read", lambda: counted[-1])
    monkeypatch.setattr(command.counter, "write", counted.append)
    monkeypatch.setattr(command.shorten, "described", lambda _: "the end of its log")
    monkeypatch.setattr(command.shorten, "shorten", shortened)
    assert command._faults(None, 10, None, 2, MIXED) == (1 if failed else 0)
    lines = capsys.readouterr().out.splitlines()
    last = LAST_LINE.fullmatch(lines[-1])
    assert last is not None
    assert int(last[1]) == len(failed)
    assert "faults by kind: crash 50" in lines
    for seed in failed[: command.SHORTENED]:
        assert f"replay it: .venv/bin/python -m tests.simulation replay {seed} --steps 4 --faults none" in lines
    for seed in failed[command.SHORTENED :]:
        assert f"seed {seed}: Violation: something (7.1)" in lines
    assert (counted[-1].next, counted[-1].failed) == (10, list(failed))


def shortened(whole: Any, violation: str, end_s: float) -> tuple[list[tuple[str, int]], Any]:
    class World:
        outcome = Outcome(whole.seed, violation=violation)

    return [("step", 4)], World()


def test_a_history_that_passes_here_is_replayed_with_the_hashes_of_those_that_ran_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its replay said: no violation."""

    class World:
        outcome = Outcome(4)

    monkeypatch.setattr(command.shorten, "described", lambda _: "the end of its log")
    monkeypatch.setattr(command.shorten, "shorten", lambda *_: (None, World()))
    command._explain(plan(4), "another PYTHONHASHSEED, another history (section 5)", 60.0, workers=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [f"PYTHONHASHSEED={hashes} .venv/bin/python -m tests.simulation replay 4" for hashes in (1, 2)]


def test_the_counter_goes_on_where_it_stopped_and_forgets_what_passes_since() -> None:
    once = Counted().after(tally(range(200), failed=(7, 9)), 0, goes_on=True)
    twice = once.after(tally(range(200, 300)), 200, goes_on=True)
    assert (twice.next, twice.seeds, twice.failed) == (300, 300, [7, 9])
    assert (twice.virtual_hours, twice.faults) == (300.0, {"crash": 1500})
    again = twice.after(tally(range(5, 8)), 5, goes_on=False)
    assert (again.next, again.failed, again.virtual_hours) == (300, [9], 300.0)


def test_a_seed_that_is_two_histories_is_a_violation() -> None:
    found, seen = Tally(), Seen(workers=2, compared=1)
    for digest in ("one", "one", "another"):
        seen.take(Outcome(4 if digest == "another" else len(digest), digest=digest), found)
    assert found.failed == {}
    seen.take(Outcome(4, digest="one"), found)
    assert list(found.failed) == [4]
    assert "another PYTHONHASHSEED, another history" in found.failed[4].violation


def test_a_process_that_dies_does_not_pass_for_one_that_found_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)

    monkeypatch.setattr(runner, "_child", dies)
    with pytest.raises(RuntimeError, match="0 of 4 seeds came back"):
        run_many(0, 4)
