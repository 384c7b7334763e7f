"""Koordinator's timeout (seed 002, Permit and Un-reserve): which gangs ran out of waiting time and wait for their user.

    scheduler will roll back all assumed pods, update each pod's annotation with
    `gang.scheduling.koordinator.sh/timeout=true`, and won't schedule these pods anymore.

What counts is the annotation: a gang has timed out while a pod of it that waits to be scheduled has it, whoever wrote
it, even another scheduler or a Muster whose log is gone. From the binder's `GangTimedOut` until a fact shows the
annotation, the event counts as if it were there.

A user acts by one of these, and the gang may be tried again:

- all pods that have the annotation are deleted, or are bound: by somebody else, or because that was intended before;
- the annotation is removed from all of them;
- what declares the gang changes: its PodGroup, or the annotations of the pod that speaks for it. The annotations that are
  on the pods already mean nothing from then on; one that is added later counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import events as ev
from events import dialects, objects
from services.state import tallies
from services.state.records import BOUND, PENDING, Gang, Group, Mark, Pod

if TYPE_CHECKING:
    from services.state.fold import State


def rules_apply(state: State, group: Group) -> bool:
    """Whether Koordinator's timeout is for this group: all its gangs are of that dialect."""
    gangs = (state.gangs[key] for key in group.gangs)
    return bool(group.gangs) and all(dialects.family(gang.dialect) == "koordinator" for gang in gangs)


def stands(state: State, group: Group) -> bool:
    """Whether a gang of the group has timed out and its user did nothing since."""
    return any(gang_stands(state, state.gangs[key]) for key in group.gangs)


def gang_stands(state: State, gang: Gang) -> bool:
    return tallies.of(state, gang).overdue > 0


def says(fact: ev.PodObserved) -> bool:
    """Whether the pod has the annotation."""
    return fact.gang is not None and fact.gang.timed_out is True


def named(state: State, uid: str) -> bool:
    """Whether the binder's `GangTimedOut` named the pod, which is to be annotated, and its gang is still timed out."""
    gang = state.gangs.get(state.pods[uid].gang)
    return uid in state.marks and gang is not None and uid in gang.timed_out


# ---------------------------------------------------------------------------------------------------------- transitions


def timed_out(state: State, event: ev.GangTimedOut) -> None:
    """The group's gangs ran out of waiting time, and the pods that are named are to be annotated."""
    group = state.groups.get(event.group)
    if group is None:
        return
    named = dict(event.pods)
    for key in group.gangs:
        gang = state.gangs[key]
        # A member that is neither came after the decision, and is not annotated.
        for uid in gang.members:
            if uid in named or says(state.pods[uid].fact):
                tallies.says_timed_out(state, gang, uid)
    for uid, resource_version in event.pods:
        pod = state.pods.get(uid)
        if pod is not None and pod.status in (PENDING, BOUND) and not says(pod.fact):
            state.marks[uid] = Mark(resource_version)


def joined(state: State, gang: Gang, uid: str, pod: Pod) -> None:
    if says(pod.fact):
        tallies.says_timed_out(state, gang, uid)


def observed_again(state: State, uid: str, pod: Pod, before: ev.PodObserved) -> None:
    """The annotation appeared, which is news unless the binder wrote it; or its user removed it."""
    gang = state.gangs.get(pod.gang)
    if not says(pod.fact):
        if says(before):
            _act(state, uid, gang)
        else:
            removed(state, uid, pod)
    elif not says(before) and state.marks.pop(uid, None) is None and gang is not None:
        tallies.says_timed_out(state, gang, uid)


def written(state: State, uid: str, pod: Pod, resource_version: str) -> bool:
    """The binder wrote the annotation; whether the user removed it since.

    The fact that shows it may have come first. Then the intent is closed already, or the open one is of a later timeout,
    whose resourceVersion is newer than this write.
    """
    mark = state.marks.get(uid)
    if mark is None or objects.version(resource_version) < objects.version(mark.resource_version):
        return False
    mark.written = resource_version
    return removed(state, uid, pod)


def removed(state: State, uid: str, pod: Pod) -> bool:
    """Whether a fact without the annotation is newer than our write: a user removed it before any fact showed it. That
    the pod was assigned says so, too: it would be observed in full if anything else were news."""
    mark = state.marks.get(uid)
    version = objects.version
    if mark is None or not mark.written or version(pod.observed_version) < version(mark.written):
        return False
    _act(state, uid, state.gangs.get(pod.gang))
    return True


def _act(state: State, uid: str, gang: Gang | None) -> None:
    state.marks.pop(uid, None)
    if gang is not None:
        tallies.unsays_timed_out(state, gang, uid)


def renewed(state: State, event: ev.TimeoutMarkRenewed) -> None:
    for uid, resource_version in event.pods:
        mark = state.marks.get(uid)
        if mark is not None and not mark.written:
            mark.resource_version = resource_version


def failed(state: State, event: ev.TimeoutMarkFailed) -> None:
    state.marks.pop(event.uid, None)
