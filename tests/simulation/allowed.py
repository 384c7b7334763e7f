"""What the policy allows goes for what stands, too: no more is kept for gangs that starve than it says, and nothing where
it keeps nothing, but for a gang of which something is to be judged first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from services.state import commits
from services.state.records import AWAITING

if TYPE_CHECKING:
    from events.envelope import Commit
    from services.state.fold import State

CUT, CUT_BYTES = 4, 8_192
"""Where a decision has less than so many bytes, so many of them say all that the first had to say, unless proposals come
all the time, which go first."""
VERDICTS = (ev.GangPermitted, ev.GangHeld, ev.ProposalRefused)


def is_cut(commit: Commit) -> bool:
    """Whether a decision may have no room for more than its verdicts."""
    return commits.DECISION_BYTES < CUT_BYTES and any(isinstance(event, VERDICTS) for event in commit.events)


class Allowed:
    def __init__(self) -> None:
        self.policy_at = 0
        """The sequence of the last change of the policy."""
        self._beyond = (0, 0)
        """Under which policy how many decisions of the binder in a row went on keeping more."""

    def beyond(self, commit: Commit, state: State, judged: set[str]) -> str:
        """What a decision of the binder that has read the policy keeps beyond it; empty: nothing. Where little goes into
        one, more than one may be over before the binder says so."""
        policy = state.policy
        standing = [
            key
            for key in state.reservations
            if key not in judged and (group := state.groups.get(key)) is not None and group.phase != AWAITING
        ]
        most = 0 if policy is None or not policy.reserve_after_refusals else policy.reservations
        if self.policy_at > commit.header.basis or len(standing) <= most:
            self._beyond = (0, 0)
            return ""
        if is_cut(commit):
            return ""
        few = CUT if commits.DECISION_BYTES < CUT_BYTES else 1
        policy_at, before = self._beyond
        self._beyond = self.policy_at, 1 + (before if policy_at == self.policy_at else 0)
        return f"room for {standing}, and the policy allows {most}" if self._beyond[1] >= few else ""
