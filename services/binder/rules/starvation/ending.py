"""Starvation: when reserved room is for everybody again.

    each expires in log time if the gang vanishes, changes, or does not fit after so long

Its own proposal ends it where that is judged (`services.binder.judge`: Taken); a gang of a higher priority may take its
place (`reserving`: Outranked). A proposal that stands is judged first. *Changed* is what makes the reserved room the
wrong one: another minimum, other members that have a place, another priority, no member any more of a class that it is
for, a node that is gone, takes such pods no longer, or never will have that room: it offers less by now, or somebody
came who stays. Members that come and go otherwise change nothing: a pod that its controller replaces is of the same
class. After a change the gang starves as before, and asks again at its next refusal; when its time ran out, only after
as many refusals as the first time, so that others have their turn.

Where the policy turns reservations off, or allows fewer than there are, it holds for those that stand, too, and not only
for the next request: the time that they have left may be hours.
"""

from __future__ import annotations

import events as ev
from events.policy import Policy
from services.binder.rules.starvation import reserving
from services.state import fits, membership, queueing, reasons, reservations
from services.state.fold import State
from services.state.records import AWAITING, IDLE, Group, Reservation


def end_reservations(state: State, policy: Policy, judged: set[str]) -> list[ev.ReservationEnded]:
    """`judged`: groups that this decision has said something of already."""
    reserved = state.reservations
    over = {key: reason for key, one in reserved.items() if (reason := _over(state, policy, one, judged))}
    standing = [
        one for key, one in reserved.items() if not (key in over or _is_judged_first(state.groups[key], judged))
    ]
    for one in reserving.weakest_first(standing)[: max(0, len(standing) - policy.reservations)]:
        over[one.group] = "TurnedOff"
    return [ev.ReservationEnded(group=key, reason=reason) for key, reason in over.items()]


def _is_judged_first(group: Group, judged: set[str]) -> bool:
    return group.key in judged or group.phase == AWAITING


def _over(state: State, policy: Policy, reservation: Reservation, judged: set[str]) -> str:
    group = state.groups.get(reservation.group)
    if group is None or group.since > reservation.sequence:
        return "GroupGone"
    if _is_judged_first(group, judged):
        return ""
    if not policy.reserve_after_refusals:
        return "TurnedOff"
    if group.phase == IDLE or _waits_for_something_else(state, group):
        return "Refused"
    if _changed(state, group, reservation):
        return "Changed"
    return "Expired" if reservation.due else ""


def _waits_for_something_else(state: State, group: Group) -> bool:
    return bool(group.cohort) and not reasons.follows(state.cohorts[group.cohort].reason).backs_off


def _changed(state: State, group: Group, reservation: Reservation) -> bool:
    table = state.table
    if queueing.priority(state, group) != reservation.priority:
        return True
    for digest, node, _ in reservations.rooms(reservation):
        row = table.rows.get(node)
        if row is None or not fits.admits(table, table.classes[digest], row):
            return True
    if group.changed > reservation.sequence and _needs_other_room(state, group, reservation):
        return True
    return bool(reservation.doubted and reserving.no_place(state, reservation, nodes=reservation.doubted))


def _needs_other_room(state: State, group: Group, reservation: Reservation) -> bool:
    gangs = [state.gangs[key] for key in group.gangs]
    reserved = sum(pods for _, _, pods in reservations.rooms(reservation))
    if (
        any(gang.declaration is None for gang in gangs)
        or sum(membership.lacks(state, gang) for gang in gangs) != reserved
    ):
        return True
    classes = {state.pods[uid].fact.scheduling_class for gang in gangs for uid in gang.members}
    return any(of_class.scheduling_class not in classes for of_class in reservation.room)
