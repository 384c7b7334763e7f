"""Starvation: when a gang asks for room to be kept.

A gang starves when it is refused for lack of room `Policy.reserve_after_refusals` times in a row although room was given
back since the refusal before: it went elsewhere, or was too little each time. Without that clause a gang whose pods
outnumber a quiet cluster would ask again whenever another's reservation ends, for ever, and nobody would be helped.

Single pods are not counted: they are the smaller work. Nor are further pods of a gang that has its minimum.

Bounded: no more gangs ask than may have room reserved (`Policy.reservations`), except those of a higher priority than
one that has some.
"""

from __future__ import annotations

from events.policy import Policy
from services.state import cohorts, queueing
from services.state.fold import State
from services.state.records import Group


def starves(state: State, policy: Policy, group: Group) -> bool:
    """Whether the refusal for room that is about to be said is one too many."""
    if not 0 < policy.reserve_after_refusals <= group.attempts + 1:
        return False
    return state.room_sequence > cohorts.lacked_room(state, group)


def may_ask(state: State, policy: Policy, group: Group, asked: int) -> bool:
    """`asked`: requests of this cycle. The binder counts again, as other shards ask at the same time."""
    if group.key in state.reservations or group.key in state.room_requests:
        return False
    if len(state.reservations) + len(state.room_requests) + asked < policy.reservations:
        return True
    priority = queueing.priority(state, group)
    return any(one.priority < priority for one in state.reservations.values())
