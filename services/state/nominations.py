"""Room that is nominated: for the replacement of a failed member, and for a gang that lost its proposals to other shards
several times in a row.

It is claimed under a key that is no pod's, so that pods stay free to be proposed: the next proposal goes there first, and
whoever else plans or is judged finds the room taken. The binder ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from services.state import groups, membership, pods
from services.state.clock import GROUP_NOMINATION, NOMINATION, group_key, of_group, set_deadline
from services.state.records import NOMINATED, PENDING, Claim, Clock, Deadline, Group, GroupNomination, Nomination

if TYPE_CHECKING:
    from services.state.fold import State


# --------------------------------------------------------------------------------------------------- of a failed member


def replacement_key(uid: str) -> str:
    """The key of the claim that keeps a failed member's room for its replacement."""
    return f"replacement/{uid}"


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


def nominated(state: State, event: ev.RoomNominated) -> None:
    """The failed member's room is held under a key of its own, so that no stranger takes it: a member that was refused
    by admission is still there and may be proposed again. On a node that is gone there is none, and only time runs."""
    lost = state.lost.get(event.pod)
    if lost is None or event.pod in state.claims or event.pod in state.nominations:
        pods.answered(state, event.pod)
        state.ignore(event)
        return
    node = event.node if event.node in state.nodes else ""
    state.nominations[event.pod] = Nomination(event.pod, event.gang, node, lost.scheduling_class, task=lost.task)
    state.kept_for.setdefault(event.gang, {})[event.pod] = None
    pods.nominate(state, replacement_key(event.pod), lost.scheduling_class, node, event.gang)
    pods.answered(state, event.pod)
    set_deadline(state.clock("binder"), NOMINATION, event.pod, event.waiting_ms)
    group = state.groups.get(state.gangs[event.gang].group) if event.gang in state.gangs else None
    if group is not None and state.reservations:
        groups.wake(state, group)  # no reservation keeps it off this room, as one did when it was refused


def ended(state: State, event: ev.NominationEnded) -> None:
    """A replacement that waits at permit has the room for itself, and may lose it: only the time runs on."""
    pods.answered(state, event.pod)
    nomination = state.nominations.get(event.pod)
    if nomination is None:
        return
    if event.reason == "Held":
        nomination.node = ""
    else:
        del state.nominations[event.pod]
        of_gang = state.kept_for[nomination.gang]
        del of_gang[event.pod]
        if not of_gang:
            del state.kept_for[nomination.gang]
    pods.end_nomination(state, replacement_key(event.pod))


def in_force(state: State, clock: Clock, due: list[Deadline]) -> list[Deadline]:
    """Of the deadlines that fell due, those that count.

    A pod's room may be nominated several times, and the deadlines of all these nominations have the pod's UID as their
    key. While the pod waits, because its binding is refused time and again, each of them counts: its room is not kept
    for longer than the first nomination said. If the pod was bound in between, and is gone or has failed, its last
    nomination has its whole time: only the deadline that was set last counts.
    """
    keys = {one.key for one in due if one.kind == NOMINATION and not _waits(state, one.key)}
    if not keys:
        return due
    last: dict[str, int] = {}
    for one in (*due, *clock.armed):
        if one.kind == NOMINATION and one.key in keys:
            last[one.key] = max(last.get(one.key, 0), one.serial)
    return [one for one in due if one.kind != NOMINATION or one.serial >= last.get(one.key, 0)]


def _waits(state: State, uid: str) -> bool:
    pod = state.pods.get(uid)
    return pod is not None and pod.status == PENDING


def due(state: State, key: str) -> None:
    nomination = state.nominations.get(key)
    if nomination is not None:
        nomination.due = True


def stands(state: State, key: str) -> bool:
    return key in state.nominations


# ---------------------------------------------------------------------------------- of a gang that lost to other shards


def claim_key(uid: str) -> str:
    """The key of the nominated claim for a pod; no UID has a slash."""
    return f"{NOMINATED}/{uid}"


def group_nominated(state: State, event: ev.GroupNominated) -> None:
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


def group_ended(state: State, event: ev.GroupNominationEnded) -> None:
    """The count of refusals begins anew."""
    nomination = state.group_nominations.pop(event.group, None)
    if nomination is not None:
        _give_back(state, nomination)
    group = state.groups.get(event.group)
    if group is not None:
        group.conflicts = 0


def group_due(state: State, key: str) -> None:
    if group_stands(state, key):
        state.group_nominations[of_group(key)[1]].due = True


def group_stands(state: State, key: str) -> bool:
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
