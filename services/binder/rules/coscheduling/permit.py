"""Seed 000, Extension points, Permit.

    1. Get the number of Running pods that belong to the same PodGroup
    2. Get the number of WaitingPods (used to record pods in waiting status) that belong to the same PodGroup
    3. If Running + WaitingPods + 1 >= min-available (1 means the pod itself), approve the waiting pods that belongs to
       the same PodGroup. Otherwise, put the pod into WaitingPods and set the timeout (eg: 10s)

The text asks pod by pod; a proposal brings several at once, so its 1 is their number. *Running* are the members that are
bound, permitted to be, or have succeeded. A pod counts from its permit on, before its kubelet runs it, or the next one
would wait in vain; and a member that has succeeded did start with its gang, or the last pods of a Job, coming when
others are done, would wait for ever. The text counts running pods only and is silent on both.
"""

from __future__ import annotations

from services.state import membership
from services.state.fold import State
from services.state.records import Gang, Group


def quorum(state: State, gang: Gang, assumed: int) -> bool:
    """Whether Running and the assumed ones, WaitingPods and those that are proposed, reach the gang's minimum."""
    return gang.declaration is not None and membership.running(state, gang) + assumed >= gang.declaration.min_member


def waiting_ms(state: State, group: Group) -> int:
    """The timeout: the longest of the group's gangs' own, else the policy's (the text's 10 s)."""
    own = [
        gang.declaration.waiting_time_ms for key in group.gangs if (gang := state.gangs[key]).declaration is not None
    ]
    default = state.policy.permit_waiting_ms if state.policy is not None else 0
    return max((length_ms or default for length_ms in own), default=default)
