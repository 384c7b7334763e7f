"""Stories of some pods and gangs (`muster explain`), told as the log grows: they know of their pods what the state knows,
and say of whoever waits why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.console.story import GANG, POD, Story
from services.console.summary import why_each_waits
from tests.console.stories import members

if TYPE_CHECKING:
    from events.envelope import Commit
    from services.state.fold import State

NAMES = (
    *((GANG, f"default/{name}") for name in ("g0", "g1", "k0", "k1", "r0", "d0", "v0")),
    *((GANG, "default/j0@volcano"), (GANG, "another/g0"), (GANG, "another/k0")),
    *((POD, f"default/{name}") for name in ("web-0", "web-1", "p1", "p5")),
)
"""Of those that most histories have, and use again."""


class Explained:
    def __init__(self, state: State) -> None:
        self._state = state
        self._stories = [Story(state, *name) for name in NAMES]

    def add(self, commit: Commit) -> None:
        """Behind its fold."""
        for story in self._stories:
            story.add(commit)

    def wrong(self) -> str:
        """What a story has otherwise than the state; empty: nothing."""
        for story in self._stories:
            of = story.followed
            if of.members != members(self._state, of):
                return f"the story of {of.kind} {of.name} has the pods {of.members}"
        return ""

    def untold(self) -> str:
        """Who waits, and is not told why in its story; empty: nobody."""
        waits = {pod.fact.uid: why for pod, why in why_each_waits(self._state)}
        for story in self._stories:
            of, stands = story.followed, story.followed.stands()
            whys = [waits[uid] for uid in of.members if uid in waits] if of.kind == POD else []
            if any(why not in stands for why in whys) or of.is_there == (stands == "gone"):
                return f"the story of {of.kind} {of.name} ends with {stands!r}, and it waits for {whys}"
        return ""
