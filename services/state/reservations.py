"""Room that is reserved for a gang that starves: refused for lack of room again and again, while smaller work took what
became free.

A reservation is a nominated claim on room that is partly not there yet: it names nodes and how many pods of which
scheduling class are to go there. So it is not counted with the claims, which never exceed a node: planners and binder
subtract it for those whom it keeps off (`against`), and what is left may fall below nothing. It has a bound of its own in
log time, and belongs to nobody's pods: a member that is replaced by another of its kind changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import events as ev
from services.state import classes, queueing
from services.state.clock import set_deadline
from services.state.records import NOMINATED, TERMINATING, Claim, Group, Reservation, RoomRequest

if TYPE_CHECKING:
    from services.state.fold import State


KEEPS = "node(s) keep room for gang "
"""Why a node is turned down that has room, but keeps it; the gang's name follows."""


def requested(state: State, event: ev.RoomRequested) -> None:
    """A planner's wish, for the binder to answer. Not current at its own place: ignored and counted."""
    group = state.groups.get(event.group)
    shard = state.writer.partition(".")[2]
    if (
        group is None
        or group.since > state.basis
        or state.owner(group) != shard
        or state.commit_epoch != state.epoch
        or event.group in state.reservations
        or not classes.known(state, event.room)
    ):
        state.ignore(event)
        return
    classes.keep_room(state, event.room)
    _answered(state, event.group)
    state.room_requests[event.group] = RoomRequest(event.group, state.basis, event.room)


def declined(state: State, event: ev.RoomDeclined) -> None:
    _answered(state, event.group)


def _answered(state: State, group: str) -> None:
    request = state.room_requests.pop(group, None)
    if request is not None:
        classes.let_room_go(state, request.room)


def reserved(state: State, event: ev.RoomReserved) -> None:
    """Its nodes count as touched: whoever was placed there without knowing of it was not wrong."""
    if event.group not in state.room_requests or not classes.known(state, event.room):
        state.ignore(event)
        return
    classes.keep_room(state, event.room)
    _answered(state, event.group)
    state.reservations[event.group] = Reservation(event.group, state.sequence, event.priority, event.room)
    set_deadline(state.clock("binder"), "reservation", f"{state.sequence}/{event.group}", event.waiting_ms)


def ended(state: State, event: ev.ReservationEnded) -> None:
    """Those whom it kept off may be tried again. The gang that it was for begins to count its refusals anew."""
    reservation = state.reservations.pop(event.group, None)
    if reservation is None:
        state.ignore(event)
        return
    classes.let_room_go(state, reservation.room)
    state.kept_sequence = state.sequence
    group = state.groups.get(event.group)
    if group is not None and event.reason == "Expired":
        group.attempts = 0


def due(state: State, key: str) -> None:
    if stands(state, key):
        state.reservations[key.partition("/")[2]].due = True


def stands(state: State, key: str) -> bool:
    """Whether the reservation that a deadline is about is there still."""
    sequence, _, group = key.partition("/")
    reservation = state.reservations.get(group)
    return reservation is not None and reservation.sequence == int(sequence)


def against(state: State, group: Group) -> tuple[Reservation, ...]:
    """The reservations that keep room from the group, in log order.

    Nobody is kept off by a gang of a lower priority, nor by what is reserved for himself. And a group that has room
    nominated goes where it likes: it replaces a member of a running gang, or lost to others time and again.
    """
    if not state.reservations:
        return ()
    priority = queueing.priority(state, group)
    found = tuple(one for one in state.reservations.values() if one.group != group.key and one.priority >= priority)
    return () if found and _has_nominated(state, group) else found


def asked_before(state: State, group: Group, asked: Iterable[ev.RoomRequested]) -> list[RoomRequest | ev.RoomRequested]:
    """What may be reserved and be kept from the group, and is not yet: requests without an answer, and those that its
    planner is about to make."""
    priority = queueing.priority(state, group)
    found: list[RoomRequest | ev.RoomRequested] = [*state.room_requests.values(), *asked]
    others = [(one, state.groups.get(one.group)) for one in found if one.group != group.key]
    return [one for one, its in others if its is not None and queueing.priority(state, its) >= priority]


def stays(state: State, claim: Claim) -> bool:
    """Whether nobody knows that its room is ever given back: it is nominated, or of a pod that is not Muster's to
    schedule (a DaemonSet's, another scheduler's)."""
    pod = state.pods.get(claim.uid)
    if claim.stage == NOMINATED or pod is None:
        return True
    return pod.status != TERMINATING and not pod.fact.candidate


def _has_nominated(state: State, group: Group) -> bool:
    return group.key in state.group_nominations or any(one.gang in group.gangs for one in state.nominations.values())


def rooms(reservation: Reservation | RoomRequest | ev.RoomRequested) -> Iterator[tuple[str, str, int]]:
    """(scheduling class, node, pods) of what is reserved, or asked for."""
    for of_class in reservation.room:
        for node, pods in of_class.nodes.items():
            yield of_class.scheduling_class, node, pods
