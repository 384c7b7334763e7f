"""What the pods of a refused group are told: what the planner said, with how many pods their gang has by now, or which
declaration of it cannot be read.

Derived, not decided: a pod that comes wakes nobody while others are missing. And a PodGroup that cannot be read is as
good as none; the group is tried again with the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from events import dialects
from services.state import lacking
from services.state.records import Gang, Group

if TYPE_CHECKING:
    from services.state.fold import State


LIMITED = "more than the limit of "
"""In the message of a gang that has too many pods; the policy's limit follows."""


def said(state: State, group: Group) -> tuple[str, str]:
    """(What is written again only when it changes, the message) for the pods of a group in a cohort."""
    cohort = state.cohorts[group.cohort]
    if lacks := lacking.message(state, group, cohort):
        return cohort.condition, lacks
    if cohort.reason == "SetAside":  # for a node, which is another when they disagree again
        return cohort.message, cohort.message
    if cohort.reason == "GangTooLarge":  # for a limit, which an admin may change, or for what a commit takes
        _, limited, limit = cohort.message.rpartition(LIMITED)
        return f"{cohort.condition}: {limit}" if limited else cohort.condition, cohort.message
    if cohort.reason != "GangNotDeclared" or not state.rejections:
        return cohort.condition, cohort.message
    for key in group.gangs:
        gang = state.gangs[key]
        found = None if gang.declaration is not None else _rejection(state, gang)
        if found is not None:
            why = rejected(found)
            kind = found.kind.partition(".")[0]
            return f"{cohort.condition}: {why}", f"gang {key}: its {kind} {found.name} is rejected: {why}"
    return cohort.condition, cohort.message


def rejected(event: ev.DeclarationRejected) -> str:
    """What is wrong with the object: the field, what stands there, what was expected."""
    if not event.field:
        return f"expected {event.expected}"
    if not event.value and ", got " in event.expected:  # a decoder's words, which say what stands there
        return f"{event.field}: expected {event.expected}"
    stands = repr(event.value) if event.value else "empty or missing"
    return f"{event.field} is {stands}; expected {event.expected}"


def _rejection(state: State, gang: Gang) -> ev.DeclarationRejected | None:
    for kind, namespace, name in dialects.declaring(gang.key, gang.dialect):
        found = state.rejections.get(f"{kind}/{namespace}/{name}")
        if found is not None:
            return found
    return None
