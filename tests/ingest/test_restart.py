"""A new ingest takes what was written from the log's state, restored or folded: it is the fold of ingest's own events,
and finds the same differences, byte for byte, whatever the binder knew meanwhile and whatever was missed."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import events as ev
from events import envelope
from services.ingest import differ, normalise
from services.ingest.decoding import WORKLOAD, Malformed
from services.ingest.differ import Ingest
from services.ingest.rejection import Rejection
from services.state import snapshot
from services.state.fold import State
from tests.ingest.objects import node, pod, pod_group, priority_class, tables, workload
from tests.world import World

OURS = ["muster"]
VOLCANOS = "PodGroup.scheduling.volcano.sh"
KINDS = ("Node", "PriorityClass", WORKLOAD.name, "PodGroup", VOLCANOS, "Pod")
MAKE: dict[str, Callable[..., Any]] = {
    "Node": node,
    "Pod": pod,
    "PodGroup": pod_group,
    "PriorityClass": priority_class,
    WORKLOAD.name: workload,
    VOLCANOS: partial(pod_group, api="scheduling.volcano.sh/v1beta1"),
}


def made(kind: str, broken: bool = False, **about: Any) -> Any:
    """`broken`: it does not fit its type."""
    seen = MAKE[kind](**about)
    why = Rejection("spec", "x", "a mapping")
    return Malformed(seen.metadata, normalise.rejected(kind, seen.metadata, why)) if broken else seen


class Api:
    """Objects as an API server has them: kind → uid → keywords of the test's maker. Every change is a version."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.objects: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
        self.versions = self.made = 0

    def write(self, kind: str, uid: str, **changes: Any) -> Any:
        self.versions += 1
        kept = self.objects[kind].setdefault(uid, {"uid": uid})
        kept.update(changes, version=self.versions)
        return made(kind, **kept)

    def seen(self, kind: str) -> list[Any]:
        return [made(kind, **kept) for kept in self.objects[kind].values()]

    def pick(self, kind: str) -> str:
        return self.random.choice(sorted(self.objects[kind]) or [""])

    def by_name(self, kind: str, name: str) -> str:
        """The UID of the object of that name; a new one if there is none."""
        for uid, kept in self.objects[kind].items():
            if kept.get("name") == name:
                return uid
        self.made += 1
        return f"{kind}-{self.made}"

    # ------------------------------------------------------------------------------------------------- what happens

    def step(self) -> list[tuple[str, str, Any]]:
        """(what, kind, object) for a watch."""
        name = self.random.choice(
            ["pod"] * 5
            + ["edit"] * 3
            + ["bind", "run", "end", "leave", "gone", "gone", "node", "group", "priority", "workload", "broken", "drop"]
        )
        found = getattr(self, f"step_{name}")()
        return [found] if found is not None else []

    def step_pod(self) -> Any:
        name = f"p{self.random.randrange(8)}"
        uid = self.by_name("Pod", name)
        if uid in self.objects["Pod"]:
            return None
        labels = self.random.choice([{}, {"scheduling.x-k8s.io/pod-group": f"g{self.random.randrange(3)}"}, ODD])
        about: dict[str, Any] = {"labels": labels, "scheduler": self.random.choice(["muster", "muster", "batch"])}
        if self.random.random() < 0.3:
            about["workloadRef"] = {"name": f"w{self.random.randrange(3)}", "podGroup": self.random.choice("ab")}
        requests = {"cpu": self.random.choice(["1", "500m"])}
        return "MODIFIED", "Pod", self.write("Pod", uid, name=name, requests=requests, **about)

    def step_edit(self) -> Any:
        """Of labels, gates or nothing that matters: a new version in any case."""
        uid = self.pick("Pod")
        if not uid:
            return None
        change = self.random.choice(
            [{}, {"labels": {}}, {"labels": ODD}, {"schedulingGates": [{"name": "g"}]}, {"schedulingGates": []}]
        )
        return "MODIFIED", "Pod", self.write("Pod", uid, **change)

    def step_bind(self) -> Any:
        uid = self.pick("Pod")
        if not uid or self.objects["Pod"][uid].get("node"):
            return None
        return "MODIFIED", "Pod", self.write("Pod", uid, node="n0")

    def step_run(self) -> Any:
        return self._phase("Running")

    def step_end(self) -> Any:
        return self._phase(self.random.choice(["Succeeded", "Failed"]))

    def _phase(self, phase: str) -> Any:
        uid = self.pick("Pod")
        kept = self.objects["Pod"].get(uid, {})
        if not kept.get("node") or kept.get("phase") in ("Succeeded", "Failed"):
            return None
        return "MODIFIED", "Pod", self.write("Pod", uid, phase=phase)

    def step_leave(self) -> Any:
        uid = self.pick("Pod")
        return ("MODIFIED", "Pod", self.write("Pod", uid, deleting=True)) if uid else None

    def step_gone(self) -> Any:
        return self._delete("Pod")

    def step_drop(self) -> Any:
        return self._delete(self.random.choice(KINDS[:-1]))

    def _delete(self, kind: str) -> Any:
        uid = self.pick(kind)
        if not uid:
            return None
        last = self.write(kind, uid)
        del self.objects[kind][uid]
        return "DELETED", kind, last

    def step_node(self) -> Any:
        name = f"n{self.random.randrange(3)}"
        allocatable = self.random.choice([{"cpu": "4", "pods": "9"}, {"cpu": "8", "pods": "9"}, {"cpu": "many"}])
        made = {"name": name, "allocatable": allocatable, "labels": {"zone": self.random.choice("ab")}}
        return "MODIFIED", "Node", self.write("Node", self.by_name("Node", name), **made)

    def step_group(self) -> Any:
        kind, name = self.random.choice(["PodGroup", VOLCANOS]), f"g{self.random.randrange(3)}"
        says = {"minMember": self.random.choice([1, 2, 0]), "priorityClassName": self.random.choice(["", "high"])}
        return "MODIFIED", kind, self.write(kind, self.by_name(kind, name), name=name, **says)

    def step_workload(self) -> Any:
        name = f"w{self.random.randrange(3)}"
        groups = {group: self.random.choice([1, 2, 3, 0]) for group in self.random.choice(["a", "ab"])}
        return (
            "MODIFIED",
            WORKLOAD.name,
            self.write(WORKLOAD.name, self.by_name(WORKLOAD.name, name), name=name, **groups),
        )

    def step_broken(self) -> Any:
        """Or mended. What pods said before counts while they are."""
        kind = self.random.choice(KINDS[:-1])
        uid = self.pick(kind)
        return ("MODIFIED", kind, self.write(kind, uid, broken=self.random.random() < 0.5)) if uid else None

    def step_priority(self) -> Any:
        name = self.random.choice(["high", "low"])
        made = {"name": name, "value": self.random.choice([1, 2])}
        return "MODIFIED", "PriorityClass", self.write("PriorityClass", self.by_name("PriorityClass", name), **made)


