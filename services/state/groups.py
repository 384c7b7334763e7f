"""Gangs and groups: who belongs together, and which phase a group is in.

A group is in one phase: *idle* (nothing to place), *ready* (may be tried), *awaiting* (a proposal has no verdict yet),
*parked* (refused; in a cohort). Facts about its own pods and its declaration wake it; what wakes a cohort as a whole
stands in `cohorts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from events import dialects
from events.subjects import shard_of
from services.state import declarations, lacking, reasons, schedule_cycle, tallies, timeouts
from services.state.membership import placeable, unplaced
from services.state.naming import named_by, names_changed
from services.state.partitions import partition_of
from services.state.records import (
    AWAITING,
    BOUND_CLAIM,
    IDLE,
    PARKED,
    READY,
    Gang,
    Group,
    Pod,
)

if TYPE_CHECKING:
    from services.state.fold import State


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
    gang = _gang(state, membership.gang, membership.dialect)
    pod.gang = gang.key
    gang.members[uid] = None
    tallies.joined(state, uid, pod)
    before, declared = named_by(gang), gang.declaration
    declarations.joined(state, gang, uid, membership)
    _declared(state, gang, before)
    timeouts.joined(state, gang, uid, pod)
    pod.group = gang.group
    found = state.groups.get(gang.group)
    if found is None:
        found = _new_group(state, gang.key, fact)
        found.gangs = (gang.key,)
        if named_by(gang) or gang.key in state.named:
            state.regrouping[gang.key] = None
    raised = fact.priority > found.priority
    if raised:
        found.priority = fact.priority
    if found.phase == READY:
        found.changed = state.sequence
    elif raised or not schedule_cycle.goes_on(state, found) or gang.declaration != declared:
        wake(state, found, uid)


def _gang(state: State, key: str, dialect: str) -> Gang:
    gang = state.gangs.get(key)
    if gang is None:
        gang = state.gangs[key] = Gang(key=key, dialect=dialect, group=key)
    return gang


def _new_group(state: State, key: str, first: ev.PodObserved) -> Group:
    """A group with its first pod. A group of the same key, from an earlier pod of that name, is dropped."""
    stale = state.groups.get(key)
    if stale is not None:
        drop(state, stale)
    group = state.groups[key] = Group(key, partition_of(key), state.sequence, first.created_ns)
    group.priority = first.priority
    return group


def leave(state: State, uid: str, pod: Pod) -> None:
    """The pod is gone from its group: deleted, moved to another gang, or not a candidate any more."""
    group = state.groups.get(pod.group)
    pod.group = ""
    gang = state.gangs.get(pod.gang)
    if gang is not None:
        tallies.left(state, uid, pod, last=len(gang.members) == 1)
    pod.gang = ""
    if group is None:
        return
    let_go(state, group, uid)
    if group.pod == uid:
        drop(state, group)
        return
    if gang is None:
        return
    gang.members.pop(uid, None)
    gang.timed_out.pop(uid, None)
    gang.started = gang.started and bool(gang.members)
    before = named_by(gang)
    declarations.left(state, gang, uid)
    _declared(state, gang, before)
    gangs = [state.gangs[key] for key in group.gangs]
    if gang.members or any(one.members for one in gangs):
        if not tallies.has_priority(state, gang, group.priority):
            group.priority = tallies.highest_priority(state, group.gangs)
        if not gang.members:
            state.regrouping[gang.key] = None
        _reconsider(state, group)
    else:
        drop(state, group)
        for one in gangs:
            alone(state, one)


def alone(state: State, gang: Gang) -> None:
    """Its group has no pods left and is gone. The gang has no group until a pod comes."""
    gang.group = gang.key
    forget(state, gang)


def forget(state: State, gang: Gang) -> None:
    """Delete a gang that has neither pods nor a PodGroup."""
    if not gang.members and not gang.pod_group:
        del state.gangs[gang.key]


def drop(state: State, group: Group) -> None:
    _unpark(state, group)
    state.ready.pop(group.key, None)
    state.lacked_room.pop(group.key, None)
    state.holding.pop(group.key, None)
    if state.groups.get(group.key) is group:
        del state.groups[group.key]


def changed(state: State, uid: str, pod: Pod) -> None:
    """Observed again: gates, priority, requests or the gang's label may have changed, or it is no candidate any more."""
    fact = pod.fact
    wanted = key_of(fact) if fact.candidate else ""
    if pod.group and (pod.gang or pod.group) != wanted:
        held = state.claims.get(uid)
        if held is not None and held.stage != BOUND_CLAIM:
            return  # membership is frozen from proposal to settlement; `settled` comes back to it
        leave(state, uid, pod)
    if not wanted:
        return
    if not pod.group:
        join(state, uid, pod)
        held = state.claims.get(uid)
        if pod.gang and held is not None and held.stage == BOUND_CLAIM:
            started(state, state.gangs[pod.gang])
        return
    group = state.groups[pod.group]
    gang = state.gangs.get(pod.gang)
    if gang is not None:
        if fact.gang is not None:
            before = named_by(gang)
            declarations.joined(state, gang, uid, fact.gang)
            _declared(state, gang, before)
        group.priority = tallies.highest_priority(state, group.gangs)
    else:
        group.priority = fact.priority
        if group.cohort:
            state.highest[group.cohort] = max(group.priority, state.highest[group.cohort])
    wake(state, group, uid)


