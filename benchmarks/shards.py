"""Planner shards: conflicts, inversions and decisions a second at 1, 2, 4, 8 shards: ``python -m benchmarks.shards``.

The real cores over the log in memory. Every writer (ingest, each shard, the binder) has one decision under way: it is
appended when all the others have had their turn, so it stands on a state that is as many commits old as there are other
writers. Log time passes by 100 ms a round.

*room for all*: gangs of 20 and single pods fill half of the cluster. *contested*: all but a few nodes are full, whole
nodes become free now and then, and more groups of three priorities wait than have room, until 1,000 of them are
permitted; with the policy's look-ahead, and once without.

A *conflict* is a proposal that the binder refused. An *inversion* is a group that lacks room which a group of a lower
priority got, though that one was planned when the first was known already: the first one's proposal is refused for room
on a node where the other got some since it was decided; or it was not proposed yet, and a permit gives that room away.

CPU seconds are of this one process: a shard on a core of its own folds everything and decides for its own groups, so all
shards together place ``pods / (fold + the slowest shard's deciding)`` a second.
``--processes``: one and two planner processes, alone, over one recorded log of 40,000 pods, of each of the workloads of
`benchmarks.planning`; by the clock, and by the CPU seconds of the slowest, which a machine that others use as well
disturbs less. Besides, two *strangers*, each of which plans all of the log as if the other weren't there: what two cores
of this machine give to two processes at once, at most.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import random
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

import msgspec

import events as ev
from benchmarks import planning
from benchmarks.arguments import at_least, some
from benchmarks.opening import opening
from events import envelope, subjects
from events.envelope import Header
from events.homes import copy, open_log
from events.memory import MemoryLog
from events.objects import Declaration, Membership, Place
from events.policy import DEFAULT_POLICY, Policy
from services.binder import core as binder
from services.binder.assignment import spread
from services.planner import core as planner
from services.planner.placement import Room
from services.start import state_at
from services.state import cohorts, membership
from services.state.class_info import ClassInfo
from services.state.clock import tick
from services.state.fold import State
from services.state.partitions import PARTITIONS
from services.state.records import Group, Proposal
from tests.facts import node, pod, scheduling_class

GI = 1 << 30
SLOTS = 8
"""GPUs of a node; every pod asks for one."""
ROUND_NS = 100_000_000
PLACEMENTS = 1_000
FREE_NODES = 100
FREED_NODES = 4
"""Nodes that become free in a round of the contested workload."""
BACKLOG_PODS = 600


class Cluster:
    """The writers of one log in memory, each with a decision under way; one state, as all of them would fold it."""

    def __init__(self, nodes: int, shards: int, policy: Policy = DEFAULT_POLICY) -> None:
        self.log = MemoryLog("bench")
        self.state = State()
        self.shards = [str(number) for number in range(shards)]
        self.now_ns = 1_000_000_000_000
        self.made = 0
        self.counted: Counter[str] = Counter()
        self.cpu_s: Counter[str] = Counter()
        self.under_way: dict[str, tuple[int, int, list[ev.Event]]] = {}
        classes = [*map(_class, (1, SLOTS))]
        for commit in opening([_node(i) for i in range(nodes)], shards=self.shards, classes=classes, policy=policy):
            self.append(*commit)
        self.append("binder", binder.decide_now(self.state), "decide")
        self.cpu_s.clear()

    def append(self, writer: str, events: list[ev.Event], cause: str, basis: int = -1, epoch: int = -1) -> None:
        """Append and fold, as everybody does who reads the log."""
        state = self.state
        basis, epoch = (basis, epoch) if basis >= 0 else (state.sequence, state.epoch)
        header = Header(writer=writer, epoch=epoch, basis=basis, time_ns=0, cause=cause)
        subject = subjects.subject("bench", writer)
        payload = envelope.encode_events(events)
        sequence = self.log.append_now(subject, header, payload, self.log._last.get(subject, 0))
        stored = self.log.commits[sequence - 1]
        began_s = time.process_time()
        state.apply_stored(stored)
        self.cpu_s["fold"] += time.process_time() - began_s

    # ------------------------------------------------------------------------------------------------------------ turns

    def turn(self, writer: str) -> None:
        """Append what is under way, tick when a tick is wanted, decide anew."""
        found = self.under_way.pop(writer, None)
        if found is not None:
            basis, epoch, decided = found
            self.count(writer, decided)
            self.append(writer, decided, "decide", basis, epoch)
        ticked = tick(self.state.clock(writer), self.now_ns)
        if ticked is not None:
            self.append(writer, [ticked], "tick")
        began_s = time.process_time()
        if writer == "binder":
            decided = list(binder.decide_now(self.state))
        else:
            decided = list(planner.decide_now(self.state, writer.partition(".")[2]))
            envelope.encode_events(decided)
        self.cpu_s[writer] += time.process_time() - began_s
        if decided:
            self.under_way[writer] = self.state.sequence, self.state.epoch, decided

    def count(self, writer: str, decided: list[ev.Event]) -> None:
        for event in decided:
            self.counted[type(event).__name__] += 1
            if isinstance(event, ev.GangPlaced):
                self.counted["proposed pods"] += sum(len(a.pods) for a in (*event.required, *event.optional))

    def bind(self) -> None:
        """Every binding that is intended succeeds."""
        bound: list[ev.Event] = []
        for uid in self.state.permitted:
            fact = self.state.pods[uid].fact
            node = self.state.claims[uid].node
            bound.append(ev.PodBound(uid=uid, namespace=fact.namespace, name=fact.name, node=node))
        if bound:
            self.append("binder", bound, "outcome")
            self.counted["bound pods"] += len(bound)

    def round(self, facts: list[ev.Event]) -> None:
        if facts:
            self.append("ingest", facts, "facts")
        for writer in (*(f"planner.{shard}" for shard in self.shards), "binder"):
            self.turn(writer)
        self.bind()
        self.now_ns += ROUND_NS

    def settle(self) -> None:
        for _ in range(50):
            self.round([])

    # ---------------------------------------------------------------------------------------------------------- workload

    def group(self, size: int, priority: int) -> Iterator[ev.Event]:
        """A gang that must start together, or a single pod."""
        self.made += 1
        gang = None
        if size > 1:
            declared = Declaration(min_member=size, waiting_time_ms=0)
            gang = Membership(gang=f"default/gang-{self.made:06}", dialect="coscheduling/2020", declared=declared)
        for member in range(size):
            yield _pod(f"{self.made:06}-{member:03}", gang, priority, self.made)

    def answer(self) -> dict[str, object]:
        deciding_s = max(self.cpu_s[f"planner.{shard}"] for shard in self.shards)
        placed, refused = self.counted["GangPlaced"], self.counted["ProposalRefused"]
        pods = self.counted["proposed pods"]
        return {
            "proposals": placed,
            "refused": refused,
            "conflict_rate": round(refused / max(placed, 1), 4),
            "nominated": self.counted["GroupNominated"],
            "bound_pods": self.counted["bound pods"],
            "planned_pods_per_s": round(pods / (self.cpu_s["fold"] + deciding_s)),
            "planned_pods_per_s_deciding_alone": round(pods / deciding_s),
            "judged_pods_per_s": round(pods / (self.cpu_s["fold"] + self.cpu_s["binder"])),
        }


def _node(number: int) -> ev.NodeObserved:
    offered = {"cpu_milli": 32_000, "memory_bytes": 256 * GI, "pods": 110, "nvidia.com/gpu": SLOTS}
    return node(f"node-{number:05}", offered, uid=f"node-uid-{number}")


def _class(slots: int) -> ev.SchedulingClassObserved:
    asked = {"cpu_milli": 1_000 * slots, "memory_bytes": GI * slots, "pods": 1, "nvidia.com/gpu": slots}
    return scheduling_class(f"gpu-{slots}", asked)


def _pod(name: str, gang: Membership | None, priority: int, created: int, *, node: str = "") -> ev.PodObserved:
    return pod(
        f"pod-{name}",
        f"gpu-{SLOTS if node else 1}",
        uid=f"uid-{name}",
        gang=gang,
        priority=priority,
        created_ns=created,
        candidate=not node,
        node=node,
    )


# ---------------------------------------------------------------------------------------------------------- room for all


def room_for_all(nodes: int, shards: int, pods_in_a_round: int) -> dict[str, object]:
    """Half of the cluster, 20,000 pods at most, is filled."""
    cluster = Cluster(nodes, shards)
    for _ in range(min(nodes * SLOTS // 2, 20_000) // pods_in_a_round):
        facts = [pod for _ in range(pods_in_a_round // 40) for pod in cluster.group(20, 0)]
        facts += [pod for _ in range(pods_in_a_round // 2) for pod in cluster.group(1, 0)]
        cluster.round(facts)
    cluster.settle()
    return {"workload": "room for all", "nodes": nodes, "shards": shards, **cluster.answer()}


# ------------------------------------------------------------------------------------------------------------- contested


class Given(NamedTuple):
    """Room that a permit gave away."""

    at: int
    planned_at: int
    """The basis of the proposal."""
    priority: int
    rows: list[tuple[int, int]]


class Contested(Cluster):
    """Counts inversions as the binder's verdicts are appended."""

    def __init__(self, nodes: int, shards: int, lookahead_pods: int) -> None:
        super().__init__(nodes, shards, msgspec.structs.replace(DEFAULT_POLICY, lookahead_pods=lookahead_pods))
        self.random = random.Random(1)
        self.given: deque[Given] = deque(maxlen=1_000)
        self.full = [f"node-{number:05}" for number in range(FREE_NODES, nodes)]
        self.random.shuffle(self.full)
        wedges = [_pod(f"wedge-{name}", None, 0, 0, node=name) for name in self.full]
        for start in range(0, len(wedges), 1_000):
            self.append("ingest", [*wedges[start : start + 1_000]], "facts")
        self.cpu_s.clear()

    def facts(self) -> list[ev.Event]:
        """Nodes that become free, and groups enough to wait for them."""
        found: list[ev.Event] = []
        for _ in range(min(FREED_NODES, len(self.full))):
            name = f"wedge-{self.full.pop()}"
            found.append(ev.PodDeleted(uid=f"uid-{name}", namespace="default", name=f"pod-{name}"))
        waiting = sum(map(self.needed, self.state.groups.values()))
        while waiting < BACKLOG_PODS:
            size = self.random.choice([1, 1, 4, 16])
            found += self.group(size, self.random.choice([0, 0, 0, 10, 10, 100]))
            waiting += size
        return found

    def append(self, writer: str, events: list[ev.Event], cause: str, basis: int = -1, epoch: int = -1) -> None:
        if writer != "binder" or cause != "decide":
            super().append(writer, events, cause, basis, epoch)
            return
        refused: dict[str, tuple[int, int]] = {}
        """Of each group that is refused here: up to where its shard had seen the log, and the row where room lacked."""
        for event in events:
            if isinstance(event, ev.GangPermitted) and self.counted["placements"] < PLACEMENTS:
                self.counted["placements"] += 1
                self.given.append(self._given(event))
            elif isinstance(event, ev.ProposalRefused):
                refused[event.group] = self._proposal(event.proposal).basis, self.state.table.rows.get(event.node, -1)
        super().append(writer, events, cause, basis, epoch)
        self._count_inversions(refused)

    def _proposal(self, place: Place) -> Proposal:
        return self.state.proposals[place.sequence << 20 | place.index]

    def _given(self, permit: ev.GangPermitted) -> Given:
        rows = Counter(self.state.table.rows[a.node] for a in permit.bindings for _ in a.pods)
        planned_at = self._proposal(permit.proposals[-1]).basis
        return Given(self.state.sequence + 1, planned_at, self.state.groups[permit.group].priority, list(rows.items()))

    def _count_inversions(self, refused: dict[str, tuple[int, int]]) -> None:
        state = self.state
        found: dict[tuple[int, int], bool] = {}
        for group in cohorts.waiting(state):
            unseen, row = refused.get(group.key, (state.sequence - 1, -1))
            lower = [
                given
                for given in self.given
                if given.at > unseen and given.priority < group.priority and group.since <= given.planned_at
            ]
            if group.key in refused:
                self.counted["inversions"] += any(row == taken for given in lower for taken, _ in given.rows)
            elif lower:
                case = self.needed(group), group.priority
                if case not in found:
                    found[case] = self._lacks_what_went_to(lower, case[0])
                self.counted["inversions"] += found[case]

    def _lacks_what_went_to(self, lower: list[Given], pods: int) -> bool:
        info = self.state.table.classes["gpu-1"]
        without, returned = (Room(self.state.table, DEFAULT_POLICY.profile.node_score) for _ in range(2))
        for given in lower:
            returned.undo(info, given.rows)
        return not _goes(without, info, pods) and _goes(returned, info, pods)

    def needed(self, group: Group) -> int:
        return sum(membership.placeable(self.state, uid) for uid in membership.members(self.state, group))


