"""What the benchmarks' command lines take."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable

import pytest

from benchmarks.arguments import any_number, seconds, some


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
    assert (some("1"), any_number("0"), seconds("0.5")) == (1, 0, 0.5)


def test_no_nodes_are_an_error_of_usage() -> None:
    """As it was: a traceback, from wherever the number was divided by first."""
    command = [sys.executable, "-m", "benchmarks.planning", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[-1] == "planning.py: error: argument nodes: expected at least 1, not '0'"
