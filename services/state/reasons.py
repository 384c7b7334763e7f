"""Why groups are parked, and what follows from each reason: one table.

The first nine are what a planner says (`GroupsRefused`); `SetAside` is a disagreement's; the others are assignments
that failed, as the binder or a fact says. A reason that is not in the table waits for a fact about its group or for its
retry, and says nothing to users.
"""

from __future__ import annotations

from typing import NamedTuple

UNSCHEDULABLE = "Unschedulable"
"""The condition's reason on which autoscalers act."""


class Reason(NamedTuple):
    """What follows from it."""

    word: str = ""
    """The reason of the pods' condition; none where the group is tried again at once, and may well get its place then."""
    alike: str = ""
    """Another reason, from which the pods' condition does not tell it."""
    backs_off: bool = False
    """It counts as a failed attempt: it backs off, and moves the group behind in the queue order."""
    tried_at_once: bool = False
    """As soon as the backoff is over, whatever else happens."""
    retried: bool = True
    """After the policy's `retry_ms`; else only a fact about the group itself ends it."""
    incomplete: bool = False
    """Only what is named as missing, pods, a gang or what the user does, can end it before its retry (`lacking`)."""
    for_room: bool = False
    """Room that is given back can end it."""
    no_room: bool = False
    """The gang cannot be scheduled as things are; others wait for pods or for a declaration."""


_TO_NOTHING = Reason(backs_off=True, tried_at_once=True)

REASONS = {
    "InsufficientRoom": Reason(UNSCHEDULABLE, backs_off=True, for_room=True, no_room=True),
    "BehindOthers": Reason(
        UNSCHEDULABLE, "InsufficientRoom", backs_off=True, tried_at_once=True, for_room=True, no_room=True
    ),
    "TooFewPods": Reason("WaitingForMembers", incomplete=True),
    "WaitingForGang": Reason("WaitingForGang", incomplete=True),
    "GangNotDeclared": Reason("WaitingForPodGroup"),
    "GangTimedOut": Reason("GangTimedOut", retried=False, incomplete=True),
    "PodsGated": Reason("WaitingForMembers"),
    "UnsupportedConstraint": Reason("UnsupportedConstraint", no_room=True),
    "GangTooLarge": Reason("GangTooLarge", no_room=True),
    "SetAside": Reason("SetAside", retried=False),
    "Timeout": _TO_NOTHING,
    "LeftQueue": _TO_NOTHING,
    "HoldBroken": _TO_NOTHING,
    "MemberDeleted": _TO_NOTHING,
    "Deadlock": _TO_NOTHING,
    "BindingFailed": _TO_NOTHING._replace(word="BindingFailed"),
}
_OTHER = Reason()


def follows(reason: str) -> Reason:
    """What follows from a reason."""
    return REASONS.get(reason, _OTHER)
