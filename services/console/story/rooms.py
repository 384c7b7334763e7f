"""What it means to a pod or a gang that room is kept for it: for a replacement, after lost proposals, as it starves."""

from __future__ import annotations

from collections.abc import Iterator

import events as ev
from services.console.counted import counted
from services.console.story.followed import Followed, on
from services.console.story.steps import MS_PER_S, Step
from services.console.summary import extent

REPLACEMENT_OVER = {
    "Taken": "a replacement took it",
    "Expired": "no replacement came in time",
    "GangGone": "the gang has its minimum again, or is gone",
    "Held": "a replacement waits at permit there; its time goes on",
}


OVER = {
    "Taken": "its proposal took it",
    "Refused": "it waits for something else, or has nothing to place",
    "Expired": "its time is over",
    "GroupGone": "its pods are gone",
    "Changed": "its pods, its minimum or its priority changed",
    "Outranked": "a gang of a higher priority starves, too",
    "TurnedOff": "the policy turned it off",
}


DECLINED = OVER | {
    "Changed": "the gang, or the policy, changed meanwhile",
    "NodeGone": "a node of it is gone",
    "Overlap": "some of it is kept for another gang",
    "Full": "as many gangs as the policy allows have room kept",
}


def room_requested(of: Followed, event: ev.RoomRequested) -> Iterator[Step]:
    request = of.state.room_requests.get(of.group)
    if event.group == of.group and request is not None and request.room == event.room:
        of.requested = True
        why = f"it was refused for room time and again, and asks that room for {extent(request)} is kept for it"
        yield Step("starves", why, "starves", counts=True)


def room_nominated(of: Followed, event: ev.RoomNominated) -> Iterator[Step]:
    if not of.means(event.gang, event.pod) or event.pod in of.kept or event.pod not in of.state.nominations:
        return
    of.kept[event.pod] = event.node
    time = f"for {event.waiting_ms / MS_PER_S:g} s at most"
    where = f"on node {event.node}, {time}" if event.node else f"only the time, {time}: its node is gone, too"
    yield Step("room kept", f"for the replacement of a pod that failed: {where}", "room kept", counts=True)


def nomination_ended(of: Followed, event: ev.NominationEnded) -> Iterator[Step]:
    if event.pod not in of.kept:
        return
    if event.reason != "Held":
        del of.kept[event.pod]
    yield Step("kept no more", REPLACEMENT_OVER.get(event.reason, event.reason), f"over {event.reason}", counts=True)


def group_nominated(of: Followed, event: ev.GroupNominated) -> Iterator[Step]:
    if event.group == of.group and event.group in of.state.group_nominations:
        of.nominated = True
        pods = sum(len(one.pods) for one in event.assignments)
        where = f"{counted(pods, 'pod')} {on({one.node: None for one in event.assignments})}"
        why = f"it lost its proposals to others: room for {where}, for {event.waiting_ms / MS_PER_S:g} s at most"
        yield Step("room nominated", why, "room nominated", counts=True)


def group_nomination_ended(of: Followed, event: ev.GroupNominationEnded) -> Iterator[Step]:
    if event.group == of.group and of.nominated:
        of.nominated = False
        why = OVER.get(event.reason, event.reason)
        yield Step("nominated no more", why, f"nominated no more {event.reason}", counts=True)


def room_reserved(of: Followed, event: ev.RoomReserved) -> Iterator[Step]:
    kept = of.state.reservations.get(of.group)
    if event.group == of.group and kept is not None and kept.sequence == of.state.sequence:
        of.requested, of.reserved = False, True
        why = f"for {extent(kept)}, as it becomes free, for {event.waiting_ms / MS_PER_S:g} s at most"
        yield Step("room reserved", why, "room reserved", counts=True)


def room_declined(of: Followed, event: ev.RoomDeclined) -> Iterator[Step]:
    if event.group == of.group and of.requested:
        of.requested = False
        yield Step("not reserved", DECLINED.get(event.reason, event.reason), f"declined {event.reason}", counts=True)


def reservation_ended(of: Followed, event: ev.ReservationEnded) -> Iterator[Step]:
    if event.group == of.group and of.reserved:
        of.reserved = False
        why = OVER.get(event.reason, event.reason)
        yield Step("reserved no more", why, f"reserved no more {event.reason}", counts=True)
