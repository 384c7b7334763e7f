"""Starvation: which requests for room are granted.

    it gets a nominated claim on the nodes that will be free first […] at most a configurable number of such claims at a
    time; higher priority work is never blocked by a lower-priority claim; two starving gangs must not block each other

Requests are answered in log order, each at once. A claim is granted while fewer than `Policy.reservations` stand; beyond
that only in place of one of a lower priority, the lowest first and the youngest of these. What is asked for must fit
the nodes beside what is reserved for gangs of the same or a higher priority, once everything that may ever leave them
has left, host ports included: so each of these gangs can have all of its room while the others keep theirs. Planners see
to that within a cycle, and for what stands in the log; two shards that ask at the same time do not know of each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cache, partial

import events as ev
from events.policy import Policy
from services.state import fits, queueing, reservations
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.records import PARKED, Group, Reservation, RoomRequest

Answer = ev.RoomReserved | ev.RoomDeclined | ev.ReservationEnded


def answer_requests(state: State, policy: Policy, over: set[str]) -> Iterator[list[Answer]]:
    """What is said of each request. `over`: groups whose reservation ends in this decision."""
    standing = [one for one in state.reservations.values() if one.group not in over]
    for request in state.room_requests.values():
        group = state.groups.get(request.group)
        reason = "GroupGone" if group is None else _not_meant(policy, group, request)
        if group is None or reason:
            yield [ev.RoomDeclined(group=request.group, reason=reason)]
            continue
        priority = queueing.priority(state, group)
        stronger = [one for one in standing if one.priority >= priority]
        weaker = weakest_first([one for one in standing if one.priority < priority])
        excess = max(0, len(standing) + 1 - policy.reservations)
        reason = "Full" if excess > len(weaker) else no_place(state, request, stronger)
        if reason:
            yield [ev.RoomDeclined(group=request.group, reason=reason)]
            continue
        answers: list[Answer] = []
        for one in weaker[:excess]:
            answers.append(ev.ReservationEnded(group=one.group, reason="Outranked"))
            standing.remove(one)
        hold_ms = policy.reservation_hold_ms
        granted = ev.RoomReserved(group=group.key, priority=priority, room=request.room, waiting_ms=hold_ms)
        yield [*answers, granted]
        standing.append(Reservation(group.key, state.sequence + 1, priority, request.room))


def weakest_first(standing: list[Reservation]) -> list[Reservation]:
    """In which order they make way: the lowest priority first, and the youngest of these."""
    youngest_first = standing[::-1]
    return sorted(youngest_first, key=lambda one: one.priority)


def _not_meant(policy: Policy, group: Group, request: RoomRequest) -> str:
    """Why the request does not mean the group as it is now, if so."""
    if group.since > request.basis:
        return "GroupGone"
    if not policy.reserve_after_refusals:
        return "TurnedOff"
    return "Changed" if group.phase != PARKED or group.changed > request.basis else ""


def no_place(
    state: State,
    request: RoomRequest | Reservation,
    stronger: Iterable[Reservation] = (),
    nodes: Collection[str] | None = None,
) -> str:
    """Why what is asked for cannot be kept beside what is kept already, if so. `nodes`: these of it alone."""
    table = state.table
    left = cache(partial(_could_be_free, state))  # of each node, counted when it is first asked for; then taken from
    opened: dict[str, list[ClassInfo]] = {}
    for info, at, pods in reservations.rows(table, stronger):
        node = table.names[at]
        fits.take(left(node), info, pods)
        opened.setdefault(node, []).append(info)
    for digest, node, pods in reservations.rooms(request):
        if nodes is not None and node not in nodes:
            continue
        row, info = table.rows.get(node), table.classes[digest]
        if row is None or not fits.admits(table, info, row):
            return "NodeGone"
        beside = (*opened.get(node, ()), *_open_for_ever(state, node)) if info.ports else ()
        if any(fits.classes_collide(info, other) for other in beside):
            return "Overlap"
        if not fits.take(left(node), info, pods):
            return "Overlap"
    return ""


def _open_for_ever(state: State, node: str) -> Iterator[ClassInfo]:
    """Classes of those who may never go."""
    for uid in state.nodes[node].claims:
        if reservations.stays(state, claim := state.claims[uid]):
            yield state.table.classes[claim.scheduling_class]


def _could_be_free(state: State, node: str) -> list[int]:
    """What the node has, by column, once all are gone who may ever go."""
    table = state.table
    free: list[int] = table.allocatable[table.rows[node]].tolist()
    for uid in state.nodes[node].claims:
        claim = state.claims[uid]
        if reservations.stays(state, claim):
            fits.take(free, table.classes[claim.scheduling_class], 1)
    return free
