"""A pod and its claim: facts and outcomes, in every order in which they may arrive.

A claim has one life: proposed → permitted → bound → released (design, rule 6). Three things make every arrival order of
outcome and fact fold to the same state: outcomes for pods that are gone or finished are inert; a fact without a nodeName
never clears a claim; a fact with one wins over whatever was intended.
"""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING

import msgspec

import events as ev
from events import objects
from services.state import classes, cohorts, groups, membership, reservations, tallies, timeouts
from services.state.records import (
    BOUND,
    BOUND_CLAIM,
    FAILED,
    FINISHED,
    NOMINATED,
    PENDING,
    PERMITTED,
    PROPOSED,
    SUCCEEDED,
    TERMINATING,
    Claim,
    Eviction,
    Lost,
    Node,
    Pod,
)

if TYPE_CHECKING:
    from services.state.fold import State

_set = msgspec.structs.force_setattr


def older(event: ev.NodeObserved | ev.PodObserved, known: ev.NodeObserved | ev.PodObserved) -> bool:
    """Whether a fact is older than the log's own: same object, smaller resourceVersion (they compare as integers)."""
    version = objects.version
    return event.uid == known.uid and 0 <= version(event.resource_version) < version(known.resource_version)


def seen(pod: Pod, version: str) -> None:
    """The newest resourceVersion that the log knows, from a fact or from the binder's own write.

    The two arrive in any order, so that a fact is old only against facts: what it says may be news all the same.
    """
    known = pod.resource_version
    newer = len(version) == len(known) and version >= known  # as numbers, too
    if version and (newer or not 0 <= objects.version(version) < objects.version(known)):
        pod.resource_version = version


# -------------------------------------------------------------------------------------------------------------- claims


def take(state: State, claim: Claim) -> None:
    """Take a claim's room, on a node that has a fact or may get one. Of a pod's the caller tells its gang's tally."""
    name, proposed = claim.node, claim.stage == PROPOSED
    node = state.nodes.get(name)
    if node is None:
        node = state.nodes[name] = Node(name=name, touched=state.sequence)
    elif not proposed:
        node.touched = state.sequence
    claim.node = node.name
    node.claims[claim.uid] = None
    state.claims[claim.uid] = claim
    table = state.table
    row = table.rows.get(name)
    if row is not None:
        table.claim(row, table.classes[claim.scheduling_class], 1, proposed)


def propose(state: State, wanted: dict[str, str], group: str, proposal: int) -> None:
    """Take room for the pods (uid → node) of a proposal, for planners only; those that are gone are left out."""
    pods = state.pods
    for uid, node in wanted.items():
        pod = pods.get(uid)
        if pod is not None and pod.group == group and pod.status == PENDING:
            take(state, Claim(pod.fact.uid, node, pod.fact.scheduling_class, PROPOSED, pod.group, proposal))
            if pod.gang:
                tallies.claimed(state, pod, 1)


def nominate(state: State, key: str, digest: str, node: str, group: str) -> None:
    """Keep room for one pod of the class, under a key that is no pod's; everybody counts it."""
    if node in state.nodes and key not in state.claims:
        take(state, Claim(key, node, digest, NOMINATED, group))
        classes.keep(state, digest)


def end_nomination(state: State, key: str) -> None:
    """Nobody keeps the room any more that was kept under this key."""
    nominated = release(state, key)
    if nominated is not None:
        classes.let_go(state, nominated.scheduling_class)


def accept(state: State, held: Claim, stage: str) -> None:
    """Move the claim on to `stage`: from `held` on the binder counts it."""
    if held.stage == PROPOSED:
        table = state.table
        row = table.rows.get(held.node)
        if row is not None:
            table.accept(row, table.classes[held.scheduling_class])
            state.nodes[held.node].touched = state.sequence
    held.stage = stage
    if state.reservations:
        _may_stay(state, held)