ODD = {"pod-group.scheduling.sigs.k8s.io/name": "g0", "pod-group.scheduling.sigs.k8s.io/min-available": "some"}


def observed(core: Ingest, what: str, kind: str, seen: Any) -> list[ev.Event]:
    return core.deleted(kind, seen.metadata) if what == "DELETED" else core.observe(seen)


def listed(core: Ingest, api: Api, order: int) -> list[ev.Event]:
    """Full lists of every kind, each in an order of its own."""
    found: list[ev.Event] = []
    for kind in KINDS:
        seen = api.seen(kind)
        random.Random(order).shuffle(seen)
        for each in seen:
            found += core.observe(each, listed=True)
        found += core.missing(kind, set(api.objects[kind]))
    return found


def binds(world: World, api: Api) -> None:
    """The cores decide, and the binder hears of bindings and writes conditions before ingest sees any of it."""
    world.plan()
    world.judge()
    for uid in list(world.state.permitted):
        if uid in api.objects["Pod"]:
            where = world.state.claims[uid].node
            api.write("Pod", uid, node=where)
            name = api.objects["Pod"][uid]["name"]
            world.append("binder", [ev.PodBound(uid=uid, namespace="default", name=name, node=where)], cause="outcome")
    for uid in sorted(api.objects["Pod"])[:1]:
        api.write("Pod", uid)
        version = str(api.objects["Pod"][uid]["version"])
        world.append("binder", [ev.ConditionsReported(reason="Why", pods=((uid, version),))], cause="outcome")


def of_own_events(world: World) -> Ingest:
    """The naive way: everything that ingest ever wrote."""
    core = Ingest(OURS)
    for stored in world.log.commits:
        if stored.subject.endswith(".ingest"):
            for event in envelope.decode(stored).events:
                core.fold(event)
    return core


def inside(core: Ingest) -> dict[str, Any]:
    """But for what the binder wrote, of which ingest's own events know nothing."""
    return {name: kept for name, kept in tables(core).items() if not name.startswith(("_writes.", "_pods._normalise."))}


