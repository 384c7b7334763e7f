"""What the benchmarks' command lines have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

LONGEST = 9
"""How many digits a number may have: of more of anything no benchmark comes to an end."""


def any_number(text: str) -> int:
    """One that may be none. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST):
        raise argparse.ArgumentTypeError(f"expected a whole number of at most {LONGEST} digits, not {text!r}")
    return int(text)


def at_least(least: int) -> Callable[[str], int]:
    """Reads a number of things of which fewer show nothing. What is returned raises ArgumentTypeError."""

    def read(text: str) -> int:
        if (number := any_number(text)) < least:
            raise argparse.ArgumentTypeError(f"expected at least {least}, not {text!r}")
        return number

    return read


some = at_least(1)


def new_file(text: str) -> Path:
    """Where something is written, hours later at times. Raises ArgumentTypeError."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file in a directory that is there, not {text!r}")
    return path


def seconds(text: str) -> float:
    """More than none. Raises ArgumentTypeError."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 10**LONGEST:
        raise argparse.ArgumentTypeError(f"expected seconds, not {text!r}")
    return found
