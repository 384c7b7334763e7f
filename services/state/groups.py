"""Gangs, groups and cohorts: who may be tried now, and what wakes whom.

A group is in one phase: *idle* (nothing to place), *ready* (may be tried), *awaiting* (a proposal has no verdict yet),
*parked* (refused; in a cohort). A cohort is what one `GroupsRefused` refused together. It backs off, and then is tried
again only after a fact that could change its verdict: room given back for those refused for room, a member or a
declaration for the others; else when its retry falls due. Nothing is scanned for that: a group is woken by its own
facts, a cohort by comparing the log's last change of room with the basis of the refusal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import events as ev
from services.state.clock import set_deadline
from services.state.partitions import partition_of
from services.state.records import (
    AWAITING,
    BOUND,
    HELD,
    IDLE,
    PARKED,
    PENDING,
    PERMITTED,
    READY,
    SUCCEEDED,
    TERMINATING,
    Cohort,
    Gang,
    Group,
    Pod,
)

if TYPE_CHECKING:
    from services.state.fold import State

ROOM_REASONS = frozenset({"InsufficientRoom", "Timeout", "LeftQueue", "HoldBroken", "MemberDeleted", "BindingFailed"})
"""Refusals that count as a failed attempt: they back off and move the group behind in the queue order."""
WAKES_AT_ONCE = frozenset({"Timeout", "LeftQueue", "HoldBroken", "MemberDeleted", "BindingFailed"})
"""Refusals after which nothing but the backoff has to pass."""
NEVER_RETRIED = frozenset({"SetAside"})


# ------------------------------------------------------------------------------------------------------------- queries


def members(state: State, group: Group) -> list[str]:
    """UIDs of the group's pods, in the order in which the log first saw them."""
    if group.pod:
        return [group.pod]
    return [uid for key in group.gangs for uid in state.gangs[key].members]


def placeable(state: State, uids: Iterable[str]) -> list[str]:
    """Those that may be proposed now: pending, not gated, without a claim."""
    pods, claims = state.pods, state.claims
    return [uid for uid in uids if (pod := pods[uid]).status == PENDING and uid not in claims and not pod.fact.gated]


class Census(NamedTuple):
    """A gang's members by what they count for."""

    total: int
    """Seed 000, Pre-Filter 1: the gang's pods, terminating ones excluded."""
    have: int
    """Seed 000, Permit: Running and WaitingPods. Bound ones, and those whose permit or hold stands."""
    placeable: dict[str, list[str]]
    """UIDs that may be proposed now, by scheduling class, in the order in which the log first saw them."""


def census(state: State, gang: Gang) -> Census:
    """One pass over the members."""
    pods, claims = state.pods, state.claims
    total = have = 0
    by_class: dict[str, list[str]] = {}
    for uid in gang.members:
        pod = pods[uid]
        status = pod.status
        total += status != TERMINATING
        if status == PENDING:
            claim = claims.get(uid)
            if claim is not None:
                have += claim.stage in (HELD, PERMITTED)
            elif not (fact := pod.fact).gated:
                of_class = by_class.get(fact.scheduling_class)
                if of_class is None:
                    by_class[fact.scheduling_class] = [uid]
                else:
                    of_class.append(uid)
        else:
            have += status == BOUND
    return Census(total, have, by_class)


def running(state: State, gang: Gang) -> tuple[int, int]:
    """(members that count as running: bound, permitted to be, or already succeeded; of these, those still alive)."""
    count = live = 0
    for uid in gang.members:
        status = state.pods[uid].status
        if status == BOUND or (status == PENDING and uid in state.permitted):
            count += 1
            live += 1
        elif status == SUCCEEDED:
            count += 1
    return count, live


def total(state: State, gang: Gang) -> int:
    """Seed 000, Pre-Filter 1: the gang's pods, terminating ones excluded."""
    return sum(state.pods[uid].status != TERMINATING for uid in gang.members)


def candidates(state: State, shard: str) -> list[Group]:
    """The shard's groups that may be tried now, in no particular order."""
    owners, groups = state.owners, state.groups
    found = [groups[key] for key in state.ready]
    for cohort in state.cohorts.values():
        if not cohort.backing_off and (
            cohort.woken or (cohort.reason == "InsufficientRoom" and state.room_sequence > cohort.basis)
        ):
            found.extend(groups[key] for key in cohort.groups)
    return [group for group in found if owners[group.partition] == shard]


