"""The truth of a random walk: what the API server has, and what ingest would say of it, in order and with a lag.

Steps are what users, controllers, kubelets and other schedulers do. Every choice comes from one random source.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import msgspec

import events as ev
from events.objects import Declaration, Membership, Taint
from tests.facts import pod_group
from tests.world import GI

KOORDINATOR = "koordinator/v1alpha1"
GROUPED = ("default/g4", "default/g5")
"""Gangs that name each other, as a rule."""
DEDICATED = Taint(key="dedicated", value="x", effect="NoSchedule")


class Kept(msgspec.Struct):
    """A pod as the API server has it."""

    uid: str
    name: str
    of: ev.SchedulingClassObserved
    membership: Membership | None
    priority: int
    created_ns: int
    gated: bool
    candidate: bool
    node: str = ""
    status: str = "pending"
    version: int = 0


class Cluster:
    """Nodes and pods, and `inbox`: the facts that the log has not seen yet."""

    def __init__(
        self, source: random.Random, version: Callable[[], str], classes: list[ev.SchedulingClassObserved]
    ) -> None:
        self.random = source
        self.version = version
        self.classes = classes
        self.pods: dict[str, Kept] = {}
        self.nodes: dict[str, ev.NodeObserved] = {}
        self.inbox: deque[list[ev.Event]] = deque()
        self.bound_to: dict[str, str] = {}
        self.made = 0
        for _ in range(3):
            self.add_node()

    def add_node(self) -> None:
        self.put_node(f"n{self.random.randrange(5)}")

    def put_node(self, name: str) -> None:
        rnd = self.random
        self.made += 1
        known = self.nodes.get(name)
        fact = ev.NodeObserved(
            name=name,
            uid=known.uid if known else f"node-{self.made}",
            resource_version=self.version(),
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
        if any(pod.name == name for pod in self.pods.values()):
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
        self.pods[uid] = kept
        self.show(kept)
        return kept

    def show(self, kept: Kept) -> None:
        """A full observation."""
        self.inbox.append(
            [
                kept.of,  # the log may have forgotten it
                ev.PodObserved(
                    uid=kept.uid,
                    namespace="default",
                    name=kept.name,
                    resource_version=self.bump(kept),
                    scheduling_class=kept.of.digest,
                    gang=kept.membership,
                    priority=kept.priority,
                    created_ns=kept.created_ns,
                    candidate=kept.candidate,
                    gated=kept.gated,
                    status=kept.status,
                    node=kept.node,
                ),
            ]
        )

    def bump(self, kept: Kept) -> str:
        kept.version = int(self.version())
        return str(kept.version)

    def about(self, kept: Kept) -> dict[str, str]:
        return {
            "uid": kept.uid,
            "namespace": "default",
            "name": kept.name,
            "resource_version": self.bump(kept),
        }

    def create_gang(self) -> None:
        """One by itself, or in a gang group of Koordinator's, and often with all of it."""
        rnd = self.random
        name = f"default/g{rnd.randrange(6)}"
        if name not in GROUPED and rnd.random() < 0.8:
            self._gang(name, "coscheduling/2020", rnd.randrange(1, 6))
            return
        if name not in GROUPED and rnd.random() < 0.5:
            self._job(f"{name}@batch")
            return
        for one in GROUPED if name in GROUPED and rnd.random() < 0.6 else (name,):
            self._gang(one, KOORDINATOR, rnd.randrange(1, 4))

    def _gang(self, name: str, dialect: str, pods: int) -> None:
        rnd = self.random
        minimum = rnd.choice([pods, pods, max(1, pods - 1), pods + 1])
        declared: Declaration | None = Declaration(min_member=minimum, waiting_time_ms=rnd.choice([0, 0, 2000]))
        if dialect == KOORDINATOR:
            declared = msgspec.structs.replace(
                declared,
                groups=self.gang_group(name),
                mode=rnd.choice(["Strict", "Strict", "NonStrict"]),
                match_policy=rnd.choice(["once-satisfied", "once-satisfied", "waiting-and-running", "only-waiting"]),
                said=("groups", "match_policy", "min_member", "mode", "waiting_time_ms"),
            )
        elif rnd.random() < 0.3:
            declared = None
        for _ in range(pods):
            self.create(Membership(gang=name, dialect=dialect, declared=declared))
        if declared is None:
            self.declare(name.removeprefix("default/"), minimum)

    def _job(self, name: str) -> None:
        """A gang of Volcano's with minimums of its tasks."""
        rnd = self.random
        pods = {"ps": rnd.randrange(1, 3), "worker": rnd.randrange(1, 4)}
        minimums = {task: max(1, count - rnd.randrange(2)) for task, count in pods.items()}
        minimum = rnd.choice([sum(minimums.values()), sum(pods.values()), 2])
        declared = Declaration(min_member=minimum, waiting_time_ms=0, task_minimums=minimums)
        for task, count in pods.items():
            for _ in range(count):
                self.create(Membership(gang=name, dialect="volcano/v1beta1", declared=declared, task=task))

    def gang_group(self, name: str) -> tuple[str, ...]:
        """What a gang says of its group: most name each other, some name one that doesn't, or that never comes."""
        rnd = self.random
        if rnd.random() < 0.8:
            return GROUPED if name in GROUPED else ()
        return tuple(sorted({name, f"default/g{rnd.randrange(7)}"}))

    def declare(self, name: str, minimum: int) -> None:
        self.made += 1
        self.inbox.append([pod_group(name, self.version(), minimum)])

    def delete_gang(self, gang: str) -> None:
        """With all of its pods."""
        for kept in [pod for pod in self.pods.values() if pod.membership is not None and pod.membership.gang == gang]:
            self.delete(kept)

    def says(self, kept: Kept) -> bool:
        """Whether the pod has the annotation that its gang timed out."""
        return kept.membership is not None and kept.membership.timed_out is True

    def annotate(self, kept: Kept, *, timed_out: bool = True) -> None:
        if kept.membership is not None:
            said = timed_out or msgspec.UNSET
            kept.membership = msgspec.structs.replace(kept.membership, timed_out=said)
            self.show(kept)

    def pick(self, fits: Callable[[Kept], bool]) -> Kept | None:
        found = [pod for pod in self.pods.values() if fits(pod)]
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
            del self.pods[kept.uid]
            self.inbox.append([ev.PodDeleted(uid=kept.uid, namespace="default", name=kept.name)])

    def clear(self) -> None:
        for kept in list(self.pods.values()):
            while kept.uid in self.pods:
                self.delete(kept)
        for name in list(self.nodes):
            self.inbox.append([ev.NodeDeleted(name=name, uid=self.nodes.pop(name).uid)])

    # ---------------------------------------------------------------------------------------------------- what happens

    def step_node(self) -> None:
        self.add_node()

    def step_node_gone(self) -> None:
        self.remove_node()

    def step_pod(self) -> None:
        self.create()

    def step_gang(self) -> None:
        self.create_gang()

    def step_member(self) -> None:
        """Another pod for a gang that is there: a replacement or a latecomer."""
        gang = f"default/g{self.random.randrange(6)}"
        self.create(Membership(gang=gang, dialect="coscheduling/2020", declared=None))

    def step_foreign(self) -> None:
        if self.nodes:
            self.create(node=self.random.choice(sorted(self.nodes)), candidate=False)

    def step_stolen(self) -> None:
        """Another scheduler binds one of ours."""
        kept = self.pick(lambda pod: pod.status == "pending" and not pod.gated)
        if kept is not None and self.nodes:
            self.on_node(kept, self.random.choice(sorted(self.nodes)))

    def step_delete(self) -> None:
        kept = self.pick(lambda pod: True)
        if kept is not None:
            self.delete(kept)

    def step_delete_gang(self) -> None:
        names = sorted({pod.membership.gang for pod in self.pods.values() if pod.membership is not None})
        if names:
            self.delete_gang(self.random.choice(names))

    def step_finish(self) -> None:
        kept = self.pick(lambda pod: pod.status == "bound")
        if kept is not None:
            succeeded = self.random.random() < 0.5
            kept.status = "succeeded" if succeeded else "failed"
            reason = "" if succeeded else "OutOfcpu"
            self.inbox.append([ev.PodFinished(**self.about(kept), succeeded=succeeded, reason=reason)])

    def step_gates(self) -> None:
        kept = self.pick(lambda pod: pod.status == "pending" and pod.candidate)
        if kept is not None:
            kept.gated = not kept.gated if self.random.random() < 0.3 else False
            self.show(kept)

    def step_label(self) -> None:
        kept = self.pick(lambda pod: pod.candidate and pod.status in ("pending", "bound"))
        if kept is not None:
            gang = self.random.choice(["", "default/g0", "default/g1"])
            kept.membership = Membership(gang=gang, dialect="coscheduling/2020", declared=None) if gang else None
            self.show(kept)

    def step_act(self) -> None:
        """The user of a gang that timed out removes the annotation, from one pod or from all."""
        said = [kept for kept in self.pods.values() if self.says(kept)]
        for kept in said if self.random.random() < 0.5 else said[:1]:
            self.annotate(kept, timed_out=False)

    def step_declare(self) -> None:
        self.declare(f"g{self.random.randrange(6)}", self.random.randrange(1, 5))

    def step_regroup(self) -> None:
        """Somebody edits what a pod says of its gang group."""
        kept = self.pick(lambda pod: pod.membership is not None and pod.membership.declared is not None)
        if kept is not None and kept.status in ("pending", "bound"):
            membership = kept.membership
            assert membership is not None
            declared = msgspec.structs.replace(membership.declared, groups=self.gang_group(membership.gang))
            kept.membership = msgspec.structs.replace(membership, dialect=KOORDINATOR, declared=declared)
            self.show(kept)

    def step_undeclare(self) -> None:
        name = f"g{self.random.randrange(6)}"
        self.inbox.append(
            [ev.PodGroupDeleted(namespace="default", name=name, uid=f"pg-{name}", dialect="coscheduling/v1alpha1")]
        )