def _goes(room: Room, info: ClassInfo, pods: int) -> bool:
    return sum(count for _, count in room.place(info, pods, 1)) == pods


def contested(nodes: int, shards: int, lookahead_pods: int) -> dict[str, object]:
    cluster = Contested(nodes, shards, lookahead_pods)
    while cluster.counted["placements"] < PLACEMENTS and cluster.full:
        cluster.round(cluster.facts())
    return {
        "workload": "contested",
        "nodes": nodes,
        "shards": shards,
        "lookahead_pods": lookahead_pods,
        "placements": cluster.counted["placements"],
        "inversions": cluster.counted["inversions"],
        **cluster.answer(),
    }


# ------------------------------------------------------------------------------------------------------------- processes


RECORDED: dict[str, Callable[[int], Iterator[ev.Event]]] = {
    "gangs of 20": lambda pods: planning.gangs(pods, 20),
    "single pods": planning.singles,
    "single pods, each a class of its own": planning.each_its_own,
}


async def record(path: Path, nodes: int, facts: Iterator[ev.Event]) -> None:
    """Ingest's facts, as they were observed."""
    bench = planning.Bench(nodes)
    while commit := list(itertools.islice(facts, 200)):
        bench.append("ingest", commit, "facts")
    target = await open_log(str(path), "bench", create=True)
    await copy(bench.log, target)
    await target.close()


