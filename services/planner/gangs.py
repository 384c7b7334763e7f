"""Planning a group of gangs: what keeps it from being tried, and a node for all that it needs or none.

`roll` says who of a gang is there, `demand` what the group asks for, and `attempt` places that in one order.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from events import RoomRequested, dialects
from services.planner.attempt import Attempt, Refusal, name_of
from services.planner.demand import Demand, Order, demand_of
from services.planner.roll import Quota, Roll, roll_call
from services.planner.rules.coscheduling.pre_filter import too_few
from services.planner.rules.koordinator import gang_group, schedule_cycle
from services.planner.rules.koordinator.pre_filter import timed_out
from services.planner.rules.starvation import node_choice
from services.planner.rules.starvation.occupants import occupants
from services.planner.rules.starvation.starving import may_ask, starves
from services.state import commits, lacking
from services.state.records import Group
from services.state.refusals import LIMITED

if TYPE_CHECKING:
    from services.planner.core import Cycle


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
    rolls = yield from _rolls(cycle, group)
    refusal = _incomplete(cycle, group, rolls) or _unplaceable(cycle, group, rolls)
    if refusal is None:
        refusal = yield from _place(cycle, group, rolls)
    if refusal is not None:
        refusal = yield from _place_free(cycle, group, rolls, refusal)
    if refusal is not None:
        cycle.refuse(group, *refusal)


def _rolls(cycle: Cycle, group: Group) -> Generator[None, None, list[Roll]]:
    rolls = []
    for key in group.gangs:
        gang = cycle.state.gangs[key]
        rolls.append(roll_call(cycle.state, gang))
        cycle.pods_named += len(gang.members)
        if cycle.slice_over():
            yield
    return rolls


def _place_free(
    cycle: Cycle, group: Group, rolls: list[Roll], of_all: Refusal
) -> Generator[None, None, Refusal | None]:
    """Of a group that is refused propose nodes for the pods of those gangs whose rules are off. Else the refusal: what
    room would change, if anything."""
    free = [roll for roll in rolls if not roll.constrained and roll.whole.placeable]
    if not free or len(free) == len(rolls):
        return of_all
    if over := timed_out(cycle.state, group):
        return Refusal("GangTimedOut", over)
    of_free = yield from _place(cycle, group, free)
    if of_free is None or of_all.reason != "InsufficientRoom" or of_free.reason == "InsufficientRoom":
        return of_free
    return of_all._replace(detail=f"{of_all.detail} Of others: {of_free.detail}")


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
        for quota in roll.quotas:
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
    together = [quota for roll in rolls if roll.all_or_none for quota in roll.quotas]
    if refusal := _needs_unsupported(cycle, together):
        return refusal
    pods = sum(roll.whole.placeable for roll in rolls)
    if pods > cycle.policy.gang_pods:
        detail = f"{name_of(group)} has {pods} pods, {LIMITED}{cycle.policy.gang_pods}"
        return Refusal("GangTooLarge", detail, pods)
    return _needs_gated(together) if pods else _needs_gated([roll.whole for roll in rolls], least=1)


def _besides(cycle: Cycle, rolls: list[Roll]) -> str:
    """What a group that lacks room lacks besides, in words: a NonStrict gang takes what room there is for those of its
    pods that may be placed, and does not start with these alone."""
    apart = [quota for roll in rolls if roll.constrained and not roll.together for quota in roll.quotas]
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


def _place(cycle: Cycle, group: Group, rolls: list[Roll]) -> Generator[None, None, Refusal | None]:
    """Propose a node for each pod that finds one, if all needs of pods that start together are met; else say why not.

    All needs, in the first order of the parts that meets them. Else, where all are of pods that start together, in the
    room, too, that is kept for failed members of other classes. Else where room is reserved for the group: that was
    chosen by what is nearest to free, and may be an arrangement that no order finds by its score. Else the needs of pods
    that start together, in the first order that meets these: others find a node one by one.
    """
    demand = yield from demand_of(cycle, group, rolls)
    if demand is None:
        digests = (digest for roll in rolls for digest in roll.whole.census.placeable)
        return not_supported(_unsupported(cycle, next(digests)))
    best, why = -1, dict[str, int]()
    partial: Order | None = None
    for order in demand.tried(cycle.state.table):
        attempt = Attempt(cycle, group, demand, order)
        placed = yield from attempt.place()
        if placed and attempt.complete:
            return (yield from attempt.propose())
        if placed and partial is None:
            partial = order
        if attempt.found > best:
            best, why = attempt.found, cycle.why_not(attempt.unplaced.info)
        yield from attempt.undo()
    if demand.left and demand.together and (yield from _place_where_others_were(cycle, group, demand, rolls)):
        return None
    if (reservation := cycle.state.reservations.get(group.key)) is not None:
        attempt = Attempt(cycle, group, demand, demand.orders[0], reservation)
        if (yield from attempt.place()) and attempt.complete:
            return (yield from attempt.propose())
        yield from attempt.undo()
    if partial is not None:
        attempt = Attempt(cycle, group, demand, partial)
        yield from attempt.place()
        return (yield from attempt.propose())
    needed = max(1, sum(roll.lacks for roll in rolls))
    detail = f"{name_of(group)}: {best} of the {needed} pods that must start together have a node."
    detail += schedule_cycle.unfinished(cycle.state, group) + _besides(cycle, rolls)
    detail += yield from _ask_for_room(cycle, group, demand)
    return Refusal("InsufficientRoom", detail, needed, best, why)


def _place_where_others_were(
    cycle: Cycle, group: Group, demand: Demand, rolls: list[Roll]
) -> Generator[None, None, bool]:
    """Propose a node for all that the group needs, if the room that is kept for it is there for whatever its pods ask for
    by now: replacements may ask for something else, as in a rollout. Whether it was proposed.

    With less than all of that it has to be left alone: it is another task's, or another gang's; so it has where rules are
    off, and nothing is needed before the others may start. The binder judges alike.
    What these pods leave of it stays kept from those that come behind: they may be judged first, or this be refused.
    """
    proposed = False
    cycle.reserved.show(group)
    loan = cycle.room.lend(demand.left)
    for order in demand.tried(cycle.state.table):
        attempt = Attempt(cycle, group, demand, order)
        if (yield from attempt.place()) and len(rolls) == len(group.gangs) and _have_minimums(attempt, rolls):
            proposed = (yield from attempt.propose()) is None
            break
        yield from attempt.undo()
    cycle.reserved.show(group)  # as when it was lent: what is reserved for others, or not, is compared otherwise
    cycle.room.keep_again(loan)
    return proposed


def _have_minimums(attempt: Attempt, rolls: list[Roll]) -> bool:
    """Whether each gang, and each of its tasks, has its minimum with what was placed."""
    return all(
        quota.have + attempt.placed_of(roll.gang, quota.task) >= quota.minimum
        for roll in rolls
        for quota in roll.quotas
    )


def _ask_for_room(cycle: Cycle, group: Group, demand: Demand) -> Generator[None, None, str]:
    """Ask for room to be reserved if the group starves; what the refusal is to say about it, else empty."""
    state, policy = cycle.state, cycle.policy
    if cycle.silent or not demand.needs or demand.taken:
        return ""
    if not (starves(state, policy, group) and may_ask(state, policy, group, len(cycle.requests))):
        return ""
    of = [(part.info, len(part.uids)) for part in demand.parts]
    asked = [(need.parts, need.pods) for need in demand.needs]
    if not node_choice.could_hold(state.table, of, asked):
        return node_choice.HOPELESS
    if cycle.occupants is None:
        cycle.occupants = yield from occupants(state)
    found = yield from node_choice.prospect(state, group, cycle.room, cycle.requests, cycle.occupants)
    orders = demand.tried(state.table)
    room = yield from node_choice.choose(state.table, found, of, asked, tuple(orders), cycle.seed(group))
    if room is None:
        return node_choice.HOPELESS
    request = RoomRequested(group=group.key, room=room)
    if commits.size([request]) <= commits.DECISION_BYTES // 2:
        cycle.requests.append(request)
    return ""
