"""The binder's decision: a pure function of the state, by the rules in force there.

In this order: a policy for a log that has none; owners for the partitions; the room of failed members; proposals, in log
order (`judge`); nominations and reservations that end, and starving gangs' requests for room; held assignments that may
go, or whose time or chance is over; deadlocks. Proposals are judged before timeouts, so that a quorum that stands in the
log is never lost to a late tick.
"""

from __future__ import annotations

from collections.abc import Callable

import events as ev
from events.envelope import FIRST_VERSION
from events.policy import DEFAULT_POLICY, Policy
from services.binder.assignment import assign_partitions
from services.binder.judge import Bench, Verdict
from services.binder.nominations import end_group_nominations
from services.binder.replacement import end_nominations, keep_room
from services.binder.rules.coscheduling.unreserve import unreserve
from services.binder.rules.koordinator import deadlock
from services.binder.rules.koordinator.unreserve import timed_out
from services.binder.rules.starvation.ending import end_reservations
from services.binder.rules.starvation.reserving import answer_requests
from services.state.fold import State
from services.state.records import AWAITING

BinderEvent = ev.BinderEvents
CONCERNS = ("proposals", "lost", "nominations", "group_nominations", "reservations", "room_requests", "holding")
"""Attributes of the state of which the binder may have something to say; all of them are empty most of the time."""
ABOUT_HOLDS = ev.GangHeld | ev.GangPermitted | ev.GangReleased | ev.ProposalRefused


def decide(state: State) -> list[BinderEvent]:
    """What the binder says of the log as it stands."""
    return RULES[state.rules_version](state)


def _verdicts(state: State) -> list[BinderEvent]:
    """Nothing while the picture is partial."""
    if not state.synced:
        return []
    if state.policy is None:
        return [ev.PolicyAdopted(policy=DEFAULT_POLICY)]
    assigned = assign_partitions(state)
    if not any(getattr(state, name) for name in CONCERNS):
        return [assigned] if assigned is not None else []
    decided: list[BinderEvent] = [] if assigned is None else [assigned]
    bench = Bench(state)
    decided += keep_room(state, bench, state.policy)
    verdicts = _judge(state, state.policy, bench)
    decided += verdicts
    decided += _end_nominations(state, verdicts, state.policy)
    judged = _judged_groups(verdicts)
    decided += end_group_nominations(state, judged)
    decided += _reserve(state, state.policy, verdicts, judged)
    decided += _waiting(state, bench, judged)
    decided += _unlock(state, decided)
    return decided


RULES: dict[int, Callable[[State], list[BinderEvent]]] = {FIRST_VERSION: _verdicts}
"""Version of the rules → how it decides. The next one is a line here, and one in the planner's core."""


def _judge(state: State, policy: Policy, bench: Bench) -> list[Verdict]:
    """Proposals in log order, as many as one commit takes (`Policy.cycle_pods`, at least one)."""
    verdicts: list[Verdict] = []
    pods = 0
    for proposal in state.proposals.values():
        if pods >= policy.cycle_pods:
            break
        verdicts += bench.judge(proposal)
        for assignment in (*proposal.required, *proposal.optional):
            pods += len(assignment.pods)
    return verdicts


def _judged_groups(verdicts: list[Verdict]) -> set[str]:
    return {verdict.group for verdict in verdicts if not isinstance(verdict, ev.NominationEnded)}


def _end_nominations(state: State, verdicts: list[Verdict], policy: Policy) -> list[BinderEvent]:
    taken = {verdict.pod for verdict in verdicts if isinstance(verdict, ev.NominationEnded)}
    ended: list[BinderEvent] = []
    for event in end_nominations(state, policy):
        if not (isinstance(event, ev.NominationEnded) and event.pod in taken):
            ended.append(event)
    return ended


def _reserve(state: State, policy: Policy, verdicts: list[Verdict], judged: set[str]) -> list[BinderEvent]:
    """What ends makes room for what is asked for."""
    ended: list[BinderEvent] = list(end_reservations(state, policy, judged))
    over = {event.group for event in (*verdicts, *ended) if isinstance(event, ev.ReservationEnded)}
    return [*ended, *answer_requests(state, policy, over)]


def _waiting(state: State, bench: Bench, judged: set[str]) -> list[BinderEvent]:
    """Held groups that this decision did not judge: those that wait for nobody any more, and those that cannot, or may
    not, wait any longer."""
    decided: list[BinderEvent] = []
    for key in state.holding:
        group = state.groups.get(key)
        if group is not None and group.held and key not in judged:
            permit = bench.permit_held(group) if group.phase != AWAITING else None
            release = None if permit is not None else unreserve(state, group)
            over = timed_out(state, group, release) if release is not None else None
            decided += [event for event in (permit, over, release) if event is not None]
    return decided


def _unlock(state: State, decided: list[BinderEvent]) -> list[BinderEvent]:
    """Of groups that block each other, and of which nothing else is said, one gives its room back."""
    said = {event.group for event in decided if isinstance(event, ABOUT_HOLDS)}
    return [*deadlock.release(state, said)]
