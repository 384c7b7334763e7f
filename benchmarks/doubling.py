"""Whether work grows faster than its input: ``python -m benchmarks.doubling [SHAPE…]``.

Each shape is driven through the fold and the cores at N, 2 N and 4 N, one event in a commit. For each phase that takes
long enough: CPU seconds at each size, µs for each event at the largest, and the ratio of the last two. Around 2 the work
is proportional; where it is clearly above, measure again (the host is noisy), and then look which function it is
(`python -m cProfile -s tottime -m benchmarks.doubling SHAPE`).
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

import events as ev
from benchmarks.opening import opening
from events.envelope import Header
from events.objects import Declaration, HostPort, Membership
from events.policy import DEFAULT_POLICY
from services.binder import core as binder
from services.planner import core as planner
from services.state.fold import State
from tests.facts import node, pod, scheduling_class

GI = 1 << 30
NOTED_S = 0.05
"""Phases that take less at the largest size are not shown."""
ROUNDS = 10_000


class Cluster:
    """The fold and the cores, on the clock by phase."""

    def __init__(self, nodes: int, cpu: int = 32) -> None:
        self.state, self.cpu_s, self.events = State(), Counter[str](), Counter[str]()
        self._version = 0
        policy = msgspec.structs.replace(DEFAULT_POLICY, gang_pods=1_000_000)
        for writer, events, _ in opening([self.node(i, cpu) for i in range(nodes)], policy=policy):
            self.append(writer, events, "opening")
        self.decide()
        self.cpu_s.clear()

    def append(self, writer: str, events: list[ev.Event], phase: str) -> None:
        header = Header(writer=writer, epoch=self.state.epoch, basis=self.state.sequence, time_ns=0, cause="")
        began_s = time.process_time()
        self.state.apply(self.state.sequence + 1, header, events)
        self.count(phase, began_s, len(events))

    def count(self, phase: str, began_s: float, events: int = 1) -> None:
        self.cpu_s[phase] += time.process_time() - began_s
        self.events[phase] += events

    def version(self) -> str:
        self._version += 1
        return str(self._version)

    # ----------------------------------------------------------------------------------------------------------- facts

    def node(self, number: int, cpu: int = 32) -> ev.NodeObserved:
        offered = {"cpu_milli": cpu * 1_000, "memory_bytes": 8 * cpu * GI, "pods": 4 * cpu}
        return node(f"node-{number:05}", offered, version=self.version())

    def scheduling_class(self, name: str = "c", cpu: int = 1, ports: tuple[HostPort, ...] = ()) -> None:
        asked = {"cpu_milli": cpu * 1_000, "memory_bytes": GI, "pods": 1}
        self.append("ingest", [scheduling_class(name, asked, host_ports=ports)], "classes")

    def pod(
        self, name: str, gang: str = "", minimum: int = 0, of: str = "c", phase: str = "created", **more: Any
    ) -> None:
        membership = None
        if gang:
            declared = Declaration(min_member=minimum, waiting_time_ms=0, **more)
            dialect = "koordinator/v1alpha1" if more else "coscheduling/2020"
            membership = Membership(gang=f"default/{gang}", dialect=dialect, declared=declared)
        self.append("ingest", [pod(name, of, version=self.version(), gang=membership)], phase)

    def again(self, name: str, **changes: Any) -> None:
        fact = self.state.pods[name].fact
        seen = msgspec.structs.replace(fact, resource_version=self.version(), **changes)
        self.append("ingest", [seen], "edited")

    def failed(self, name: str) -> None:
        about = {"uid": name, "namespace": "default", "name": name, "resource_version": self.version()}
        self.append("ingest", [ev.PodFinished(**about, succeeded=False, reason="")], "failed")

    def deleted(self, name: str) -> None:
        self.append("ingest", [ev.PodDeleted(uid=name, namespace="default", name=name)], "deleted")

    # ------------------------------------------------------------------------------------------------------- decisions

    def decide(self) -> bool:
        """Planner, binder, and every binding succeeds; whether anybody had something to say."""
        began_s = time.process_time()
        planned: list[ev.Event] = [*planner.decide_now(self.state, "0")]
        self.count("planned", began_s)
        if planned:
            self.append("planner.0", planned, "planned, folded")
        began_s = time.process_time()
        judged: list[ev.Event] = [*binder.decide_now(self.state)]
        self.count("judged", began_s)
        if judged:
            self.append("binder", judged, "judged, folded")
        bound = [
            ev.PodBound(uid=uid, namespace="default", name=uid, node=self.state.claims[uid].node)
            for uid in self.state.permitted
        ]
        for one in bound:
            self.append("binder", [one], "bound")
        return bool(planned or judged or bound)

    def settle(self) -> None:
        for _ in range(ROUNDS):
            if not self.decide():
                return


# ---------------------------------------------------------------------------------------------------------------- shapes


def end_of_a_gang(n: int) -> Cluster:
    """A gang of n runs but for one that has no room; the others are edited, fail and are deleted."""
    cluster = Cluster(n // 25 + 1)
    cluster.scheduling_class()
    cluster.scheduling_class("large", 1_000)
    for i in range(n):
        cluster.pod(f"p{i}", "gang", n // 2, "c" if i < n - 1 else "large")
    cluster.settle()
    for i in range(n - 1):
        cluster.again(f"p{i}", priority=1)
    for happens in (cluster.failed, cluster.deleted):
        for i in range(n - 1):
            happens(f"p{i}")
    return cluster


def lost_members(n: int) -> Cluster:
    """n gangs of 2 lose one member each and get another."""
    cluster = Cluster(n // 10 + 1)
    cluster.scheduling_class()
    for i in range(2 * n):
        cluster.pod(f"p{i}", f"g{i // 2}", 2)
    cluster.settle()
    for i in range(n):
        cluster.failed(f"p{2 * i}")
    cluster.settle()
    for i in range(n):
        cluster.pod(f"r{i}", f"g{i}", 2)
    cluster.settle()
    return cluster


def gang_groups(n: int) -> Cluster:
    """n groups of 64 gangs of 2 come and go."""
    cluster = Cluster(4 * n)
    cluster.scheduling_class()
    for group in range(n):
        keys = tuple(sorted(f"default/g{group}-{i}" for i in range(64)))
        for i in range(128):
            cluster.pod(f"p{group}-{i}", f"g{group}-{i // 2}", 2, groups=keys, said=("groups", "min_member"))
    cluster.settle()
    for name in list(cluster.state.pods):
        cluster.deleted(name)
    return cluster


def ports_of_their_own(n: int) -> Cluster:
    """n pods, each with a host port of its own."""
    cluster = Cluster(n // 10)
    for i in range(n):
        cluster.scheduling_class(f"c{i}", ports=(HostPort(protocol="TCP", port=i + 1, host_ip="0.0.0.0"),))
        cluster.pod(f"p{i}", of=f"c{i}")
    cluster.settle()
    return cluster


def nodes_that_come(n: int) -> Cluster:
    """n nodes come one by one, with a pod each. A cycle looks at all nodes, so that planning is nearer to 4 than to 2."""
    cluster = Cluster(1, cpu=1)
    cluster.scheduling_class()
    for i in range(n):
        cluster.append("ingest", [cluster.node(i + 1)], "node")
        cluster.pod(f"p{i}")
        cluster.decide()
    return cluster


def singles(n: int) -> Cluster:
    """n pods of one class come, run, fail and go."""
    cluster = Cluster(n // 25 + 1)
    cluster.scheduling_class()
    for i in range(n):
        cluster.pod(f"p{i}")
    cluster.settle()
    for happens in (cluster.failed, cluster.deleted):
        for i in range(n):
            happens(f"p{i}")
    return cluster


SHAPES: dict[Callable[[int], Cluster], int] = {
    end_of_a_gang: 2_500,
    lost_members: 1_000,
    gang_groups: 4,
    ports_of_their_own: 250,
    nodes_that_come: 500,
    singles: 5_000,
}
"""Shape → N."""


def measure(shape: Callable[[int], Cluster], size: int) -> tuple[Counter[str], Counter[str]]:
    """By phase: CPU seconds, and events (of a core: decisions)."""
    gc.collect()
    gc.disable()  # its share depends on what else this process keeps
    cluster = shape(size)
    gc.enable()
    return cluster.cpu_s, cluster.events


def main() -> None:
    named = {shape.__name__: shape for shape in SHAPES}
    parser = argparse.ArgumentParser(description="Whether work grows faster than its input.")
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"default: all of {', '.join(named)}")
    chosen = parser.parse_args().shapes or list(named)
    if unknown := [name for name in chosen if name not in named]:
        parser.error(f"no shape {', '.join(unknown)}: expected of {', '.join(named)}")
    for name in chosen:
        shape, size = named[name], SHAPES[named[name]]
        found = [measure(shape, size << doubled) for doubled in range(3)]
        (before, _), (cpu_s, events) = found[1:]
        for phase, spent_s in cpu_s.items():
            if spent_s > NOTED_S:
                row = {"shape": shape.__name__, "n": size << 2, "phase": phase}
                row |= {"cpu_s": [round(one[phase], 3) for one, _ in found]}
                row |= {"us_per_event": round(spent_s / events[phase] * 1e6, 1)}
                print(json.dumps(row | {"ratio": round(spent_s / max(before[phase], 1e-6), 2)}), flush=True)


if __name__ == "__main__":
    main()
