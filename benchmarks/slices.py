"""The longest slice: ``python -m benchmarks.slices [WORKLOAD…] [--runs N]``.

While a service computes, its event loop has no turn: no lease is renewed, no ping answered. So what may be long is cut
into slices (ARCHITECTURE.md, D80), of at most 50 ms each as the design asks; a commit is folded in one piece. Here the
real cores and folds work at the sizes at which that matters, one slice after the other, from a state that was restored
from its snapshot, as after a start. Prints a JSON line for each step: the CPU time of its longest slice in ms, the
median of the runs, with the least and the most; and that of all its slices. Each workload has a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator
from statistics import median
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

import events as ev
from benchmarks.arguments import some
from benchmarks.constraints import Stopwatch, waiting
from benchmarks.federation import Cores, Size, history, run_of
from benchmarks.planning import Bench, gangs, singles, waiting_pod
from benchmarks.snapshots import Cluster
from events import envelope, subjects
from events.envelope import FIRST_VERSION, Header, Stored
from events.memory import MemoryLog
from events.objects import Declaration, Membership
from events.policy import DEFAULT_POLICY
from events.snapshots import Kept
from services.binder import core as binder
from services.binder.service.effects import Effects
from services.binder.service.write_behind import DEFAULT_RATES, WriteBehind
from services.decider import Decider
from services.federator import core as federator
from services.federator import snapshot as federation
from services.federator.backends import RUNNING
from services.federator.validate import validate_state as validate_federation
from services.ingest.differ import Ingest
from services.kubernetes.client import Client
from services.planner import core as planner
from services.start import state_at
from services.state import snapshot
from services.state.clock import tick
from services.state.fold import State
from services.state.form import Form
from services.state.validate import validate_state
from services.writer import Writer
from tests.facts import scheduling_class

T = TypeVar("T")
NODES, GANG_PODS, PODS, JOBS, CLUSTERS = 50_000, 40_000, 500_000, 30_000, 20
RUNS = 5
SECOND_NS = 1_000_000_000


class Step(NamedTuple):
    """One step of one run."""

    name: str
    longest_s: float
    spent_s: float


class Steps:
    """The steps of one run, in order."""

    def __init__(self) -> None:
        self.taken: list[Step] = []

    def run(self, name: str, work: Generator[None, None, T]) -> T:
        """In slices."""
        watch = Stopwatch()
        result = watch.run(work)
        self.taken.append(Step(name, watch.longest_s, watch.spent_s))
        return result

    def piece(self, name: str, work: Callable[[], T]) -> T:
        """In one piece."""
        return self.run(name, _piece(work))

    def start(self, name: str, log: MemoryLog, form: Form[Any]) -> Any:
        """A start from the log's snapshot. Over a log in memory it waits for nothing but its turns."""
        begun: Awaitable[Any] = state_at(log, form=form)
        return self.run(name, cast(Generator[None, None, Any], begun.__await__())).state


def _piece(work: Callable[[], T]) -> Generator[None, None, T]:
    yield from ()
    return work()


def kept(state: Any, form: Form[Any], *tail: tuple[str, list[ev.Event]]) -> MemoryLog:
    """A log that is purged up to the state, with the state's snapshot, and commits behind it (writer, events)."""
    log = MemoryLog("bench")
    log._purged = state.sequence
    data, digest = form.pack(state)
    about = Kept(sequence=state.sequence, digest=digest, state=FIRST_VERSION, bytes=len(data))
    log.snapshots._kept[state.sequence] = about, data
    for writer, events in tail:
        subject = subjects.subject("bench", writer)
        header = Header(writer=writer, epoch=state.epoch, basis=state.sequence, time_ns=0, cause="taken")
        log.append_now(subject, header, envelope.encode_events(events), 0)
    return log


def stored(state: State, writer: str, events: list[Any]) -> Stored:
    """The next commit."""
    header = Header(writer=writer, epoch=state.epoch, basis=state.sequence, time_ns=0, cause="decide")
    return Stored(
        sequence=state.sequence + 1,
        subject=subjects.subject("bench", writer),
        message_id="",
        header=envelope.encode_header(header),
        payload=envelope.encode_events(events),
    )


