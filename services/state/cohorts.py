"""Cohorts: what one refusal refused together, its backoff, and what wakes it.

A cohort backs off, and then is tried again only after a fact that could change its verdict: room given back for those
refused for room, a member or a declaration for the others; else when its retry falls due. Those for whom a shard had only
what it leaves for other shards' groups are tried right after their backoff: by then these have it, or leave it to them,
of which no fact need tell. Nothing is scanned for that: a group is woken by its own facts (`groups.wake`), a cohort by
comparing the log's last change of room with the basis of the refusal.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain, islice
from typing import TYPE_CHECKING

import events as ev
from services.state import groups, lacking, queueing, reasons
from services.state.clock import BACKOFF, RETRY, set_deadline
from services.state.membership import unplaced
from services.state.records import IDLE, PARKED, READY, Cohort, Group, Pod
from services.state.slices import at_once

if TYPE_CHECKING:
    from events.policy import Policy
    from services.state.fold import State

SLICE_LISTED = 50_000
"""Groups that wait, listed between two yields: some 10 ms."""


def waiting(state: State) -> list[Group]:
    """The groups that may be tried now, whoever owns them, in no particular order."""
    return at_once(waiting_in_slices(state))


def waiting_in_slices(state: State) -> Generator[None, None, list[Group]]:
    """`waiting`, with a yield now and then: hundreds of thousands may be."""
    cohorts = (one.groups for one in state.cohorts.values() if not one.backing_off and has_reason(state, one))
    keys, found = chain(state.ready, chain.from_iterable(cohorts)), list[Group]()
    while listed := list(map(state.groups.__getitem__, islice(keys, SLICE_LISTED))):
        found += listed
        if len(listed) == SLICE_LISTED:
            yield
    return found


def passed_over(state: State, others: list[Group], most: int) -> Generator[None, None, list[Group]]:
    """Pods without a gang that back off for lack of room, though some was given back since, and that are of a higher
    priority than one of these `others`, whom backing off would let have it: else they might back off each time that
    there is some, for ever. A gang is helped otherwise (`services.planner.rules.starvation`). In slices.

    At most so many, those first that were refused first: who is refused again is behind all others."""
    backing_off = [
        cohort
        for cohort in state.cohorts.values()
        if cohort.backing_off
        and cohort.place in state.highest
        and reasons.follows(cohort.reason).for_room
        and room_moved(state, cohort)
    ]
    if not backing_off or not others:
        return []
    lowest = queueing.priority(state, others[0])
    for start in range(0, len(others), SLICE_LISTED):
        if start:
            yield
        priorities = (queueing.priority(state, group) for group in others[start : start + SLICE_LISTED])
        lowest = min(chain((lowest,), priorities))
    above = (cohort.groups for cohort in backing_off if state.highest[cohort.place] > lowest)
    groups = map(state.groups.__getitem__, chain.from_iterable(above))
    return list(islice((group for group in groups if group.pod and group.priority > lowest), most))


def bound(state: State, cohort: Cohort) -> None:
    """Note the highest priority of its pods without a gang."""
    alone = (group.priority for group in map(state.groups.__getitem__, cohort.groups) if group.pod)
    if (highest := max(alone, default=None)) is not None:
        state.highest[cohort.place] = highest


def backs_off(state: State, group: Group) -> bool:
    cohort = state.cohorts.get(group.cohort)
    return cohort is not None and cohort.backing_off


def has_reason(state: State, cohort: Cohort) -> bool:
    """Whether something that could change the verdict happened since, as far as it concerns the cohort as a whole."""
    return cohort.woken or (
        reasons.follows(cohort.reason).for_room and (room_moved(state, cohort) or unkept(state, cohort))
    )


def room_moved(state: State, cohort: Cohort) -> bool:
    """Whether room was given back since these groups were refused."""
    return state.room_sequence > cohort.basis


def lacked_room(state: State, group: Group) -> int:
    """The basis at which the group was refused for room, if that was its last verdict; else what nothing is behind."""
    cohort = state.cohorts.get(group.cohort)
    if cohort is None:
        return state.lacked_room.get(group.key, state.sequence)
    return cohort.basis if reasons.follows(cohort.reason).for_room else state.sequence


def unkept(state: State, cohort: Cohort) -> bool:
    """Whether room that was kept for somebody, a starving gang or pods that are gone, is for everybody again since."""
    return state.kept_sequence > cohort.basis


def refused(state: State, event: ev.GroupsRefused) -> None:
    """Park the groups that the refusal means: those that were there at its basis and are this shard's."""
    meant: list[Group] = []
    for key in event.groups:
        group = groups.meant(state, key)
        if group is not None and group.phase in (READY, PARKED):
            meant.append(group)
        else:
            state.ignore(event)
    if meant:
        word, about = reasons.follows(event.reason).alike or event.reason, _about(state, meant[0], event)
        condition = f"{word}: {about}" if about else word
        park(state, meant, event.reason, condition, message_of(event), event.needed, event.attempt)


