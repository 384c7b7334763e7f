"""Seed 002, Strict and NonStrict, PreFilter and PostFilter.

    In NonStrict, if a pod failed to be scheduled, it has no impact on any other pod. We will continue to accumulate the
    allocated pod until the condition of Gang is met.

    At this point means the pod didn't pass the Filter Plugin, we should:
    - If Strict, we will set scheduleCycleValid to false and release all assumed pods.
    - If NonStrict, we will do nothing.

So of a NonStrict gang whatever finds a node is proposed, up to what it lacks, and waits at permit. Of a Strict gang its
minimum is proposed together or not at all. A cycle of the schedule (scheduleCycle, its validity and the children's
rounds) needs no state here: a Strict group is tried as a whole, each of its pods once, and one failure ends the try.

Where the text is silent: modes are each gang's own, also in a gang group; a Strict gang that does not fit keeps its whole
group from being placed, a NonStrict one keeps nobody. While a group lacks something, nothing beyond its minimums is
placed: it could only wait. A pod that can never be placed (a constraint that is not honoured, a gate) is a pod that
failed: a NonStrict gang goes on without it.
"""

from __future__ import annotations

from services.state import membership
from services.state.records import Gang


def together(gang: Gang) -> bool:
    """Whether the gang's minimum is placed together or not at all."""
    return membership.strict(gang)
