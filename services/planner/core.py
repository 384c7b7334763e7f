"""The planner's cycle: groups that may be tried now, in queue order; checks; placement; events.

`decide` is a pure function of (state, shard), by the rules in force. It is written as a generator that yields None
between slices of work, by count, so that a service can answer pings in between; the state must not change until it
returns its events. Groups are placed as wholes, and neighbours in the queue that are single pods of one scheduling class
in one step.

Where to read on: `Cycle.plan`, from which `gangs` and `placement` are called; `rules`, the published rules, one file
each, such as `rules.coscheduling.queue_sort`; `service`, this core as a process. The binder's half is
`services.binder.core`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator

from msgspec.structs import replace

from events import GangPlaced, GroupsRefused, RoomRequested
from events.envelope import FIRST_VERSION
from events.objects import NodeAssignment
from events.policy import Policy
from services.planner import gangs
from services.planner.attempt import Attempt
from services.planner.placement import Placed, Room
from services.planner.reserved import ReservedRoom
from services.planner.rules.queue_orders import QUEUE_ORDERS
from services.planner.rules.starvation.occupants import Occupants
from services.planner.sharing import cycle_queue, own_nodes
from services.state import cohorts, commits, fits, reasons, reservations
from services.state.class_info import ClassInfo
from services.state.fold import State
from services.state.records import Group
from services.state.slices import at_once

PlannerEvent = GangPlaced | GroupsRefused | RoomRequested
SLICE_ROWS = 200_000
"""Rows scanned between two yields: a few milliseconds."""
POD_ROWS = 32
"""To count a gang's pod, or to name it, takes as long as to scan so many rows."""


def decide(state: State, shard: str) -> Generator[None, None, list[PlannerEvent]]:
    """One cycle of the shard over `state`, by the rules in force there."""
    return RULES[state.rules_version](state, shard)


