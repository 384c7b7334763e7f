"""What the benchmarks' command lines take."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.arguments import any_number, at_least, new_file, seconds, some


@pytest.mark.parametrize(
    ("read", "wrong"),
    [
        *((some, text) for text in ("0", "-1", "1.5", "x", "", "٣", "9" * 20)),
        *((any_number, text) for text in ("-1", "x", "9" * 20)),
        *((seconds, text) for text in ("0", "-1", "nan", "inf", "x")),
    ],
)
def test_a_number_that_makes_no_sense_says_what_was_expected(read: Callable[[str], float], wrong: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"^expected .*, not '"):
        read(wrong)


def test_numbers_are_taken() -> None:
    assert (some("1"), at_least(13)("13"), any_number("0"), seconds("0.5")) == (1, 13, 0, 0.5)


def test_what_cannot_be_written_is_told_before_hours_of_measuring(tmp_path: Path) -> None:
    assert new_file(str(tmp_path / "plot.svg")) == tmp_path / "plot.svg"
    for wrong in (tmp_path, tmp_path / "nowhere" / "plot.svg"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a file in a directory that is there"):
            new_file(str(wrong))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["planning", "0"], "planning.py: error: argument nodes: expected at least 13, not '0'"),
        (["planning", "12"], "planning.py: error: argument nodes: expected at least 13, not '12'"),
        (["shards", "--nodes", "100"], "shards.py: error: argument --nodes: expected at least 101, not '100'"),
        (["shards", "--shards"], "shards.py: error: argument --shards: expected at least one argument"),
        (
            ["shard_processes", "--pods", "20", "40020"],
            "shard_processes.py: error: argument --pods: expected at most 40000, as 8 go onto a node, not '40020'",
        ),
        (["federation", "--clusters", "1"], "federation.py: error: argument --clusters: expected at least 2, not '1'"),
        (
            ["peers", "--shapes", "1x2"],
            "peers.py: error: argument --shapes: expected such as 1000x100x20, with commas, not '1x2'",
        ),
    ],
)
def test_too_little_to_be_measured_is_an_error_of_usage(arguments: list[str], said: str) -> None:
    """As it was: a traceback, from wherever a number was divided by first."""
    command = [sys.executable, "-m", f"benchmarks.{arguments[0]}", *arguments[1:]]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[-1] == said
