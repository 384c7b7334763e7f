"""What the decisions of planner and binder mean to a pod or a gang."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

import events as ev
from services.console.counted import counted
from services.console.story.followed import ON_ITS_WAY, POD, Followed
from services.console.story.steps import MS_PER_S, NS_PER_S, Step, standing
from services.console.summary import LEFT_ROOM
from services.state.records import HELD, PENDING, PERMITTED, PROPOSED
from services.state.refusals import said
from services.state.verdicts import place_of

WAITS_FOR = {
    "InsufficientRoom": "no room",
    "BehindOthers": "behind others",
    "TooFewPods": "too few pods",
    "WaitingForGang": "waits for a gang",
    "GangNotDeclared": "not declared",
    "GangTimedOut": "not tried",
    "PodsGated": "gated",
    "UnsupportedConstraint": "cannot be placed",
    "GangTooLarge": "too large",
}
"""Reason of a refusal → what happened."""
NUMBER = re.compile(r"\b[0-9]+\b")
"""Those of a condition are in the value of a taint, as the autoscaler's, which is a time."""


def refused(of: Followed, event: ev.GroupsRefused) -> Iterator[Step]:
    if of.group not in event.groups:
        return
    state, group = of.state, of.its_group()
    if group is None or group.cohort != of.place or not _unplaced(of):
        return
    condition, message = said(state, group)
    what = WAITS_FOR.get(event.reason, event.reason)
    more = (message, LEFT_ROOM if event.reason == "BehindOthers" else "", of.backs_off())
    alike = NUMBER.sub("", f"{what}: {condition}")
    yield Step(what, " ".join(filter(None, more)), alike, counts=True, is_refusal=True)


def _unplaced(of: Followed) -> bool:
    """Whether a refusal of its group is about a pod of it."""
    if of.kind != POD:
        return of.waits
    return any(one.status == PENDING and not one.stage and not one.fact.gated for one in of.members.values())


def placed(of: Followed, event: ev.GangPlaced) -> Iterator[Step]:
    if event.group != of.group or of.place not in of.state.proposals:
        return
    ours = []
    for assignment in chain(event.required, event.optional):
        for uid in assignment.pods:
            claim = of.state.claims.get(uid)
            if uid in of.members and claim is not None and claim.proposal == of.place:
                ours.append(uid)
                of.put(uid, of.members[uid]._replace(stage=PROPOSED, at=assignment.node))
    if ours:
        of.proposals[of.place] = dict.fromkeys(ours)
        yield Step("proposed", of.where(ours), "proposed", counts=True)


FAULTS = {
    "NodeGone": "node {node} is gone",
    "NodeUnfit": "node {node} does not take it any more",
    "NoRoom": "node {node} has no room for it any more: others were faster",
    "RoomKept": "the room on node {node} is kept for a gang that starves",
    "PodGone": "{pod} is gone",
    "PodGated": "{pod} has scheduling gates",
    "PodClaimed": "{pod} has another place",
    "GangTimedOut": "the gang ran out of waiting time",
    "TooLarge": "no commit takes the verdict on so many pods",
}


GIVEN_BACK = {
    "Timeout": "the rest did not come within its waiting time",
    "LeftQueue": "the rest was refused",
    "MemberDeleted": "a pod of it went, and the rest is too few",
    "HoldBroken": "a node, or a pod, is not as it was",
    "Deadlock": "gangs block each other, and the others come first",
    "NotTaken": "its room was not there any more, while that of others was",
}


def proposal_refused(of: Followed, event: ev.ProposalRefused) -> Iterator[Step]:
    ours = of.proposals.pop(place_of(event.proposal), None)
    if ours is None:
        return
    of.give_back(ours)
    pod = of.named(event.pod) if event.pod else "a pod of it"
    fault = FAULTS.get(event.reason)
    why = fault.format(node=event.node, pod=pod) if fault is not None else event.reason  # a later version may know more
    yield Step("proposal refused", why, f"refused {event.reason}", counts=True, is_refusal=True)


