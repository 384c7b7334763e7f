"""What every queue order compares: a group's priority and its age.

*Priority* follows the dialect. In coscheduling and Koordinator groups have none of their own: it is their pods'
highest. kube-batch's and Volcano's PodGroups name a priority class, Kubernetes' own have a priority: where a gang's
declaration has one, it counts instead of its pods'; where it has none (no class, or one that is not there), the pods'
highest counts. Gang groups are Koordinator's.

*Age*: a gang was created when its PodGroup was, else with the first of its pods that the log saw. A gang group is as old
as the oldest of its gangs: where one of them has a PodGroup, pods that were there before that make it no older.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.state.records import Group

if TYPE_CHECKING:
    from services.state.fold import State


def priority(state: State, group: Group) -> int:
    """Higher goes first. A pod alone, which most groups are, is answered first: every cycle asks for all that wait."""
    if group.pod:
        return group.priority
    declared = (state.gangs[key].declaration for key in group.gangs)
    own = (found.priority for found in declared if found is not None and found.priority is not None)
    return max(own, default=group.priority)


def created_ns(state: State, group: Group) -> int:
    """Wall time of the creation, as the API server says it; earlier goes first."""
    if group.pod:
        return group.created_ns
    gangs = [state.gangs[key] for key in group.gangs]
    declared = [state.pod_groups[gang.pod_group].created_ns for gang in gangs if gang.pod_group]
    if not declared:
        return group.created_ns
    others = (next(iter(gang.members)) for gang in gangs if not gang.pod_group and gang.members)
    return min([*declared, *(state.pods[uid].fact.created_ns for uid in others)])
