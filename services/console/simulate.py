"""Simulate: what would be placed where, and what would wait and why — the real cores over the log in memory.

No network and no clock. Manifests become objects as an API server would list them, objects become facts as ingest would
write them, planner and binder decide until neither has anything to say, and every binding is accepted. Pods are queued
by the age that they have in a cluster, and behind these in the order of the files. Time passes only when nothing else
can happen and something waits for it: the owner of a deadline ticks at the moment at which it is due, a bounded number
of times.

Pods of every schedulerName are candidates, so that manifests written for another scheduler can be tried unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec

import events as ev
from events import Event, envelope, subjects
from events.envelope import Header
from events.memory import MemoryLog
from events.policy import DEFAULT_POLICY, Policy
from services.binder import core as binder
from services.console.counted import counted
from services.console.remarks import kind_of, remarks
from services.console.settled import waits_for_time
from services.console.summary import bound_pods, gangs, rejections_of, why_each_waits
from services.ingest.decoding import KINDS, POD
from services.ingest.differ import Ingest
from services.ingest.requests import MINOR
from services.kubernetes.resources import Resource
from services.planner import core as planner
from services.simulator.api import timestamp
from services.simulator.manifests import ManifestError, is_configuration
from services.simulator.offline import EPOCH, Offered, is_node, offered
from services.state import snapshot
from services.state.clock import HEARTBEAT_NS, TICK_SPACING_NS
from services.state.fold import State
from services.state.records import Clock
from services.state.refusals import rejected

SHARD = "0"
START_NS = int(EPOCH.timestamp()) * 1_000_000_000
FACTS = 2_000
"""Facts in one commit."""
MAX_TICKS = 200
"""How often time passes at most: gangs that time out and are tried again would go on for ever."""
MAX_ROUNDS = 100_000
"""Decisions between two ticks; the cores come to rest long before."""


class Restless(RuntimeError):
    """The cores go on deciding without end: a bug."""


def simulate(
    objects: Iterable[dict[str, Any]], policy: Policy = DEFAULT_POLICY, misfits: Iterable[ManifestError] = ()
) -> Simulation:
    """All that can be decided about these Kubernetes objects. One that a server would refuse costs itself only.

    `misfits`: what is wrong with those that are none.
    """
    objects = list(objects)
    simulation = Simulation()
    simulation.begin(policy)
    simulation.unread, simulation.warnings = remarks(objects)
    accepted, refused, simulation.makers = listed(objects)
    simulation.refused += [("", str(misfit)) for misfit in misfits]
    simulation.refused += [(error.about, error.told) for error in refused]
    simulation.observe(accepted)
    simulation.settle()
    return simulation


def listed(objects: Iterable[dict[str, Any]]) -> Offered:
    """What the API server has of them: nodes by name, as what is decided doesn't depend on their order, and everything
    else in the order of its age, which is that in which a log sees it. And refusals.

    What a cluster has is as old as it says: kubectl lists by name, whatever is older. What it does not have yet is
    created behind that, each object a microsecond after the one before it.
    """
    answer = offered(sorted((obj for obj in objects if not is_configuration(obj)), key=_nodes_by_name))
    aged = sorted(((_age(obj, place), obj) for place, obj in enumerate(answer.found)), key=itemgetter(0))
    ranks = {age: rank for rank, age in enumerate(dict.fromkeys(age for age, _ in aged))}
    for age, obj in aged:
        obj["metadata"]["creationTimestamp"] = (EPOCH + timedelta(microseconds=ranks[age])).isoformat()
    return answer._replace(found=[obj for _, obj in aged])


def _age(obj: dict[str, Any], place: int) -> tuple[bool, str, int]:
    """Two that a cluster created in the same second are of one age, there and here."""
    created = str(obj["metadata"]["creationTimestamp"])
    return (True, "", place) if created == timestamp(EPOCH) or is_node(obj) else (False, created, 0)


def _nodes_by_name(obj: dict[str, Any]) -> tuple[bool, str]:
    node = obj.get("kind") == "Node"
    return not node, str(obj["metadata"].get("name", "")) if node else ""


class Simulation:
    """A cluster's log in memory, and every service played on it in turn."""

    def __init__(self) -> None:
        self.log = MemoryLog("simulated")
        self.state = State()
        self.evicted: list[str] = []
        self.refused: list[tuple[str, str]] = []
        """What the API server says of the objects that it does not take, with each of them, as ``Pod default/a``."""
        self.makers: dict[str, str] = {}
        """By such an object: the workload that made it."""
        self.unread: dict[str, int] = {}
        self.warnings: list[str] = []
        """Both as `services.console.remarks` has them."""
        self._last: dict[str, int] = {}
        self._version = 0

    # ------------------------------------------------------------------------------------------------------------ log

    def append(self, writer: str, events: Sequence[Event], cause: str) -> None:
        subject = subjects.subject(self.log.cluster, writer)
        state = self.state
        header = Header(writer=writer, epoch=state.epoch, basis=state.sequence, time_ns=START_NS, cause=cause)
        payload = envelope.encode_events(events)
        sequence = self.log.append_now(subject, header, payload, self._last.get(subject, 0))
        self._last[subject] = sequence
        state.apply_stored(self.log.commits[sequence - 1])

    # --------------------------------------------------------------------------------------------------------- services

    def begin(self, policy: Policy) -> None:
        self.append("ingest", [ev.IngestTaken(holder="simulate")], "taken")
        self.append("admin", [ev.PolicyChanged(policy=policy)], "admin")
        self.append(f"planner.{SHARD}", [ev.PlannerTaken(shard=SHARD, holder="simulate")], "taken")
        self.append("binder", [ev.BinderTaken(holder="simulate")], "taken")

    def observe(self, objects: Sequence[dict[str, Any]], minor: int = MINOR) -> None:
        """Ingest's part: the kinds that it reads, in its order, as facts. Requests count as in Kubernetes 1.`minor`."""
        items: dict[Resource, list[dict[str, Any]]] = {kind.resource: [] for kind in KINDS}
        for obj in objects:
            if (kind := kind_of(obj)) is not None:
                items[kind.resource].append(obj)
        pods = items[POD.resource]
        core = Ingest({obj["spec"].get("schedulerName", "") for obj in pods})
        core.count_by(minor)
        facts: list[Event] = []
        for kind in KINDS:
            page = {"metadata": {"resourceVersion": "0"}, "items": items[kind.resource]}
            for seen in kind.page(msgspec.json.encode(page))[1]:
                facts += core.observe(seen)
        facts += chain.from_iterable(core.rest_in_slices())
        self._version = max((int(obj["metadata"].get("resourceVersion") or 0) for obj in objects), default=0)
        for start in range(0, len(facts), FACTS):
            self.append("ingest", facts[start : start + FACTS], "facts")
        self.append("ingest", [ev.ClusterSynced(nodes=len(self.state.nodes), pods=len(pods))], "facts")

    def settle(self) -> None:
        """Until nothing can change any more. Raises Restless."""
        for _ in range(MAX_TICKS):
            self._rest()
            if not waits_for_time(self.state) or not self._pass_time():
                return
        self.warnings.append(f"time passed {MAX_TICKS} times, and no more here: what waits might go on later")

    def _rest(self) -> None:
        """Plan, judge and bind until nobody has anything to say."""
        for _ in range(MAX_ROUNDS):
            planned = planner.decide_now(self.state, SHARD)
            if planned:
                self.append(f"planner.{SHARD}", planned, "decide")
            judged = binder.decide_now(self.state)
            if judged:
                self.append("binder", judged, "decide")
            if not (self._bind() or self._evict() or self._mark() or planned or judged):
                return
        raise Restless(f"still deciding after {MAX_ROUNDS} rounds, at {self.state.sequence}: a bug")

    def _bind(self) -> bool:
        """The API server accepts every binding that is intended."""
        state = self.state
        outcomes: list[Event] = []
        facts: list[Event] = []
        for uid in state.permitted:
            fact, node = state.pods[uid].fact, state.claims[uid].node
            self._version += 1
            named = {"uid": uid, "namespace": fact.namespace, "name": fact.name, "node": node}
            outcomes.append(ev.PodBound(**named))
            facts.append(ev.PodAssigned(**named, resource_version=str(self._version)))
        return self._take_effect(outcomes, facts)

    def _evict(self) -> bool:
        """Every eviction is accepted, and the pod is gone."""
        outcomes: list[Event] = []
        facts: list[Event] = []
        for uid, eviction in self.state.evictions.items():
            named = {"uid": uid, "namespace": eviction.namespace, "name": eviction.name}
            outcomes.append(ev.PodEvicted(**named))
            facts.append(ev.PodDeleted(**named))
            self.evicted.append(f"{eviction.namespace}/{eviction.name}")
        return self._take_effect(outcomes, facts)

    def _mark(self) -> bool:
        """Every pod says what it is to say."""
        marked: list[tuple[str, str]] = []
        facts: list[Event] = []
        for uid in self.state.marks:
            fact = self.state.pods[uid].fact
            if fact.gang is not None:
                self._version += 1
                said = msgspec.structs.replace(fact.gang, timed_out=True)
                facts.append(msgspec.structs.replace(fact, gang=said, resource_version=str(self._version)))
                marked.append((uid, str(self._version)))
        return self._take_effect([ev.TimeoutMarked(pods=tuple(marked))] if marked else [], facts)

    def _take_effect(self, outcomes: Sequence[Event], facts: Sequence[Event]) -> bool:
        """The binder's outcomes, and then what ingest sees of them; whether there were any."""
        if outcomes:
            self.append("binder", outcomes, "outcome")
            self.append("ingest", facts, "facts")
        return bool(outcomes)

    def _pass_time(self) -> bool:
        """Every owner of a deadline ticks at the moment of its next; whether anybody did."""
        ticked = False
        for writer in sorted(self.state.clocks):
            step_ns = _next_step_ns(self.state.clocks[writer])
            if step_ns is not None:
                time_ns = max(self.state.clocks[writer].time_ns, START_NS) + step_ns
                self.append(writer, [ev.Ticked(time_ns=time_ns, jumped_ns=0)], "tick")
                ticked = True
        return ticked

    # ----------------------------------------------------------------------------------------------------------- answer

    def answer(self) -> dict[str, Any]:
        """Ready for JSON: what is bound, what waits, what cannot be read, and the digest (README.md names the keys)."""
        state = self.state
        bound = {_name(pod.fact): pod.node for pod in bound_pods(state)}
        waiting = {_name(pod.fact): why for pod, why in why_each_waits(state)}
        for event in state.rejections.values():
            if event.kind == "Pod":
                name, pod = f"{event.namespace}/{event.name}", state.pods.get(event.uid)
                if pod is not None and pod.node:  # what cannot be read of it keeps it from nothing any more
                    bound[name] = pod.node
                else:
                    waiting[name] = f"rejected: {rejected(event)}"
        return {
            "bound": dict(sorted(bound.items())),
            "waiting": dict(sorted(waiting.items())),
            "evicted": sorted(self.evicted),
            "gangs": gangs(state),
            "rejected": told_once([*self.refused, *rejections_of(state)], self.makers),
            "unread": self.unread,
            "warnings": self.warnings,
            "digest": snapshot.digest(state),
        }


def told_once(said: Iterable[tuple[str, str]], makers: Mapping[str, str]) -> list[str]:
    """What is `said` of each object; one line for all that the same workload made and of which the same is said.

    Names are the only difference between pods of one template, so they are left out in the comparison.
    """
    lines: dict[tuple[str, ...], list[str]] = {}
    for number, (about, line) in enumerate(said):
        kind, _, name = about.partition(" ")
        maker = makers.get(about, "")
        alike = line.replace(name.rpartition("/")[2], "") if maker else str(number)
        lines.setdefault((maker, kind.lower(), alike), []).append(line)
    return [
        f"{maker}, {counted(len(same), kind)}: {same[0]}" if maker else same[0]
        for (maker, kind, _), same in lines.items()
    ]


def _name(fact: ev.PodObserved) -> str:
    return f"{fact.namespace}/{fact.name}"


def _next_step_ns(clock: Clock) -> int | None:
    """How long this clock's owner would sleep: to its next deadline, never so long that it were a jump."""
    if clock.unarmed:
        return TICK_SPACING_NS
    if not clock.armed:
        return None
    return min(max(clock.armed[0].due_ns - clock.counted_ns, TICK_SPACING_NS), HEARTBEAT_NS)
