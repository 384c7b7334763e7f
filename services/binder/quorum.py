"""Who may be bound now: of a group's assignments, those that wait at permit and those that are proposed.

The rules are in `services.binder.rules`; here is what a judgement asks of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from events.objects import NodeAssignment
from services.binder.rules.coscheduling import permit
from services.binder.rules.koordinator import gang_group
from services.binder.rules.volcano import task_minimums
from services.state import membership
from services.state.fold import State
from services.state.records import Group


def reached(state: State, group: Group, assignments: Iterable[NodeAssignment]) -> bool:
    """Whether each gang of the group has its minimum with these."""
    return not group.gangs or gang_group.all_reached(state, group, _by_gang(state, group, assignments))


def whole(state: State, group: Group, assignments: Iterable[NodeAssignment]) -> bool:
    """Whether each gang whose rules are off has its minimum with these: it may start without, and lacks pods then."""
    free = [gang for key in group.gangs if membership.rules_off(gang := state.gangs[key])]
    assumed = _by_gang(state, group, assignments) if free else {}
    return all(
        permit.quorum(state, gang, len(assumed[gang.key])) and task_minimums.reached(state, gang, assumed[gang.key])
        for gang in free
    )


def _by_gang(state: State, group: Group, assignments: Iterable[NodeAssignment]) -> dict[str, list[str]]:
    """Gang → UIDs of its pods among these."""
    pods = state.pods
    found: dict[str, list[str]] = {key: [] for key in group.gangs}
    for assignment in assignments:
        for uid in assignment.pods:
            pod = pods.get(uid)
            if pod is not None and pod.gang in found:
                found[pod.gang].append(uid)
    return found


def split_free(
    state: State, group: Group, assignments: Iterable[NodeAssignment]
) -> tuple[list[NodeAssignment], list[NodeAssignment]]:
    """(assignments of gangs whose rules are off, which are bound whatever becomes of the others; the rest)."""
    return _split(state, {key for key in group.gangs if membership.rules_off(state.gangs[key])}, assignments)


def split_loose(
    state: State, group: Group, assignments: Iterable[NodeAssignment]
) -> tuple[list[NodeAssignment], list[NodeAssignment]]:
    """(assignments of gangs in which a pod that finds no place keeps no other from starting; the rest)."""
    gangs = [state.gangs[key] for key in group.gangs]
    loose = {gang.key for gang in gangs if membership.rules_off(gang) or not membership.strict(gang)}
    return _split(state, loose, assignments)


def _split(
    state: State, gangs: set[str], assignments: Iterable[NodeAssignment]
) -> tuple[list[NodeAssignment], list[NodeAssignment]]:
    """(assignments of these gangs, those of others)."""
    if not gangs:
        return [], list(assignments)
    ours: list[NodeAssignment] = []
    others: list[NodeAssignment] = []
    for assignment in assignments:
        mine = tuple(uid for uid in assignment.pods if (pod := state.pods.get(uid)) is not None and pod.gang in gangs)
        if mine:
            ours.append(NodeAssignment(assignment.node, mine))
        if len(mine) < len(assignment.pods):
            taken = set(mine)
            left = tuple(uid for uid in assignment.pods if uid not in taken)
            others.append(NodeAssignment(assignment.node, left))
    return ours, others