@pytest.mark.parametrize("seed", range(40))
def test_a_restart_from_the_state_finds_what_one_from_all_own_events_finds(seed: int) -> None:
    source = random.Random(seed)
    api, world = Api(source), World()
    core = Ingest(OURS)
    for _ in range(12):
        watching = source.random() < 0.6
        for _ in range(source.randrange(15)):
            for what, kind, seen in api.step():
                if watching and (events := observed(core, what, kind, seen)):
                    world.facts(*events)
            if source.random() < 0.2:
                binds(world, api)
        world.facts(ev.IngestTaken(holder="next"))
        restored: State = snapshot.decode(snapshot.encode(world.state))
        naive, core, again = of_own_events(world), Ingest.of(world.state, OURS), Ingest.of(restored, OURS)
        assert inside(core) == inside(naive)
        assert inside(again) == inside(naive)
        order = source.randrange(1 << 30)
        difference = envelope.encode_events(listed(naive, api, order))
        found = listed(core, api, order)
        assert envelope.encode_events(found) == difference
        assert envelope.encode_events(listed(again, api, order)) == difference
        assert naive.undone == core.undone == again.undone == 0
        if found:
            world.facts(*found)
        world.facts(ev.ClusterSynced(nodes=0, pods=0))


def test_a_state_is_taken_over_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ingest holds its lease by then: where two run, a turn that outlives it hands the role to and fro."""
    monkeypatch.setattr(differ, "SLICE_OBJECTS", 2)
    world = World()
    for number in range(7):
        world.pod(f"p{number}")
        world.node(f"n{number}")
    slices = Ingest.of_in_slices(world.state, OURS)
    assert sum(1 for _ in slices) == 3 + 3
    core = Ingest.of(world.state, OURS)
    assert len(core.pods) == 7
    monkeypatch.setattr(differ, "SLICE_LISTED", 3)
    said = list(core.missing_in_slices("Pod", {"p1"}))
    assert [len(events) for events in said] == [0, 0, 2, 2, 2, 0, 0], "it is sorted, and told, a few at a time"
    assert [event.uid for events in said for event in events] == ["p0", *(f"p{number}" for number in range(2, 7))]
    assert list(core._ledger.deleted) == ["p0", *(f"p{number}" for number in range(2, 7))]


def test_whom_a_workload_concerns_is_told_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: 50,000 pods heard of it in one piece, a third of a lease's life."""
    monkeypatch.setattr(differ, "FEW", 1)
    monkeypatch.setattr(differ, "SLICE_OBJECTS", 2)
    core = Ingest(OURS)
    core.observe(workload(a=2))
    of_it = {"workloadRef": {"name": "w1", "podGroup": "a"}}
    for number in range(6):
        core.observe(pod(f"p{number}", **of_it))
    told = core.observe(workload(version=2, a=3))
    slices = core.rest_in_slices()
    told += next(slices)
    assert [event.uid for event in told] == ["uid-p0", "uid-p1", "uid-p2"]
    core.deleted("Pod", pod("p4").metadata)
    core.observe(pod("p5", version=3, node="n1", **of_it))
    assert max(map(len, slices), default=0) <= 2
    assert {one.gang.declared.min_member for one in core.pods.values()} == {3}
    gone = [len(events) for events in core.vanished_in_slices(WORKLOAD.name)]
    assert (max(gone), sum(gone)) == (2, 5)
    assert {one.gang.declared for one in core.pods.values()} == {None}


@pytest.mark.parametrize("api", ["scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"])
def test_what_is_gone_with_its_kind_is_told_in_slices(monkeypatch: pytest.MonkeyPatch, api: str) -> None:
    monkeypatch.setattr(differ, "SLICE_OBJECTS", 2)
    core = Ingest(OURS)
    for number in range(5):
        core.observe(pod_group(f"g{number}", api=api, minMember=2))
    kind = "PodGroup" if api.startswith("scheduling.x") else VOLCANOS
    assert [len(events) for events in core.vanished_in_slices(kind)] == [2, 2, 1, 0]


