"""Koordinator's schedule cycle (seed 002, Data-Structure), as far as the fold asks: which gangs still miss children.

The rule itself, with its text, stands in `services.planner.rules.koordinator.schedule_cycle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.state import membership, reasons, timeouts
from services.state.records import PARKED, Gang, Group

if TYPE_CHECKING:
    from services.state.fold import State


def missing(state: State, gang: Gang) -> int:
    """Children that a Strict gang of Koordinator's has fewer than its total-number; 0 where that says nothing."""
    declaration = gang.declaration
    if declaration is None or declaration.mode != "Strict" or not declaration.total_member:
        return 0
    return max(0, declaration.total_member - membership.total(state, gang))


def goes_on(state: State, group: Group) -> bool:
    """Whether the cycle in which the group failed is not over: it found no room, and one of its gangs misses children.
    Not so if a gang of it timed out, as a child may say that comes: then room is not what the group waits for."""
    if group.phase != PARKED or not reasons.follows(state.cohorts[group.cohort].reason).for_room:
        return False
    gangs = [state.gangs[key] for key in group.gangs]
    if any(membership.rules_off(gang) for gang in gangs):
        return False  # seed 002, After Gang: what came may go before the others
    applies = timeouts.rules_apply(state, group) and not timeouts.stands(state, group)
    return applies and any(missing(state, gang) for gang in gangs)
