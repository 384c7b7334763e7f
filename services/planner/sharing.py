"""What shards owe each other, so that several plan almost as one would.

*Order.* A shard plans its groups as if waiting groups of other shards that come before them in queue order had taken
their room first: it places them too, says nothing of them, and looks no further ahead than `Policy.lookahead_pods`.
While no group is refused for room, only those of a higher priority are looked at: equal ones have room enough, and every
shard's time goes into its own. If shards still claim the same room, the log's order decides, and a gang that keeps
losing is nominated (`services.binder`).

*Nodes.* Each node belongs to one shard by a stable hash of its name. A shard tries its own nodes first
(`services.planner.placement`), so that proposals of different shards seldom meet.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Sequence
from operator import itemgetter
from typing import cast

import numpy as np

from events.policy import Policy
from services.planner.rules.queue_orders import QUEUE_ORDERS, Place, QueueOrder
from services.state import cohorts, membership, queueing, reasons
from services.state.fold import State
from services.state.nodes import Ints, NodeTable
from services.state.records import Group

Entry = tuple[Place, Group]
SLICE_GROUPS = 8_192
"""Groups that are put into queue order between two yields: some 10 ms."""


def cycle_queue(state: State, policy: Policy, shard: str) -> Generator[None, None, list[Group]]:
    """What one cycle of the shard places, in queue order: its own groups, and those of others that go before them. In
    slices, as hundreds of thousands may wait.

    A group comes twice where the order has a place for what is beyond its minimum. Who backs off is tried all the same
    where others would pass it (`cohorts.passed_over`), without a place in the count: it may find no room again.
    """
    owners, order = state.owners, QUEUE_ORDERS[policy.profile.queue_order]

    def own(groups: list[Group]) -> list[Group]:
        return [group for group in groups if owners[group.partition] == shard]

    waiting = yield from cohorts.waiting_in_slices(state)
    queue = yield from _head(state, order, waiting, policy.cycle_pods, own)
    found = yield from cohorts.passed_over(state, waiting, policy.lookahead_pods)
    passed = sorted(((order.place(state, group), group) for group in found), key=itemgetter(0))
    queue = sorted(queue + [entry for entry in passed if owners[entry[1].partition] == shard], key=itemgetter(0))
    ahead = [entry for entry in passed if owners[entry[1].partition] != shard]
    if queue and any(owner != shard for owner in owners):
        ahead += yield from _look_ahead(state, shard, order, waiting, policy.lookahead_pods, queue[-1])
    if ahead and queue:
        last, _ = queue[-1]
        queue = [entry for entry in sorted(queue + ahead, key=itemgetter(0)) if entry[0] <= last]
    return [group for _, group in queue]


def _look_ahead(
    state: State, shard: str, order: QueueOrder, waiting: list[Group], pods: int, end: Entry
) -> Generator[None, None, list[Entry]]:
    """Of other shards' groups the first of those that go before the end of the shard's own."""
    (last, least), owners = end, state.owners
    lowest = queueing.priority(state, least)

    def of_others(groups: list[Group]) -> list[Group]:
        return [group for group in groups if owners[group.partition] != shard]

    def higher(groups: list[Group]) -> list[Group]:
        return [group for group in of_others(groups) if queueing.priority(state, group) > lowest]

    if any(reasons.follows(cohort.reason).for_room for cohort in state.cohorts.values()):
        return (yield from _head(state, order, waiting, pods, of_others, before=last))
    return (yield from _head(state, order, waiting, pods, higher))


def _head(
    state: State,
    order: QueueOrder,
    waiting: list[Group],
    pods: int,
    meant: Callable[[list[Group]], list[Group]],
    *,
    before: Place | None = None,
) -> Generator[None, None, list[Entry]]:
    """Of those groups that are meant the first entries in queue order whose groups have so many pods together; the last
    of them may have more. `before`: of the groups that go before this place alone.

    What is not among the first of some groups is not among the first of more.
    """
    first: list[Entry] = []
    for start in range(0, len(waiting), SLICE_GROUPS):
        if start:
            yield
        first += _entries(state, order, meant(waiting[start : start + SLICE_GROUPS]), before)
        first.sort(key=itemgetter(0))
        first = _first(state, first, pods)
    return first


def _entries(state: State, order: QueueOrder, groups: list[Group], before: Place | None) -> list[Entry]:
    """The groups, each with its place; and again, where what is beyond its minimum has one."""
    entries = [(order.place(state, group), group) for group in groups]
    if before is not None:
        entries = [entry for entry in entries if entry[0] < before]
    if order.rest is not None:
        rests = [(order.rest(state, group), group) for _, group in entries]
        entries += [(place, group) for place, group in rests if place is not None]
    return entries


def _first(state: State, queue: list[Entry], pods: int) -> list[Entry]:
    counted = 0
    gangs: set[str] = set()
    for at, (_, group) in enumerate(queue):
        if counted >= pods:
            return queue[:at]
        if group.pod:
            counted += 1
        elif group.key not in gangs:
            gangs.add(group.key)
            counted += len(membership.members(state, group))
    return queue


def own_nodes(table: NodeTable, shards: Sequence[str], shard: str) -> Ints | None:
    """For each row 1 where the node is this shard's, else 0; None where one shard has them all."""
    if len(shards) < 2 or shard not in shards:
        return None
    key = ("own", len(shards), shards.index(shard))
    if key not in table.cache:
        table.cache[key] = (_shard_of_row(table, len(shards)) == shards.index(shard)).astype(np.int64)
    return cast(Ints, table.cache[key])


def _shard_of_row(table: NodeTable, shards: int) -> Ints:
    """For each row the place of its node's shard among so many."""
    key = ("shard", shards)
    if key not in table.cache:
        of_row = table.cache[key] = np.full(len(table.present), -1)
        for name, row in table.rows.items():
            of_row[row] = zlib.crc32(name.encode()) % shards
    return cast(Ints, table.cache[key])
