"""A cluster's log in memory with the real cores around it: given events, when something happens, then events.

`World` plays every service by hand: facts are appended as ingest would, `plan` and `judge` append what the cores decide
over the state as it stands, `settle` goes on until nobody has anything to say, with an API server that accepts every
binding. `validate_state` runs after every commit.
"""

from __future__ import annotations

from typing import Any

import msgspec

import events as ev
from events import dialects, envelope, subjects
from events.envelope import Header
from events.memory import MemoryLog
from events.objects import (
    Declaration,
    HostPort,
    Membership,
    NodeAssignment,
    Place,
    SelectorTerm,
    Taint,
    Toleration,
)
from events.policy import DEFAULT_POLICY, Policy
from services.binder import core as binder
from services.planner import core as planner
from services.state.clock import tick
from services.state.fold import State
from services.state.partitions import partition_of
from services.state.validate import validate_state
from tests import facts
from tests.facts import pod_group, scheduling_class

GI = 1 << 30
SECOND_NS = 1_000_000_000


class World:
    def __init__(
        self,
        policy: Policy = DEFAULT_POLICY,
        *,
        shards: tuple[str, ...] = ("a",),
        supports: ev.VersionsAnnounced | None = None,
    ) -> None:
        """`supports`: what every process says that it has the code for."""
        self.announced = [] if supports is None else [supports]
        self.log = MemoryLog("test")
        self.state = State()
        self.now_ns = 1_000 * SECOND_NS
        self.versions = 0
        self.classes: dict[str, ev.SchedulingClassObserved] = {}
        """What was ever said of classes: the log forgets those that have no pods."""
        self.facts(ev.IngestTaken(holder="test"), *self.announced)
        self.facts(ev.ClusterSynced(nodes=0, pods=0))
        self.append("admin", [ev.PolicyChanged(policy=policy)], cause="admin")
        for shard in shards:
            self.join(shard)
        self.append("binder", [ev.BinderTaken(holder="test"), *self.announced], cause="taken")
        self.judge()

    # ------------------------------------------------------------------------------------------------------------- log

    def append(
        self,
        writer: str,
        events: list[ev.Event],
        cause: str = "facts",
        basis: int | None = None,
        epoch: int | None = None,
    ) -> None:
        subject = subjects.subject("test", writer)
        header = Header(
            writer=writer,
            epoch=self.state.epoch if epoch is None else epoch,
            basis=self.state.sequence if basis is None else basis,
            time_ns=0,
            cause=cause,
            rules=self.state.rules_version,
            state=self.state.state_version,
        )
        expected = self.log._last.get(subject, 0)
        self.log.append_now(subject, header, envelope.encode_events(events), expected)
        self.state.apply_stored(self.log.commits[-1])
        validate_state(self.state)

    def facts(self, *events: ev.Event) -> None:
        self.classes.update((event.digest, event) for event in events if isinstance(event, ev.SchedulingClassObserved))
        self.append("ingest", list(events))

    def version(self) -> str:
        self.versions += 1
        return str(self.versions)

    # ---------------------------------------------------------------------------------------------------------- shards

    def join(self, shard: str) -> None:
        taken = ev.PlannerTaken(shard=shard, holder="test")
        self.append(f"planner.{shard}", [taken, *self.announced], cause="taken")

    def leave(self, shard: str) -> None:
        self.append(f"planner.{shard}", [ev.PlannerLeft(shard=shard)], cause="left")

    def lose(self, shard: str) -> None:
        """The binder finds that the shard's lease has run out."""
        lost = ev.ShardLost(shard=shard, taken=self.state.shards.get(shard, 0))
        self.append("binder", [lost], cause="outcome")

    # ----------------------------------------------------------------------------------------------------------- facts

    def node(
        self,
        name: str,
        cpu: int = 8,
        memory_gi: int = 32,
        pods: int = 110,
        gpu: int = 0,
        *,
        labels: dict[str, str] | None = None,
        taints: tuple[Taint, ...] = (),
        unschedulable: bool = False,
    ) -> None:
        offered = {"cpu_milli": cpu * 1000, "memory_bytes": memory_gi * GI, "pods": pods}
        if gpu:
            offered["nvidia.com/gpu"] = gpu
        uid, version = f"uid-{name}", self.version()
        self.facts(
            facts.node(
                name, offered, uid=uid, version=version, labels=labels, taints=taints, unschedulable=unschedulable
            )
        )

    def scheduling_class(
        self,
        cpu: float = 1,
        memory_gi: int = 1,
        gpu: int = 0,
        *,
        selector: dict[str, str] | None = None,
        affinity: tuple[SelectorTerm, ...] | None = None,
        tolerations: tuple[Toleration, ...] = (),
        ports: tuple[HostPort, ...] = (),
        unsupported: tuple[str, ...] = (),
    ) -> str:
        asked = {"cpu_milli": int(cpu * 1000), "memory_bytes": memory_gi * GI, "pods": 1}
        if gpu:
            asked["nvidia.com/gpu"] = gpu
        digest = f"{asked}{selector}{affinity}{tolerations}{ports}{unsupported}"
        if digest not in self.state.classes:
            self.facts(
                scheduling_class(
                    digest,
                    asked,
                    node_selector=selector,
                    required_affinity=affinity,
                    tolerations=tolerations,
                    host_ports=ports,
                    unsupported=unsupported,
                )
            )
        return digest

    def pod(
        self,
        name: str,
        gang: str = "",
        *,
        minimum: int = 0,
        of: str = "",
        priority: int = 0,
        created_s: int = 0,
        gated: bool = False,
        node: str = "",
        candidate: bool = True,
        namespace: str = "default",
        dialect: str = "coscheduling/2020",
        declared: Declaration | None = None,
        timed_out: bool = False,
        task: str = "",
        **asks: Any,
    ) -> str:
        """Observe a pod ``default/name``; its UID is its name. `minimum`, or `declared`, declares the gang on the pod
        itself."""
        if minimum:
            declared = Declaration(min_member=minimum, waiting_time_ms=0)
        membership = None
        if gang:
            key = dialects.gang_key(dialect, namespace, gang)
            membership = Membership(
                gang=key,
                dialect=dialect,
                declared=declared,
                task=task or msgspec.UNSET,
                timed_out=True if timed_out else msgspec.UNSET,
            )
        digest = of or self.scheduling_class(**asks)
        if digest not in self.state.classes:
            self.facts(self.classes[digest])
        self.facts(
            facts.pod(
                name,
                digest,
                version=self.version(),
                namespace=namespace,
                gang=membership,
                priority=priority,
                created_ns=created_s * SECOND_NS,
                candidate=candidate,
                gated=gated,
                node=node,
            )
        )
        return name

    def gang(self, name: str, pods: int, minimum: int, **asks: Any) -> list[str]:
        return [self.pod(f"{name}-{i}", name, minimum=minimum, **asks) for i in range(pods)]

    def volcano(self, name: str, gang: str, task: str = "", **more: Any) -> str:
        """A pod of a task of Volcano's gang ``default/gang``."""
        return self.pod(name, gang, dialect="volcano/v1beta1", task=task, **more)

    def koordinator(
        self, gang: str, pods: int, minimum: int, says: dict[str, Any] | None = None, *, created_s: int = 0
    ) -> list[str]:
        """Pods of 1 cpu that declare the gang (``namespace/name``) by Koordinator's annotations; UIDs ``name-0`` …

        Pods that are there are observed anew.
        """
        fields = {"min_member": minimum, "waiting_time_ms": 0, "match_policy": "once-satisfied", **(says or {})}
        declared = Declaration(said=tuple(sorted(fields)), **fields)
        namespace, _, name = gang.partition("/")
        of = {"namespace": namespace, "dialect": "koordinator/v1alpha1", "declared": declared, "created_s": created_s}
        return [self.pod(f"{name}-{i}", name, **of) for i in range(pods)]

    def pod_group(
        self, name: str, minimum: int, waiting_time_ms: int = 0, *, created_s: int = 0, **declared: Any
    ) -> None:
        """The PodGroup ``default/name``; its UID is ``pg-name``. `declared`: as `tests.facts.pod_group` takes it."""
        version, created_ns = self.version(), created_s * SECOND_NS
        self.facts(pod_group(name, version, minimum, waiting_time_ms, created_ns=created_ns, **declared))

    def pod_group_deleted(self, name: str) -> None:
        self.facts(
            ev.PodGroupDeleted(namespace="default", name=name, uid=f"pg-{name}", dialect="coscheduling/v1alpha1")
        )

    def assigned(self, uid: str, node: str) -> None:
        self.facts(ev.PodAssigned(uid=uid, namespace="default", name=uid, resource_version=self.version(), node=node))

    def terminating(self, uid: str) -> None:
        self.facts(ev.PodTerminating(uid=uid, namespace="default", name=uid, resource_version=self.version()))

    def finished(self, uid: str, *, succeeded: bool = True, reason: str = "") -> None:
        self.facts(
            ev.PodFinished(
                uid=uid,
                namespace="default",
                name=uid,
                resource_version=self.version(),
                succeeded=succeeded,
                reason=reason,
            )
        )

    def deleted(self, uid: str) -> None:
        self.facts(ev.PodDeleted(uid=uid, namespace="default", name=uid))

    # ------------------------------------------------------------------------------------------------------- decisions

    def plan(self, shard: str = "a") -> list[ev.Event]:
        decided: list[ev.Event] = list(planner.decide_now(self.state, shard))
        if decided:
            self.append(f"planner.{shard}", decided, cause="decide")
        return decided

    def plan_without_appending(self, shard: str = "a") -> list[ev.Event]:
        """What the shard has to say now."""
        return list(planner.decide_now(self.state, shard))

    def plan_would(self, shard: str = "a") -> bool:
        """Whether the shard has something to say now."""
        return bool(self.plan_without_appending(shard))

    def propose(
        self,
        group: str,
        required: dict[str, str],
        optional: dict[str, str] | None = None,
        *,
        shard: str = "a",
        basis: int | None = None,
    ) -> Place:
        """A proposal that no planner's core made: uid → node. Returns its place."""
        event = ev.GangPlaced(
            group=group,
            partition=partition_of(group),
            required=tuple(NodeAssignment(node, (uid,)) for uid, node in required.items()),
            optional=tuple(NodeAssignment(node, (uid,)) for uid, node in (optional or {}).items()),
        )
        self.append(f"planner.{shard}", [event], cause="by hand", basis=basis)
        return Place(self.state.sequence, 0)

    def judge(self) -> list[ev.Event]:
        decided = binder.decide_now(self.state)
        if decided:
            self.append("binder", decided, cause="decide")
        return decided

    def bind(self) -> list[str]:
        """Every open intent succeeds: outcome, then fact."""
        done = list(self.state.permitted)
        for uid in done:
            claim = self.state.claims[uid]
            namespace = self.state.pods[uid].fact.namespace
            self.append(
                "binder", [ev.PodBound(uid=uid, namespace=namespace, name=uid, node=claim.node)], cause="outcome"
            )
            self.assigned(uid, claim.node)
        return done

    def mark(self) -> list[str]:
        """Every pod that is to say that its gang timed out says it: outcome, then fact."""
        done = [uid for uid, mark in self.state.marks.items() if not mark.written]
        for uid in done:
            self.append("binder", [ev.TimeoutMarked(pods=((uid, self.version()),))], cause="outcome")
            self.says(uid)
        return done

    def says(self, uid: str, *, timed_out: bool = True) -> None:
        """A fact of the pod: it has the annotation that its gang timed out, or it has it no longer."""
        fact = self.state.pods[uid].fact
        assert fact.gang is not None
        gang = msgspec.structs.replace(fact.gang, timed_out=timed_out or msgspec.UNSET)
        self.facts(msgspec.structs.replace(fact, gang=gang, resource_version=self.version()))

    def settle(self, shards: tuple[str, ...] = ("a",)) -> None:
        """Plan, judge and bind until nobody has anything to say."""
        for _ in range(100):
            said = [event for shard in shards for event in self.plan(shard)]
            said += self.judge()
            if not said and not self.bind():
                return
        raise AssertionError("the cores never come to rest")

    def pass_s(self, seconds: float) -> None:
        """Time passes: every owner that lives ticks when it wants to, every 100 ms."""
        for _ in range(int(seconds * 10)):
            self.now_ns += SECOND_NS // 10
            for writer in sorted(self.state.clocks):
                if writer != "binder" and writer.partition(".")[2] not in self.state.shards:
                    continue
                event = tick(self.state.clock(writer), self.now_ns)
                if event is not None:
                    self.append(writer, [event], cause="tick")

    # ----------------------------------------------------------------------------------------------------------- views

    def where(self, *uids: str) -> list[str]:
        """The node that each pod is bound to, or ''."""
        return [self.state.pods[uid].node if uid in self.state.pods else "" for uid in uids]

    def bound(self) -> list[str]:
        return sorted(uid for uid, pod in self.state.pods.items() if pod.status == "bound")


def of_type(events: list[ev.Event], kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


def refusals(events: list[ev.Event]) -> list[str]:
    """Why groups were refused."""
    return [event.reason for event in of_type(events, ev.GroupsRefused)]


def tried(world: World) -> list[str]:
    """The groups that the next cycle places, in its order; placing them is not appended."""
    return [event.group for event in of_type(world.plan_without_appending(), ev.GangPlaced)]
