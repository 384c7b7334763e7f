"""Order between shards: who goes before all others by priority has its room, whichever shard places whom (7.5).

Several groups that wait may take room from each other, so that of most nothing can be said. But one group that alone has
the highest priority of all that wait, and that fits, fits also behind what another shard proposes for others. While room
is nominated nothing is said: a proposal that goes there counts beside the nomination until its verdict (seed 4446).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.planner.core import Cycle
from services.state import cohorts, queueing
from services.state.slices import at_once

if TYPE_CHECKING:
    from services.state.fold import State


def first(state: State, shard: str) -> str:
    """That group, where it is another shard's than the one that decides here; empty: there is none."""
    policy = state.policy
    if policy is None or not policy.lookahead_pods or state.rules_version != 1 or len(set(state.owners)) < 2:
        return ""
    if state.nominations or state.group_nominations:
        return ""
    waiting = cohorts.waiting(state)
    waiting += at_once(cohorts.passed_over(state, waiting, policy.lookahead_pods))
    priorities = [queueing.priority(state, group) for group in waiting]
    highest = max(priorities, default=0)
    if priorities.count(highest) != 1:
        return ""
    group = waiting[priorities.index(highest)]
    return group.key if state.owner(group) != shard and _tried(state, group.key).placed else ""


def has_room(state: State, key: str) -> bool:
    """Where a commit takes next to nothing, a permit may be a byte too large for it on nodes with longer names (seed
    416915): that is no lack of room."""
    cycle = _tried(state, key)
    return bool(cycle.placed) or any(event.reason == "GangTooLarge" for event, _ in cycle.refusals.values())


def _tried(state: State, key: str) -> Cycle:
    assert state.policy is not None
    cycle = Cycle(state, state.policy)
    at_once(cycle.plan([state.groups[key]]))
    return cycle
