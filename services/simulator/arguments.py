"""What the simulators' command lines have in common."""

from __future__ import annotations

import argparse

LONGEST = 18
"""How many digits a number may have."""


def count(text: str) -> int:
    """A number of things or milliseconds. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST):
        raise argparse.ArgumentTypeError(f"expected a whole number, not {text!r}")
    return int(text)


def port(text: str) -> int:
    """Raises ArgumentTypeError."""
    if count(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a port, not {text!r}")
    return int(text)


def told(error: Exception) -> str:
    """The error in one line. Of a file this is its name and what is wrong with it, without the number of the error."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