def _may_stay(state: State, held: Claim) -> None:
    """What is reserved on the node may have to do without its room for ever."""
    if reservations.stays(state, held):
        reservations.doubt(state, held.node)


def release(state: State, uid: str) -> Claim | None:
    """Give the room back; wakes whoever was refused for room. Nominated room has its own key and outlives its pod."""
    held = state.claims.get(uid)
    if held is None:
        return None
    del state.claims[uid]
    pod = state.pods.get(uid)
    if pod is not None and pod.gang:
        tallies.claimed(state, pod, -1)
    tallies.settle_intent(state, uid)
    node = state.nodes[held.node]
    del node.claims[uid]
    if held.stage != PROPOSED:
        node.touched = state.sequence
    if node.fact is None and not node.claims:
        del state.nodes[held.node]
    table = state.table
    row = table.rows.get(held.node)
    if row is not None:
        table.claim(row, table.classes[held.scheduling_class], -1, held.stage == PROPOSED)
        state.room_sequence = state.sequence
    return held


def occupy(state: State, uid: str, pod: Pod, node: str) -> None:
    """The pod is on the node, whoever bound it."""
    held = state.claims.get(uid)
    if held is not None and held.node == node:
        if held.stage != BOUND_CLAIM:
            accept(state, held, BOUND_CLAIM)
            tallies.settle_intent(state, uid)
            if pod.gang and uid in state.gangs[pod.gang].timed_out:
                groups.shrunk(state, pod)
    else:
        if held is not None:
            release(state, uid)
        held = Claim(pod.fact.uid, node, pod.fact.scheduling_class, BOUND_CLAIM, pod.group)
        take(state, held)
        tallies.claimed(state, pod, 1)
        groups.shrunk(state, pod)
    pod.node = held.node
    if state.reservations:
        _may_stay(state, held)
    if pod.gang:
        groups.started(state, state.gangs[pod.gang])
    group = state.groups.get(pod.group)
    if group is not None:
        # What fails next fails for the first time. A permit alone is no success; bindings fail, too.
        group.attempts = 0
    groups.settled(state, uid, pod)


# --------------------------------------------------------------------------------------------------------------- facts


def _share(state: State, fact: ev.PodObserved) -> None:
    """Let the fact have what others have, where they say the same: its own copies would be two fifths of the memory."""
    known = state.classes.get(fact.scheduling_class)
    if known is not None:
        _set(fact, "scheduling_class", known.fact.digest)
    _set(fact, "namespace", intern(fact.namespace))
    _set(fact, "status", intern(fact.status))
    gang = state.gangs.get(fact.gang.gang) if fact.gang is not None else None
    if gang is not None and gang.members:
        last = state.pods[next(reversed(gang.members))].fact.gang
        if last == fact.gang:
            _set(fact, "gang", last)


def observed(state: State, event: ev.PodObserved) -> None:
    """A pod's first fact, or a newer one; an older one changes nothing."""
    uid = event.uid
    _share(state, event)
    if state.rejections:
        state.rejections.pop(f"Pod/{event.namespace}/{event.name}", None)
    pod = state.pods.get(uid)
    if pod is None:
        pod = state.pods[uid] = Pod(event, event.status, event.node, event.resource_version, "")
        pod.observed, pod.observed_node, pod.observed_version = event.status, event.node, event.resource_version
        state.classes[event.scheduling_class].pods += 1
        if event.candidate:
            groups.join(state, uid, pod)
        if event.node:
            _observed_on_node(state, uid, pod)
        return
    if older(event, pod.fact):
        return
    _observed_again(state, uid, pod, event)