# ------------------------------------------------------------------------------------------------------------ grouping


def join(state: State, uid: str, pod: Pod) -> None:
    """A candidate pod enters its gang, or becomes a group of its own."""
    fact = pod.fact
    membership = fact.gang
    if membership is None:
        key = pod.group = f"pod/{fact.namespace}/{fact.name}"
        group = _new_group(state, key, fact)
        group.pod = uid
        wake(state, group, uid)
        return
    key = pod.group = pod.gang = membership.gang
    gang = _gang(state, key, membership.dialect)
    gang.members[uid] = None
    if gang.declaration is None and membership.declared is not None:
        gang.declaration, gang.source, gang.dialect = membership.declared, uid, membership.dialect
    found = state.groups.get(key)
    if found is None:
        found = _new_group(state, key, fact)
        found.gangs = (key,)
    elif fact.priority > found.priority:
        found.priority = fact.priority
    if found.phase == READY:
        found.changed = state.sequence
    else:
        wake(state, found, uid)


def _gang(state: State, key: str, dialect: str) -> Gang:
    gang = state.gangs.get(key)
    if gang is None:
        gang = state.gangs[key] = Gang(key=key, dialect=dialect)
    return gang


def _new_group(state: State, key: str, first: ev.PodObserved) -> Group:
    """A group with its first pod; one of that name that an earlier pod left behind gives way."""
    stale = state.groups.get(key)
    if stale is not None:
        _drop_group(state, stale)
    group = state.groups[key] = Group(key, partition_of(key), state.sequence, first.created_ns)
    group.priority = first.priority
    return group


def leave(state: State, uid: str, pod: Pod) -> None:
    """The pod is gone from its group: deleted, moved to another gang, or not a candidate any more."""
    group = state.groups.get(pod.group)
    key, pod.group = pod.group, ""
    gang = state.gangs.get(pod.gang)
    pod.gang = ""
    if group is None:
        return
    let_go(state, group, uid)
    if group.pod == uid:
        _drop_group(state, group)
        return
    if gang is None:
        return
    gang.members.pop(uid, None)
    if gang.source == uid:
        _redeclare(state, gang)
    if gang.members:
        pods, highest = state.pods, group.priority
        if pod.fact.priority == highest and not any(pods[member].fact.priority == highest for member in gang.members):
            group.priority = max(pods[member].fact.priority for member in gang.members)
        _reconsider(state, group)
    else:
        _drop_group(state, group)
        if gang.declaration is None or not gang.source or gang.source == uid:
            del state.gangs[key]


def _redeclare(state: State, gang: Gang) -> None:
    """The pod that declared the gang is gone: the oldest member that declares it takes its place."""
    gang.declaration, gang.source = None, ""
    for uid in gang.members:
        membership = state.pods[uid].fact.gang
        if membership is not None and membership.declared is not None:
            gang.declaration, gang.source = membership.declared, uid
            return


def _drop_group(state: State, group: Group) -> None:
    _unpark(state, group)
    state.ready.pop(group.key, None)
    state.holding.pop(group.key, None)
    if state.groups.get(group.key) is group:
        del state.groups[group.key]


def changed(state: State, uid: str, pod: Pod) -> None:
    """A candidate was observed again: gates, priority, requests or the gang's label may have changed."""
    fact = pod.fact
    if pod.group and pod.group != key_of(fact):
        held = state.claims.get(uid)
        if held is not None and held.stage != "bound":
            return  # membership is frozen from proposal to settlement; `settled` comes back to it
        leave(state, uid, pod)
    if not pod.group:
        join(state, uid, pod)
        return
    group = state.groups[pod.group]
    gang = state.gangs.get(pod.gang)
    if gang is not None:
        if gang.source == uid:
            _redeclare(state, gang)
        group.priority = max(state.pods[member].fact.priority for member in gang.members)
    else:
        group.priority = fact.priority
    wake(state, group, uid)


def key_of(fact: ev.PodObserved) -> str:
    """Key of the group that the pod says it belongs to."""
    return fact.gang.gang if fact.gang is not None else f"pod/{fact.namespace}/{fact.name}"


