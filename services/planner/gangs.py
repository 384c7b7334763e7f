"""Planning a group of gangs: what keeps it from being tried, what each gang needs, and a node for all of that or none.

A *part* is those pods of one gang, class and priority that may be proposed now. A *need* is how many pods of some parts
must have a node before any of the group is bound. `attempt` places them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from events import RoomRequested, dialects
from services.planner.attempt import Attempt, Need, Part, Refusal, Taken, name_of
from services.planner.placement import Places
from services.planner.rules.coscheduling.pre_filter import too_few
from services.planner.rules.koordinator import after_gang, gang_group, non_strict, schedule_cycle
from services.planner.rules.koordinator.pre_filter import timed_out
from services.planner.rules.starvation import node_choice
from services.planner.rules.starvation.starving import may_ask, starves
from services.planner.rules.volcano import task_minimums
from services.state import commits, fits, lacking, membership
from services.state.fold import State
from services.state.membership import Census
from services.state.nominations import claim_key, only_task
from services.state.records import Gang, Group

if TYPE_CHECKING:
    from services.planner.core import Cycle


class Quota(NamedTuple):
    """A minimum, and the members of a gang, or of one of its tasks, that must reach it."""

    of: str
    """What has the minimum, for messages: ``gang ml/train``, ``task worker of gang ml/train``."""
    minimum: int
    census: Census
    have: int
    """How many of them count for it already."""
    task: str = ""

    @property
    def lacks(self) -> int:
        """Members that must have a node yet; none, or fewer, when the minimum is reached."""
        return self.minimum - self.have

    @property
    def placeable(self) -> int:
        return sum(map(len, self.census.placeable.values()))


class Roll(NamedTuple):
    """A gang of the group with its quotas: its own, and where they count its tasks'."""

    gang: Gang
    whole: Quota
    tasks: tuple[Quota, ...]
    constrained: bool
    """Whether its rules are on for the pods that it has to place."""
    together: bool
    """Whether its minimum is placed together or not at all."""

    @property
    def lacks(self) -> int:
        """Members that must have a node before any of the group is bound."""
        return max(self.whole.lacks, sum(max(task.lacks, 0) for task in self.tasks), 0) if self.constrained else 0

    @property
    def all_or_none(self) -> bool:
        return self.constrained and self.together


def plan(cycle: Cycle, group: Group) -> Generator[None, None, None]:
    """Propose nodes for the whole group; else for the pods of those gangs whose rules are off; else say why not. In
    slices, as each of its pods may be of another class.

    At its second turn in the queue (`Cycle.comes_again`) the group goes on with what it has beyond its minimum.
    """
    if group.key in cycle.begun:
        attempt = cycle.begun.pop(group.key)
        if attempt is not None:
            yield from attempt.go_on()
        return
    if cycle.comes_again(group):
        cycle.begun[group.key] = None
    rolls: list[Roll] = []
    for key in group.gangs:
        gang = cycle.state.gangs[key]
        rolls.append(_roll(cycle.state, gang))
        cycle.pods_named += len(gang.members)
        if cycle.slice_over():
            yield
    refusal = _incomplete(cycle, group, rolls) or _unplaceable(cycle, group, rolls)
    if refusal is None:
        refusal = yield from _place(cycle, group, rolls)
    free = [roll for roll in rolls if not roll.constrained and roll.whole.placeable]
    if refusal is not None and free and len(free) < len(rolls):
        over = timed_out(cycle.state, group)
        refusal = Refusal("GangTimedOut", over) if over else _both(refusal, (yield from _place(cycle, group, free)))
    if refusal is not None:
        cycle.refuse(group, *refusal)


def _both(of_all: Refusal, of_free: Refusal | None) -> Refusal | None:
    """The refusal of a group that can place neither all its gangs nor those whose rules are off: what room would
    change, if anything."""
    if of_free is None or of_all.reason != "InsufficientRoom" or of_free.reason == "InsufficientRoom":
        return of_free
    return of_all._replace(detail=f"{of_all.detail} Of others: {of_free.detail}")


