"""Seed 002, After Gang, before anything is placed.

    When once Gang has been satisfied, all subsequent resource allocations are no longer constrained by Gang rules, and
    their performance is similar to ordinary pod.

So later pods of such a gang are placed one by one, whatever the gangs of its group lack, and the group's checks skip
them. What makes a gang satisfied is the binder's (`services.binder.rules.koordinator.match_policy`).
"""

from __future__ import annotations

from services.state import membership
from services.state.records import Gang


def constrained(gang: Gang) -> bool:
    """Whether gang rules are still effective for the gang's pods."""
    return not membership.rules_off(gang)