def _about(state: State, group: Group, event: ev.GroupsRefused) -> str:
    """What is missing, but for how much of it; empty where the reason says all. Pods are told again when it changes."""
    if event.reason in ("PodsGated", "UnsupportedConstraint"):
        return _countless(event.detail)
    if reasons.follows(event.reason).for_room:
        more = event.detail.partition(". ")[2]  # behind the sentence that counts which pods of a gang have a node
        return ", ".join((*event.node_reasons, _countless(more)) if more else event.node_reasons)
    return lacking.subject(state, group, event.reason)


def _countless(text: str) -> str:
    """Without numbers, but for those that are the name of a task."""
    words = text.split()
    named = (before == "task" for before in ("", *words))
    return " ".join(word for word, is_name in zip(words, named, strict=False) if is_name or not word.isdecimal())


def park(
    state: State, meant: list[Group], reason: str, condition: str, message: str, needed: int, attempt: int
) -> None:
    """One cohort for these groups, at the place of the current event."""
    follows = reasons.follows(reason)
    owner = state.owner(meant[0])
    cohort = Cohort(state.place, reason, condition, message, needed, state.basis, attempt, owner, {})
    cohort.backing_off = follows.backs_off
    cohort.woken = follows.tried_at_once
    for group in meant:
        stale = group.changed > state.basis
        groups.await_verdict(state, group)
        group.conflicts = 0
        if stale and not follows.backs_off:
            groups.make_ready(state, group)
            continue
        group.phase = PARKED
        group.cohort = cohort.place
        group.woken = stale
        cohort.groups[group.key] = None
        if follows.backs_off:
            group.attempts = attempt
    if cohort.groups:
        state.cohorts[cohort.place] = cohort
        bound(state, cohort)
        _set_deadlines(state, cohort, owner)


def _set_deadlines(state: State, cohort: Cohort, owner: str) -> None:
    policy = state.policy
    if policy is None:
        return
    clock = state.clock(f"planner.{owner}")
    if cohort.backing_off:
        set_deadline(clock, BACKOFF, str(cohort.place), backoff_ms(policy, cohort))
    if reasons.follows(cohort.reason).retried:
        set_deadline(clock, RETRY, str(cohort.place), policy.retry_ms)


def backoff_ms(policy: Policy, cohort: Cohort) -> int:
    """How long a cohort backs off that does: twice as long with each refusal in a row, up to a bound."""
    return min(policy.backoff_initial_ms << min(cohort.attempt - 1, 20), policy.backoff_max_ms)


def message_of(event: ev.GroupsRefused) -> str:
    """The refusal in the kube-scheduler's own form: ``0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu.``

    Counts are ordered with their reasons, as texts; that is how it orders them (FitError)."""
    if event.reason == "InsufficientRoom" and not event.nodes:
        text = "no nodes available to schedule pods"
        return f"{text}. {event.detail}" if event.detail else text
    if event.node_reasons:
        counts = ", ".join(sorted(f"{count} {reason}" for reason, count in event.node_reasons.items()))
        text = f"0/{event.nodes} nodes are available: {counts}."
        return f"{text} {event.detail}" if event.detail else text
    return event.detail


def backoff_started(state: State, place: int, time_ns: int) -> None:
    """The failure's time is the tick at which its backoff starts to run: seed 000's LastFailureTimestamp."""
    cohort = state.cohorts.get(place)
    if cohort is not None:
        for key in cohort.groups:
            state.groups[key].failed_ns = time_ns


def backoff_over(state: State, key: str) -> None:
    cohort = state.cohorts.get(int(key))
    if cohort is None:
        return
    cohort.backing_off = False
    for group_key in [k for k in cohort.groups if state.groups[k].woken]:
        groups.make_ready(state, state.groups[group_key])


def stands(state: State, key: str) -> bool:
    return int(key) in state.cohorts


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
    """Assignments of the group came to nothing: it backs off.

    It has more to place than a planner knows of whose basis is before this; so it counts as changed here.
    """
    attempt = max(1, group.attempts + (reason != "LeftQueue"))  # that follows a refusal which was counted
    park(state, [group], reason, reason, message, 0, attempt)
    group.changed = state.sequence


def failed_to_bind(state: State, uid: str, pod: Pod, message: str) -> None:
    """The pod is tried again after a backoff, unless an edit of its label takes it elsewhere."""
    group = state.groups.get(pod.group)
    if group is not None and group.phase in (IDLE, READY, PARKED) and unplaced(state, group):
        give_up(state, group, "BindingFailed", message or "the binding failed")
    groups.settled(state, uid, pod)
