"""What the benchmarks' command lines have in common."""

from __future__ import annotations

import argparse

LONGEST = 9
"""How many digits a number may have: of more of anything no benchmark comes to an end."""


def some(text: str) -> int:
    """A number of things, at least one. Raises ArgumentTypeError."""
    if not (number := any_number(text)):
        raise argparse.ArgumentTypeError(f"expected at least 1, not {text!r}")
    return number


def any_number(text: str) -> int:
    """One that may be none. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST):
        raise argparse.ArgumentTypeError(f"expected a whole number of at most {LONGEST} digits, not {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """More than none. Raises ArgumentTypeError."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 10**LONGEST:
        raise argparse.ArgumentTypeError(f"expected seconds, not {text!r}")
    return found