def test_what_could_not_be_taken_and_is_gone_is_told_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: of 100,000 such pods all were buried, and ended, in one piece of 170 to 350 ms."""
    monkeypatch.setattr(differ, "SLICE_OBJECTS", 2)
    core = Ingest(OURS)
    for number in range(7):
        core.observe(pod(f"p{number}", requests={"cpu": "much"}))
    told = [len(events) for events in core.missing_in_slices("Pod", {"uid-p1"})]
    assert (max(told), sum(told)) == (2, 6)
    assert [name for _, _, name in core.rejected] == ["p1"]


def test_the_walks_have_something_of_everything() -> None:
    world, api = World(), Api(random.Random(3))
    core = Ingest(OURS)
    kinds = set()
    for _ in range(2_000):
        for what, kind, seen in api.step():
            if events := observed(core, what, kind, seen):
                world.facts(*events)
                kinds |= {type(event).__name__ for event in events}
    assert kinds == {kind.__name__ for kind in FACTS}
    assert not world.state.ignored


FACTS = (
    ev.NodeObserved,
    ev.NodeDeleted,
    ev.SchedulingClassObserved,
    ev.PodObserved,
    ev.PodAssigned,
    ev.PodTerminating,
    ev.PodFinished,
    ev.PodDeleted,
    ev.PodGroupObserved,
    ev.PodGroupDeleted,
    ev.PriorityClassObserved,
    ev.PriorityClassDeleted,
    ev.DeclarationRejected,
    ev.RejectionEnded,
)


def test_a_terminating_pod_that_is_bound_stays_terminating() -> None:
    """Its assignment said the less: the next observation wrote that it terminates once more."""
    core = Ingest(OURS)
    core.observe(pod(version=1))
    core.observe(pod(version=2, deleting=True))
    assert [type(event) for event in core.observe(pod(version=3, deleting=True, node="n1"))] == [ev.PodAssigned]
    assert core.observe(pod(version=4, deleting=True, node="n1")) == []


def test_missed_deletions_come_in_the_order_of_names() -> None:
    """Not in that of what was seen first, which a state need not remember."""
    one, other = Ingest(OURS), Ingest(OURS)
    seen = [node("n1"), node("n2"), pod("a"), pod("b"), pod_group("g", minMember=0), pod_group("h", minMember=0)]
    for core, order in ((one, seen), (other, reversed(seen))):
        for each in order:
            core.observe(each)
    for kind in ("Node", "Pod", "PodGroup"):
        assert one.missing(kind, set()) == other.missing(kind, set()) != []


def test_pods_hear_of_their_workload_in_an_order_that_a_state_has() -> None:
    """Seed 1220: two pods of a Workload came to it in one order, and were in the log in the other."""
    orders = []
    for order in ((0, 1, 2), (1, 2, 0)):
        core, restarted = Ingest(OURS), Ingest(OURS)
        for number in order:
            core.observe(pod(f"p{number}", workloadRef={"name": f"w{number % 2}", "podGroup": "a"}))
        told = core.observe(workload("w0", a=2)) + core.observe(workload("w1", a=2))
        for number in order:
            restarted.fold(core.pods[f"uid-p{number}"])
        told += restarted.missing(WORKLOAD.name, set())
        orders.append([event.name for event in told if isinstance(event, ev.PodObserved)])
    assert orders == [["p0", "p2", "p1", "p0", "p2", "p1"]] * 2


KOORDINATORS = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
TIMED_OUT = {"gang.scheduling.koordinator.sh/timeout": "true"}


def test_what_a_list_says_anew_of_a_pod_that_may_have_been_annotated_is_said_once() -> None:
    """That it is bound by now is newer than any annotation that it had; all of it need not be written."""
    core = Ingest(OURS)
    core.observe(pod(version=3, annotations=KOORDINATORS))
    core.synced()
    found = core.observe(pod(version=8, annotations=KOORDINATORS, node="n1"), listed=True)
    assert [type(event) for event in found] == [ev.PodAssigned]


@pytest.mark.parametrize("condition", [False, True])
def test_a_timeout_that_came_and_went_unseen_is_its_users_act(condition: bool) -> None:
    """Seed 1415: ingest was gone while the binder wrote the annotation and the user took it off. The next one saw what
    the log said already, wrote nothing, and the gang had timed out for ever. Seed 13359: the pod's condition came after
    both, so that its last version was the binder's own."""
    world = World()
    world.facts(*Ingest(OURS).observe(pod(version=3, annotations=KOORDINATORS)))
    state, uid = world.state, pod().metadata.uid
    world.append("binder", [ev.GangTimedOut(group="default/g", pods=((uid, "3"),))], "decide")
    world.append("binder", [ev.TimeoutMarked(pods=((uid, "5"),))], "outcome")
    if condition:
        world.append("binder", [ev.ConditionsReported(reason="GangTimedOut", pods=((uid, "8"),))], "outcome")
    assert list(state.marks) == list(state.gangs["default/g"].timed_out) == [uid]
    found = Ingest.of(state, OURS).observe(pod(version=8, annotations=KOORDINATORS), listed=True)
    assert [type(event) for event in found] == [ev.PodObserved]
    world.facts(*found)
    assert not state.marks
    assert not state.gangs["default/g"].timed_out


