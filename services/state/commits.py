"""How much one decision may say: a commit is one message.

A core decides in *units*, each of which is appended whole or not at all. A decision is as many of them, in their order,
as fit one commit; what is left is in the state that it leads to, where the next decision finds it. The size is that of
the bytes which are appended: so the bound depends only on what is decided, and what fits one commit is never cut.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TypeVar

from events import Event
from events.envelope import encode_events
from events.log import MAX_COMMIT_BYTES

DECISION_BYTES = MAX_COMMIT_BYTES - 8_192
"""What the events of a decision take at most; the rest is for the commit's header."""
PODS_SURELY_FIT = 8_000
"""A verdict on so many pods fits a commit, however long their names: at most 800 bytes for each pod, with the end of
a nomination."""
PODS_NAMED = 50_000
"""Pods that one release or timeout names at most: 2 MB of UIDs, 3 MB with their resourceVersions."""
SLICE_UNITS = 64
"""Units computed between two yields: a millisecond or two; 50 ms at 50,000 nodes, where each asks of the nodes what no
other does."""

E = TypeVar("E", bound=Event)


def size(events: Sequence[Event]) -> int:
    """Bytes of these events as a payload."""
    return len(encode_events(events))


def fitting_in_slices(units: Iterable[Sequence[E] | None]) -> Generator[None, None, list[E]]:
    """The events of as many units as one commit takes, but at least of the first. Further units are not computed; there
    is a yield now and then, and wherever a unit that takes long pauses (None)."""
    decided: list[E] = []
    left = DECISION_BYTES
    for number, unit in enumerate(units, 1):
        if unit is None:
            yield
            continue
        left -= size(unit)
        if decided and left < 0:
            break
        decided += unit
        if number % SLICE_UNITS == 0:
            yield
    return decided
