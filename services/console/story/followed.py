"""A pod or a gang whose story is told, as the log says that it is by now.

The state is folded commit by commit, and forgets what was before. So what an event changed is seen by comparing it with
what is kept here: of each pod of it what it was, and which proposals, rooms and evictions of it are open. Nothing is
looked up but what a commit names: a gang may have ten thousand pods, and each may have a commit of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from events import dialects
from events.facts import PodObserved
from events.objects import Declaration
from services.console.counted import counted
from services.console.summary import why
from services.state import timeouts
from services.state.cohorts import backoff_ms
from services.state.fold import State
from services.state.records import (
    BOUND,
    BOUND_CLAIM,
    FAILED,
    HELD,
    PENDING,
    PROPOSED,
    SUCCEEDED,
    TERMINATING,
    Gang,
    Group,
)
from services.state.refusals import rejected

POD, GANG = "pod", "gang"


class Seen(NamedTuple):
    """A pod of it, as it was."""

    fact: PodObserved
    status: str
    node: str
    stage: str = ""
    """Of its claim, until that is bound; empty for none."""
    at: str = ""
    """The claim's node."""


class Everybody(NamedTuple):
    """What concerns all who wait."""

    synced: bool
    planner: str
    """The shard that lives and plans its group; empty: none does."""
    policy: object
    versions: tuple[int, int]