def _roll(state: State, gang: Gang) -> Roll:
    minimum = gang.declaration.min_member if gang.declaration is not None else 1
    whole = _quota(lacking.named(gang, ""), minimum, gang, membership.census(state, gang.members))
    tasks = [
        _quota(lacking.named(gang, name), least, gang, membership.census(state, members))._replace(task=name)
        for name, (members, least) in task_minimums.tasks(state, gang).items()
    ]
    return Roll(gang, whole, tuple(tasks), after_gang.constrained(gang), non_strict.together(gang))


def _quota(of: str, minimum: int, gang: Gang, census: Census) -> Quota:
    return Quota(of, minimum, census, membership.counted(gang, census))


# -------------------------------------------------------------------------------------------------------------- checks


def _incomplete(cycle: Cycle, group: Group, rolls: list[Roll]) -> Refusal | None:
    """Why the whole group waits: a gang of it is not declared, is short of pods, timed out, or names one that must run
    first."""
    for roll in rolls:
        if not roll.constrained:
            continue
        if roll.gang.declaration is None:
            missing = dialects.declared_by(roll.gang.dialect)
            return Refusal("GangNotDeclared", f"gang {roll.gang.key} waits for its {missing}")
        for quota in (roll.whole, *roll.tasks):
            if too_few(quota.census, quota.minimum):
                there = quota.census.total
                detail = lacking.too_few(quota.of, there, quota.minimum)
                return Refusal("TooFewPods", detail, quota.minimum, there)
    if over := timed_out(cycle.state, group):
        return Refusal("GangTimedOut", over)
    missing = gang_group.missing(cycle.state, group)
    return Refusal("WaitingForGang", missing) if missing else None


def _unplaceable(cycle: Cycle, group: Group, rolls: list[Roll]) -> Refusal | None:
    """Why a complete group cannot be placed, however much room there is."""
    together = [quota for roll in rolls if roll.all_or_none for quota in (roll.whole, *roll.tasks)]
    if refusal := _needs_unsupported(cycle, together):
        return refusal
    pods = sum(roll.whole.placeable for roll in rolls)
    if pods > cycle.policy.gang_pods:
        detail = f"{name_of(group)} has {pods} pods, more than the limit of {cycle.policy.gang_pods}"
        return Refusal("GangTooLarge", detail, pods)
    return _needs_gated(together) if pods else _needs_gated([roll.whole for roll in rolls], least=1)


def _besides(cycle: Cycle, rolls: list[Roll]) -> str:
    """What a group that lacks room lacks besides, in words: a NonStrict gang takes what room there is for those of its
    pods that may be placed, and does not start with these alone."""
    apart = [quota for roll in rolls if roll.constrained and not roll.together for quota in (roll.whole, *roll.tasks)]
    refusal = _needs_unsupported(cycle, apart) or _needs_gated(apart)
    return f" Besides, {refusal.detail}." if refusal is not None else ""


def _needs_unsupported(cycle: Cycle, quotas: list[Quota]) -> Refusal | None:
    """Whether one cannot be met without pods that ask for what no rule here does yet."""
    for quota in quotas:
        unfit = {digest: why for digest in quota.census.placeable if (why := _unsupported(cycle, digest))}
        if unfit and quota.placeable - sum(len(quota.census.placeable[digest]) for digest in unfit) < quota.lacks:
            return not_supported(next(iter(unfit.values())))
    return None


def _needs_gated(quotas: list[Quota], *, least: int = 0) -> Refusal | None:
    """Whether one cannot be met by the pods that may be placed now. `least`: so many it needs in any case."""
    for quota in quotas:
        lacks = max(quota.lacks, least)
        if quota.placeable < lacks:
            some = f"{quota.placeable} may be scheduled, others are gated or done"
            return Refusal("PodsGated", f"{quota.of} needs {lacks} more pods; {some}", lacks, quota.placeable)
    return None


def _unsupported(cycle: Cycle, digest: str) -> tuple[str, ...]:
    """What pods of the class ask for and no rule here does yet."""
    return cycle.state.table.classes[digest].fact.unsupported


def not_supported(unsupported: tuple[str, ...]) -> Refusal:
    return Refusal("UnsupportedConstraint", f"not supported yet: {', '.join(unsupported)}")


# ----------------------------------------------------------------------------------------------------------- placement


