"""How large one proposal may be: it is one event, and so is its permit, with whatever the group holds already.

A permit repeats the node's name for each pod that is judged alone, has the pods' resourceVersions, and comes with the end
of each nomination that it takes. What is counted here is never less than that.
"""

from __future__ import annotations

from collections.abc import Iterable

from events import GangPlaced, NominationEnded
from events.objects import NodeAssignment
from services.state import commits, nominations
from services.state.fold import State
from services.state.records import Group

AROUND_BYTES = 4_096
"""What else a verdict says of its group."""
VERSION_BYTES = 20 + 6
"""A resourceVersion of 64 bits, whatever it is when the permit is given, and its JSON punctuation."""


def by_node(assignments: Iterable[NodeAssignment]) -> tuple[NodeAssignment, ...]:
    """The same with each node once, in the order in which they come."""
    found: dict[str, list[str]] = {}
    for one in assignments:
        found.setdefault(one.node, []).extend(one.pods)
    return tuple(NodeAssignment(node, tuple(uids)) for node, uids in found.items())


def excess(state: State, group: Group, proposal: GangPlaced) -> int:
    """How many bytes a permit for the proposal may have beyond what a commit takes; none when it fits."""
    placed = [uid for assignment in (*proposal.required, *proposal.optional) for uid in assignment.pods]
    taken = commits.size([proposal]) + AROUND_BYTES + VERSION_BYTES * (len(placed) + len(group.held))
    taken += sum((len(one.node) + 8) * len(one.pods) for one in proposal.optional)
    taken += sum(len(uid) + len(state.claims[uid].node) + 14 for uid in group.held)
    nodes = {assignment.node for assignment in (*proposal.required, *proposal.optional)}
    spent = [one for one in nominations.of_failed_members(state, group) if one.node in nodes]
    taken += commits.size([NominationEnded(gang=one.gang, pod=one.uid, reason="Taken") for one in spent])
    return max(0, taken - commits.DECISION_BYTES)
