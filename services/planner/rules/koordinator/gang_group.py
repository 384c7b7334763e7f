"""Seed 002, GangGroup, and PreFilter.

    All pods in a GangGroup can trigger the bind process only after all roles in a GangGroup meet their Gang conditions.
    So we introduce GangGroup concept, which allow user to bundle different Gangs together.

    Check whether childes in Gang has met the requirements of minimum number under each Gang, and reject the pod if
    negative.

Gangs that name each other are one group here (`services.state.naming`), one entry of the queue, and are placed together.
So "each Gang" is read as each of the group: while one gang is short of pods, the group holds no room for the others,
which could only wait. Koordinator's code of July 2026 counts each, too.

The text is silent about a gang that is named and is not there, or does not name the group back. Chosen: each gang waits
for those that it names itself, and nobody waits for being named. Such a gang must run, with its minimum, before the
group is placed. In Koordinator's code of July 2026, too, a gang waits for those that it names itself.
"""

from __future__ import annotations

from services.state import lacking, membership
from services.state.fold import State
from services.state.naming import named_by
from services.state.records import Group


def missing(state: State, group: Group) -> str:
    """Which gang the group waits for, in words; empty when it is complete."""
    awaited = membership.awaited(state, group)
    if not awaited:
        return ""
    names = next(key for key in group.gangs if awaited in named_by(state.gangs[key]))
    return lacking.waits_for(names, awaited, there=awaited in state.gangs)
