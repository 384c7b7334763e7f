"""A random walk through what a cluster can do to Muster: every choice from one seed.

`Walk` shows the truth to the log with a lag, lets planners and binder decide on states that are stale by the time they
append, binds against the truth, and loses answers. Shards join, leave and are lost, and what a lost one had decided is
appended all the same. Permits are checked where they are decided.
"""

from __future__ import annotations

import random
from collections import Counter, deque

import msgspec

import events as ev
from events.objects import HostPort, NodeAssignment, SelectorRequirement, SelectorTerm
from events.policy import DEFAULT_POLICY, Profile
from services.binder import core as binder
from services.binder.binding import Intent, Seen, outcome, settled_by
from services.planner import core as planner
from services.planner.placement import Room
from services.planner.rules.queue_orders import QUEUE_ORDERS
from services.state import membership
from services.state.fold import State
from tests.walk.checks import check_permits
from tests.walk.cluster import Cluster
from tests.world import World

SHARDS = ("a", "b", "c")
CLUSTER_STEPS = {
    "node": 3,
    "node_gone": 2,
    "pod": 6,
    "gang": 5,
    "member": 4,
    "foreign": 2,
    "stolen": 1,
    "delete": 6,
    "delete_gang": 1,
    "finish": 6,
    "gates": 3,
    "label": 2,
    "declare": 1,
    "undeclare": 1,
    "regroup": 2,
    "act": 1,
}
MUSTER_STEPS = {
    "restart_ingest": 0.5,
    "deliver": 30,
    "decide": 50,
    "partial": 5,
    "bind": 20,
    "outcome": 20,
    "evict": 3,
    "mark": 6,
    "report": 3,
    "time": 8,
    "stall": 4,
    "join": 1.5,
    "leave": 0.7,
    "lose": 0.7,
}
"""What happens, and how often against the rest."""


