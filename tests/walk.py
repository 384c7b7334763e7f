"""A random walk through what a cluster can do to Muster: every choice from one seed.

`Walk` holds the truth (what the API server has), shows it to the log with a lag as ingest would (each object's changes in
order), lets planners and binder decide on states that are stale by the time they append, binds against the truth, and
loses outcomes. It checks the design's section 7 on the way: permits where they are decided, bindings where they happen.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable

import msgspec

import events as ev
from events.objects import Declaration, HostPort, Membership, NodeAssignment, SelectorRequirement, SelectorTerm, Taint
from events.policy import DEFAULT_POLICY
from services.binder import core as binder
from services.binder.binding import Intent, Seen, outcome, settled_by
from services.planner import core as planner
from services.planner.core import Cycle
from services.planner.placement import Room
from services.state import groups, snapshot
from services.state.fold import State
from services.state.records import BOUND, PENDING, PERMITTED
from tests.world import GI, SECOND_NS, World

SHARDS = ("a", "b")
DEDICATED = Taint(key="dedicated", value="x", effect="NoSchedule")


class Kept(msgspec.Struct):
    """A pod as the API server has it."""

    uid: str
    name: str
    of: str
    membership: Membership | None
    priority: int
    created_ns: int
    gated: bool
    candidate: bool
    node: str = ""
    status: str = "pending"
    version: int = 0


class Walk:
    """`steps` random steps, then `settle`: faults end, everything is delivered, time passes."""

    def __init__(self, seed: int, *, replacement: str = "keep") -> None:
        self.random = random.Random(seed)
        policy = msgspec.structs.replace(
            DEFAULT_POLICY,
            profile=msgspec.structs.replace(
                DEFAULT_POLICY.profile, node_score=self.random.choice(["least-allocated", "binpack"])
            ),
            replacement_policy=replacement,
            replacement_hold_ms=15_000,
            cycle_pods=self.random.choice([3, 4096]),
        )
        self.world = World(policy, shards=SHARDS)
        self.truth: dict[str, Kept] = {}
        self.nodes: dict[str, ev.NodeObserved] = {}
        self.inbox: deque[list[ev.Event]] = deque()
        self.outcomes: deque[ev.Event] = deque()
        self.answered: set[str] = set()
        """UIDs whose open intent has an answer that the log does not know yet."""
        self.in_flight: dict[str, tuple[int, int, list[ev.Event]]] = {}
        """writer → (basis, epoch, decision) that is decided and not appended."""
        self.by_hand: list[ev.Event] = []
        """Proposals that no planner's core made."""
        self.bound_to: dict[str, str] = {}
        self.made = 0
        self.did: Counter[str] = Counter()
        self.classes = self._classes()
        for _ in range(3):
            self.add_node()

    def _classes(self) -> list[str]:
        zone_a = SelectorTerm(
            match_expressions=(SelectorRequirement(key="zone", operator="In", values=("a",)),), match_fields=()
        )
        port = (HostPort(host_ip="0.0.0.0", protocol="TCP", port=80),)
        asks = self.world.scheduling_class
        return [
            asks(1),
            asks(1),
            asks(2, 4),
            asks(3, 1, 1),
            asks(1, selector={"zone": "a"}),
            asks(2, affinity=(zone_a,)),
            asks(1, ports=port),
            asks(0.5, ports=port),
            asks(0, 0),
            asks(1, unsupported=("volumes",)),
        ]

    @property
    def state(self) -> State:
        return self.world.state

    # ------------------------------------------------------------------------------------------------------- the truth

    def add_node(self) -> None:
        self.put_node(f"n{self.random.randrange(5)}")

    def put_node(self, name: str) -> None:
        rnd = self.random
        self.made += 1
        known = self.nodes.get(name)
        fact = ev.NodeObserved(
            name=name,
            uid=known.uid if known else f"node-{self.made}",
            resource_version=self.world.version(),
            labels={"zone": rnd.choice("ab")},
            taints=(DEDICATED,) if rnd.random() < 0.15 else (),
            unschedulable=rnd.random() < 0.1,
            allocatable={
                "cpu_milli": rnd.choice([2, 4, 6]) * 1000,
                "memory_bytes": rnd.choice([8, 16]) * GI,
                "pods": rnd.choice([4, 110]),
                **({"nvidia.com/gpu": 2} if rnd.random() < 0.5 else {}),
            },
        )
        self.nodes[name] = fact
        self.inbox.append([fact])

    def remove_node(self) -> None:
        if len(self.nodes) > 1:
            name = self.random.choice(sorted(self.nodes))
            self.inbox.append([ev.NodeDeleted(name=name, uid=self.nodes.pop(name).uid)])

    def create(self, membership: Membership | None = None, *, node: str = "", candidate: bool = True) -> Kept:
        self.made += 1
        rnd = self.random
        uid = f"uid-{self.made}"
        name = f"web-{rnd.randrange(4)}" if membership is None and rnd.random() < 0.3 else f"p{self.made}"
        if any(pod.name == name for pod in self.truth.values()):
            name = f"p{self.made}"
        weights = [4, 4, 4, 2, 2, 1, 2, 2, 1, 0.3]
        kept = Kept(
            uid=uid,
            name=name,
            of=rnd.choices(self.classes, weights)[0],
            membership=membership,
            priority=rnd.choice([0, 0, 0, 10]),
            created_ns=self.made,
            gated=rnd.random() < 0.1 and not node,
            candidate=candidate,
            node=node,
            status="bound" if node else "pending",
        )
        self.truth[uid] = kept
        self.show(kept)
        return kept

    def show(self, kept: Kept) -> None:
        """A full observation."""
        self.inbox.append(
            [
                ev.PodObserved(
                    uid=kept.uid,
                    namespace="default",
                    name=kept.name,
                    resource_version=self.bump(kept),
                    scheduling_class=kept.of,
                    gang=kept.membership,
                    priority=kept.priority,
                    created_ns=kept.created_ns,
                    candidate=kept.candidate,
                    gated=kept.gated,
                    status=kept.status,
                    node=kept.node,
                )
            ]
        )

    def bump(self, kept: Kept) -> str:
        kept.version = int(self.world.version())
        return str(kept.version)

    def about(self, kept: Kept) -> dict[str, str]:
        return {
            "uid": kept.uid,
            "namespace": "default",
            "name": kept.name,
            "resource_version": self.bump(kept),
        }

    def create_gang(self) -> None:
        rnd = self.random
        name = f"default/g{rnd.randrange(6)}"
        pods = rnd.randrange(1, 6)
        minimum = rnd.choice([pods, pods, max(1, pods - 1), pods + 1])
        on_pod = Declaration(min_member=minimum, waiting_time_ms=rnd.choice([0, 0, 2000]))
        declared = on_pod if rnd.random() < 0.7 else None
        for _ in range(pods):
            self.create(Membership(gang=name, dialect="coscheduling/2020", declared=declared))
        if declared is None:
            self.declare(name.removeprefix("default/"), minimum)

    def declare(self, name: str, minimum: int) -> None:
        self.made += 1
        self.inbox.append(
            [
                ev.PodGroupObserved(
                    namespace="default",
                    name=name,
                    uid=f"pg-{name}",
                    resource_version=self.world.version(),
                    dialect="coscheduling/v1alpha1",
                    created_ns=0,
                    declaration=Declaration(min_member=minimum, waiting_time_ms=0),
                )
            ]
        )

    def pick(self, fits: Callable[[Kept], bool]) -> Kept | None:
        found = [pod for pod in self.truth.values() if fits(pod)]
        return self.random.choice(found) if found else None

    def on_node(self, kept: Kept, node: str) -> None:
        """The API server accepts a binding; for good."""
        assert kept.uid not in self.bound_to, f"{kept.uid} bound twice (7.1)"
        self.bound_to[kept.uid] = node
        kept.node, kept.status = node, "bound"
        self.inbox.append([ev.PodAssigned(**self.about(kept), node=node)])

    def delete(self, kept: Kept) -> None:
        if kept.node and kept.status == "bound":
            kept.status = "terminating"
            self.inbox.append([ev.PodTerminating(**self.about(kept))])
        else:
            del self.truth[kept.uid]
            self.inbox.append([ev.PodDeleted(uid=kept.uid, namespace="default", name=kept.name)])

    # ----------------------------------------------------------------------------------------------------------- steps

    def do_node(self) -> None:
        self.add_node()

    def do_node_gone(self) -> None:
        self.remove_node()

    def do_pod(self) -> None:
        self.create()

    def do_gang(self) -> None:
        self.create_gang()

    def do_member(self) -> None:
        """Another pod for a gang that is there: a replacement or a latecomer."""
        gangs = sorted(key for key in self.state.gangs if key.startswith("default/"))
        if gangs:
            self.create(Membership(gang=self.random.choice(gangs), dialect="coscheduling/2020", declared=None))

    def do_foreign(self) -> None:
        if self.nodes:
            self.create(node=self.random.choice(sorted(self.nodes)), candidate=False)

    def do_stolen(self) -> None:
        """Another scheduler binds one of ours."""
        kept = self.pick(lambda pod: pod.status == "pending" and not pod.gated)
        if kept is not None and self.nodes:
            self.on_node(kept, self.random.choice(sorted(self.nodes)))

    def do_delete(self) -> None:
        kept = self.pick(lambda pod: True)
        if kept is not None:
            self.delete(kept)

    def do_delete_gang(self) -> None:
        names = sorted({pod.membership.gang for pod in self.truth.values() if pod.membership is not None})
        if names:
            name = self.random.choice(names)
            for kept in [p for p in self.truth.values() if p.membership is not None and p.membership.gang == name]:
                self.delete(kept)

    def do_finish(self) -> None:
        kept = self.pick(lambda pod: pod.status == "bound")
        if kept is not None:
            succeeded = self.random.random() < 0.5
            kept.status = "succeeded" if succeeded else "failed"
            reason = "" if succeeded else "OutOfcpu"
            self.inbox.append([ev.PodFinished(**self.about(kept), succeeded=succeeded, reason=reason)])

    def do_gates(self) -> None:
        kept = self.pick(lambda pod: pod.status == "pending" and pod.candidate)
        if kept is not None:
            kept.gated = not kept.gated if self.random.random() < 0.3 else False
            self.show(kept)

    def do_label(self) -> None:
        kept = self.pick(lambda pod: pod.candidate and pod.status in ("pending", "bound"))
        if kept is not None:
            gang = self.random.choice(["", "default/g0", "default/g1"])
            kept.membership = Membership(gang=gang, dialect="coscheduling/2020", declared=None) if gang else None
            self.show(kept)

    def do_declare(self) -> None:
        self.declare(f"g{self.random.randrange(6)}", self.random.randrange(1, 5))

    def do_undeclare(self) -> None:
        name = f"g{self.random.randrange(6)}"
        self.inbox.append(
            [ev.PodGroupDeleted(namespace="default", name=name, uid=f"pg-{name}", dialect="coscheduling/v1alpha1")]
        )

    def do_restart_ingest(self) -> None:
        self.world.facts(ev.IngestTaken(holder="again"))
        self.deliver(len(self.inbox))
        self.world.facts(ev.ClusterSynced(nodes=len(self.nodes), pods=len(self.truth)))

    def do_deliver(self) -> None:
        self.deliver(self.random.randrange(1, 8))

    def deliver(self, batches: int) -> None:
        events = [event for _ in range(min(batches, len(self.inbox))) for event in self.inbox.popleft()]
        if events:
            self.world.facts(*events)

    def do_decide(self) -> None:
        """Somebody decides on the state as it is; the append comes later."""
        writer = self.random.choice(["binder", *(f"planner.{shard}" for shard in SHARDS)])
        if writer in self.in_flight:
            self.append_decision(writer)
            return
        decided = self.decide(writer)
        if decided:
            self.in_flight[writer] = (self.state.sequence, self.state.epoch, decided)

    def decide(self, writer: str) -> list[ev.Event]:
        if writer == "binder":
            decided = list(binder.decide(self.state))
            check_permits(self.state, decided)
            return decided
        return list(planner.decide_now(self.state, writer.partition(".")[2]))

    def append_decision(self, writer: str) -> None:
        basis, _, decided = self.in_flight.pop(writer)
        for event in decided:
            self.did[type(event).__name__] += 1
            assert not isinstance(event, ev.DisagreementDetected), event
        self.world.append(writer, decided, cause="by hand" if decided[0] in self.by_hand else "decide", basis=basis)

    def do_partial(self) -> None:
        """A planner that proposes a part of a gang, as a NonStrict gang's would: its assignments wait at permit."""
        state = self.state
        ready = [state.groups[key] for key in state.ready if state.groups[key].gangs]
        if not ready:
            return
        group = self.random.choice(ready)
        shard = state.owner(group)
        uids = groups.placeable(state, groups.members(state, group))
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

    def do_bind(self) -> None:
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
        kept = self.truth.get(uid)
        if kept is None:
            return outcome(intent, "gone", "", "")
        if kept.node:
            return outcome(intent, "assigned", "", kept.node)
        if str(kept.version) != claim.resource_version or kept.gated:
            return settled_by(intent, Seen(uid, str(kept.version), kept.node, False, kept.gated))
        if self.random.random() < 0.1:
            return outcome(intent, "rejected", "no", "")
        self.on_node(kept, claim.node)
        return outcome(intent, "bound", "", "")

    def do_outcome(self) -> None:
        if "binder" in self.in_flight or not self.outcomes:
            return
        answer = self.outcomes.popleft()
        self.answered.discard(answer.uid)
        self.did[type(answer).__name__] += 1
        self.world.append("binder", [answer], cause="outcome")

    def do_evict(self) -> None:
        for eviction in list(self.state.evictions.values()):
            if "binder" not in self.in_flight:
                kept = self.truth.get(eviction.uid)
                if kept is not None:
                    self.delete(kept)
                done = ev.PodEvicted(uid=eviction.uid, namespace=eviction.namespace, name=eviction.name)
                self.world.append("binder", [done], cause="outcome")

    def do_report(self) -> None:
        """Conditions are written; the API server gives the pod a new resourceVersion."""
        kept = self.pick(lambda pod: pod.uid in self.state.pods and pod.status == "pending")
        if kept is not None and "binder" not in self.in_flight:
            report = ev.ConditionsReported(reason="x", pods=((kept.uid, self.bump(kept)),))
            self.world.append("binder", [report], cause="outcome")

    def do_time(self) -> None:
        if not self.in_flight:
            self.world.pass_s(self.random.choice([0.2, 1.0, 5.0]))

    WEIGHTS = {
        "node": 3,
        "node_gone": 2,
        "pod": 6,
        "gang": 5,
        "member": 4,
        "foreign": 2,
        "stolen": 1,
        "delete": 5,
        "delete_gang": 1,
        "finish": 6,
        "gates": 3,
        "label": 2,
        "declare": 1,
        "undeclare": 1,
        "restart_ingest": 0.5,
        "deliver": 30,
        "decide": 50,
        "partial": 5,
        "bind": 20,
        "outcome": 20,
        "evict": 3,
        "report": 3,
        "time": 8,
    }

    def walk(self, steps: int) -> None:
        names = list(self.WEIGHTS)
        for name in self.random.choices(names, list(self.WEIGHTS.values()), k=steps):
            getattr(self, f"do_{name}")()

    # ------------------------------------------------------------------------------------------------------ coming to rest

    def settle(self, seconds: int = 45) -> None:
        """Faults end: everything is delivered and answered, and time passes, less than the five minutes of a retry."""
        for _ in range(seconds):
            self._rest()
            self.world.pass_s(1.0)
        self._rest()

    def _rest(self) -> None:
        for _ in range(200):
            before = self.state.sequence
            for writer in list(self.in_flight):
                self.append_decision(writer)
            while self.outcomes:
                self.do_outcome()
            self.do_evict()
            self.deliver(len(self.inbox))
            for uid in list(self.state.permitted):
                answer = self.answer(uid)
                if answer is not None:
                    self.outcomes.append(answer)
            for writer in ("planner.a", "planner.b", "binder"):
                decided = self.decide(writer)
                if decided:
                    self.in_flight[writer] = (self.state.sequence, self.state.epoch, decided)
                    self.append_decision(writer)
            if self.state.sequence == before:
                return
        raise AssertionError("the cores never come to rest")

    def check_rest(self) -> None:
        """What must hold once things have settled."""
        state = self.state
        assert not state.proposals
        assert not state.permitted
        assert not state.evictions
        assert not state.lost
        assert not state.nominations, "a hold outlived its time (7.13)"
        assert not state.holding, "held assignments outlived their waiting time (7.4)"
        for claim in state.claims.values():
            assert claim.stage == "bound", f"{claim} leaks (7.13)"
        for uid, kept in self.truth.items():
            pod = state.pods[uid]
            assert (pod.status, pod.node) == (kept.status, kept.node), f"the log and the cluster differ on {uid} (7.11)"
        assert set(state.pods) == set(self.truth)
        self._nothing_that_fits_waits()

    def _nothing_that_fits_waits(self) -> None:
        state = self.state
        assert state.policy is not None
        for group in state.groups.values():
            waits = [uid for uid in groups.members(state, group) if state.pods[uid].status == PENDING]
            if not waits or all(state.pods[uid].fact.gated for uid in waits):
                continue
            cycle = Cycle(state, state.policy)
            cycle.plan([group])
            assert not cycle.placed, f"{group} fits and waits (7.12)"
            assert group.cohort, f"{group} waits without a reason (7.9)"


