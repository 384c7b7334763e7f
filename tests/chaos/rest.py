"""When everything has come to rest, and what must hold then (design, section 7).

Rest is a state of the log with nothing under way, which says of every pod what the API server says. What keeps it from
being one is said in words, so that a run that never comes to rest tells why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from services.planner.core import Cycle
from services.state import membership
from services.state.fold import State
from services.state.records import BOUND_CLAIM, FAILED, PENDING, READY, SUCCEEDED, Gang
from services.state.slices import at_once
from services.state.validate import Violated, validate_state
from tests.chaos.witness import Seen


def unrest(state: State, pods: Mapping[str, Seen]) -> list[str]:
    """What is still under way, or on what the log and the cluster differ. Empty: all is at rest."""
    under_way: dict[str, Collection[Any]] = {
        "proposals": state.proposals,
        "intents": state.permitted,
        "evictions": state.evictions,
        "lost members": state.lost,
        "nominations": state.nominations,
        "group nominations": state.group_nominations,
        "requests for room": state.room_requests,
        "waiting assignments": state.holding,
        "groups ready": [group.key for group in state.groups.values() if group.phase == READY],
    }
    found = [f"{len(things)} {what}: {sorted(map(str, things))[:3]}" for what, things in under_way.items() if things]
    found += [f"{claim} is {claim.stage}" for claim in state.claims.values() if claim.stage != BOUND_CLAIM][:3]
    ours = {uid: pod.node for uid, pod in state.pods.items() if pod.status not in (SUCCEEDED, FAILED)}
    theirs = {uid: seen.node for uid, seen in pods.items() if seen.live}
    if differing := sorted(ours.items() ^ theirs.items()):
        found.append(f"{len(differing)} pods differ between log and cluster: {differing[:3]}")
    found += [f"{key} fits and waits (7.12)" for key in fitting(state)][:3]
    return found


def fitting(state: State) -> list[str]:
    """Groups that wait although a cycle of their own would place them now."""
    if state.policy is None:
        return ["everything: there is no policy"]
    found = []
    for group in state.groups.values():
        if any(membership.placeable(state, uid) for uid in membership.members(state, group)):
            cycle = Cycle(state, state.policy)
            at_once(cycle.plan([group]))
            if cycle.placed:
                found.append(group.key)
    return found


def violations(
    state: State, pods: Mapping[str, Seen], minimum: Mapping[str, int], touched: set[str], bound: Mapping[str, str]
) -> list[str]:
    """What must hold at rest, and does not.

    `minimum` is each gang's, by name, as its users said it; `touched` are the gangs of which they deleted members one by
    one; `bound` is where the witness saw each pod first.
    """
    found = []
    try:
        validate_state(state)
    except Violated as violated:
        found.append(str(violated))
    for uid, claim in state.claims.items():
        if uid in bound and bound[uid] != claim.node:
            found.append(f"the log has {uid} on {claim.node}, the cluster on {bound[uid]} (7.11)")
    waiting = [group for group in state.groups.values() if _waits(state, membership.members(state, group))]
    found += [f"{group.key} waits without a reason (7.9)" for group in waiting if not group.cohort]
    found += half_bound_in_cluster(pods, {name: least for name, least in minimum.items() if name not in touched})
    found += [f"gang {gang.key} is half bound and never was satisfied (7.3)" for gang in _half_bound(state)]
    return found


def half_bound_in_cluster(pods: Mapping[str, Seen], minimum: Mapping[str, int]) -> list[str]:
    """Of each gang none of the pods has a node, or at least the minimum. Those that finished had one."""
    bound = Counter(seen.gang for seen in pods.values() if seen.node and not seen.terminating)
    return [
        f"gang {name} is half bound: {bound[name]} of {least} (7.3)"
        for name, least in minimum.items()
        if 0 < bound[name] < least
    ]


def _half_bound(state: State) -> list[Gang]:
    return [
        gang
        for gang in state.gangs.values()
        if not gang.satisfied and any(state.pods[uid].node for uid in gang.members)
    ]


def _waits(state: State, uids: list[str]) -> bool:
    return any(state.pods[uid].status == PENDING and not state.pods[uid].fact.gated for uid in uids)
