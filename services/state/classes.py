"""Scheduling classes: one is there from its fact on, until nothing names it any more.

A class is named by pods, and by room kept for pods that may be gone: a lost member's, nominated, asked for, reserved.
With the last of them the class goes, and all that is derived from it. Ingest counts the same pods, and writes the fact
again before the next pod of the class.

The fact comes right before its first pod, in the same commit: otherwise the class, if only kept room still named it,
might go in between. In older logs the pod may be in the next commit. An ingest that ended in between left a class
without pods; its successor removes that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import events as ev
from events.objects import ClassRoom
from services.state.records import NOMINATED, SchedulingClass

if TYPE_CHECKING:
    from services.state.fold import State


def observed(state: State, event: ev.SchedulingClassObserved) -> None:
    if event.digest not in state.classes:
        state.classes[event.digest] = SchedulingClass(event)
        state.table.add_class(event)


def left(state: State, digest: str) -> None:
    """A pod of the class is gone, or is of another class now."""
    known = state.classes[digest]
    known.pods -= 1
    if not known.pods:
        _forget(state, digest)


def keep(state: State, digest: str) -> None:
    """One more record keeps room for pods of the class."""
    state.kept_classes[digest] = state.kept_classes.get(digest, 0) + 1


def let_go(state: State, digest: str) -> None:
    """One record fewer keeps room for pods of the class; with the last one the class may go."""
    state.kept_classes[digest] -= 1
    if not state.kept_classes[digest]:
        del state.kept_classes[digest]
        _forget(state, digest)


def known(state: State, room: Iterable[ClassRoom]) -> bool:
    """Whether the log still knows all classes that the room is for."""
    return all(one.scheduling_class in state.classes for one in room)


def keep_room(state: State, room: Iterable[ClassRoom]) -> None:
    for one in room:
        keep(state, one.scheduling_class)


def let_room_go(state: State, room: Iterable[ClassRoom]) -> None:
    for one in room:
        let_go(state, one.scheduling_class)


def ingest_taken(state: State) -> None:
    """Forget classes without pods: of an older log, whose ingest ended between a class and its first pod."""
    for digest in list(state.classes):
        _forget(state, digest)


def _forget(state: State, digest: str) -> None:
    if not state.classes[digest].pods and digest not in state.kept_classes:
        del state.classes[digest]
        state.table.drop_class(digest)


def counted(state: State) -> dict[str, int]:
    """Class → how many of the records keep room for it."""
    found = Counter(claim.scheduling_class for claim in state.claims.values() if claim.stage == NOMINATED)
    found.update(lost.scheduling_class for lost in state.lost.values())
    rooms = [one.room for one in state.room_requests.values()] + [one.room for one in state.reservations.values()]
    found.update(of_class.scheduling_class for room in rooms for of_class in room)
    return dict(found)
