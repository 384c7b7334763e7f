"""The binder's decision: a pure function of the state, by the rules in force there.

As the planner's (`services.planner.core`) it is a generator that yields None between slices of work, so that the service
can answer pings and renew its lease; the state must not change until it returns its events.

In this order: a policy for a log that has none; owners for the partitions; the room of failed members; proposals, in log
order (`judge`); nominations and reservations that end, and starving gangs' requests for room; held assignments that may
go, or whose time or chance is over; deadlocks. Proposals are judged before timeouts, so that a quorum that is in the
log is never lost to a late tick.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain

import events as ev
from events.envelope import FIRST_VERSION
from events.policy import DEFAULT_POLICY, Policy
from services.binder.assignment import assign_partitions
from services.binder.bench import Bench, Fault
from services.binder.judge import Judge, Verdict, refusal
from services.binder.nominations import end_group_nominations
from services.binder.replacement import AboutRoom, end_nominations, keep_room
from services.binder.rules.coscheduling.unreserve import unreserve
from services.binder.rules.koordinator import deadlock
from services.binder.rules.koordinator.unreserve import timed_out
from services.binder.rules.starvation.ending import end_reservations
from services.binder.rules.starvation.reserving import answer_requests
from services.state import commits
from services.state.fold import State
from services.state.records import AWAITING, Proposal
from services.state.slices import at_once

CONCERNS = ("proposals", "lost", "nominations", "group_nominations", "reservations", "room_requests", "holding")
"""Attributes of the state that may ask for a decision of the binder; most of the time all of them are empty."""
ABOUT_HOLDS = (ev.GangHeld, ev.GangPermitted, ev.GangReleased, ev.ProposalRefused)


def decide(state: State) -> Generator[None, None, list[ev.BinderEvents]]:
    """What the binder says of the log as it stands, by the rules in force there."""
    return RULES[state.rules_version](state)


def decide_now(state: State) -> list[ev.BinderEvents]:
    """`decide` in one go."""
    return at_once(decide(state))


def _verdicts(state: State) -> Generator[None, None, list[ev.BinderEvents]]:
    """Nothing while the picture is partial; else as much as a commit takes of what there is to say."""
    if not state.synced:
        return []
    if state.policy is None:
        return [ev.PolicyAdopted(policy=DEFAULT_POLICY)]
    return (yield from commits.fitting_in_slices(_units(state, state.policy)))


def _units(state: State, policy: Policy) -> Iterator[Sequence[ev.BinderEvents] | None]:
    """All that there is to decide, unit by unit. A unit depends on those before it, and on none behind it. None: a pause
    in what takes long."""
    assigned = assign_partitions(state)
    if assigned is not None:
        yield (assigned,)
    if not any(getattr(state, name) for name in CONCERNS):
        return
    bench = Bench(state)
    for kept in keep_room(state, bench, policy):
        yield (kept,)
    judge = Judge(state, bench)
    verdicts: list[Verdict] = []
    for proposal, pods in _proposals(state, policy):
        verdict = yield from judge.judge(proposal, pods)
        if _is_too_large(state, proposal, pods, verdict):
            yield [refusal(proposal, Fault("TooLarge", "", ""))]
            return  # the bench counts its room as taken: what follows is judged by the next decision
        verdicts += verdict
        yield verdict
    judged = {verdict.group for verdict in verdicts if not isinstance(verdict, ev.NominationEnded)}
    yield from _end_nominations(state, policy, verdicts, judged)
    for over in end_group_nominations(state, judged):
        yield (over,)
    yield from _reserve(state, policy, verdicts, judged)
    said = list[ev.BinderEvents](verdicts)
    for about_holds in _waiting(state, judge, judged):
        said += about_holds or ()
        yield about_holds
    yield (yield from _unlock(state, said))


RULES: dict[int, Callable[[State], Generator[None, None, list[ev.BinderEvents]]]] = {FIRST_VERSION: _verdicts}
"""Version of the rules → how it decides. The next one is a line here, and one in the planner's core."""


def _proposals(state: State, policy: Policy) -> Iterator[tuple[Proposal, int]]:
    """In log order, each with the number of its pods, as many as have `Policy.cycle_pods` (at least one)."""
    judged = 0
    for proposal in state.proposals.values():
        if judged >= policy.cycle_pods:
            break
        pods = sum([len(assignment.pods) for assignment in chain(proposal.required, proposal.optional)])
        yield proposal, pods
        judged += pods


def _is_too_large(state: State, proposal: Proposal, pods: int, verdict: list[Verdict]) -> bool:
    """Whether no commit takes the verdict. Its planner saw to that (`services.planner.limits`); but what is held or
    nominated may have changed since."""
    group = state.groups.get(proposal.group)
    held = len(group.held) if group is not None else 0
    return pods + held > commits.PODS_SURELY_FIT and commits.size(verdict) > commits.DECISION_BYTES


def _end_nominations(
    state: State, policy: Policy, verdicts: list[Verdict], judged: set[str]
) -> Iterator[list[AboutRoom]]:
    """Nominations that end, but for those that the verdicts ended. A replacement that is permitted, or whose proposal is
    still to be judged, keeps its gang's until then; so does one that waits from now on, where the rest is to go."""
    ended = (verdict for verdict in verdicts if isinstance(verdict, ev.NominationEnded))
    taken = {event.pod for event in ended if event.reason == "Taken"}
    waits = {verdict.group for verdict in verdicts if isinstance(verdict, ev.GangPermitted)}
    if policy.replacement_policy == "evict":  # nobody is evicted beside a replacement that waits
        waits.update(verdict.group for verdict in verdicts if isinstance(verdict, ev.GangHeld))
    waits.update(proposal.group for proposal in state.proposals.values() if proposal.group not in judged)
    for about in end_nominations(state, policy, waits):
        yield [event for event in about if not (isinstance(event, ev.NominationEnded) and event.pod in taken)]


def _reserve(
    state: State, policy: Policy, verdicts: list[Verdict], judged: set[str]
) -> Iterator[Sequence[ev.BinderEvents]]:
    """Reservations that end, and then the answers to requests, which may have the room of those that ended."""
    ended = end_reservations(state, policy, judged)
    for over in ended:
        yield (over,)
    ends = {event.group for event in (*verdicts, *ended) if isinstance(event, ev.ReservationEnded)}
    yield from answer_requests(state, policy, ends)


def _waiting(state: State, judge: Judge, judged: set[str]) -> Iterator[list[ev.BinderEvents] | None]:
    """Held groups that this decision did not judge: permits for those that lack nothing any more, and releases of those
    that cannot, or may not, wait any longer."""
    for number, key in enumerate(state.holding, 1):
        if number % commits.SLICE_UNITS == 0:  # mostly there is nothing to say of any
            yield None
        if key not in judged:
            group = state.groups[key]
            permit = (yield from judge.permit_held(group)) if group.phase != AWAITING else None
            release = None if permit is not None else unreserve(state, group)
            if permit is not None:
                yield [permit]
            elif release is not None:
                yield [*timed_out(state, group, release)]


def _unlock(state: State, decided: list[ev.BinderEvents]) -> Generator[None, None, list[ev.BinderEvents]]:
    """One of the groups that block each other gives its room back; those that this decision judges do not count."""
    said = {event.group for event in decided if isinstance(event, ABOUT_HOLDS)}
    return [*(yield from deadlock.release(state, said))]
