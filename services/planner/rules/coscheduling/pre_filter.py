"""Seed 000, Extension points, Pre-Filter.

    1. When a pod which belongs to a PodGroup comes, calculate the total number of Pods excludes terminating ones belongs
       to the same PodGroup. If the result is less than minAvailable, the scheduling process is terminated directly.
    2. […] the new PodGroup scheduling cycle has been entered. […] if there is a pod belongs to the last podgroup is
       waiting and if no chance to meet minAvailable, reject it directly here. The purpose is 1. To avoid invalid waiting,
       2. To make the pod belongs to the same PodGroup fail together, rather than waiting partially.

Rule 1 is `too_few`. Rule 2 needs no memory of a last group, because a group is placed as a whole: when it cannot reach
its minimum it is refused, and the binder releases what it still holds (`GangReleased`, LeftQueue). Where the text is
silent: a termination by rule 1 is no failed attempt, so it neither backs off nor moves `LastFailureTimestamp`; it is
tried again when enough pods are there.
"""

from __future__ import annotations

from services.state.membership import Census


def too_few(census: Census, min_available: int) -> bool:
    """Whether the scheduling process is terminated directly."""
    return census.total < min_available
