"""Small histories, each of one thing that happens, in which nothing is drawn but latencies: what `sweep` goes through.

A script says what is there, under which policy, and what its users do; `shows` are events without which it would not be
the history that it is meant to be.
"""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple, Protocol

import msgspec

import events as ev
from events.policy import DEFAULT_POLICY
from services.simulator.kubelet import DURATION, EXIT_CODE
from tests.simulation.faults import Fault, Faults, Surroundings
from tests.simulation.koordinator import TIMEOUT, timed_out
from tests.simulation.loop import START_S, VirtualLoop
from tests.simulation.plan import Outcome, Plan
from tests.simulation.planting import LATEST_FROM
from tests.simulation.processes import Process
from tests.simulation.supervisor import SLOTS
from tests.simulation.told import KOORDINATOR, POD_GROUP, Object
from tests.simulation.workload import Step, Workload
from tests.simulation.world import HIGH, World

SEED, CUT = LATEST_FROM, LATEST_FROM + 11
"""Of latencies, names and clocks: with the usual bounds; with all bounds met at once and decisions of 700 bytes, which
are cut (`cramped`)."""
HEARD, UNHEARD = LATEST_FROM + 1, LATEST_FROM + 2
"""As above, of a federation that hears its clusters' logs and takes snapshots, and of one that does neither."""
POLICY = msgspec.structs.replace(
    DEFAULT_POLICY,
    backoff_initial_ms=500,
    backoff_max_ms=1_000,
    permit_waiting_ms=4_000,
    nomination_hold_ms=4_000,
    replacement_hold_ms=4_000,
)
"""Shorter times than in earnest."""
CRASHES = ("crash before", "crash after")
PAIRED = (*CRASHES, "stop before", "unanswered", "late")
"""Kinds of faults that change nothing of what is to come about."""
PREFIX = "small-"
"""What names of such workloads begin with."""


class Script(NamedTuple):
    """One small history."""

    nodes: dict[str, int]
    """Name → cpus."""
    steps: tuple[tuple[float, str], ...]
    """When, and what (`Small`)."""
    until_s: float
    """Till when faults go on."""
    shows: tuple[type[ev.Event], ...]
    """What its log has without faults."""
    policy: tuple[tuple[str, object], ...] = ()
    """What differs from `POLICY`."""
    retained_at_s: tuple[float, ...] = ()
    snapshot_after_bytes: int = 1_000_000
    whole: bool = False
    """Whether faults strike while its services start, too, which all scripts do alike; else from its first step on."""
    seed: int = SEED
    federated: bool = False
    always: tuple[type[ev.Event], ...] = ()
    """What comes about whatever of `PAIRED` strikes: of federated jobs, as their users lose patience and cancel."""

    @property
    def from_s(self) -> float:
        return 0.0 if self.whole else min(at_s for at_s, _ in self.steps)