def _demand(cycle: Cycle, rolls: list[Roll]) -> tuple[list[Part], list[Need]]:
    """The pods to place, and how many of them must have a node.

    Classes with a constraint that is not supported are left out: a gang that needs them was refused before.
    """
    parts: list[Part] = []
    needs: list[Need] = []
    for roll in rolls:
        first = len(parts)
        for quota in roll.tasks or (roll.whole,):
            before = len(parts)
            for digest, of_class in quota.census.placeable.items():
                if not _unsupported(cycle, digest):
                    info = cycle.state.table.classes[digest]
                    for priority, uids in _by_priority(cycle.state, of_class):
                        parts.append(Part(roll.gang.key, info, uids, not roll.constrained, quota.task, priority))
            if roll.tasks and roll.constrained and quota.lacks > 0:
                needs.append(Need(tuple(range(before, len(parts))), quota.lacks, roll.together, of_task=True))
        if roll.constrained and roll.whole.lacks > 0:
            needs.append(Need(tuple(range(first, len(parts))), roll.whole.lacks, roll.together))
    return parts, needs


def _by_priority(state: State, uids: list[str]) -> list[tuple[int, list[str]]]:
    """Pods of one class by priority, the highest first: of equal ones those first that the log saw first."""
    pods = state.pods
    priorities = dict.fromkeys(pods[uid].fact.priority for uid in uids)
    if len(priorities) == 1:  # as nearly always: they need not be gone through again
        return [(priority, uids) for priority in priorities]
    found: dict[int, list[str]] = {priority: [] for priority in priorities}
    for uid in uids:
        found[pods[uid].fact.priority].append(uid)
    return sorted(found.items(), reverse=True)


def _place(cycle: Cycle, group: Group, rolls: list[Roll]) -> Generator[None, None, Refusal | None]:
    """Propose a node for each pod that finds one, if all needs of pods that start together are met; else say why not."""
    parts, needs = _demand(cycle, rolls)
    if not parts:
        digests = (digest for roll in rolls for digest in roll.whole.census.placeable)
        return not_supported(_unsupported(cycle, next(digests)))
    taken, left = _take_nominated(cycle, group, parts)
    needed = max(1, sum(roll.lacks for roll in rolls))
    best, unplaced = -1, parts[0]
    why: dict[str, int] = {}
    orders = _orders(cycle, parts)
    partial: list[int] | None = None
    for order in orders:
        attempt = Attempt(cycle, group, parts, taken)
        placed = yield from attempt.place(order, needs)
        if placed and attempt.complete:
            return (yield from attempt.propose())
        if placed and partial is None:
            partial = order
        found = sum(attempt.used)
        if found > best:
            best = found
            unplaced = next((parts[index] for index in order if attempt.full[index]), parts[order[0]])
            why = cycle.why_not(unplaced.info)
        yield from attempt.undo()
    strict = bool(needs) and all(need.together for need in needs)
    if left and strict and (yield from _place_where_others_were(cycle, group, parts, needs, orders, taken, left)):
        return None
    if partial is not None:
        attempt = Attempt(cycle, group, parts, taken)
        yield from attempt.place(partial, needs)
        return (yield from attempt.propose())
    detail = f"{name_of(group)}: {best} of the {needed} pods that must start together have a node."
    detail += schedule_cycle.unfinished(cycle.state, group) + _besides(cycle, rolls)
    if needs and not taken:
        detail += yield from _ask_for_room(cycle, group, parts, needs, orders)
    return Refusal("InsufficientRoom", detail, needed, best, why)


def _ask_for_room(
    cycle: Cycle, group: Group, parts: list[Part], needs: list[Need], orders: list[list[int]]
) -> Generator[None, None, str]:
    """Ask for room to be reserved if the group starves; what the refusal is to say about it, else empty."""
    state, policy = cycle.state, cycle.policy
    if cycle.silent or not (starves(state, policy, group) and may_ask(state, policy, group, len(cycle.requests))):
        return ""
    found = node_choice.prospect(state, group, cycle.room, cycle.requests)
    of = [(part.info, len(part.uids)) for part in parts]
    asked = [(need.parts, need.pods) for need in needs]
    room = yield from node_choice.choose(state.table, found, of, asked, orders, cycle.seed(group))
    if room is None:
        return node_choice.HOPELESS
    request = RoomRequested(group=group.key, room=room)
    if commits.size([request]) <= commits.DECISION_BYTES // 2:
        cycle.requests.append(request)
    return ""


