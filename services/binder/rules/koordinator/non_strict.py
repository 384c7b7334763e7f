"""Seed 002, Strict and NonStrict, where bindings are decided.

    In NonStrict, if a pod failed to be scheduled, it has no impact on any other pod. We will continue to accumulate the
    allocated pod until the condition of Gang is met.

So what a NonStrict gang holds stays while the rest is refused; its waiting time, which begins with the first that waits,
bounds it. In a gang group a Strict gang that lacks its minimum has all released, as the text's PostFilter does; the text
never has both modes in one group.
"""

from __future__ import annotations

from services.state import membership
from services.state.fold import State
from services.state.records import Gang, Group


def accumulates(state: State, group: Group) -> bool:
    """Whether what the group holds may wait although the planner refused the rest."""
    open_gangs = [gang for key in group.gangs if not membership.rules_off(gang := state.gangs[key])]
    together = [gang for gang in open_gangs if membership.strict(gang)]
    return len(together) < len(open_gangs) and all(_has_minimum(state, gang) for gang in together)


def _has_minimum(state: State, gang: Gang) -> bool:
    found = membership.census(state, gang.members)
    return gang.declaration is not None and membership.counted(gang, found) >= gang.declaration.min_member