def meant(state: State, key: str) -> Group | None:
    """The group of this key, if the planner's event that is being applied means it; None when the event is not current
    at its own place: the group came after the decision, or is another shard's by now."""
    group = state.groups.get(key)
    if group is None or group.since > state.basis or state.commit_epoch != state.epoch:
        return None
    return group if state.owners[group.partition] == shard_of(state.writer) else None


def key_of(fact: ev.PodObserved) -> str:
    """Key of the gang that the pod says it belongs to, or of a group of its own."""
    return fact.gang.gang if fact.gang is not None else f"pod/{fact.namespace}/{fact.name}"


def settled(state: State, uid: str, pod: Pod) -> None:
    """The pod's claim is settled: an edit of its label that came in between counts now."""
    if not pod.group:
        return
    group = state.groups.get(pod.group)
    if group is not None:
        if group.held:
            let_go(state, group, uid)
        _idle_if_placed(state, group)
    fact = pod.fact
    if pod.gang != (fact.gang.gang if fact.gang is not None else "") or not fact.candidate:
        changed(state, uid, pod)
        state.moved.append(uid)


def shrunk(state: State, pod: Pod) -> None:
    """A member is on its way out, or bound: fewer pods are to be placed, or fewer that say that the gang timed out."""
    group = state.groups.get(pod.group)
    if group is not None:
        _reconsider(state, group)


def let_go(state: State, group: Group, uid: str) -> None:
    """The pod's assignment waits no longer; with the last one the hold is over.

    Of very many pods some were given back before (`commits.PODS_NAMED`), and wait for this one to be: if something else
    took it out of the hold, they may be tried again now.
    """
    if uid in group.held:
        del group.held[uid]
        if not group.held:
            hold_over(state, group)
            if group.phase == IDLE and not group.pod:
                make_ready(state, group)


def hold_over(state: State, group: Group) -> None:
    group.held.clear()
    group.held_since = 0
    group.permit_due = False
    state.holding.pop(group.key, None)


# -------------------------------------------------------------------------------------------------------------- phases


def wake(state: State, group: Group, uid: str = "") -> None:
    """A fact about the group itself could change its verdict: about the pod `uid`, or about a declaration.

    An idle group has nothing to place, so that only a pod that may be placed now can wake it.
    """
    group.changed = state.sequence
    if group.phase == IDLE:
        if uid and placeable(state, uid):
            group.phase = READY
            state.ready[group.key] = None
    elif group.phase == PARKED:
        cohort = state.cohorts[group.cohort]
        if reasons.follows(cohort.reason).incomplete and lacking.stands(state, group, cohort):
            return
        if cohort.backing_off:
            group.woken = True
        else:
            make_ready(state, group)