class Small(Workload):
    """What users do in these histories: nothing of it is drawn."""

    def take(self, step: Step) -> None:
        self.random = random.Random(step.number)
        self.step(step.what)

    def node_of(self, name: str, cpus: int) -> None:
        offered = {"cpu": str(cpus), "memory": "16Gi", "pods": "110"}
        node: Object = {"metadata": {"name": name, "labels": {"zone": "a"}}, "status": {"allocatable": offered}}
        self.api.apply_new({"apiVersion": "v1", "kind": "Node", "spec": {}, **node})

    def asks(self, name: str, *, cpu: str = "1", ends_ms: int = 0, **metadata: dict[str, str]) -> None:
        """A pod of this name asks for so much; it ends after so long, or stays."""
        ends = {DURATION: str(ends_ms), EXIT_CODE: "0"} if ends_ms else {}
        metadata["annotations"] = {**metadata.get("annotations", {}), **ends}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": "muster", "terminationGracePeriodSeconds": 1, "containers": [container]}
        pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {**self.named(name), **metadata}, "spec": spec}
        self.api.apply_new(pod, define=False)

    # ----------------------------------------------------------------------------------------------------------- steps

    def one(self) -> None:
        self.asks("one")

    def trio(self) -> None:
        """A gang of three that a PodGroup declares."""
        self._declare_gang("trio", 3)
        for number in range(3):
            self.asks(f"trio-{number}", labels={POD_GROUP: "trio"})

    def pair(self) -> None:
        self._declare_gang("pair", 2)
        for number in range(2):
            self.asks(f"pair-{number}", labels={POD_GROUP: "pair"})

    def _declare_gang(self, name: str, minimum: int) -> None:
        group: Object = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": self.named(name)}
        self.api.apply_new({**group, "spec": {"minMember": minimum}}, define=False)

    def node_comes(self) -> None:
        self.node_of("late", 2)

    def member_fails(self) -> None:
        self.patch(self.api.pods, self.namespace, "pair-0", {"status": {"phase": "Failed"}}, "status")

    def member_comes(self) -> None:
        """In the place of the one that failed."""
        self.asks("pair-2", labels={POD_GROUP: "pair"})

    def rival(self) -> None:
        """Would take the room of a member that failed."""
        self.asks("rival")

    def fillers(self) -> None:
        """Pods that have all the room, one longer than the other."""
        for number, ends_ms in enumerate((2_500, 3_500, 2_500, 4_500)):
            self.asks(f"filler-{number}", ends_ms=ends_ms)

    def wide(self) -> None:
        """A gang whose pods each take a whole node, and that starves as long as something small is before it."""
        self._declare_gang("wide", 2)
        for number in range(2):
            self.asks(f"wide-{number}", cpu="2", labels={POD_GROUP: "wide"})

    def crumbs(self) -> None:
        """They would take each bit of room as it comes free."""
        for number in range(2):
            self.asks(f"crumb-{number}", ends_ms=1_500)

    def roles(self) -> None:
        """Two gangs in a group of Koordinator's, which hold what room they get."""
        group = json.dumps([f"{self.namespace}/{one}" for one in ("head", "work")])
        for name, pods in (("head", 1), ("work", 2)):
            said = {
                "name": name,
                "min-available": str(pods),
                "mode": "NonStrict",
                "waiting-time": "3s",
                "groups": group,
            }
            told = {f"{KOORDINATOR}/{field}": value for field, value in said.items()}
            for number in range(pods):
                self.asks(f"{name}-{number}", annotations=told)

    def acts(self) -> None:
        """A user, on gangs that have timed out: he takes the annotation off their pods."""
        for pod in [pod for pod in self.pods() if timed_out(pod)]:
            self.change(pod, {"metadata": {"annotations": {TIMEOUT: None}}})


SCRIPTS: dict[str, Script] = {
    "pod": Script({"a": 2}, ((2.0, "one"),), 8.0, (ev.PodBound,), whole=True),
    "gang": Script({"a": 2, "b": 2}, ((2.0, "trio"),), 8.0, (ev.GangPermitted, ev.PodBound)),
    "refused": Script({"a": 2}, ((2.0, "trio"), (4.0, "node_comes")), 10.0, (ev.GroupsRefused, ev.PodBound)),
    "replaced": Script(
        {"a": 1, "b": 1},
        ((2.0, "pair"), (3.5, "rival"), (4.0, "member_fails"), (4.8, "member_comes")),
        10.0,
        (ev.RoomNominated, ev.PodBound),
    ),
    "evicted": Script(
        {"a": 1, "b": 1},
        ((2.0, "pair"), (4.0, "member_fails")),
        11.0,
        (ev.EvictionIntended, ev.PodEvicted),
        policy=(("replacement_policy", "evict"), ("replacement_hold_ms", 1_000)),
    ),
    "starving": Script(
        {"a": 2, "b": 2},
        ((2.0, "fillers"), (3.0, "wide"), (3.5, "crumbs")),
        14.0,
        (ev.RoomRequested, ev.RoomReserved, ev.ReservationEnded, ev.PodBound),
        policy=(("reserve_after_refusals", 1), ("reservation_hold_ms", 8_000)),
    ),
    "held": Script({"a": 2}, ((2.0, "roles"), (3.5, "node_comes")), 9.0, (ev.GangHeld, ev.GangPermitted, ev.PodBound)),
    "out-of-time": Script(
        {"a": 2},
        ((2.0, "roles"), (7.0, "acts"), (7.5, "node_comes")),
        13.0,
        (ev.GangHeld, ev.GangTimedOut, ev.TimeoutMarked, ev.PodBound),
    ),
    "purged": Script(
        {"a": 4, "b": 4},
        ((2.0, "trio"), (3.0, "pair"), (4.0, "one"), (5.0, "member_fails"), (5.5, "member_comes")),
        28.0,
        (ev.SnapshotTaken, ev.PodBound),
        retained_at_s=(9.0, 24.0),
        snapshot_after_bytes=4_000,
    ),
}
SCRIPTS |= {f"{name}-cut": script._replace(seed=CUT, whole=False) for name, script in SCRIPTS.items()}
FEDERATED: dict[str, Script] = {
    "federated": Script(
        {},
        ((14.0, "training_ends"), (14.0, "training_ends"), (5.0, "submit")),
        20.0,
        (ev.SubmissionHeld, ev.RunReleased, ev.JobPlaced, ev.StopIntended, ev.JobSettled, ev.RemainsCleared),
        seed=HEARD,
        federated=True,
        always=(ev.JobPlaced, ev.JobSettled, ev.RemainsCleared),
    ),
    "deleted": Script(
        {},
        ((12.0, "training_deleted"), (12.0, "training_deleted"), (5.0, "submit")),
        20.0,
        (ev.SubmissionHeld, ev.RunReleased, ev.JobPlaced, ev.JobSettled),
        seed=HEARD,
        federated=True,
    ),
    "cancelled": Script(
        {},
        ((5.0, "submit"), (9.0, "cancel")),
        20.0,
        (ev.RunReleased, ev.StopIntended, ev.JobSettled, ev.RemainsCleared),
        seed=HEARD,
        federated=True,
        always=(ev.JobSettled,),
    ),
}
SCRIPTS |= FEDERATED | {f"{name}-unheard": script._replace(seed=UNHEARD) for name, script in FEDERATED.items()}
"""By what each is about."""


