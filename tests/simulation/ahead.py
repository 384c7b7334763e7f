"""Order between shards: who goes before all others by priority has its room, whichever shard places whom (7.5).

Several groups that wait may take room from each other, so that of most nothing can be said. But one group that alone has
the highest priority of all that wait, and that fits, fits also behind what another shard proposes for others. While room
is nominated nothing is said: a proposal that goes there counts beside the nomination until its verdict (seed 4446).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from services.planner.core import Cycle
from services.state import cohorts, membership, queueing
from services.state.slices import at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from events.envelope import Commit
    from services.state.fold import State
    from services.state.records import Group


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


def out_of_order(state: State, commit: Commit, touched: Mapping[str, int], policy_at: int) -> str:
    """Each group is one entry of the queue, and of what is proposed the higher priority comes first, as far as nothing of
    these groups was `touched` since, nor the policy. Empty: so it is."""
    basis = commit.header.basis
    keys = [event.group for event in commit.events if isinstance(event, ev.GangPlaced)]
    if len(keys) != len(set(keys)):
        return "a group is proposed twice in one cycle"
    if policy_at > basis or state.rules_version != 1:  # the second have another order
        return ""
    groups = [state.groups.get(key) for key in keys if touched.get(key, 0) <= basis]
    found = [_priority(state, group) for group in groups if group is not None and group.since <= basis]
    return "" if found == sorted(found, reverse=True) else f"proposals of the priorities {found}"


def _priority(state: State, group: Group) -> int:
    declared = (state.gangs[key].declaration for key in group.gangs)
    own = [found.priority for found in declared if found is not None and found.priority is not None]
    return max(own or [state.pods[uid].fact.priority for uid in membership.members(state, group)])


def _tried(state: State, key: str) -> Cycle:
    assert state.policy is not None
    cycle = Cycle(state, state.policy)
    at_once(cycle.plan([state.groups[key]]))
    return cycle
