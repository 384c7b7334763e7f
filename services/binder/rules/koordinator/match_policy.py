"""Seed 002, After Gang, Permit and failover; and the match policies of the later code.

    When once Gang has been satisfied, all subsequent resource allocations are no longer constrained by Gang rules, and
    their performance is similar to ordinary pod.

    If Gang meet the bind-condition, […] we will set Gang's ResourceSatisfied to true.

    When handle failover case, if any pod in Gang has been bound, we set ResourceSatisfied=true.

That is the policy *once-satisfied*, Koordinator's default. The later code has two more, in which a gang is never free of
its rules: *waiting-and-running* counts pods that are bound beside those that wait at permit, as coscheduling does;
*only-waiting* counts those that wait at permit alone, so that each wave of pods needs the whole minimum anew. A pod that
is permitted waits until it is bound.

Where the text is silent: it is *any* bound pod, whoever bound it and whether a scheduler starts or runs on; so a gang's
first pod that somebody else binds frees the others. A gang whose last pod is gone begins anew, although its PodGroup
stays; the later code remembers.
"""

from __future__ import annotations

from events.dialects import ONLY_WAITING
from services.binder.rules.coscheduling import permit
from services.state import membership
from services.state.fold import State
from services.state.records import Gang


def quorum(state: State, gang: Gang, assumed: int) -> bool:
    """Whether the gang has its minimum, or needs none any more. `assumed`: its pods that wait or are proposed."""
    if membership.rules_off(gang):
        return True
    if gang.declaration is not None and membership.match_policy(gang) == ONLY_WAITING:
        to_be_bound = sum(uid in state.permitted for uid in gang.members)
        return to_be_bound + assumed >= gang.declaration.min_member
    return permit.quorum(state, gang, assumed)