def _observed_again(state: State, uid: str, pod: Pod, event: ev.PodObserved) -> None:
    """A field that scheduling depends on changed: gates, labels, requests (resize), priority. Who looks seldom, or was
    away, sees in the same fact that the pod is being deleted."""
    before = pod.fact
    tallies.set_fact(state, uid, pod, event)
    seen(pod, event.resource_version)
    pod.observed, pod.observed_node, pod.observed_version = event.status, event.node, event.resource_version
    if before.scheduling_class != event.scheduling_class:
        _reclass(state, uid, before.scheduling_class, event.scheduling_class)
    if event.node and pod.status not in FINISHED:
        tallies.set_status(state, uid, pod, event.status)
        pod.node = event.node
        _observed_on_node(state, uid, pod)
    elif pod.status == PENDING:
        tallies.set_status(state, uid, pod, event.status)
    timeouts.observed_again(state, uid, pod, before)
    if event.candidate or pod.group:
        groups.changed(state, uid, pod)
    if pod.status == TERMINATING:
        _going(state, uid, pod)


def _reclass(state: State, uid: str, old: str, new: str) -> None:
    state.classes[new].pods += 1
    held = state.claims.get(uid)
    if held is not None:
        table = state.table
        row = table.rows.get(held.node)
        if row is not None:
            table.claim(row, table.classes[held.scheduling_class], -1, held.stage == PROPOSED)
            table.claim(row, table.classes[new], 1, held.stage == PROPOSED)
            state.nodes[held.node].touched = state.sequence
            state.room_sequence = state.sequence
        held.scheduling_class = new
    classes.left(state, old)


def _observed_on_node(state: State, uid: str, pod: Pod) -> None:
    if pod.status in FINISHED:
        release(state, uid)
        groups.settled(state, uid, pod)
    else:
        occupy(state, uid, pod, pod.node)


def assigned(state: State, event: ev.PodAssigned) -> None:
    """The pod is on this node, whoever bound it, whatever was intended."""
    pod = state.pods.get(event.uid)
    if pod is None or pod.status in FINISHED:
        return
    seen(pod, event.resource_version)
    if pod.observed != TERMINATING:
        pod.observed = BOUND
    pod.observed_version = event.resource_version
    timeouts.removed(state, event.uid, pod)
    if pod.status != TERMINATING:
        tallies.set_status(state, event.uid, pod, BOUND)
    occupy(state, event.uid, pod, event.node)
    pod.observed_node = pod.node


def terminating(state: State, event: ev.PodTerminating) -> None:
    """It holds its room until it is gone; a claim that is not bound yet is the binder's to release."""
    pod = state.pods.get(event.uid)
    if pod is None or pod.status in FINISHED:
        return
    tallies.set_status(state, event.uid, pod, TERMINATING)
    pod.observed = TERMINATING
    pod.observed_version = event.resource_version
    seen(pod, event.resource_version)
    _going(state, event.uid, pod)


def _going(state: State, uid: str, pod: Pod) -> None:
    """The pod is being deleted: nobody places it, or writes to it, any more."""
    state.marks.pop(uid, None)
    groups.shrunk(state, pod)


def finished(state: State, event: ev.PodFinished) -> None:
    """The pod gives its room back; a failed member's may be kept for its replacement."""
    pod = state.pods.get(event.uid)
    if pod is None or pod.status in FINISHED:
        return
    before = pod.status
    tallies.set_status(state, event.uid, pod, SUCCEEDED if event.succeeded else FAILED)
    pod.observed = pod.status
    state.marks.pop(event.uid, None)
    pod.observed_version = event.resource_version
    seen(pod, event.resource_version)
    held = release(state, event.uid)
    if held is not None and pod.status == FAILED:
        _member_lost(state, pod, pod.gang, held)
    if event.succeeded and before != BOUND and membership.reached(state, pod.gang):
        groups.may_have_reached(state, state.gangs[pod.gang])  # nobody saw that it ran, and it counts for the minimum
    groups.settled(state, event.uid, pod)
    groups.shrunk(state, pod)