def plan_alone(path: str, shard: str, shards: tuple[str, ...], start: Barrier, said: multiprocessing.Queue) -> None:
    """One planner process: the log folded, then everything of its own planned, encoded and folded."""

    async def folded() -> State:
        log = await open_log(path, "bench")
        try:
            return (await state_at(log)).state
        finally:
            await log.close()

    start.wait()
    began = _now()
    state = asyncio.run(folded())
    owners = spread(("",) * PARTITIONS, list(shards))
    header = Header(writer="binder", epoch=0, basis=0, time_ns=0, cause="decide")
    state.apply(state.sequence + 1, header, [ev.PartitionsAssigned(epoch=state.epoch + 1, owners=owners)])
    folding = _now() - began
    start.wait()
    began = _now()
    pods = 0
    while decided := list(planner.decide_now(state, shard)):
        payload = envelope.encode_events(decided)
        header = Header(writer=f"planner.{shard}", epoch=state.epoch, basis=state.sequence, time_ns=0, cause="decide")
        state.apply(state.sequence + 1, header, decided)
        pods += sum(len(a.pods) for event in decided if isinstance(event, ev.GangPlaced) for a in event.required)
        assert payload
    said.put((pods, folding, _now() - began))


class Spent(NamedTuple):
    clock_s: float
    cpu_s: float

    def __sub__(self, began: Spent) -> Spent:
        return Spent(self.clock_s - began.clock_s, self.cpu_s - began.cpu_s)


