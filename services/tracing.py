"""What ingest, planner and binder tell of each gang while telemetry is on: its spans, and counts of pods.

A service derives them from commits in the log, after it has decided: a span may come late, but no decision waits for
one or knows of it. Off, this module is not even imported. A gang's trace (`services.telemetry`):

- ``ingest``: its first pod was seen → that fact stands in the log
- ``plan``: the planner's cycle began → the proposal is read back
- ``permit``: the binder read the proposal → the permit is read back; a gang that is held waits in here
- ``bind``: from there until each pod that was permitted is settled
- ``gang``, around them all: its first pod was created (Kubernetes says so in whole seconds) → the first ``bind`` ends

A binder that takes over tells of the bindings that it finds under way from then on. Gangs that name each other are one
group: each join or parting begins a trace, and what ``ingest`` told of them one by one stands outside of it.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import events as ev
from events import Event
from events.envelope import Commit
from services import telemetry
from services.state.fold import State
from services.state.groups import key_of
from services.state.membership import members
from services.state.records import PENDING, PERMITTED, Group
from services.writer import Gather, Writer


class TracedGather(Gather):
    """Ingest's facts on their way into the log. It counts the pods of each group, so as to know a group's first fact."""

    def __init__(self, writer: Writer, known: Iterable[ev.PodObserved]) -> None:
        """`known` are the pods of which the log knows already."""
        super().__init__(writer)
        self._groups: dict[str, str] = {}
        self._members: Counter[str] = Counter()
        self._begun: deque[tuple[int, str, int]] = deque()
        """(events added before its first fact, group, when it was seen), in order."""
        for pod in known:
            self._begins(pod)

    def add(self, events: Sequence[Event]) -> None:
        now_ns = time.time_ns()
        for position, event in enumerate(events, self._added):
            if isinstance(event, ev.PodObserved):
                if self._begins(event):
                    self._begun.append((position, self._groups[event.uid], now_ns))
            elif isinstance(event, ev.PodDeleted):
                self._leave(event.uid)
        super().add(events)

    async def _send(self, payload: bytes, events: int) -> None:
        await super()._send(payload, events)
        now_ns = time.time_ns()
        while self._begun and self._begun[0][0] < self._sent:
            _, group, seen_ns = self._begun.popleft()
            telemetry.gang_span("ingest", group, self._writer.last, seen_ns, now_ns, link=self._writer.traceparent)

    def _begins(self, pod: ev.PodObserved) -> bool:
        """Count the pod for its group; whether the fold makes a new group of it."""
        key = key_of(pod) if pod.candidate else ""
        if self._groups.get(pod.uid, "") == key:
            return False
        self._leave(pod.uid)
        if not key:
            return False
        self._groups[pod.uid] = key
        self._members[key] += 1
        return pod.gang is None or self._members[key] == 1

    def _leave(self, uid: str) -> None:
        key = self._groups.pop(uid, "")
        if key:
            self._members[key] -= 1
            if not self._members[key]:
                del self._members[key]


class Traces(Protocol):
    """What a deciding writer tells of the commits that it folds, from when it is the active one."""

    def applied(self, commit: Commit, deciding_s: float) -> None:
        """`commit` was folded just now. `deciding_s` is how long this writer thought about its last one."""


def traces(state: State, writer: str) -> Traces:
    return Binding(state) if writer == "binder" else Planning(state, writer)


class Planning:
    """A planner shard's part: its own proposals and refusals."""

    def __init__(self, state: State, writer: str) -> None:
        self._state, self._writer = state, writer

    def applied(self, commit: Commit, deciding_s: float) -> None:
        if commit.header.writer != self._writer:
            return
        began_ns, now_ns = commit.header.time_ns - int(deciding_s * 1e9), time.time_ns()
        placed = 0
        for event in commit.events:
            if isinstance(event, ev.GangPlaced):
                pods = sum(len(assignment.pods) for assignment in (*event.required, *event.optional))
                placed += pods
                group = self._state.groups.get(event.group)
                if group is not None:
                    telemetry.gang_span(
                        "plan", group.key, group.since, began_ns, now_ns, link=commit.traceparent, pods=pods
                    )
            elif isinstance(event, ev.GroupsRefused):
                waiting = sum(_waiting(self._state, key) for key in event.groups)
                telemetry.PODS.add(waiting, outcome="refused", reason=event.reason)
        if placed:
            telemetry.PODS.add(placed, outcome="placed")


def _waiting(state: State, key: str) -> int:
    """Pods of the group that have neither a node nor a promise of one."""
    group = state.groups.get(key)
    waiting = () if group is None else members(state, group)
    return sum(uid not in state.claims and state.pods[uid].status == PENDING for uid in waiting)


@dataclass(slots=True)
class _Permitted:
    """A gang whose pods are being bound."""

    first_place: int
    created_ns: int
    permitted_ns: int
    unsettled: int = 0
    bound: int = 0