def _orders(cycle: Cycle, parts: list[Part]) -> list[list[int]]:
    """The orders in which the parts are tried: the largest class first, and then the other way round.

    Before that, where pods have different priorities, the highest first, as the kube-scheduler goes through its own gangs
    (KEP-4671, Algorithm Limitations). If the minimum finds no room like this, it may in the other orders. Of one class
    the highest come first in these, too.
    """
    if len({part.info.fact.digest for part in parts}) == 1:
        return [_highest_first(parts, range(len(parts)))]
    sizes = fits.sizes(cycle.state.table, [part.info for part in parts])
    largest_first = sorted(range(len(parts)), key=sizes.__getitem__, reverse=True)
    smallest_first = largest_first[::-1]
    if len({part.priority for part in parts}) == 1:
        return [largest_first, smallest_first]
    highest_first = _highest_first(parts, largest_first)
    smallest_first = sorted(_highest_first(parts, smallest_first), key=sizes.__getitem__)
    return [highest_first, sorted(highest_first, key=sizes.__getitem__, reverse=True), smallest_first]


def _highest_first(parts: list[Part], order: Iterable[int]) -> list[int]:
    return sorted(order, key=lambda index: -parts[index].priority)


# ------------------------------------------------------------------------------------------------------ nominated room


def _take_nominated(cycle: Cycle, group: Group, parts: list[Part]) -> tuple[Taken, Places]:
    """Pods go where room is nominated for them, those first that the log saw first. Room for one task alone comes first:
    any other may be for any of the pods. And the room that no pod of its class is there for."""
    taken: Taken = []
    left: Places = {}
    table = cycle.state.table
    used = [0] * len(parts)
    for gang, task, node, digest in sorted(_nominated(cycle, group), key=lambda room: not room[1]):
        row = table.rows.get(node)
        fitting = (index for index, part in enumerate(parts) if part.info.fact.digest == digest)
        meant = (index for index in fitting if gang in ("", parts[index].gang) and task in ("", parts[index].task))
        index = next((index for index in meant if used[index] < len(parts[index].uids)), -1)
        if row is None:
            continue
        if index < 0:
            left.setdefault(table.classes[digest], []).append((row, 1))
            continue
        info = parts[index].info
        if fits.admits(table, info, row) and not cycle.room.overdrawn(info, row):
            taken.append((node, index, parts[index].uids[used[index]]))
            used[index] += 1
    return taken, left


def _place_where_others_were(
    cycle: Cycle,
    group: Group,
    parts: list[Part],
    needs: list[Need],
    orders: list[list[int]],
    taken: Taken,
    left: Places,
) -> Generator[None, None, bool]:
    """Propose a node for all that the group needs, if the room that is kept for it is there for whatever its pods ask for
    by now: replacements may ask for something else, as in a rollout. Whether it was proposed.

    With less than all of that it has to be left alone: it is another task's, or another gang's. The binder judges alike.
    What these pods leave of it stays kept from those that come behind: they may be judged first, or this be refused.
    """
    proposed = False
    loan = cycle.room.lend(left)
    for order in orders:
        attempt = Attempt(cycle, group, parts, taken)
        if (yield from attempt.place(order, needs)):
            proposed = (yield from attempt.propose()) is None
            break
        yield from attempt.undo()
    cycle.room.keep_again(loan)
    return proposed


def _nominated(cycle: Cycle, group: Group) -> Iterator[tuple[str, str, str, str]]:
    """(gang or '', task or '', node, class) of the room that failed members left (design, section 4), and of what is kept
    for a group that lost its proposals to other shards."""
    for key in group.gangs:
        for uid in cycle.state.kept_for.get(key, ()):
            nomination = cycle.state.nominations[uid]
            yield key, only_task(cycle.state, nomination), nomination.node, nomination.scheduling_class
    kept = cycle.state.group_nominations.get(group.key)
    for assignment in kept.assignments if kept is not None else ():
        for uid in assignment.pods:
            claim = cycle.state.claims.get(claim_key(uid))
            if claim is not None:
                yield "", "", claim.node, claim.scheduling_class
