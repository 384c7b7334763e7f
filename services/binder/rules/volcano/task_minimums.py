"""Volcano's ``minTaskMember``, where bindings are decided (JobInfo.CheckTaskReady in its scheduler).

A job is ready when each task has its minimum of pods that run, have done their work, or have a node; beside the minimum
of the whole. If the minimum of the whole is smaller than the tasks' together, it alone counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from services.state import membership, tallies
from services.state.fold import State
from services.state.records import Gang


def reached(state: State, gang: Gang, assumed: Iterable[str]) -> bool:
    """Whether each task has its minimum with the pods (by UID) that wait at permit or are proposed."""
    minimums = membership.task_minimums(gang)
    if not minimums:
        return True
    tally, pods = tallies.of(state, gang), Counter(membership.task(state, uid) for uid in assumed)
    return all(tally.running_of(task) + pods[task] >= minimum for task, minimum in minimums.items())