class Binding:
    """The binder's part: from the proposals that it reads to the last outcome of a permit."""

    def __init__(self, state: State) -> None:
        """`state`: as it is when this binder becomes the active one. It takes up what the one before it left."""
        self._state = state
        self._rooted: dict[str, int] = {}
        """group → the place of its first fact, once the root of its trace was told. A gang may have no bound pod and have
        been bound before: its pods are replaced one by one."""
        self._read_ns: dict[str, int] = {}
        """group → when the oldest of its proposals that has no permit was read."""
        self._permitted: dict[str, _Permitted] = {}
        self._unsettled: dict[str, str] = {}
        """UID → group."""
        now_ns = time.time_ns()
        for uid in state.permitted:
            if (group := state.groups.get(state.pods[uid].group)) is not None:
                self._await(group, (uid,), now_ns, now_ns)
        for key, group in state.groups.items():
            if key in self._permitted and _is_first(state, group):
                self._permitted[key].bound = sum(bool(state.pods[uid].node) for uid in members(state, group))
            elif _was_permitted(state, group):
                self._rooted[key] = group.since

    def applied(self, commit: Commit, deciding_s: float) -> None:
        now_ns = time.time_ns()
        for event in commit.events:
            match event:
                case ev.GangPlaced():
                    self._read_ns.setdefault(event.group, now_ns)
                case ev.ProposalRefused() | ev.GangReleased():
                    self._read_ns.pop(event.group, None)
                case ev.GangPermitted():
                    self._permit(event, now_ns, commit.traceparent)
                case ev.PodBound():
                    self._count_bound(event.uid, commit.header.time_ns)
                    self._settle(event.uid, now_ns, bound=1)
                case ev.BindingFailed():
                    telemetry.PODS.add(1, outcome="failed", reason=event.reason)
                    self._settle(event.uid, now_ns)
                case ev.PodAssigned():  # where the fact is first, the outcome may never follow
                    self._settle(event.uid, now_ns, bound=1)
                case ev.PodDeleted() | ev.PodFinished():
                    self._settle(event.uid, now_ns)
        groups = self._state.groups
        if len(self._read_ns) > len(groups):  # some went before anybody judged their proposals
            self._read_ns = {key: read_ns for key, read_ns in self._read_ns.items() if key in groups}
        if len(self._rooted) > 2 * len(groups):
            self._rooted = {key: since for key, since in self._rooted.items() if key in groups}

    def _permit(self, event: ev.GangPermitted, now_ns: int, link: str) -> None:
        key = event.group
        read_ns = self._read_ns.pop(key, now_ns)
        group = self._state.groups.get(key)
        uids = [
            binding.uid
            for assignment in event.bindings
            for binding in assignment.pods
            if (claim := self._state.claims.get(binding.uid)) is not None and claim.stage == PERMITTED
        ]  # of what went before its permit there will be no outcome
        if group is None or not uids:
            return
        telemetry.gang_span("permit", key, group.since, read_ns, now_ns, link=link, pods=len(uids))
        self._await(group, uids, read_ns, now_ns)

    def _await(self, group: Group, uids: Sequence[str], read_ns: int, now_ns: int) -> None:
        permitted = self._permitted.get(group.key)
        if permitted is None:
            created_ns = min(group.created_ns or read_ns, read_ns)  # the API server's clock is another
            permitted = self._permitted[group.key] = _Permitted(group.since, created_ns, now_ns)
        permitted.unsettled += len(uids)
        self._unsettled.update(dict.fromkeys(uids, group.key))

    def _count_bound(self, uid: str, bound_ns: int) -> None:
        telemetry.PODS.add(1, outcome="bound")
        pod = self._state.pods.get(uid)
        if pod is not None and pod.fact.created_ns:
            telemetry.BOUND_S.record(max(0, bound_ns - pod.fact.created_ns) / 1e9)  # of two clocks

    def _settle(self, uid: str, now_ns: int, bound: int = 0) -> None:
        key = self._unsettled.pop(uid, "")
        if not key:
            return
        gang = self._permitted[key]
        gang.unsettled -= 1
        gang.bound += bound
        if gang.unsettled:
            return
        del self._permitted[key]
        telemetry.gang_span("bind", key, gang.first_place, gang.permitted_ns, now_ns, pods=gang.bound)
        if gang.bound and self._rooted.get(key) != gang.first_place:
            self._rooted[key] = gang.first_place
            telemetry.gang_span("gang", key, gang.first_place, gang.created_ns, now_ns, root=True, pods=gang.bound)


def _is_first(state: State, group: Group) -> bool:
    """Whether the pods of the group that have a node were proposed with those that are being bound."""
    claims = {uid: state.claims.get(uid) for uid in members(state, group)}
    proposals = {claim.proposal for claim in claims.values() if claim is not None and claim.stage == PERMITTED}
    bound = (claim for uid, claim in claims.items() if state.pods[uid].node)
    return all(claim is not None and claim.proposal in proposals for claim in bound)


def _was_permitted(state: State, group: Group) -> bool:
    if group.pod:
        return bool(state.pods[group.pod].node)
    return any(state.gangs[key].started for key in group.gangs)