def deleted(state: State, event: ev.PodDeleted) -> None:
    """The pod is gone, and gives its room back; a member's may be kept for its replacement."""
    pod = state.pods.get(event.uid)
    if pod is None:
        return
    held = release(state, event.uid)
    del state.pods[event.uid]
    state.evictions.pop(event.uid, None)
    state.marks.pop(event.uid, None)
    if state.rejections:
        state.rejections.pop(f"Pod/{event.namespace}/{event.name}", None)
    gang = pod.gang
    if pod.group:
        groups.leave(state, event.uid, pod)
    if held is not None:
        _member_lost(state, pod, gang, held)
    classes.left(state, pod.fact.scheduling_class)


def _member_lost(state: State, pod: Pod, gang_key: str, held: Claim) -> None:
    """A member of a running gang failed for good: its room may be kept for its replacement (design, section 4).

    It counts from its permit on, as the others do: they will be bound.
    """
    gang = state.gangs.get(gang_key)
    if held.stage not in (PERMITTED, BOUND_CLAIM) or gang is None:
        return
    task = tallies.task_of(pod.fact)
    if not membership.broken(state, gang, task):
        return
    if gang.satisfied or not membership.below_minimum(state, gang, task, more=1):
        answered(state, held.uid)
        classes.keep(state, held.scheduling_class)
        state.lost[held.uid] = Lost(held.uid, gang.key, held.node, held.scheduling_class, task)


def answered(state: State, uid: str) -> None:
    """The binder said what becomes of a lost member's room."""
    lost = state.lost.pop(uid, None)
    if lost is not None:
        classes.let_go(state, lost.scheduling_class)


# ------------------------------------------------------------------------------------------------------------ outcomes


def _intent(state: State, event: ev.PodBound | ev.BindingFailed | ev.BindingRenewed) -> Claim | None:
    """The open intent that an outcome is of. None: a fact was here first, and it wins. It bound the pod, or took the
    binding back, as etcd was restored; then the pod may be planned or permitted for another node by now."""
    held = state.claims.get(event.uid)
    return held if held is not None and held.stage == PERMITTED and held.node == event.node else None


def bound(state: State, event: ev.PodBound) -> None:
    """A definite yes: the claim is bound."""
    pod = state.pods.get(event.uid)
    if pod is None or pod.status in FINISHED or _intent(state, event) is None:
        return
    if pod.status != TERMINATING:
        tallies.set_status(state, event.uid, pod, BOUND)
    occupy(state, event.uid, pod, event.node)


def binding_failed(state: State, event: ev.BindingFailed) -> None:
    """A definite no: the intent is given up, and the pod goes back to its group, with backoff."""
    pod, held = state.pods.get(event.uid), _intent(state, event)
    if pod is None or held is None:
        return
    if event.assigned_node:
        if pod.status != TERMINATING:
            tallies.set_status(state, event.uid, pod, BOUND)
        occupy(state, event.uid, pod, event.assigned_node)
        return
    release(state, event.uid)
    _member_lost(state, pod, pod.gang, held)
    cohorts.failed_to_bind(state, event.uid, pod, event.message)


def binding_renewed(state: State, event: ev.BindingRenewed) -> None:
    held = _intent(state, event)
    if held is not None:
        held.resource_version = event.resource_version


def conditions_reported(state: State, event: ev.ConditionsReported) -> None:
    for uid, resource_version in event.pods:
        pod = state.pods.get(uid)
        if pod is not None:
            pod.reported = event.reason
            seen(pod, resource_version)


def timeout_marked(state: State, event: ev.TimeoutMarked) -> None:
    for uid, resource_version in event.pods:
        pod = state.pods.get(uid)
        if pod is not None:
            if timeouts.written(state, uid, pod, resource_version) and pod.group in state.groups:
                groups.wake(state, state.groups[pod.group])
            seen(pod, resource_version)


def eviction_intended(state: State, event: ev.EvictionIntended) -> None:
    if event.uid in state.pods:
        state.evictions[event.uid] = Eviction(
            event.uid, event.namespace, event.name, event.resource_version, event.reason
        )


def eviction_settled(state: State, event: ev.PodEvicted | ev.EvictionFailed) -> None:
    state.evictions.pop(event.uid, None)