# ------------------------------------------------------------------------------------------------------------ workloads

Run = Callable[[], Iterator[Step]]


def _waiting(pending: Iterator[ev.Event]) -> MemoryLog:
    """50,000 nodes, and pods that wait, as a log with a snapshot of that."""
    bench = Bench(NODES)
    facts = list(pending)
    for start in range(0, len(facts), 200):
        bench.append("ingest", facts[start : start + 200], "facts")
    return kept(bench.state, snapshot.FORM)


def first_cycle(pending: Iterator[ev.Event]) -> Run:
    """A planner's first cycle over 50,000 nodes."""
    log = _waiting(pending)

    def run() -> Iterator[Step]:
        steps = Steps()
        state = steps.start("restored", log, snapshot.FORM)
        steps.run("planned", planner.decide(state, "0"))
        yield from steps.taken

    return run


def large_gang() -> Run:
    """A gang of 40,000 pods, a node for each: its proposal, its permit, and the fold of both."""
    log = _waiting(gangs(GANG_PODS, GANG_PODS))

    def run() -> Iterator[Step]:
        steps = Steps()
        state = steps.start("restored", log, snapshot.FORM)
        proposed = steps.run("planned", planner.decide(state, "0"))
        proposal = steps.piece("proposal encoded", lambda: stored(state, "planner.0", proposed))
        steps.piece("proposal decoded and folded", lambda: state.apply_stored(proposal))
        permitted = steps.run("judged", binder.decide(state))
        permit = steps.piece("permit encoded", lambda: stored(state, "binder", permitted))
        commit = steps.piece("permit decoded and folded", lambda: state.apply_stored(permit))
        effects, behind = _effects(state)
        steps.piece("bindings queued", lambda: (effects.intend(commit), behind.notice(commit)))
        steps.piece("room taken", lambda: state.table.held)
        yield from steps.taken

    return run