def held(of: Followed, event: ev.GangHeld) -> Iterator[Step]:
    ours = of.staged(of.proposals.pop(place_of(event.proposal), ()), PROPOSED)
    if not ours:
        return
    if not of.stages[HELD]:
        of.held_ns = of.time_ns
    for uid in ours:
        of.put(uid, of.members[uid]._replace(stage=HELD))
    group = of.its_group()
    rest = "gang group" if group is not None and len(group.gangs) > 1 else "gang"
    most = f"for {event.waiting_ms / MS_PER_S:g} s at most"
    yield Step("held", f"{of.where(ours)}, for the rest of its {rest}, {most}", "held", counts=True)


def permitted(of: Followed, event: ev.GangPermitted) -> Iterator[Step]:
    if event.group != of.group:
        return
    permits = []
    for assignment in event.bindings:
        for uid in of.staged((binding.uid for binding in assignment.pods), *ON_ITS_WAY):
            if of.members[uid].at == assignment.node:
                permits.append(uid)
                of.put(uid, of.members[uid]._replace(stage=PERMITTED))
    settled = [uid for place in event.proposals for uid in of.proposals.pop(place_of(place), ())]
    dropped = [*of.staged(settled, PROPOSED), *of.staged(event.dropped, HELD)]
    of.give_back(dropped)
    if permits:
        yield Step("permitted", f"{of.where(permits)}, to be bound", "permitted", counts=True)
    if dropped:
        why = "its place was not there any more; its gang starts without it"
        yield Step(
            "dropped", why if of.kind == POD else f"{counted(len(dropped), 'pod')}: {why}", "dropped", counts=True
        )


def released(of: Followed, event: ev.GangReleased) -> Iterator[Step]:
    if event.group != of.group:
        return
    ours = of.staged(event.pods, *(ON_ITS_WAY if event.reason == "NotTaken" else (HELD,)))
    if not ours:
        return
    of.give_back(ours)
    why, waited = GIVEN_BACK.get(event.reason, event.reason), ""
    if of.held_ns and event.reason != "NotTaken":
        waited = f", {(of.time_ns - of.held_ns) / NS_PER_S:.1f} s after it began to wait"
    many = "" if of.kind == POD else f"{counted(len(ours), 'pod')}: "
    pause = f". {of.backs_off()}".removesuffix(". ")
    yield Step("given back", f"{many}{why}{waited}{pause}", f"given back {event.reason}", counts=True)


def timed_out(of: Followed, event: ev.GangTimedOut) -> Iterator[Step]:
    if event.group == of.group and of.waits and not of.timed_out and of.says_timed_out():
        of.timed_out = True
        why = "its waiting time is over: it is not tried again until its user acts"
        yield Step("timed out", why, "timed out", counts=True)


def deadlock(of: Followed, event: ev.DeadlockFound) -> Iterator[Step]:
    if of.group == event.group:
        yield Step("deadlock", f"it gives its room back for {', '.join(event.blocked)}", "deadlock", counts=True)
    elif of.group in event.blocked:
        yield Step("deadlock", f"{event.group} gives its room back, and it is tried at once", "deadlock", counts=True)


def disagreement(of: Followed, event: ev.DisagreementDetected) -> Iterator[Step]:
    group = of.its_group()
    if event.group == of.group and group is not None and group.cohort == of.place and _unplaced(of):
        why = of.state.cohorts[group.cohort].message.removeprefix("set aside: ")
        yield Step("set aside", why, "set aside", counts=True)


def eviction_intended(of: Followed, event: ev.EvictionIntended) -> Iterator[Step]:
    of.evicting[event.uid] = None
    many = "" if of.kind == POD else f"{counted(len(of.evicting), 'pod')}: "
    yield standing(of, "to be evicted", many + event.reason)


def evicted(of: Followed, event: ev.PodEvicted) -> Iterator[Step]:
    if event.uid in of.evicting:
        del of.evicting[event.uid]
        of.ended["evicted"] += 1
        many = "" if of.kind == POD else f"{counted(of.ended['evicted'], 'pod')} so far: "
        yield standing(of, "evicted", f"{many}accepted, or gone already")


def eviction_failed(of: Followed, event: ev.EvictionFailed) -> Iterator[Step]:
    if event.uid in of.evicting:
        del of.evicting[event.uid]
        whose = "" if of.kind == POD else f"{of.named(event.uid)}: "
        yield Step("not evicted", whose + event.message, "not evicted", counts=True)