def test_a_timeout_that_came_and_went_unseen_on_a_bound_pod_is_settled_too() -> None:
    """Seed 63245: a member that ran was annotated with those that waited, and then freed of it; nobody wrote that, and
    the log never came to rest."""
    world = World()
    world.node("n1")
    world.facts(*Ingest(OURS).observe(pod(version=3, annotations=KOORDINATORS, node="n1")))
    state, uid = world.state, pod().metadata.uid
    world.append("binder", [ev.GangTimedOut(group="default/g", pods=((uid, "3"),))], "decide")
    world.append("binder", [ev.TimeoutMarked(pods=((uid, "5"),))], "outcome")
    assert list(state.marks) == [uid]
    core, now = Ingest.of(state, OURS), pod(version=8, annotations=KOORDINATORS, node="n1")
    world.facts(*core.observe(now, listed=True))
    assert not state.marks
    again = pod(version=9, annotations=KOORDINATORS, node="n1")
    assert Ingest.of(state, OURS).observe(again, listed=True) == [], "it runs: what changes is its kubelet's word"


def test_a_timeout_that_came_and_went_in_a_gap_of_the_watch_on_a_bound_pod_is_settled_too() -> None:
    world = World()
    world.node("n1")
    core, running = Ingest(OURS), pod(version=3, annotations=KOORDINATORS, node="n1")
    world.facts(*core.observe(running, listed=True))
    core.synced()
    uid = running.metadata.uid
    world.append("binder", [ev.GangTimedOut(group="default/g", pods=((uid, "3"),))], "decide")
    world.append("binder", [ev.TimeoutMarked(pods=((uid, "5"),))], "outcome")
    assert core.observe(running, listed=True) == [], "nothing happened to it in the gap"
    world.facts(*core.observe(pod(version=8, annotations=KOORDINATORS, node="n1"), listed=True))
    assert not world.state.marks
    assert core.observe(pod(version=9, annotations=KOORDINATORS, node="n1")) == [], "it is watched again"
    ended = pod(version=10, annotations=KOORDINATORS, node="n1", phase="Succeeded")
    assert [type(event) for event in core.observe(ended)] == [ev.PodFinished]
    again = pod(version=12, annotations=KOORDINATORS, node="n1", phase="Succeeded")
    assert core.observe(again, listed=True) == [], "nobody waits to hear of it"


def test_what_changed_unseen_is_written_anew_only_where_a_timeout_may_stand() -> None:
    world = World()
    world.facts(*Ingest(OURS).observe(pod(version=3, annotations=KOORDINATORS)))
    world.append("binder", [ev.ConditionsReported(reason="TooFewPods", pods=((pod().metadata.uid, "5"),))], "outcome")

    def found(core: Ingest, version: int, told: dict[str, str] | None = KOORDINATORS, **how: bool) -> int:
        return len(core.observe(pod(version=version, annotations=told), **how))

    cores: dict[str, Ingest] = {}

    def of_label(label: str, version: int) -> list[ev.Event]:
        core = cores.setdefault(label, Ingest(OURS))
        return core.observe(pod(version=version, labels={label: "g"}), listed=True)

    assert found(Ingest.of(world.state, OURS), 5, listed=True) == 0, "the binder's own write"
    assert found(Ingest.of(world.state, OURS), 6) == 0, "seen in a watch: so was all before"
    core = Ingest.of(world.state, OURS)
    assert [found(core, version, listed=True) for version in (6, 6, 7)] == [1, 0, 1]
    other = Ingest(OURS)
    assert found(other, 3, None) == 2
    assert found(other, 4, None, listed=True) == 0
    assert [len(of_label("scheduling.x-k8s.io/pod-group", version)) for version in (3, 4)] == [2, 0]
    assert [len(of_label("pod-group.scheduling.sigs.k8s.io", version)) for version in (3, 4)] == [2, 1], (
        "a PodGroup says"
    )
    shown = Ingest.of(world.state, OURS)
    assert found(shown, 6, KOORDINATORS | TIMED_OUT, listed=True) == 1
