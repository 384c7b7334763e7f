"""Room that is kept for a gang which lost to other shards: when its time is over.

`Judge.judge` nominates it and spends it; here it ends when nobody will spend it any more. A pending proposal is judged
first: it may be late, but it is in the log.
"""

from __future__ import annotations

import events as ev
from services.state.fold import State
from services.state.records import AWAITING, INDEX_BITS, READY


def end_group_nominations(state: State, judged: set[str]) -> list[ev.GroupNominationEnded]:
    """`judged`: groups that this decision has said something of already."""
    ended = []
    for key, nomination in state.group_nominations.items():
        group = state.groups.get(key)
        if key in judged or (group is not None and group.phase == AWAITING):
            continue
        if group is None or nomination.since >> INDEX_BITS < group.since:
            reason = "GroupGone"
        elif group.phase != READY:
            reason = "Refused"
        elif nomination.due:
            reason = "Expired"
        else:
            continue
        ended.append(ev.GroupNominationEnded(group=key, reason=reason))
    return ended
