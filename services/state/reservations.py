"""Room that is reserved for a gang that starves: refused for lack of room again and again, while smaller work took what
became free.

A reservation names nodes, and how many pods of which scheduling class are to go there. Part of that room may still be
taken, so it is no claim: claims never exceed what a node has. Planners and binder subtract it for those groups that must
leave it alone (`against`), and what is left for them may be negative. It expires in log time. It names no pods: when a
member is replaced by another of its class, nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import events as ev
from services.state import classes, fits, groups, queueing
from services.state.class_info import ClassInfo
from services.state.clock import RESERVATION, group_key, of_group, set_deadline
from services.state.nodes import NodeTable
from services.state.records import NOMINATED, TERMINATING, Claim, Group, Reservation, RoomRequest

if TYPE_CHECKING:
    from services.state.fold import State


Reserved = Reservation | RoomRequest | ev.RoomRequested
"""Room that is reserved, or asked for."""
KEEPS = "node(s) keep room for gang "
"""The reason for turning down a node whose room is reserved; the key of the gang that it is for follows."""


def requested(state: State, event: ev.RoomRequested) -> None:
    """A planner's wish, for the binder to answer. Not current at its own place: ignored and counted."""
    meant = groups.meant(state, event.group) is not None
    if not meant or event.group in state.reservations or not classes.known(state, event.room):
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
    """Of its nodes those are doubted that were touched since this was decided. The group is tried again, as all of its
    room may be free already."""
    if event.group not in state.room_requests or not classes.known(state, event.room):
        state.ignore(event)
        return
    classes.keep_room(state, event.room)
    _answered(state, event.group)
    kept = Reservation(event.group, state.sequence, event.priority, event.room)
    for _, name, _ in rooms(kept):
        node = state.nodes.get(name)
        if node is not None and node.touched > state.basis:
            kept.doubted[name] = None
    state.reservations[event.group] = kept
    set_deadline(state.clock("binder"), RESERVATION, group_key(state.sequence, event.group), event.waiting_ms)
    if (group := state.groups.get(event.group)) is not None:
        groups.wake(state, group)


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
        state.reservations[of_group(key)[1]].due = True


def doubt(state: State, node: str) -> None:
    """The node may never have the room any more that is reserved there."""
    for reservation in state.reservations.values():
        if any(node in of_class.nodes for of_class in reservation.room):
            reservation.doubted[node] = None


def stands(state: State, key: str) -> bool:
    """Whether the reservation that a deadline is about is there still."""
    sequence, group = of_group(key)
    reservation = state.reservations.get(group)
    return reservation is not None and reservation.sequence == sequence


def against(state: State, group: Group, *, beyond: bool = False) -> tuple[Reservation, ...]:
    """The reservations that keep room from the group, in log order.

    Not those of gangs of a lower priority, and not its own. What must start together of a group that has room nominated
    is kept from nothing: it replaces a member of a running gang, or lost its proposals to other shards again and again.
    Its pods `beyond` that are kept off like everybody's.
    """
    if not state.reservations:
        return ()
    priority = queueing.priority(state, group)
    found = tuple(one for one in state.reservations.values() if one.group != group.key and one.priority >= priority)
    return () if found and not beyond and _has_nominated(state, group) else found


def asked_before(state: State, group: Group, asked: Iterable[ev.RoomRequested]) -> list[RoomRequest | ev.RoomRequested]:
    """Requests for room that will be kept from the group if they are granted: those without an answer, and those that
    the group's planner makes in this cycle (`asked`)."""
    priority = queueing.priority(state, group)
    found: list[RoomRequest | ev.RoomRequested] = [*state.room_requests.values(), *asked]
    others = [(one, state.groups.get(one.group)) for one in found if one.group != group.key]
    return [one for one, its in others if its is not None and queueing.priority(state, its) >= priority]


def stays(state: State, claim: Claim, names_nodes: bool | None = None) -> bool:
    """Whether the claim's room must count as taken for ever: it is nominated, or its pod is not Muster's to schedule
    (another scheduler's), or of one node alone (a DaemonSet's).

    `names_nodes`: whether its class names its nodes, from somebody who knows it."""
    if claim.stage == NOMINATED:
        return True
    pod = state.pods[claim.uid]
    if pod.status == TERMINATING:
        return False
    if names_nodes is None:
        names_nodes = fits.nodes_named(state.table.classes[claim.scheduling_class]) is not None
    return names_nodes or not pod.fact.candidate


def _has_nominated(state: State, group: Group) -> bool:
    return group.key in state.group_nominations or any(key in state.kept_for for key in group.gangs)


def rooms(reservation: Reserved) -> Iterator[tuple[str, str, int]]:
    """(scheduling class, node, pods) of what is reserved, or asked for."""
    for of_class in reservation.room:
        for node, pods in of_class.nodes.items():
            yield of_class.scheduling_class, node, pods


def rows(table: NodeTable, reservations: Iterable[Reserved]) -> Iterator[tuple[ClassInfo, int, int]]:
    """(class, row, pods) of all that is reserved, or asked for, on the nodes that are there."""
    for reservation in reservations:
        for digest, node, pods in rooms(reservation):
            if node in table.rows:
                yield table.classes[digest], table.rows[node], pods
