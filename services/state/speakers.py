"""What members say of their gang, and which of them declare something, the oldest first."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from events.objects import Membership

if TYPE_CHECKING:
    from services.state.fold import State


def said(state: State, gang: str, uid: str) -> Membership | None:
    """What the pod says of this gang. One that was relabelled while it is placed counts, and says nothing any more."""
    pod = state.pods.get(uid)
    membership = pod.fact.gang if pod is not None else None
    return membership if membership is not None and membership.gang == gang else None


def declares(state: State, gang: str, uid: str) -> bool:
    """Whether the pod declares something of this gang."""
    membership = said(state, gang, uid)
    return membership is not None and membership.declared is not None


class Speakers:
    """The members of one gang that declare something, kept up member by member.

    Most gangs need none: their first members declare, or no member does. But where thousands of silent ones are older
    than those that declare, to look for the next that does would be to look at all of them, with each that leaves.
    """

    def __init__(self, members: dict[str, bool]) -> None:
        """The members in their order, and whether each declares something."""
        self._places = {uid: place for place, uid in enumerate(members)}
        """Member → a number; these are in the order of the members."""
        self._declaring = [(self._places[uid], uid) for uid, declared in members.items() if declared]
        """In this order, too."""

    @property
    def oldest(self) -> str:
        """Empty: no member declares anything."""
        return self._declaring[0][1] if self._declaring else ""

    def put(self, uid: str, *, declared: bool) -> None:
        """A new member, or one whose fact is another."""
        if uid not in self._places:
            self._places[uid] = self._places[next(reversed(self._places))] + 1 if self._places else 0
        entry = self._places[uid], uid
        at = bisect_left(self._declaring, entry)
        before = self._declaring[at : at + 1] == [entry]
        if before and not declared:
            del self._declaring[at]
        elif declared and not before:
            insort(self._declaring, entry)

    def drop(self, uid: str) -> None:
        """It is a member no more."""
        self.put(uid, declared=False)
        del self._places[uid]
