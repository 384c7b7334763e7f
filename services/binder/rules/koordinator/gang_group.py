"""Seed 002, Permit, for gang groups.

    Scheduler will calculate all Gangs in GangGroup whether the current number of assumed-pods in each Gang meets the
    Gang's minimum requirement. […] If Gang meet the bind-condition, we will give every waiting pod a "Success" status.

*Assumed* are the pods that wait at permit, those that are proposed, and those that have a node for good. A gang that is
named and is not of the group must run with its minimum: what it has waiting at permit does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.binder.rules.koordinator import match_policy
from services.binder.rules.volcano import task_minimums
from services.state import membership
from services.state.fold import State
from services.state.records import Group


def all_reached(state: State, group: Group, assumed: Mapping[str, Sequence[str]]) -> bool:
    """Whether each gang has its minimum with its waiting and proposed pods: `assumed`, UIDs by gang."""
    for key in group.gangs:
        gang, pods = state.gangs[key], assumed.get(key, ())
        if not (match_policy.quorum(state, gang, len(pods)) and task_minimums.reached(state, gang, pods)):
            return False
    return not membership.awaited(state, group)