def _idle_if_placed(state: State, group: Group) -> None:
    if group.phase == READY and not unplaced(state, group):
        state.ready.pop(group.key, None)
        state.lacked_room.pop(group.key, None)
        group.phase = IDLE


def _reconsider(state: State, group: Group) -> None:
    """Fewer pods than before: nothing left to place, or another verdict, be it one that is on its way just now."""
    if group.phase == READY:
        group.changed = state.sequence
        _idle_if_placed(state, group)
    elif group.phase == PARKED:
        if unplaced(state, group):
            wake(state, group)
        else:
            _unpark(state, group)
            group.phase = IDLE


def make_ready(state: State, group: Group) -> None:
    """Ready if it has something to place, else idle. That it lacked room is remembered: it may starve, however often
    something about it changes."""
    cohort = state.cohorts.get(group.cohort)
    _unpark(state, group)
    if unplaced(state, group):
        group.phase = READY
        state.ready[group.key] = None
        if cohort is not None and group.gangs and reasons.follows(cohort.reason).for_room:
            state.lacked_room[group.key] = cohort.basis
    else:
        group.phase = IDLE
        state.ready.pop(group.key, None)
        state.lacked_room.pop(group.key, None)


def await_verdict(state: State, group: Group) -> None:
    _unpark(state, group)
    state.ready.pop(group.key, None)
    state.lacked_room.pop(group.key, None)
    group.phase = AWAITING


def _unpark(state: State, group: Group) -> None:
    group.woken = False
    if group.cohort:
        cohort = state.cohorts[group.cohort]
        cohort.groups.pop(group.key, None)
        if not cohort.groups:
            del state.cohorts[group.cohort]
            state.highest.pop(group.cohort, None)
        group.cohort = 0


# -------------------------------------------------------------------------------------------------------- declarations


def pod_group_observed(state: State, event: ev.PodGroupObserved) -> None:
    state.pod_groups[declarations.pod_group_key(event.dialect, event.namespace, event.name)] = event
    state.rejections.pop(f"{dialects.pod_group_kind(event.dialect)}/{event.namespace}/{event.name}", None)
    key = dialects.gang_key(event.dialect, event.namespace, event.name)
    _redeclare(state, _gang(state, key, event.dialect))


def pod_group_deleted(state: State, event: ev.PodGroupDeleted) -> None:
    place = declarations.pod_group_key(event.dialect, event.namespace, event.name)
    known = state.pod_groups.get(place)
    if known is None or known.uid != event.uid:
        return
    del state.pod_groups[place]
    gang = state.gangs.get(dialects.gang_key(event.dialect, event.namespace, event.name))
    if gang is not None:
        _redeclare(state, gang)


def _redeclare(state: State, gang: Gang) -> None:
    """A PodGroup of the gang's name came, changed or went."""
    before = named_by(gang)
    declarations.declare(state, gang)
    _declared(state, gang, before)
    group = state.groups.get(gang.group)
    if group is not None:
        wake(state, group)
        if not gang.members:
            state.regrouping[gang.key] = None
    else:
        forget(state, gang)


def _declared(state: State, gang: Gang, before: tuple[str, ...]) -> None:
    """The gang's declaration was settled anew; `before` is what it named."""
    if named_by(gang) != before:
        names_changed(state, gang, before)
    if state.named:
        may_have_reached(state, gang)


def started(state: State, gang: Gang) -> None:
    """A pod of the gang is bound, by whomever. With the first its rules may be off for the others."""
    if not gang.started:
        group = state.groups.get(gang.group)
        if group is not None:
            gang.started = True
            wake(state, group)
    if state.named:
        may_have_reached(state, gang)


def may_have_reached(state: State, gang: Gang) -> None:
    """More of the gang run than before, or fewer have to: gangs of other groups that name it may have waited for that."""
    named = state.named.get(gang.key)
    if named is None:
        return
    for key in sorted(key for key in named if state.gangs[key].group != gang.group):
        group = state.groups.get(state.gangs[key].group)
        if group is not None:
            wake(state, group)
