"""Seed 002, Data-Structure: `scheduleCycle`, `scheduleCycleValid`, `childrenScheduleRoundMap`, `totalChildrenNum`.

    When each pod comes to PreFilter, we will check if the pod's value in `childrenScheduleRoundMap` is smaller than
    Gang's `scheduleCycle`. If result is positive, we set the pod's cycle […] equal with `scheduleCycle` and pass the
    check. If result is negative, means the pod has been scheduled in this cycle, so we should reject it. With
    `totalChildrenNum`'s help, when the last pod comes to make all […] values equal to `scheduleCycle`, Gang's
    `scheduleCycle` will be added by 1, which means a new schedule cycle.

    When a pod failed at Filter stage, we will set ScheduleCycleValid to false in PostFilter stage, which means any pod in
    this Gang shouldn't be scheduled until it is set to "true", and the remaining pods should be rejected in PreFilter
    stage. Only When `scheduleCycle` added by 1, we will reset the `scheduleCycleValid` to true.

    It should be emphasized that [these] only work in `Strict`.

A group is planned as a whole, so that one attempt is one cycle: all children come to PreFilter at once, and each is in a
proposal at most once. What the text counts is told by events:

| the text | here |
| --- | --- |
| children pass PreFilter, each once in a cycle | `GangPlaced`; a pod that has a claim is in no other |
| a pod failed at Filter: the cycle is not valid | `GroupsRefused`, InsufficientRoom: the group is parked |
| PostFilter: release all assumed pods | `GangReleased`, LeftQueue |
| the remaining pods are rejected | nothing: a parked group is not tried |
| the cycle is added by 1, and valid again | room is given back, a fact about the group, its retry falls due |
| ActiveGang, all pods back to the active queue | nothing: after `GangHeld` the group is ready, as one entry |

*total-number* says when all children came. Those that are there come at once, so an attempt ends the cycle of a gang
that has that many; by default, its minimum, it always has. With fewer the cycle goes on: a child that comes then is
rejected in the invalid cycle, and starts no attempt, until one completes the number. So a controller that makes the
pods of a large gang one by one causes no attempt for each. Read literally, the text leaves a gang that never gets all
its children without another cycle, although its minimum would fit by now. Here room that is given back and the retry
begin one, too.
"""

from __future__ import annotations

from services.state import schedule_cycle
from services.state.fold import State
from services.state.records import Group


def unfinished(state: State, group: Group) -> str:
    """What the refusal of a group without room says of children that are yet to come; empty if none are."""
    for key in group.gangs:
        missing = schedule_cycle.missing(state, state.gangs[key])
        if missing:
            return f" Of gang {key} {missing} more pods are to come; before, only room has it tried again."
    return ""