class Place(NamedTuple):
    """One request that a process makes in a history."""

    on: str
    slot: str
    nth: int
    """Of its kind and of the slot's, from 1."""
    at_s: float
    armed_s: float = 0.0
    """When a fault is armed that is to strike it."""


class Timed(Surroundings, Protocol):
    loop: VirtualLoop


class Recorder(Faults):
    """Writes down every request, whether a fault hits it or not."""

    def __init__(self, around: Timed) -> None:
        super().__init__(around)
        self._loop = around.loop
        self.places: list[Place] = []
        self.struck_s = 0.0
        """When the last fault struck."""
        self._lifted = False

    def hit(self, on: str, process: Process) -> Fault | None:
        fault = super().hit(on, process)
        if fault is not None:
            self.struck_s = self._loop.now_s - START_S
        return fault

    def lift(self) -> None:
        super().lift()
        self._lifted = True

    def sent(self, on: str, process: Process) -> int:
        nth = super().sent(on, process)
        if not self._lifted:
            self.places.append(Place(on, process.slot, nth, self._loop.now_s - START_S))
        return nth


def tried(outcome: Outcome, script: str, plan: Plan) -> Outcome:
    """A fault that is to strike a certain request and does not is a violation, too, as then nothing was tried; and a
    history in which something does not come about that must."""
    found, faults = SCRIPTS[script], plan.faults
    struck, meant = sum(outcome.faults.values()), sum(fault.nth > 0 for fault in faults)
    due = found.shows if not faults else found.always if all(fault.kind in PAIRED for fault in faults) else ()
    missing = {event.__name__ for event in due} - outcome.seen.keys()
    if not outcome.violation and (struck < meant or missing):
        outcome.violation = f"Violation: {struck} of {meant} faults struck, not seen: {sorted(missing)} (7.12)"
    return outcome


class SmallWorld(World):
    """One small history, with the faults that its plan has."""

    faults_type = Recorder
    faults: Recorder

    def __init__(self, plan: Plan) -> None:
        self.name = script_of(plan.workload)
        self.script = SCRIPTS[self.name]
        super().__init__(msgspec.structs.replace(plan, seed=self.script.seed))
        self.outcome.seed = plan.seed
        self.moments: list[float] = []
        """When something landed, seconds from the start."""

    def users(self, workload: str) -> Workload:
        return Small(self.kube)

    @property
    def places(self) -> list[Place]:
        return self.faults.places

    @property
    def struck_s(self) -> float:
        return self.faults.struck_s

    def run(self) -> Outcome:
        return tried(super().run(), self.name, self.plan)

    def begin(self) -> None:
        script, workload = self.script, self.workload
        assert isinstance(workload, Small)
        self.kube.api.apply_new(HIGH)
        for name, cpus in script.nodes.items():
            workload.node_of(name, cpus)
        self.set_policy(msgspec.structs.replace(POLICY, **dict(script.policy)))
        self.launch.snapshot_after_bytes = script.snapshot_after_bytes
        for slot in SLOTS:
            self.loop.after(self.source.uniform(0.0, 1.0), self.supervisor.start, slot)
        for at_s in script.retained_at_s:
            self.loop.after(at_s, self.supervisor.start, "retention")

    async def trouble(self) -> float:
        for fault in self.plan.faults:
            self.loop.at(START_S + fault.at_s, self._strike, fault)
        await self._users_act(0.0, self.script.until_s)
        return self.script.until_s

    def _landed(self, stored: Any, process: Process | None) -> None:
        super()._landed(stored, process)
        if not self.calm:
            self.moments.append(self.loop.now_s - START_S)


def script_of(workload: str) -> str:
    return workload.partition("-")[2]


def steps_of(script: Script) -> list[Step]:
    return [Step(at_s, what, number) for number, (at_s, what) in enumerate(script.steps)]