def check_permits(state: State, decided: list[ev.Event]) -> None:
    """Section 7, 2 and 3: what this decision permits, at the state on which it was decided."""
    permits = [event for event in decided if isinstance(event, ev.GangPermitted)]
    if not permits:
        return
    after = snapshot.decode(snapshot.encode(state))
    satisfied = {key for key, gang in state.gangs.items() if gang.satisfied}
    header = ev_header(state)
    after.apply(state.sequence + 1, header, decided)
    table = after.table
    for permit in permits:
        for assignment in permit.bindings:
            row = table.rows[assignment.node]
            for binding in assignment.pods:
                info = table.classes[after.pods[binding.uid].fact.scheduling_class]
                for column, _ in info.columns:
                    assert table.held[row, column] <= table.allocatable[row, column], f"{permit} exceeds (7.2)"
        group = after.groups[permit.group]
        for key in group.gangs:
            gang = after.gangs[key]
            running = sum(
                after.pods[uid].status == BOUND or (uid in after.claims and after.claims[uid].stage == PERMITTED)
                for uid in gang.members
            )
            reached = gang.declaration is not None and running >= gang.declaration.min_member
            assert reached or key in satisfied, f"{permit} below the minimum (7.3)"


def ev_header(state: State) -> object:
    from events.envelope import Header

    return Header(writer="binder", epoch=state.epoch, basis=state.sequence, time_ns=0, cause="decide")


def refold(world: World, start: State | None = None) -> State:
    """The log folded again, from its beginning or from `start`; every decision is taken again and compared by bytes."""
    from events import envelope

    state = State() if start is None else start
    for stored in world.log.commits[state.sequence :]:
        header = envelope.decode_header(stored)
        if header.cause == "decide" and header.basis == state.sequence:
            again = (
                binder.decide(state)
                if header.writer == "binder"
                else planner.decide_now(state, header.writer.partition(".")[2])
            )
            assert envelope.encode_events(again) == stored.payload, f"commit {stored.sequence} is decided otherwise"
        state.apply_stored(stored)
    return state


__all__ = ["SECOND_NS", "Walk", "check_permits", "refold"]
