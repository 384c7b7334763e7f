"""Volcano's ``minTaskMember``: the minimums of single tasks.

There is no text on it; this is what Volcano's own scheduler does (JobInfo.CheckTaskValid, CheckTaskReady). A job may be
tried when each task has as many pods as its minimum, and starts when each task has as many with a node; both beside the
minimum of the whole. If the minimum of the whole is smaller than the tasks' together, it alone counts.

Members are of the task that their ``volcano.sh/task-spec`` names; a task that no pod names is short of pods. Which pods
reach the minimum of the whole beyond those of its tasks is open there; here it is whichever find a node.
"""

from __future__ import annotations

from services.state import membership
from services.state.fold import State
from services.state.records import Gang


def tasks(state: State, gang: Gang) -> dict[str, tuple[list[str], int]]:
    """Task → (its members, its minimum; 0: none) where minimums of tasks count; else empty."""
    minimums = membership.task_minimums(gang)
    members = membership.by_task(state, gang) if minimums else {}
    return {task: (uids, minimums.get(task, 0)) for task, uids in members.items()}
