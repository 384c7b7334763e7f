"""Seed 002, GangPlugin, PreFilter.

    - Check whether childes in Gang has met the requirements of minimum number under each Gang, and reject the pod if
      negative.
    - Check whether the Gang has been timeout (check the pod's annotation, later introduced at Permit section), and reject
      the pod if positive.

The first is seed 000's Pre-Filter 1 (`coscheduling.pre_filter.too_few`), for all dialects alike. The second is asked of
the gang, not of each pod: a gang with one waiting pod that has the annotation is rejected whole. It is rejected once,
and no time ends that; `services.state.timeouts` says what does. The third and fourth check are the schedule cycle's
(`koordinator.schedule_cycle`).
"""

from __future__ import annotations

from services.state import lacking, timeouts
from services.state.fold import State
from services.state.records import Group


def timed_out(state: State, group: Group) -> str:
    """Why the group is rejected, and what its user may do; empty if it is not."""
    gangs = [key for key in group.gangs if timeouts.gang_stands(state, state.gangs[key])]
    return lacking.over(gangs) if gangs else ""