def _now() -> Spent:
    return Spent(time.perf_counter(), time.process_time())


def processes(path: Path, count: int, *, strangers: bool = False) -> dict[str, object]:
    """`count` planner processes over the log at once, by the clock."""
    context = multiprocessing.get_context("spawn")
    shards = tuple(str(number) for number in range(count))
    start, said = context.Barrier(count), context.Queue()
    running = [
        context.Process(target=plan_alone, args=(str(path), shard, (shard,) if strangers else shards, start, said))
        for shard in shards
    ]
    for process in running:
        process.start()
    found = [said.get() for _ in running]
    for process in running:
        process.join()
    planned = sum(pods for pods, _, _ in found)
    rates = {}
    for unit in ("clock", "cpu"):
        folding_s, planning_s = (max(getattr(one[part], f"{unit}_s") for one in found) for part in (1, 2))
        rates[f"planned_pods_per_{unit}_s"] = round(planned / planning_s)
        rates[f"planned_pods_per_{unit}_s_with_the_fold"] = round(planned / (folding_s + planning_s))
    return {"workload": path.stem, "processes": "strangers" if strangers else count, "pods": planned, **rates}


def main() -> None:
    parser = argparse.ArgumentParser(description="Conflicts, inversions and decisions a second by shards.")
    parser.add_argument("--nodes", type=at_least(FREE_NODES + 1), default=5_000)
    parser.add_argument("--shards", type=some, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--processes", action="store_true", help="one and two planner processes by the clock instead")
    parser.add_argument("--pods", type=some, default=40_000, help="of the recorded log")
    parser.add_argument("--rounds", type=some, default=3, help="over each recorded log")
    asked = parser.parse_args()
    if asked.processes:
        with tempfile.TemporaryDirectory() as directory:
            for workload, facts in RECORDED.items():
                path = Path(directory) / f"{workload}.db"
                asyncio.run(record(path, asked.nodes, facts(asked.pods)))
                for _ in range(asked.rounds):
                    _print(processes(path, count) for count in (1, 2))
                    _print([processes(path, 2, strangers=True)])
        return
    _print(room_for_all(asked.nodes, shards, 1_000) for shards in asked.shards)
    for lookahead_pods in (DEFAULT_POLICY.lookahead_pods, 0):
        _print(contested(asked.nodes, shards, lookahead_pods) for shards in asked.shards)


def _print(answers: Iterable[dict[str, object]]) -> None:
    for answer in answers:
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