class Followed:
    """What is known of it. `look` and the setters are the story's to call, behind each commit."""

    def __init__(self, state: State, kind: str, name: str) -> None:
        self.state, self.kind, self.name = state, kind, name
        self._namespace, _, self._named = name.partition("/")
        self.gang = name if kind == GANG else ""
        """The key of its gang; a gang's own."""
        self.group = name if kind == GANG else ""
        """The key of its group; empty for none."""
        self.gangs: tuple[str, ...] = ()
        """Of that group."""
        self.members: dict[str, Seen] = {}
        """By UID: the pods of it that are there."""
        self.newcomers: list[str] = []
        """UIDs of those that the commit brought."""
        self.time_ns = self.place = 0
        """Of the event that is being told: its writer's clock, and its place as `State.place` has it."""
        self.last = ""
        """UID of the pod that came last; empty: it had none so far."""
        self.statuses: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        """How many pods of it have succeeded, failed, gone or been evicted so far."""
        self.stages: Counter[str] = Counter()
        self.gated = 0
        self.nodes: Counter[str] = Counter()
        """Node → pods that are bound to it."""
        self.declaration: Declaration | None = None
        self.timed_out = False
        self.everybody: Everybody | None = None
        """None before it is seen."""
        self.proposals: dict[int, dict[str, None]] = {}
        """Place → UIDs of pods of it, of proposals that have no verdict. A pod that was gone since may be there again,
        as where etcd was restored: with that proposal it has nothing to do any more."""
        self.held_ns = 0
        """When the first pod that is held began to be."""
        self.kept: dict[str, str] = {}
        """UID of a failed pod → the node on which room is kept for its replacement."""
        self.evicting: dict[str, None] = {}
        self.rejections: dict[str, None] = {}
        """Keys in `State.rejections`, of what declares it."""
        self.requested = self.reserved = self.nominated = False
        """Whether room is asked for, reserved and nominated for its group."""
        self._begin()

    def _begin(self) -> None:
        """Of a log that was purged: the state on which the rest stands."""
        state = self.state
        for uid, pod in state.pods.items():
            if self.is_of(pod.fact) if self.kind == POD else pod.gang == self.name:
                self.sync(uid)
        for place, proposal in state.proposals.items():
            uids = (uid for one in (*proposal.required, *proposal.optional) for uid in one.pods)
            there = [uid for uid in uids if uid in self.members and uid in state.claims]
            if ours := [uid for uid in there if state.claims[uid].proposal == place]:
                self.proposals[place] = dict.fromkeys(ours)
        self.look()
        self.declaration = gang.declaration if (gang := self.its_gang()) is not None else None
        self.timed_out = self.says_timed_out()
        self.gangs = group.gangs if (group := self.its_group()) is not None else ()
        self.everybody = self.concerns()
        self.evicting = {uid: None for uid in state.evictions if uid in self.members}
        self.kept = {uid: one.node for uid, one in state.nominations.items() if self.means(one.gang, uid)}
        self.rejections = {key: None for key in state.rejections if self.is_declared_by(*key.split("/", 2))}
        self.requested, self.reserved = self.group in state.room_requests, self.group in state.reservations
        self.nominated = self.group in state.group_nominations

    # ------------------------------------------------------------------------------------------------------- questions

    @property
    def is_there(self) -> bool:
        """Whether the log has it at this place, or something that is rejected of it."""
        return bool(self.members or self.rejections) or (self.kind == GANG and self.name in self.state.gangs)

    @property
    def waits(self) -> bool:
        return self.statuses[PENDING] > 0

    def its_gang(self) -> Gang | None:
        return self.state.gangs.get(self.gang)

    def its_group(self) -> Group | None:
        return self.state.groups.get(self.group)

    def is_of(self, fact: PodObserved) -> bool:
        """Whether a fact is about a pod of it, by what the fact says itself."""
        if self.kind == POD:
            return fact.name == self._named and fact.namespace == self._namespace
        return fact.gang is not None and fact.gang.gang == self.name and fact.candidate

    def means(self, gang: str, uid: str) -> bool:
        """Whether what an event says of a pod of a gang is a part of the story."""
        return uid in self.members or (self.kind == GANG and gang == self.name)

    def is_declared_by(self, kind: str, namespace: str, name: str) -> bool:
        """Whether an object that may be rejected is the pod, or what declares its gang."""
        if self.kind == POD and kind == "Pod":
            return (namespace, name) == (self._namespace, self._named)
        gang = self.its_gang()
        dialect = gang.dialect if gang is not None else ""
        return bool(self.gang) and (kind, namespace, name) in dialects.declaring(self.gang, dialect)

    def says_timed_out(self) -> bool:
        gang = self.its_gang()
        return gang is not None and timeouts.gang_stands(self.state, gang)

    def concerns(self) -> Everybody | None:
        group, state = self.its_group(), self.state
        if group is None:
            return None
        owner = state.owner(group)
        planner = owner if owner in state.shards else ""
        return Everybody(state.synced, planner, state.policy, (state.rules_version, state.state_version))

    def staged(self, uids: Iterable[str], *stages: str) -> list[str]:
        """Those that are pods of it, and were on their way so far."""
        return [uid for uid in uids if uid in self.members and self.members[uid].stage in stages]

    # --------------------------------------------------------------------------------------------------------- what is

    def put(self, uid: str, now: Seen) -> None:
        before = self.members.get(uid)
        if before is not None:
            self._count(before, -1)
        self.members[uid] = now
        self._count(now, 1)

    def pop(self, uid: str) -> Seen | None:
        before = self.members.pop(uid, None)
        if before is not None:
            self._count(before, -1)
            for proposed in self.proposals.values():
                proposed.pop(uid, None)
        return before

    def _count(self, pod: Seen, sign: int) -> None:
        self.statuses[pod.status] += sign
        self.stages[pod.stage] += sign
        self.gated += sign * pod.fact.gated
        if pod.status == BOUND:
            self.nodes[pod.node] += sign
            if not self.nodes[pod.node]:
                del self.nodes[pod.node]

    def give_back(self, uids: Iterable[str]) -> None:
        """They have no place any more."""
        for uid in uids:
            if uid in self.members:
                self.put(uid, self.members[uid]._replace(stage="", at=""))

    def sync(self, uid: str) -> None:
        """As the state has it behind the commit."""
        pod = self.state.pods.get(uid)
        if pod is None or (self.kind == GANG and pod.gang != self.name):
            self.pop(uid)
            return
        if uid not in self.members:
            self.last = uid
        claim = self.state.claims.get(uid)
        on_its_way = claim is not None and claim.stage != BOUND_CLAIM
        self.put(
            uid, Seen(pod.fact, pod.status, pod.node, *((claim.stage, claim.node) if claim and on_its_way else ()))
        )

    def look(self) -> None:
        """Which gang and group it is of, behind the commit."""
        state = self.state
        if self.kind == POD:
            pod = state.pods.get(next(reversed(self.members))) if self.members else None
            self.gang, self.group = (pod.gang, pod.group) if pod is not None else ("", "")
        elif (gang := self.its_gang()) is not None:
            self.group = gang.group
        elif self.group in state.groups:  # the others of its group go on without it, under the same key
            self.group = ""

    # ----------------------------------------------------------------------------------------------------------- words

    def where(self, uids: Iterable[str]) -> str:
        """``on node n1``, of a gang ``3 pods on 2 nodes``: where these are to go."""
        nodes = Counter(self.members[uid].at for uid in uids)
        return on(nodes) if self.kind == POD else f"{counted(nodes.total(), 'pod')} {on(nodes)}"

    def bound(self) -> str:
        """``to node n1``, of a gang ``3 of 4 bound, on 2 nodes``."""
        if self.kind == POD:
            return f"to node {next(iter(self.nodes), '')}"
        found = f"{self.statuses[BOUND]} of {counted(len(self.members), 'pod')} bound"
        return f"{found}, {on(self.nodes)}" if self.nodes else found

    def share(self, number: int) -> str:
        """So many of a gang's pods: ``2 of 4 pods``."""
        return f"{number} of {counted(len(self.members), 'pod')}"

    def named(self, uid: str) -> str:
        """A pod as people know it; its UID where the log knows it no longer."""
        pod = self.state.pods.get(uid)
        return f"{pod.fact.namespace}/{pod.fact.name}" if pod is not None else uid

    def backs_off(self) -> str:
        """``Backs off for 4 s.``, where that begins with the event that is told; else empty."""
        group, state = self.its_group(), self.state
        cohort = state.cohorts.get(group.cohort) if group is not None and group.cohort == self.place else None
        if cohort is None or not cohort.backing_off or state.policy is None:
            return ""
        return f"Backs off for {backoff_ms(state.policy, cohort) / 1_000:g} s."

    def stands(self) -> str:
        """How it stands behind the commit; why pods wait in the words of `muster replay`."""
        parts = [*self._have()]
        waiting = [self.state.pods[uid] for uid, pod in self.members.items() if pod.status == PENDING]
        if waiting and waiting[0].group:
            told = why(self.state, waiting)
            parts.append(told if self.kind == POD else f"{counted(len(waiting), 'pod')} not bound: {told}")
        parts += [rejected(self.state.rejections[key]) for key in self.rejections if self.kind == POD or not parts]
        return "; ".join(parts) or ("there, without pods" if self.is_there else "gone")

    def _have(self) -> Iterator[str]:
        """What its pods have that wait no longer."""
        if self.nodes:
            yield f"bound {on(self.nodes)}" if self.kind == POD else self.bound()
        for status in (TERMINATING, SUCCEEDED, FAILED):
            if self.statuses[status]:
                yield status if self.kind == POD else f"{self.statuses[status]} {status}"


def on(nodes: Mapping[str, object]) -> str:
    return f"on {len(nodes)} nodes" if len(nodes) > 1 else f"on node {next(iter(nodes), '')}"


ON_ITS_WAY = (PROPOSED, HELD)
"""Stages of what the binder has not permitted yet."""
