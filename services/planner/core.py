"""The planner's cycle: groups that may be tried now, in queue order; checks; placement; events.

`decide` is a pure function of (state, shard). It is written as a generator that yields None between slices of work, by
count, so that a service can answer pings in between; the state must not change until it returns its events. Groups are
placed as wholes, and neighbours in the queue that are single pods of one scheduling class in one step.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator

from events import GangPlaced, GroupsRefused
from events.objects import Declaration, NodeAssignment
from events.policy import Policy
from services.planner.placement import Placed, Room
from services.planner.rules.coscheduling.pre_filter import too_few
from services.planner.sharing import cycle_queue, own_nodes
from services.state import cohorts, fits, membership
from services.state.fold import State
from services.state.nodes import ClassInfo
from services.state.nominations import claim_key
from services.state.records import Gang, Group, Nomination

PlannerEvent = GangPlaced | GroupsRefused
SLICE_ROWS = 200_000
"""Rows scanned between two yields: a few milliseconds."""


def decide(state: State, shard: str) -> Generator[None, None, list[PlannerEvent]]:
    """One cycle of the shard over `state`; nothing while the picture is partial or nobody assigned partitions."""
    if not state.synced or state.policy is None or not state.epoch:
        return []
    queue = cycle_queue(state, state.policy, shard)
    if not queue:
        return []
    cycle = Cycle(state, state.policy, shard)
    sliced = 0
    for batch in cycle.batches(queue):
        cycle.plan(batch)
        if cycle.room.rows_scanned - sliced > SLICE_ROWS:
            sliced = cycle.room.rows_scanned
            yield
    return cycle.events()


def decide_now(state: State, shard: str) -> list[PlannerEvent]:
    """`decide` in one go."""
    cycle = decide(state, shard)
    while True:
        try:
            next(cycle)
        except StopIteration as done:
            events: list[PlannerEvent] = done.value
            return events


class Cycle:
    """One pass over the queue: a working copy of the room, the proposals made, the refusals gathered by their reason.

    Of groups that are not `shard`'s only the room is taken. Without a shard every group is its own.
    """

    def __init__(self, state: State, policy: Policy, shard: str | None = None) -> None:
        self.state = state
        self.policy = policy
        self.shard = shard
        self.shards = sorted(set(state.owners))
        self.silent = False
        """Whether the group that is being placed is another shard's."""
        self.room = Room(state.table, policy.profile.node_score)
        self.placed: list[GangPlaced] = []
        self.refusals: dict[tuple[object, ...], tuple[GroupsRefused, list[str]]] = {}
        self.nominations: dict[str, list[Nomination]] = {}
        for nomination in state.nominations.values():
            self.nominations.setdefault(nomination.gang, []).append(nomination)

    def events(self) -> list[PlannerEvent]:
        refused: list[PlannerEvent] = [
            GroupsRefused(
                reason=event.reason,
                detail=event.detail,
                attempt=event.attempt,
                needed=event.needed,
                placeable=event.placeable,
                nodes=event.nodes,
                node_reasons=event.node_reasons,
                groups=tuple(keys),
            )
            for event, keys in self.refusals.values()
        ]
        return [*self.placed, *refused]

    # ----------------------------------------------------------------------------------------------------------- queue

    def batches(self, queue: list[Group]) -> Generator[list[Group], None, None]:
        """Neighbours that are single pods of one class and of one shard together, everything else alone."""
        pods, owners = self.state.pods, self.state.owners
        batch: list[Group] = []
        of = ("", "")
        for group in queue:
            kind = pods[group.pod].fact.scheduling_class if group.pod else "", owners[group.partition]
            if batch and (not group.pod or kind != of):
                yield batch
                batch = []
            of = kind
            batch.append(group)
        if batch:
            yield batch

    def plan(self, batch: list[Group]) -> None:
        """Place the batch as its shard would, on nodes of that shard's own first."""
        owner = self.state.owner(batch[0])
        self.silent = self.shard is not None and owner != self.shard
        self.room.own = own_nodes(self.state.table, self.shards, owner)
        if batch[0].pod:
            self._plan_singles(batch)
        else:
            self._plan_gang(batch[0], self.state.gangs[batch[0].gangs[0]])

    # --------------------------------------------------------------------------------------------------------- singles

    def _plan_singles(self, batch: list[Group]) -> None:
        info = self._info(batch[0].pod)
        if info.fact.unsupported:
            for group in batch:
                self._refuse(group, "UnsupportedConstraint", detail=_unsupported(info))
            return
        placed = self.room.place(info, len(batch), _seed(batch[0]))
        if self.silent:
            return
        names = self.state.table.names
        nodes = [names[row] for row, pods in placed for _ in range(pods)]
        for group, node in zip(batch, nodes, strict=False):
            assignment = NodeAssignment(node, (group.pod,))
            self.placed.append(
                GangPlaced(group=group.key, partition=group.partition, required=(assignment,), optional=())
            )
        if len(nodes) < len(batch):
            why = self._why_not(info)
            for group in batch[len(nodes) :]:
                self._refuse(group, "InsufficientRoom", needed=1, node_reasons=why)

    # ----------------------------------------------------------------------------------------------------------- gangs

    def _plan_gang(self, group: Group, gang: Gang) -> None:
        """The whole gang, or why not. The minimum is required together; further pods are optional one by one."""
        state = self.state
        if gang.declaration is None:
            self._refuse(group, "GangNotDeclared", detail=f"gang {gang.key} waits for its PodGroup")
            return
        minimum = gang.declaration.min_member
        census = membership.census(state, gang)
        if too_few(census, minimum):
            detail = f"gang {gang.key} has {census.total} of its minimum of {minimum} pods: less than minAvailable"
            self._refuse(group, "TooFewPods", detail=detail, needed=minimum, placeable=census.total)
            return
        pods = sum(map(len, census.placeable.values()))
        needed = max(1, minimum - census.have)
        infos = [state.table.classes[digest] for digest in census.placeable]
        unfit = next((info for info in infos if info.fact.unsupported), None)
        not_honoured = _not_honoured(gang.key, gang.declaration, census.total)
        if unfit is not None or not_honoured:
            detail = _unsupported(unfit) if unfit is not None else f"not supported yet: {not_honoured}"
            self._refuse(group, "UnsupportedConstraint", detail=detail)
        elif pods > self.policy.gang_pods:
            detail = f"gang {gang.key} has {pods} pods, more than the limit of {self.policy.gang_pods}"
            self._refuse(group, "GangTooLarge", detail=detail, needed=pods)
        elif pods < needed:
            detail = f"gang {gang.key} needs {needed} more pods; {pods} may be scheduled, others are gated or done"
            self._refuse(group, "PodsGated", detail=detail, needed=needed, placeable=pods)
        else:
            self._place_gang(group, gang, census.placeable, minimum - census.have)

    def _place_gang(self, group: Group, gang: Gang, classes: dict[str, list[str]], required: int) -> None:
        """`required` pods that reach the minimum, or fewer than 1: then any pod that has a node is welcome."""
        taken = self._take_nominated(group, gang, classes)
        needed = max(required, 1)
        largest_first = sorted(classes, key=self._size, reverse=True) if len(classes) > 1 else list(classes)
        orders = [largest_first] if len(classes) == 1 else [largest_first, largest_first[::-1]]
        best, lacking = -1, ""
        why: dict[str, int] = {}
        for order in orders:
            placed = [(digest, self._place_class(group, digest, len(classes[digest]))) for digest in order]
            found = sum(pods for _, rows in placed for _, pods in rows) + len(taken)
            if found >= needed:
                self._propose(group, classes, placed, taken, required)
                return
            if found > best:
                best = found
                lacking = next((d for d, rows in placed if sum(p for _, p in rows) < len(classes[d])), order[0])
                why = self._why_not(self.state.table.classes[lacking])
            for digest, rows in placed:
                self.room.undo(self.state.table.classes[digest], rows)
        detail = f"gang {gang.key}: {best} of the {needed} pods that must start together have a node."
        self._refuse(group, "InsufficientRoom", detail=detail, needed=needed, placeable=best, node_reasons=why)

    def _place_class(self, group: Group, digest: str, pods: int) -> Placed:
        return self.room.place(self.state.table.classes[digest], pods, _seed(group)) if pods else []

    def _size(self, digest: str) -> tuple[int, str]:
        """The largest share that one pod of the class takes of the largest node, in 2^-20; ties by digest."""
        largest = self.state.table.allocatable.max(axis=0, initial=1)
        columns = self.state.table.classes[digest].columns
        return max((((amount << 20) // max(int(largest[c]), 1)) for c, amount in columns), default=0), digest

    def _take_nominated(self, group: Group, gang: Gang, classes: dict[str, list[str]]) -> list[tuple[str, str]]:
        """Pods go where room is nominated for them: (node, uid). `classes` keeps the others."""
        taken = []
        table = self.state.table
        used = dict.fromkeys(classes, 0)
        for node, digest in self._nominated(group, gang):
            row = table.rows.get(node)
            place = used.get(digest, 0)
            info = table.classes[digest]
            if row is None or place == len(classes.get(digest, ())):
                continue
            if fits.feasible(table, info)[row] and not self.room.overdrawn(info, row):
                taken.append((node, classes[digest][place]))
                used[digest] = place + 1
        for digest, pods in used.items():
            del classes[digest][:pods]
        return taken

    def _nominated(self, group: Group, gang: Gang) -> Iterator[tuple[str, str]]:
        """(node, class) of the room that the gang's failed members left (design, section 4), and of what is kept for a
        group that lost its proposals to other shards."""
        for nomination in self.nominations.get(gang.key, ()):
            yield nomination.node, nomination.scheduling_class
        kept = self.state.group_nominations.get(group.key)
        for assignment in kept.assignments if kept is not None else ():
            for uid in assignment.pods:
                claim = self.state.claims.get(claim_key(uid))
                if claim is not None:
                    yield claim.node, claim.scheduling_class

    def _propose(
        self,
        group: Group,
        classes: dict[str, list[str]],
        placed: list[tuple[str, Placed]],
        taken: list[tuple[str, str]],
        required: int,
    ) -> None:
        if self.silent:
            return
        must: list[NodeAssignment] = []
        may: list[NodeAssignment] = []
        left = required
        for node, uid in taken:
            (must if left > 0 else may).append(NodeAssignment(node, (uid,)))
            left -= 1
        names = self.state.table.names
        for digest, rows in placed:
            uids, done = tuple(classes[digest]), 0
            for row, pods in rows:
                split, end = done + min(pods, max(left, 0)), done + pods
                if split > done:
                    must.append(NodeAssignment(names[row], uids[done:split]))
                if end > split:
                    may.append(NodeAssignment(names[row], uids[split:end]))
                left -= pods
                done = end
        self.placed.append(
            GangPlaced(group=group.key, partition=group.partition, required=tuple(must), optional=tuple(may))
        )

    # -------------------------------------------------------------------------------------------------------- refusals

    def _refuse(
        self,
        group: Group,
        reason: str,
        *,
        detail: str = "",
        needed: int = 0,
        placeable: int = 0,
        node_reasons: dict[str, int] | None = None,
    ) -> None:
        """Equal refusals share one event."""
        if self.silent:
            return
        why = node_reasons or {}
        attempt = group.attempts + (reason in cohorts.ROOM_REASONS)
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

    def _why_not(self, info: ClassInfo) -> dict[str, int]:
        return {} if self.silent else fits.why_not(self.state.table, self.room.free, info)

    def _info(self, uid: str) -> ClassInfo:
        return self.state.table.classes[self.state.pods[uid].fact.scheduling_class]


def _not_honoured(gang: str, declaration: Declaration, pods: int) -> str:
    """What the declaration asks for and no rule here does yet: such a gang waits, and is never placed without it."""
    if any(other != gang for other in declaration.groups):
        return f"gang groups ({', '.join(declaration.groups)})"
    if declaration.mode != "Strict":
        return f"mode {declaration.mode}"
    if declaration.match_policy == "only-waiting":
        return f"match policy {declaration.match_policy}"
    if 0 < sum(declaration.task_minimums.values()) <= declaration.min_member < pods:
        return "minimums of single tasks"
    return ""


def _unsupported(info: ClassInfo) -> str:
    return f"not supported yet: {', '.join(info.fact.unsupported)}"


def _seed(group: Group) -> int:
    """A stable 32-bit hash of the group: which of equal nodes it tries first."""
    return zlib.crc32(group.key.encode())
