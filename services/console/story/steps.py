"""What a telling is: the steps that an event is for a pod or a gang whose story is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from services.console.story.followed import POD, Followed

MS_PER_S, NS_PER_S = 1_000, 1_000_000_000


class Step(NamedTuple):
    """What happened, and why."""

    what: str
    reason: str
    alike: str = ""
    """Steps in a row that have this in common are one line, with the last one's reason; empty: a line of its own."""
    counts: bool = False
    """Whether it matters how often: its reason says what is new, and not how all of it is by now."""
    is_refusal: bool = False
    """Whether it says why something is not done: the same word may come back behind another, and one turn of many steps
    is like another whatever the words were."""

    @property
    def turn(self) -> str:
        """What one turn of several steps has in common with another."""
        return self.what if self.is_refusal else self.alike


Telling = Callable[[Followed, Any], Iterable[Step]]


def standing(of: Followed, what: str, how: str) -> Step:
    """A step that says how all of it is by now: of many pods in a row the last one says it all."""
    return Step(what, how, what, counts=of.kind == POD)
