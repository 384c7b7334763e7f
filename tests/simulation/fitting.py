"""Whether a node can take what the log gives it: by the records of claims and facts alone, no table of labels, no mask
that might be of before. Each question is answered by what is wrong, or nothing.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import events as ev
from events.objects import HostPort
from services.state.fold import State
from services.state.records import NOMINATED, PENDING, PROPOSED, TERMINATING, Claim, Reservation
from tests.state import naive

Rooms = list[tuple[ev.SchedulingClassObserved, int]]
"""Classes, and how many pods of each."""


def exceeds(state: State, node: str, uids: list[str]) -> str:
    """Of what these pods, permitted there, ask for; something else may be overdrawn since the node shrank."""
    table, pods = state.table, state.pods
    known = [pods[uid].fact.scheduling_class for uid in uids if uid in pods]
    asked = {column for digest in known for column, _ in table.classes[digest].columns}
    row = table.rows.get(node)
    if row is None:
        return f"something on {node}, which is not there"
    over = [column for column in sorted(asked) if table.held[row, column] > table.allocatable[row, column]]
    return f"more on {node} than it has" if over else ""


def misfit(state: State, node: str, uids: list[str]) -> str:
    """Pods that wait and are not gated, on a node that takes such pods, and whose ports are free there."""
    table, taken = state.table, Counter[HostPort]()
    for uid in uids:
        pod = state.pods[uid]
        if pod.status != PENDING or pod.fact.gated:
            return f"{uid}, {pod.status}"
        asked = table.classes[pod.fact.scheduling_class].fact
        if asked.unsupported or not _takes(state, node, asked):
            return f"{uid} on {node}, which does not take such pods"
        taken.update(asked.host_ports)
    held = table.ports.get(table.rows[node], {})
    twice = [port for port in taken if held.get(port, 0) > 1]
    return f"pods that open {twice} on {node} a second time" if twice else ""


def by_node(state: State, kept: ev.RoomReserved | Reservation) -> dict[str, Rooms]:
    found: dict[str, Rooms] = {}
    for of_class in kept.room:
        for node, pods in of_class.nodes.items():
            found.setdefault(node, []).append((state.table.classes[of_class.scheduling_class].fact, pods))
    return found


def never_free(state: State, node: str, rooms: Rooms) -> str:
    """Room beside what never leaves the node, as far as anybody knows."""
    if node not in state.nodes or state.nodes[node].fact is None:
        return f"room on {node}, which is not there"
    staying = [state.claims[uid] for uid in state.nodes[node].claims if _stays(state, state.claims[uid])]
    beside = [state.table.classes[claim.scheduling_class].fact for claim in staying]
    for asked, pods in rooms:
        if asked.unsupported or not _takes(state, node, asked):
            return f"room on {node}, which does not take such pods"
        if any(naive.collide(asked, other) for other in beside) or (pods > 1 and asked.host_ports):
            return f"room on {node}, where its ports are never free"
    if any(naive.collide(one, other) for (one, _), (other, _) in combinations(rooms, 2)):
        return f"room on {node} for pods that open a port twice"
    offers = state.nodes[node].fact.allocatable
    taken = Counter[str]()
    for asked, pods in [*rooms, *((one, 1) for one in beside)]:
        taken.update({name: pods * amount for name, amount in asked.requests.items()})
    wanted = {name for asked, _ in rooms for name, amount in asked.requests.items() if amount}
    over = [name for name in sorted(wanted) if taken[name] > offers.get(name, 0)]
    return f"room on {node}, which never has so much of {', '.join(over)}" if over else ""


def _stays(state: State, claim: Claim) -> bool:
    """But for room that is nominated, which may be so since the same decision, and not for long; and for what is proposed
    at the same time."""
    pod = state.pods.get(claim.uid)
    if pod is None or claim.stage in (NOMINATED, PROPOSED) or pod.status == TERMINATING:
        return False
    return not pod.fact.candidate or naive.named(state.table.classes[claim.scheduling_class].fact) is not None


def _takes(state: State, node: str, asked: ev.SchedulingClassObserved) -> bool:
    fact = state.nodes[node].fact
    return fact is not None and naive.selected(fact, asked) and naive.untolerated(fact, asked) is None