def _cycle(state: State, shard: str) -> Generator[None, None, list[PlannerEvent]]:
    """No events while the picture of the cluster is partial, or no partitions are assigned yet.

    If the events are more than a commit takes, the cycle is planned again for the first half of the shard's groups.
    """
    if not state.synced or state.policy is None or not state.epoch:
        return []
    queue = yield from cycle_queue(state, state.policy, shard)
    if queue:
        yield from state.table.rank_in_slices()
    while True:
        events = (yield from _plan(state, state.policy, shard, queue)) if queue else []
        if commits.size(events) <= commits.DECISION_BYTES:
            return events
        own = [at for at, group in enumerate(queue) if state.owner(group) == shard]
        if len(own) < 2:
            return events
        queue = queue[: own[len(own) // 2]]


def _plan(state: State, policy: Policy, shard: str, queue: list[Group]) -> Generator[None, None, list[PlannerEvent]]:
    cycle = Cycle(state, policy, shard)
    yield
    for batch in cycle.batches(queue):
        yield from cycle.plan(batch)
        if cycle.slice_over():
            yield
    cycle.begun.clear()  # attempts refer to the cycle: until a collection of garbage, each would keep a copy of the room
    return cycle.events()


RULES: dict[int, Callable[[State, str], Generator[None, None, list[PlannerEvent]]]] = {FIRST_VERSION: _cycle}
"""Version of the rules → how it decides. The next one is a line here, and one in the binder's core."""


def decide_now(state: State, shard: str) -> list[PlannerEvent]:
    """`decide` in one go."""
    return at_once(decide(state, shard))


class Cycle:
    """One pass over the queue: a working copy of the room, the proposals made, the refusals gathered by their reason.

    Groups of other shards only take their room: no event is made for them. Without a `shard` all groups are its own.
    """

    def __init__(self, state: State, policy: Policy, shard: str | None = None) -> None:
        self.state = state
        self.policy = policy
        self.shard = shard
        self.shards = sorted(set(state.owners))
        self.silent = False
        """Whether the group that is being placed is another shard's."""
        self.left = False
        """Whether some of the room was left for another shard's pods."""
        self.room = Room(state.table, policy.profile.node_score)
        self.pods_named = 0
        """Pods of gangs that were counted or named: measures the work, for slicing."""
        self._sliced = state.table.rows_looked_at
        """The work that had been done when the slice began, in rows."""
        self.reserved = ReservedRoom(state, self.room)
        self.placed: list[GangPlaced] = []
        self.begun: dict[str, Attempt | None] = {}
        """Groups that are in the queue twice and had their first turn → the attempt that placed their minimum, if any."""
        self.requests: list[RoomRequested] = []
        self.occupants: Occupants | None = None
        """Once a gang starves."""
        self.refusals: dict[tuple[object, ...], tuple[GroupsRefused, list[str]]] = {}

    def events(self) -> list[PlannerEvent]:
        refused = [replace(event, groups=tuple(keys)) for event, keys in self.refusals.values()]
        return [*self.placed, *refused, *self.requests]

    def slice_over(self) -> bool:
        """Whether so many rows were scanned, in the room or for what is asked of nodes' labels, or so many pods named, or
        ports looked up, that the next slice is to begin; if so, it does."""
        room, table = self.room, self.state.table
        rows = room.rows_scanned + room.ports.rows_scanned + table.rows_looked_at
        done = rows + self.pods_named * POD_ROWS
        over = done - self._sliced > SLICE_ROWS
        if over:
            self._sliced = done
        return over

    # ----------------------------------------------------------------------------------------------------------- queue

    def batches(self, queue: list[Group]) -> Generator[list[Group], None, None]:
        """Neighbours in the queue that can be placed in one step, together: single pods of one class and one shard, from
        which the same reservations are kept. Everything else is a batch of its own."""
        pods, owners = self.state.pods, self.state.owners
        batch: list[Group] = []
        of: tuple[object, ...] = ()
        reserved = bool(self.state.reservations)
        for group in queue:
            digest = pods[group.pod].fact.scheduling_class if group.pod else ""
            kind = digest, owners[group.partition], reservations.against(self.state, group) if reserved else ()
            if batch and (not group.pod or kind != of):
                yield batch
                batch = []
            of = kind
            batch.append(group)
        if batch:
            yield batch

    def plan(self, batch: list[Group]) -> Generator[None, None, None]:
        """Place the batch as its shard would, on nodes of that shard's own first. In slices."""
        owner = self.state.owner(batch[0])
        self.silent = self.shard is not None and owner != self.shard
        self.room.own = own_nodes(self.state.table, self.shards, owner)
        self.reserved.show(batch[0])
        if batch[0].pod:
            yield from self._plan_singles(batch)
        else:
            yield from gangs.plan(self, batch[0])

    def place_in_slices(self, info: ClassInfo, pods: int, group: Group) -> Generator[None, None, Placed]:
        """`Room.place`, with a yield whenever a slice is over."""
        yield from fits.filtered_in_slices(self.state.table, info)
        yield from self.room.preference_in_slices(info)
        placed: Placed = []
        for step in self.room.steps(info, pods, self.seed(group)):
            placed += step
            if self.slice_over():
                yield
        return placed

    def comes_again(self, group: Group) -> bool:
        """Whether the group is in the queue a second time, with what it has beyond its minimum."""
        rest = QUEUE_ORDERS[self.policy.profile.queue_order].rest
        return rest is not None and rest(self.state, group) is not None

    # --------------------------------------------------------------------------------------------------------- singles

    def _plan_singles(self, batch: list[Group]) -> Generator[None, None, None]:
        info = self.state.table.classes[self.state.pods[batch[0].pod].fact.scheduling_class]
        if info.fact.unsupported:
            for group in batch:
                if not cohorts.backs_off(self.state, group):
                    self.refuse(group, *gangs.not_supported(info.fact.unsupported))
            return
        placed = yield from self.place_in_slices(info, len(batch), batch[0])
        if self.silent:
            self.left = self.left or bool(placed)
            return
        names = self.state.table.names
        nodes = [names[row] for row, pods in placed for _ in range(pods)]
        for group, node in zip(batch, nodes, strict=False):
            assignment = NodeAssignment(node, (group.pod,))
            self.placed.append(
                GangPlaced(group=group.key, partition=group.partition, required=(assignment,), optional=())
            )
        refused = [group for group in batch[len(nodes) :] if not cohorts.backs_off(self.state, group)]
        if refused:
            why = self.why_not(info)
            for group in refused:
                self.refuse(group, "InsufficientRoom", needed=1, node_reasons=why)

    # -------------------------------------------------------------------------------------------------------- refusals

    def refuse(
        self,
        group: Group,
        reason: str,
        detail: str = "",
        needed: int = 0,
        placeable: int = 0,
        node_reasons: dict[str, int] | None = None,
    ) -> None:
        """Equal refusals share one event."""
        if self.silent:
            return
        if reason == "InsufficientRoom" and self.left:
            reason = "BehindOthers"
        why = node_reasons or {}
        attempt = group.attempts + reasons.follows(reason).backs_off
        key = (reason, detail, attempt, needed, placeable, tuple(why.items()))
        known = self.refusals.get(key)
        if known is None:
            event = GroupsRefused(
                reason=reason,
                detail=detail,
                attempt=attempt,
                needed=needed,
                placeable=placeable,
                nodes=len(self.state.table.rows),
                node_reasons=why,
                groups=(),
            )
            known = self.refusals[key] = (event, [])
        known[1].append(group.key)

    def why_not(self, info: ClassInfo) -> dict[str, int]:
        return {} if self.silent else self.reserved.why_not(info)

    def seed(self, group: Group) -> int:
        """A stable 32-bit hash of the group: which of equal nodes it tries first."""
        return zlib.crc32(group.key.encode())
