"""What a permit may never do (design, 7.1 to 7.3), asked of the state over which the binder decided.

Deciding again finds a log that is not what the rules say. It finds no rules that are wrong: they err a second time. So
this asks without them, of what the log says of pods, claims, room and declarations; neither what judges a proposal nor
what counts a quorum is used. At its basis a decision knows everything, so that nothing has to be forgiven here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

import events as ev
from events import Event, dialects
from services.state import membership
from services.state.fold import State
from services.state.naming import named_by
from services.state.nominations import claims_of, replacement_key
from services.state.records import BOUND, PENDING, PERMITTED, PROPOSED, SUCCEEDED, Claim, Gang


def broken(state: State, decided: Sequence[Event]) -> str:
    """The first sentence about these events of the binder's, decided over this state, that must never be; or empty."""
    permits = [event for event in decided if type(event) is ev.GangPermitted]
    if not permits:
        return ""
    return _on_nodes(state, permits, decided) or _below_minimum(state, permits)


def _on_nodes(state: State, permits: list[ev.GangPermitted], decided: Sequence[Event]) -> str:
    """Each pod once, and of what these pods ask for no more than there is: something else may be overdrawn, since the
    node shrank."""
    table, pods, claims = state.table, state.pods, state.claims
    places: dict[str, int] = {}
    permitted: dict[str, None] = {}
    there: list[int] = []
    classes: list[int] = []
    counted: list[bool] = []
    """Of each pod that is permitted: the place of its node, its class, whether its claim is counted already."""
    for permit in permits:
        for assignment in permit.bindings:
            if assignment.node not in table.rows:
                return f"{permit.group} is permitted on {assignment.node}, which is not there (7.2)"
            place = places.setdefault(assignment.node, len(places))
            for binding in assignment.pods:
                uid = binding.uid
                pod, claim = pods.get(uid), claims.get(uid)
                waits = pod is not None and pod.status == PENDING and claim is not None and claim.stage != PERMITTED
                if claim is None or not waits or uid in permitted:
                    return f"{permit.group} is permitted with {uid}, which does not wait for a node (7.1)"
                permitted[uid] = None
                there.append(place)
                classes.append(table.classes[claim.scheduling_class].number)
                counted.append(claim.stage != PROPOSED)
    rows = [table.rows[node] for node in places]
    left = table.allocatable[rows] - table.held[rows]
    requests = table.requests[classes]
    asked = np.zeros_like(left)
    np.add.at(asked, there, requests)
    requests[counted] = 0
    np.subtract.at(left, there, requests)
    for claim in _given_back(state, decided):
        if claim.node in places:
            left[places[claim.node]] += table.requests[table.classes[claim.scheduling_class].number]
    over = set(np.nonzero((left < 0) & (asked > 0))[0].tolist())
    named = sorted(node for node, place in places.items() if place in over)
    return f"what is permitted exceeds what {named[0]} has (7.2)" if named else ""


def _given_back(state: State, decided: Sequence[Event]) -> Iterator[Claim]:
    """Claims whose room the state counts, and which this decision ends."""
    for key in dict.fromkeys(key for event in decided for key in _ended(state, event)):
        claim = state.claims.get(key)
        if claim is not None and claim.stage != PROPOSED:
            yield claim


def _ended(state: State, event: Event) -> Sequence[str]:
    """Keys of claims."""
    if isinstance(event, ev.GangPermitted):
        return event.dropped
    if isinstance(event, ev.GangReleased):
        return event.pods
    if isinstance(event, ev.NominationEnded):
        return (replacement_key(event.pod),)
    if isinstance(event, ev.GroupNominated | ev.GroupNominationEnded) and event.group in state.group_nominations:
        return [claim.uid for claim in claims_of(state, state.group_nominations[event.group])]
    return ()


def _below_minimum(state: State, permits: list[ev.GangPermitted]) -> str:
    """Each gang that starts, and those that it names, with its minimum; one that was satisfied once is free of that where
    its match policy says so."""
    permitted: set[str] = set()
    for permit in permits if state.gangs else ():
        uids = [binding.uid for assignment in permit.bindings for binding in assignment.pods]
        permitted.update(uids)
        for key in dict.fromkeys(state.pods[uid].gang for uid in uids):
            gang = state.gangs.get(key)
            if gang is None or membership.rules_off(gang):
                continue
            for other in dict.fromkeys((key, *named_by(gang))):
                if not _starts(state, gang, state.gangs.get(other), permitted):
                    return f"{permit.group} is permitted, and gang {other} is below its minimum (7.3)"
    return ""


def _starts(state: State, asking: Gang, gang: Gang | None, permitted: set[str]) -> bool:
    """Whether so many of the gang run, or are to be bound, as must start together."""
    if gang is None or gang.declaration is None:
        return False
    if membership.rules_off(gang):
        return True
    declared = gang.declaration
    in_waves = declared.match_policy == dialects.ONLY_WAITING and gang.group == asking.group
    running = (uid for uid in gang.members if _runs(state, uid, in_waves) or uid in permitted)
    if sum(declared.task_minimums.values()) <= declared.min_member and declared.task_minimums:
        of_task = Counter(membership.task(state, uid) for uid in running)
        tasks = declared.task_minimums.items()
        return of_task.total() >= declared.min_member and all(of_task[task] >= least for task, least in tasks)
    return sum(1 for _ in islice(running, declared.min_member)) == declared.min_member


def _runs(state: State, uid: str, in_waves: bool) -> bool:
    """`in_waves`: only who waits for a binding counts."""
    return uid in state.permitted or (not in_waves and state.pods[uid].status in (BOUND, SUCCEEDED))