def many_pods() -> Run:
    """500,000 pods: a start, a binder that becomes active, an ingest that takes over, the checks of `verify`."""
    cluster = Cluster(PODS // 20)
    cluster.populate(PODS)
    log = kept(cluster.state, snapshot.FORM)
    del cluster

    def run() -> Iterator[Step]:
        steps = Steps()
        state = steps.start("restored", log, snapshot.FORM)
        effects, behind = _effects(state)
        steps.run("binder becomes active: bindings", effects.resume())
        steps.run("binder becomes active: what users read", behind.resume())
        steps.run("binder's first decision", binder.decide(state))
        steps.run("planner's first cycle", planner.decide(state, "0"))
        steps.run("ingest takes over", Ingest.of_in_slices(state, ("muster",)))
        steps.piece("validated", lambda: validate_state(state))
        yield from steps.taken

    return run


def starving() -> Run:
    """Ten gangs of two pods that need a node each, over 500,000 pods of which one ended since they were refused: they ask
    for room to be kept, which the binder grants one of them."""
    cluster = Cluster(PODS // 20)
    cluster.populate(PODS)
    cluster.append(
        "admin", [ev.PolicyChanged(policy=msgspec.structs.replace(DEFAULT_POLICY, reserve_after_refusals=1))], "admin"
    )
    cluster.append("ingest", list(whole_nodes(10)), "facts")
    cluster.append("planner.0", list(planner.decide_now(cluster.state, "0")), "decide")
    ended = next(pod.fact for pod in cluster.state.pods.values() if pod.node)
    about = {"uid": ended.uid, "namespace": ended.namespace, "name": ended.name}
    cluster.append("ingest", [ev.PodFinished(**about, resource_version="9", succeeded=True, reason="")], "facts")
    for second in range(1, 4):  # until nobody backs off
        if ticked := tick(cluster.state.clock("planner.0"), second * SECOND_NS):
            cluster.append("planner.0", [ticked], "tick")
    log = kept(cluster.state, snapshot.FORM)
    del cluster

    def run() -> Iterator[Step]:
        steps = Steps()
        state = steps.start("restored", log, snapshot.FORM)
        asked = steps.run("planned", planner.decide(state, "0"))
        state.apply_stored(stored(state, "planner.0", asked))
        if not state.room_requests:
            raise RuntimeError("nobody asked for room")
        steps.run("room granted", binder.decide(state))
        yield from steps.taken

    return run


def whole_nodes(gangs: int) -> Iterator[ev.Event]:
    """Gangs of two pods that have a node each to themselves, before all others."""
    yield scheduling_class("whole", {"cpu_milli": 32_000, "pods": 1})
    for i in range(2 * gangs):
        declared = Declaration(min_member=2, waiting_time_ms=0)
        gang = Membership(gang=f"default/whole-{i // 2}", dialect="coscheduling/2020", declared=declared)
        yield msgspec.structs.replace(waiting_pod(PODS + i, "whole", gang), priority=1)


def _effects(state: State) -> tuple[Effects, WriteBehind]:
    """What a binder does behind its decisions. Nobody is asked for anything here."""
    log, client = MemoryLog("bench"), cast(Client, None)
    decider = Decider(log, Writer(log, "binder"), binder.decide)
    decider.state = state
    behind = WriteBehind(decider, client, holder="bench", busy=lambda: False, rates=DEFAULT_RATES)
    return Effects(decider, client, 64), behind


def many_jobs() -> Run:
    """30,000 federated jobs on 20 clusters, all open: a start, a takeover, an answer about all of them."""
    size = Size(JOBS, CLUSTERS)
    made = Cores(size)
    for commit in history(size, made.uris, SECOND_NS):
        made.append(commit)
    log = kept(made.state, federation.FORM, ("federator", [ev.FederatorTaken(holder="bench")]))
    before = kept(made.state, federation.FORM)
    first = size.aliases[0]
    made.runs[first] = {name: run_of(name, first, RUNNING) for name in size.jobs}

    def run() -> Iterator[Step]:
        steps = Steps()
        made.asked.clear()
        steps.start("restored", before, federation.FORM)
        made.state = steps.start("restored and taken over", log, federation.FORM)
        steps.piece("first decision", lambda: federator.decide(made.state))
        said = steps.piece("an answer about all, compared", lambda: made.seen(first))
        steps.run("an answer about all, folded", made.state.apply_in_slices(made.state.sequence + 1, said))
        steps.piece("validated", lambda: validate_federation(made.state))
        yield from steps.taken

    return run


WORKLOADS: dict[str, Callable[[], Run]] = {
    "20,000 single pods": lambda: first_cycle(singles(20_000)),
    "20,000 pods in gangs of 100": lambda: first_cycle(gangs(20_000, 100)),
    "3,000 pods with selectors of their own": lambda: first_cycle(waiting(3_000, "zone-3", 100)),
    "a gang of 40,000": large_gang,
    "500,000 pods": many_pods,
    "ten gangs that starve": starving,
    "30,000 federated jobs": many_jobs,
}


def measure(name: str, runs: int) -> None:
    """A workload's steps, each as often as there are runs."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # as `services.console.launch` has it
    run = WORKLOADS[name]()
    gc.collect()
    gc.freeze()
    found: dict[str, list[Step]] = {}
    for _ in range(runs):
        for step in run():
            found.setdefault(step.name, []).append(step)
    for of, steps in found.items():
        longest = sorted(round(step.longest_s * 1e3, 1) for step in steps)
        row = {
            "workload": name,
            "step": of,
            "longest_ms": round(median(longest), 1),
            "from_to_ms": (longest[0], longest[-1]),
        }
        print(json.dumps(row | {"all_ms": round(median(step.spent_s for step in steps) * 1e3)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="The longest stretch between two turns of a service's event loop.")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"default: all of {', '.join(WORKLOADS)}")
    parser.add_argument("--runs", type=some, default=RUNS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    chosen = asked.workloads or list(WORKLOADS)
    if unknown := [name for name in chosen if name not in WORKLOADS]:
        parser.error(f"no workload {', '.join(unknown)}: expected of {', '.join(WORKLOADS)}")
    if asked.here:
        for name in chosen:
            measure(name, asked.runs)
        return
    for name in chosen:
        command = ["-m", "benchmarks.slices", name, "--runs", str(asked.runs), "--here"]
        subprocess.run([sys.executable, *command], check=True)


if __name__ == "__main__":
    main()
