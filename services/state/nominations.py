"""Room that is nominated: for the replacement of a failed member, and for a gang that lost its proposals to other shards
several times in a row.

The latter is claimed under a key of its own for each pod, so that the pods stay free to be proposed: the next proposal of
the group goes there first, and whoever else plans or is judged finds the room taken. The binder ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from services.state import membership, pods
from services.state.clock import GROUP_NOMINATION, group_key, of_group, set_deadline
from services.state.records import NOMINATED, Claim, Group, GroupNomination, Nomination

if TYPE_CHECKING:
    from services.state.fold import State


def claim_key(uid: str) -> str:
    """The key of the nominated claim for a pod; no UID has a slash."""
    return f"{NOMINATED}/{uid}"


def replacement_key(uid: str) -> str:
    """The key of the claim that keeps a failed member's room for its replacement."""
    return f"replacement/{uid}"


def nominate(state: State, nomination: Nomination) -> None:
    """Room of a failed member is kept for its replacement."""
    state.nominations[nomination.uid] = nomination
    state.kept_for.setdefault(nomination.gang, {})[nomination.uid] = None


def end(state: State, uid: str) -> bool:
    """It is kept no longer; whether it was."""
    nomination = state.nominations.pop(uid, None)
    if nomination is None:
        return False
    of_gang = state.kept_for[nomination.gang]
    del of_gang[uid]
    if not of_gang:
        del state.kept_for[nomination.gang]
    return True


def counted(state: State) -> dict[str, dict[str, None]]:
    """`State.kept_for`, from the records."""
    found: dict[str, dict[str, None]] = {}
    for uid, nomination in state.nominations.items():
        found.setdefault(nomination.gang, {})[uid] = None
    return found


def of_failed_members(state: State, group: Group) -> list[Nomination]:
    """Room of failed members of the group's gangs, in log order. After a rack failed thousands of others have some."""
    if not state.kept_for:
        return []
    gangs = [key for key in group.gangs if key in state.kept_for]
    if len(gangs) > 1:
        return [one for one in state.nominations.values() if one.gang in gangs]
    return [state.nominations[uid] for key in gangs for uid in state.kept_for[key]]


def only_task(state: State, nomination: Nomination) -> str:
    """The task of whose pods alone one may take a failed member's room: it lacks its own minimum; empty: any of the
    gang's may."""
    lacks = membership.below_task_minimum(state, state.gangs[nomination.gang], nomination.task)
    return nomination.task if lacks else ""


def nominated(state: State, event: ev.GroupNominated) -> None:
    """What was nominated for the group before is given back; the time of the first runs on."""
    if event.group not in state.groups:
        state.ignore(event)
        return
    before = state.group_nominations.pop(event.group, None)
    since = state.place if before is None else before.since
    if before is None:
        set_deadline(state.clock("binder"), GROUP_NOMINATION, group_key(since, event.group), event.waiting_ms)
    else:
        _give_back(state, before)
    due = before is not None and before.due
    state.group_nominations[event.group] = GroupNomination(event.group, since, event.assignments, due)
    for assignment in event.assignments:
        for uid in assignment.pods:
            pod = state.pods.get(uid)
            if pod is not None:
                pods.nominate(state, claim_key(uid), pod.fact.scheduling_class, assignment.node, event.group)


def ended(state: State, event: ev.GroupNominationEnded) -> None:
    """The count of refusals begins anew."""
    nomination = state.group_nominations.pop(event.group, None)
    if nomination is not None:
        _give_back(state, nomination)
    group = state.groups.get(event.group)
    if group is not None:
        group.conflicts = 0


def due(state: State, key: str) -> None:
    if stands(state, key):
        state.group_nominations[of_group(key)[1]].due = True


def stands(state: State, key: str) -> bool:
    """Whether the nomination that a deadline is about is there still."""
    since, group = of_group(key)
    nomination = state.group_nominations.get(group)
    return nomination is not None and nomination.since == since


def claims_of(state: State, nomination: GroupNomination) -> list[Claim]:
    """The room that it keeps. A pod may have come from a group that keeps some for it still: that is not its own."""
    keys = [claim_key(uid) for assignment in nomination.assignments for uid in assignment.pods]
    found = [claim for key in keys if (claim := state.claims.get(key)) is not None]
    return [claim for claim in found if claim.group == nomination.group]


def _give_back(state: State, nomination: GroupNomination) -> None:
    for claim in claims_of(state, nomination):
        pods.end_nomination(state, claim.uid)
