"""Seed 000, Extension points, UnReserve.

    After a pod which belongs to a PodGroup times out in the permit phase. We will release the pods belongs to the same
    PodGroup to avoid long-term invalid occupy of resources.

and Pre-Filter 2, for a group that was left behind in the queue:

    if there is a pod belongs to the last podgroup is waiting and if no chance to meet minAvailable, reject it directly.
"""

from __future__ import annotations

from events import GangReleased
from services.binder.rules.koordinator import non_strict
from services.state import commits, membership
from services.state.fold import State
from services.state.records import AWAITING, PARKED, PENDING, Group


def unreserve(state: State, group: Group) -> GangReleased | None:
    """The release that is due for a group with held assignments, or None while it may go on waiting.

    Order of checks: a member that went away breaks the minimum; the waiting time is over; the planner refused the rest.
    A held pod that went away without breaking the minimum is given back alone. A proposal that stands in the log is
    judged before the time is over (design, section 3), also where that takes another decision (`Policy.cycle_pods`).
    Of very many pods some are released (`commits.PODS_NAMED`), and the others by the next decisions.
    """
    held = tuple(group.held)
    gone = tuple(uid for uid in held if state.pods[uid].status != PENDING)
    if gone:
        broken = any(_cannot_reach(state, key) for key in group.gangs)
        return _released(group, "MemberDeleted", held if broken else gone)
    if any(_cannot_reach(state, key) for key in group.gangs):
        return _released(group, "MemberDeleted", held)
    if group.permit_due and group.phase != AWAITING:
        return _released(group, "Timeout", held)
    if group.phase == PARKED and not non_strict.accumulates(state, group):
        return _released(group, "LeftQueue", held)
    return None


def _released(group: Group, reason: str, pods: tuple[str, ...]) -> GangReleased:
    return GangReleased(group=group.key, reason=reason, pods=pods[: commits.PODS_NAMED])


def _cannot_reach(state: State, key: str) -> bool:
    gang = state.gangs[key]
    return gang.declaration is None or membership.too_few(state, gang)