def settled(state: State, uid: str, pod: Pod) -> None:
    """The pod's claim is settled: an edit of its label that came in between counts now."""
    if not pod.group:
        return
    group = state.groups.get(pod.group)
    if group is not None:
        let_go(state, group, uid)
        if group.phase == READY:
            _reconsider(state, group)
    if pod.fact.candidate and key_of(pod.fact) != pod.group:
        changed(state, uid, pod)


def succeeded(state: State, pod: Pod) -> None:
    """A member is bound: what fails next fails for the first time. A permit alone is no success; bindings fail, too."""
    group = state.groups.get(pod.group)
    if group is not None:
        group.attempts = 0


def shrunk(state: State, pod: Pod) -> None:
    """A member is on its way out, or somebody else bound it: fewer pods are to be placed."""
    group = state.groups.get(pod.group)
    if group is not None:
        _reconsider(state, group)


def let_go(state: State, group: Group, uid: str) -> None:
    """The pod's assignment waits no longer; with the last one the hold is over."""
    if uid in group.held:
        del group.held[uid]
        if not group.held:
            hold_over(state, group)


def hold_over(state: State, group: Group) -> None:
    group.held.clear()
    group.permit_due = False
    state.holding.pop(group.key, None)


# -------------------------------------------------------------------------------------------------------------- phases


def wake(state: State, group: Group, uid: str = "") -> None:
    """A fact about the group itself could change its verdict: about the pod `uid`, or about a declaration.

    An idle group has nothing to place, so that only a pod that may be placed now can wake it.
    """
    group.changed = state.sequence
    if group.phase == IDLE:
        if uid and placeable(state, (uid,)):
            group.phase = READY
            state.ready[group.key] = None
    elif group.phase == PARKED:
        cohort = state.cohorts[group.cohort]
        if cohort.reason == "TooFewPods" and _too_few(state, group):
            return
        if cohort.backing_off:
            group.woken = True
        else:
            make_ready(state, group)


def _too_few(state: State, group: Group) -> bool:
    """Whether a gang is still short of pods, by its declaration as it is now."""
    gangs = [state.gangs[key] for key in group.gangs]
    return any(gang.declaration is not None and total(state, gang) < gang.declaration.min_member for gang in gangs)


def _reconsider(state: State, group: Group) -> None:
    """Fewer pods than before: nothing left to place, or another reason to refuse."""
    if group.phase == READY and not placeable(state, members(state, group)):
        state.ready.pop(group.key, None)
        group.phase = IDLE
    elif group.phase == PARKED:
        if placeable(state, members(state, group)):
            wake(state, group)
        else:
            _unpark(state, group)
            group.phase = IDLE


def make_ready(state: State, group: Group) -> None:
    """Ready if it has something to place, else idle."""
    _unpark(state, group)
    if placeable(state, members(state, group)):
        group.phase = READY
        state.ready[group.key] = None
    else:
        group.phase = IDLE
        state.ready.pop(group.key, None)


def await_verdict(state: State, group: Group) -> None:
    _unpark(state, group)
    state.ready.pop(group.key, None)
    group.phase = AWAITING


def _unpark(state: State, group: Group) -> None:
    group.woken = False
    if group.cohort:
        cohort = state.cohorts[group.cohort]
        cohort.groups.pop(group.key, None)
        if not cohort.groups:
            del state.cohorts[group.cohort]
        group.cohort = 0


# ------------------------------------------------------------------------------------------------------------- cohorts


def refused(state: State, event: ev.GroupsRefused) -> None:
    """Park the groups that the refusal means: those that were there at its basis and are this shard's."""
    shard = state.writer.partition(".")[2]
    meant: list[Group] = []
    for key in event.groups:
        group = state.groups.get(key)
        if (
            group is None
            or group.since > state.basis
            or state.owner(group) != shard
            or state.commit_epoch != state.epoch
            or group.phase not in (READY, PARKED)
        ):
            state.ignore(event)
            continue
        meant.append(group)
    condition = event.reason if not event.node_reasons else f"{event.reason}: {', '.join(event.node_reasons)}"
    park(state, meant, event.reason, condition, message_of(event), event.needed, event.attempt)


