"""Long work in slices: a generator yields None between them, so that a service can answer pings, and returns its result.

Here all slices run in one go; `services.start.in_slices` gives the event loop a turn between them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def at_once(work: Generator[None, None, T]) -> T:
    """The result of all slices."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