class Walk:
    """`walk` random steps, then `settle`: faults end, everything is delivered, time passes."""

    def __init__(self, seed: int, *, replacement: str = "keep") -> None:
        self.random = random.Random(seed)
        score, order = (
            self.random.choice(["least-allocated", "binpack"]),
            sorted(QUEUE_ORDERS)[seed % len(QUEUE_ORDERS)],
        )
        policy = msgspec.structs.replace(
            DEFAULT_POLICY,
            profile=Profile(name="walk", queue_order=order, node_score=score),
            replacement_policy=replacement,
            replacement_hold_ms=15_000,
            cycle_pods=self.random.choice([3, 4096]),
            lookahead_pods=self.random.choice([0, 3, 1024]),
            nominate_after_refusals=self.random.choice([0, 1, 1, 1]),
            nomination_hold_ms=self.random.choice([1_000, 10_000]),
            reserve_after_refusals=self.random.choice([0, 1, 2]),
            reservation_hold_ms=self.random.choice([1_000, 10_000]),
            reservations=self.random.choice([1, 3]),
        )
        self.world = World(policy, shards=SHARDS[:2])
        self.joined = list(self.state.shards.items())
        """(shard, place) of every process that took a shard, the dead ones as well."""
        self.cluster = Cluster(self.random, self.world.version, self._classes())
        self.outcomes: deque[ev.Event] = deque()
        self.answered: set[str] = set()
        """UIDs whose open intent has an answer that the log does not know yet."""
        self.in_flight: dict[str, tuple[int, int, list[ev.Event]]] = {}
        """writer → (basis, epoch, decision) that is decided and not appended."""
        self.by_hand: list[ev.Event] = []
        """Proposals that no planner's core made."""
        self.did: Counter[str] = Counter()

    def _classes(self) -> list[ev.SchedulingClassObserved]:
        zone_a = SelectorTerm(
            match_expressions=(SelectorRequirement(key="zone", operator="In", values=("a",)),), match_fields=()
        )
        anywhere, here, there = (
            HostPort(host_ip=address, protocol="TCP", port=80) for address in ("0.0.0.0", "10.0.0.1", "10.0.0.2")
        )
        asks = self.world.scheduling_class
        digests = [
            asks(1),
            asks(1),
            asks(2, 4),
            asks(3, 1, 1),
            asks(1, selector={"zone": "a"}),
            asks(2, affinity=(zone_a,)),
            asks(1, ports=(anywhere, here)),
            asks(0.5, ports=(here, there)),
            asks(0, 0),
            asks(1, unsupported=("volumes",)),
        ]
        return [self.state.classes[digest].fact for digest in digests]

    @property
    def state(self) -> State:
        return self.world.state

    def walk(self, steps: int) -> None:
        weights = CLUSTER_STEPS | MUSTER_STEPS
        for name in self.random.choices(list(weights), list(weights.values()), k=steps):
            getattr(self.cluster if name in CLUSTER_STEPS else self, f"step_{name}")()

    # ------------------------------------------------------------------------------------------------- what Muster does

    def step_restart_ingest(self) -> None:
        self.world.facts(ev.IngestTaken(holder="again"))
        self.deliver(len(self.cluster.inbox))
        self.world.facts(ev.ClusterSynced(nodes=len(self.cluster.nodes), pods=len(self.cluster.pods)))

    def step_deliver(self) -> None:
        self.deliver(self.random.randrange(1, 8))

    def deliver(self, batches: int) -> None:
        events = [event for _ in range(min(batches, len(self.cluster.inbox))) for event in self.cluster.inbox.popleft()]
        if events:
            self.world.facts(*events)

    def step_decide(self) -> None:
        """Somebody decides on the state as it is; the append comes later."""
        writer = self.random.choice(["binder", *(f"planner.{shard}" for shard in SHARDS)])
        if writer in self.in_flight:
            self.append_decision(writer)
            return
        decided = self.decide(writer) if writer in self.alive() else []
        if decided:
            self.in_flight[writer] = (self.state.sequence, self.state.epoch, decided)

    def alive(self) -> list[str]:
        return [*(f"planner.{shard}" for shard in sorted(self.state.shards)), "binder"]

    def decide(self, writer: str) -> list[ev.Event]:
        if writer == "binder":
            decided = list(binder.decide_now(self.state))
            check_permits(self.state, decided)
            return decided
        return list(planner.decide_now(self.state, writer.partition(".")[2]))

    def append_decision(self, writer: str) -> None:
        basis, epoch, decided = self.in_flight.pop(writer)
        for event in decided:
            self.did[type(event).__name__] += 1
            assert not isinstance(event, ev.DisagreementDetected), event
        cause = "by hand" if decided[0] in self.by_hand else "decide"
        self.world.append(writer, decided, cause, basis, epoch)

    def step_join(self) -> None:
        """A process takes a shard, a new one or somebody's: what that one had on its way is refused by the log."""
        self.join(self.random.choice(SHARDS))

    def join(self, shard: str) -> None:
        self.in_flight.pop(f"planner.{shard}", None)
        self.world.join(shard)
        self.joined.append((shard, self.state.sequence))

    def step_leave(self) -> None:
        if self.state.shards:
            shard = self.random.choice(sorted(self.state.shards))
            if f"planner.{shard}" in self.in_flight:
                self.append_decision(f"planner.{shard}")
            self.world.leave(shard)

    def step_lose(self) -> None:
        """The binder finds a lease that ran out, perhaps that of a process which was replaced since."""
        if "binder" not in self.in_flight:
            shard, taken = self.random.choice(self.joined[-3:])
            self.world.append("binder", [ev.ShardLost(shard=shard, taken=taken)], cause="outcome")

    def step_partial(self) -> None:
        """A planner that proposes a part of a gang, as a NonStrict gang's would: its assignments wait at permit."""
        state = self.state
        ready = [state.groups[key] for key in state.ready if state.groups[key].gangs]
        if not ready:
            return
        group = self.random.choice(ready)
        shard = state.owner(group)
        if shard not in state.shards:
            return
        uids = [uid for uid in membership.members(state, group) if membership.placeable(state, uid)]
        if f"planner.{shard}" in self.in_flight or not uids:
            return
        room = Room(state.table, "binpack")
        chosen = []
        for uid in self.random.sample(uids, self.random.randrange(1, len(uids) + 1)):
            info = state.table.classes[state.pods[uid].fact.scheduling_class]
            placed = [] if info.fact.unsupported else room.place(info, 1, 7)
            if placed:
                fact = state.table.facts[placed[0][0]]
                assert fact is not None
                chosen.append(NodeAssignment(fact.name, (uid,)))
        if chosen:
            some = self.random.randrange(len(chosen) + 1)
            event = ev.GangPlaced(
                group=group.key,
                partition=group.partition,
                required=tuple(chosen[:some]),
                optional=tuple(chosen[some:]),
            )
            self.in_flight[f"planner.{shard}"] = (state.sequence, state.epoch, [event])
            self.by_hand.append(event)

    def step_bind(self) -> None:
        """One attempt at an open intent, against the truth; its answer may be lost."""
        open_intents = [uid for uid in self.state.permitted if uid not in self.answered]
        if not open_intents:
            return
        uid = self.random.choice(open_intents)
        answer = self.answer(uid)
        if answer is not None and self.random.random() > 0.1:
            self.answered.add(uid)
            self.outcomes.append(answer)

    def answer(self, uid: str) -> ev.Event | None:
        claim, pod = self.state.claims[uid], self.state.pods[uid]
        intent = Intent(uid, "default", pod.fact.name, claim.node, claim.resource_version)
        kept = self.cluster.pods.get(uid)
        if kept is None:
            return outcome(intent, "gone", "", "")
        if kept.node:
            return outcome(intent, "assigned", "", kept.node)
        if str(kept.version) != claim.resource_version or kept.gated:
            return settled_by(intent, Seen(uid, str(kept.version), kept.node, False, kept.gated, False), "")
        if self.random.random() < 0.1:
            return outcome(intent, "rejected", "no", "")
        self.cluster.on_node(kept, claim.node)
        return outcome(intent, "bound", "", "")

    def step_outcome(self) -> None:
        if "binder" in self.in_flight or not self.outcomes:
            return
        answer = self.outcomes.popleft()
        self.answered.discard(answer.uid)
        self.did[type(answer).__name__] += 1
        self.world.append("binder", [answer], cause="outcome")

    def step_evict(self) -> None:
        for eviction in list(self.state.evictions.values()):
            if "binder" not in self.in_flight:
                kept = self.cluster.pods.get(eviction.uid)
                if kept is not None:
                    self.cluster.delete(kept)
                done = ev.PodEvicted(uid=eviction.uid, namespace=eviction.namespace, name=eviction.name)
                self.world.append("binder", [done], cause="outcome")

    def step_mark(self) -> None:
        """One attempt at each annotation that is intended, against the truth; its answer may be lost."""
        for uid in [uid for uid, mark in self.state.marks.items() if not mark.written]:
            if "binder" not in self.in_flight:
                answer = self.mark(uid)
                if answer is not None and self.random.random() > 0.1:
                    self.did[type(answer).__name__] += 1
                    self.world.append("binder", [answer], cause="outcome")

    def mark(self, uid: str) -> ev.Event | None:
        """Outcome of an attempt; None where the pod is gone."""
        kept, mark = self.cluster.pods.get(uid), self.state.marks[uid]
        if kept is None:
            return None
        if kept.membership is None:  # it is of no gang any more that could wait for its user
            return ev.TimeoutMarkFailed(uid=uid, namespace="default", name=kept.name, message="of no gang")
        if not self.cluster.says(kept):
            if str(kept.version) != mark.resource_version:
                return ev.TimeoutMarkRenewed(pods=((uid, str(kept.version)),))
            self.cluster.annotate(kept)
        return ev.TimeoutMarked(pods=((uid, str(kept.version)),))

    def step_report(self) -> None:
        """Conditions are written; the API server gives the pod a new resourceVersion."""
        kept = self.cluster.pick(lambda pod: pod.uid in self.state.pods and pod.status == "pending")
        if kept is not None and "binder" not in self.in_flight:
            report = ev.ConditionsReported(reason="x", pods=((kept.uid, self.cluster.bump(kept)),))
            self.world.append("binder", [report], cause="outcome")

    def step_time(self) -> None:
        if not self.in_flight:
            self.world.pass_s(self.random.choice([0.2, 1.0, 5.0]))

    def step_stall(self) -> None:
        """The planners are slow: what waits at permit runs out of time before they say anything."""
        if self.state.holding and not self.in_flight:
            self.world.pass_s(11)
            decided = self.decide("binder")
            if decided:
                self.in_flight["binder"] = (self.state.sequence, self.state.epoch, decided)
                self.append_decision("binder")

    # ---------------------------------------------------------------------------------------------------------- at rest

    def clear(self) -> None:
        """Everything goes that a cluster can have, whatever is under way with it."""
        self.deliver(len(self.cluster.inbox))
        self.cluster.clear()
        gone: list[ev.Event] = [
            ev.PodGroupDeleted(namespace=fact.namespace, name=fact.name, uid=fact.uid, dialect=fact.dialect)
            for fact in self.state.pod_groups.values()
        ]
        self.cluster.inbox.append(gone)
        self.step_restart_ingest()

    def settle(self, seconds: int = 45) -> None:
        """Faults end: everything is delivered and answered, and time passes, less than the five minutes of a retry."""
        if not self.state.shards:
            self.join(SHARDS[0])
        for second in range(seconds):
            self._rest()
            if second > seconds // 3:
                self._give_up_what_holds()
            self.world.pass_s(1.0)
        self._rest()

    def _give_up_what_holds(self) -> None:
        """A NonStrict gang that lacks pods for good holds, is released and holds again, until its user acts."""
        for key in list(self.state.holding):
            for gang in self.state.groups[key].gangs:
                self.cluster.delete_gang(gang)

    def _rest(self) -> None:
        for _ in range(200):
            before = self.state.sequence
            for writer in list(self.in_flight):
                self.append_decision(writer)
            while self.outcomes:
                self.step_outcome()
            self.step_evict()
            self.step_mark()
            self.deliver(len(self.cluster.inbox))
            for uid in list(self.state.permitted):
                answer = self.answer(uid)
                if answer is not None:
                    self.outcomes.append(answer)
            for writer in self.alive():
                decided = self.decide(writer)
                if decided:
                    self.in_flight[writer] = (self.state.sequence, self.state.epoch, decided)
                    self.append_decision(writer)
            if self.state.sequence == before:
                return
        raise AssertionError("the cores never come to rest")