def park(
    state: State, meant: list[Group], reason: str, condition: str, message: str, needed: int, attempt: int
) -> None:
    """One cohort for these groups, at the place of the current event."""
    if not meant:
        return
    counts = reason in ROOM_REASONS
    owner = state.owner(meant[0])
    cohort = Cohort(state.place, reason, condition, message, needed, state.basis, attempt, owner, {})
    cohort.backing_off = counts
    cohort.woken = reason in WAKES_AT_ONCE
    for group in meant:
        stale = group.changed > state.basis
        await_verdict(state, group)
        if stale and not counts:
            make_ready(state, group)
            continue
        group.phase = PARKED
        group.cohort = cohort.place
        group.woken = stale
        cohort.groups[group.key] = None
        if counts:
            group.attempts = attempt
    if cohort.groups:
        state.cohorts[cohort.place] = cohort
        _set_deadlines(state, cohort, owner)


def _set_deadlines(state: State, cohort: Cohort, owner: str) -> None:
    policy = state.policy
    if policy is None:
        return
    clock = state.clock(f"planner.{owner}")
    if cohort.backing_off:
        backoff_ms = min(policy.backoff_initial_ms << min(cohort.attempt - 1, 20), policy.backoff_max_ms)
        set_deadline(clock, "backoff", str(cohort.place), backoff_ms)
    if cohort.reason not in NEVER_RETRIED:
        set_deadline(clock, "retry", str(cohort.place), policy.retry_ms)


def message_of(event: ev.GroupsRefused) -> str:
    """The refusal in the kube-scheduler's own form: ``0/3 nodes are available: 3 Insufficient cpu.``"""
    if not event.node_reasons:
        return event.detail
    reasons = ", ".join(f"{count} {reason}" for reason, count in event.node_reasons.items())
    text = f"0/{event.nodes} nodes are available: {reasons}."
    return f"{text} {event.detail}" if event.detail else text


def backoff_started(state: State, place: int, time_ns: int) -> None:
    """The failure's time is the tick at which its backoff starts to run: seed 000's LastFailureTimestamp."""
    cohort = state.cohorts.get(place)
    if cohort is not None:
        for key in cohort.groups:
            state.groups[key].queued_ns = time_ns


def backoff_over(state: State, key: str) -> None:
    cohort = state.cohorts.get(int(key))
    if cohort is None:
        return
    cohort.backing_off = False
    for group_key in [k for k in cohort.groups if state.groups[k].woken]:
        make_ready(state, state.groups[group_key])


def retry_due(state: State, key: str) -> None:
    cohort = state.cohorts.get(int(key))
    if cohort is not None:
        cohort.woken = True


def disagreement(state: State, event: ev.DisagreementDetected) -> None:
    """Planner and binder disagree about one and the same room: a bug. The group is set aside until its facts change."""
    group = state.groups.get(event.group)
    if group is not None:
        text = f"set aside: planner and binder disagree about node {event.node}"
        park(state, [group], "SetAside", "SetAside", text, 0, group.attempts)


def give_up(state: State, group: Group, reason: str, message: str) -> None:
    """Assignments of the group came to nothing: it backs off, with more to place than whoever plans now knows of."""
    park(state, [group], reason, reason, message, 0, group.attempts + 1)
    group.changed = state.sequence


def failed_to_bind(state: State, uid: str, pod: Pod) -> None:
    """The pod is tried again after a backoff, unless an edit of its label takes it elsewhere."""
    group = state.groups.get(pod.group)
    if group is not None and group.phase in (IDLE, READY, PARKED) and placeable(state, members(state, group)):
        give_up(state, group, "BindingFailed", "the binding failed")
    settled(state, uid, pod)


# -------------------------------------------------------------------------------------------------------- declarations


def pod_group_observed(state: State, event: ev.PodGroupObserved) -> None:
    key = f"{event.namespace}/{event.name}"
    gang = _gang(state, key, event.dialect)
    gang.dialect, gang.source = event.dialect, event.uid
    gang.declaration = event.declaration
    state.rejections.pop(f"PodGroup/{key}", None)
    group = state.groups.get(key)
    if group is not None:
        wake(state, group)


def pod_group_deleted(state: State, event: ev.PodGroupDeleted) -> None:
    key = f"{event.namespace}/{event.name}"
    gang = state.gangs.get(key)
    if gang is None or gang.source != event.uid:
        return
    _redeclare(state, gang)
    group = state.groups.get(key)
    if group is not None:
        wake(state, group)
    elif not gang.members:
        del state.gangs[key]
