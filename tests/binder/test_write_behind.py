"""What users read is written behind the bindings, and no part of it waits for all of another."""

from __future__ import annotations

import asyncio
import gc
import itertools
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

import events as ev
from events.envelope import decode
from events.memory import MemoryLog
from services.binder.report import scheduled
from services.binder.service import write_behind
from services.binder.service.write_behind import Rate, Rates, Write, WriteBehind
from services.kubernetes.discovery import Served
from services.kubernetes.errors import Conflict, Forbidden, NotFound, Unreachable
from tests.waiting import until
from tests.world import World


class Client:
    """Takes everything that is written."""

    def __init__(self) -> None:
        self.world = World()
        self.conditions: list[str] = []
        self.said: list[dict[str, str]] = []
        self.events: list[str] = []
        self.phases: list[str] = []
        self.version = 1_000
        self.away = False
        self.elsewhere = ""
        """The resourceVersion of pods and PodGroups, when somebody else wrote them."""
        self.stands = ""
        """The phase that is read of a PodGroup."""
        self.looked = 0
        self.groups: dict[str, str] = {}
        """PodGroup → its resourceVersion since it was written."""

    async def patch_pod_status(self, namespace: str, name: str, uid: str, version: str, status: Any) -> str:
        await asyncio.sleep(0)
        self._answer()
        if self.elsewhere and version != self.elsewhere:
            raise Conflict("write", 409, "Conflict", "the object has been modified")
        self.conditions.append(uid)
        self.said += status["conditions"]
        self.version += 1
        return str(self.version)

    async def get_pod(self, namespace: str, name: str) -> Any:
        metadata = SimpleNamespace(uid=name, resource_version=self.elsewhere)
        return SimpleNamespace(metadata=metadata, spec=SimpleNamespace(node_name=""))

    async def discover(self) -> Served:
        return Served({})

    async def get_pod_group(self, _: Any, namespace: str, name: str) -> Any:
        self.looked += 1
        facts = (fact.resource_version for fact in self.world.state.pod_groups.values() if fact.name == name)
        at = self.elsewhere or self.groups.get(name) or next(facts)
        metadata = SimpleNamespace(uid=f"pg-{name}", resource_version=at)
        return SimpleNamespace(metadata=metadata, status=SimpleNamespace(phase=self.stands, conditions=()))

    async def patch_pod_group_status(self, *about: Any, resource_version: str, **_: Any) -> str:
        self._answer()
        if self.elsewhere and resource_version != self.elsewhere:
            raise Conflict("write", 409, "Conflict", "the object has been modified")
        self.phases.append(about[4].get("phase", "as it was"))
        self.version += 1
        self.groups[about[2]] = str(self.version)
        return str(self.version)

    async def create_event(self, name: str, regarding: Any, **_: Any) -> None:
        await asyncio.sleep(0)
        self._answer()
        self.events.append(regarding.name)

    def _answer(self) -> None:
        if self.away:
            raise Unreachable("write", "ClientConnectorError", "connection refused", sent=False)


@pytest.fixture
def world() -> World:
    world = World()
    world.node("n0", cpu=100, memory_gi=1000)
    for i in range(80):
        world.pod(f"bound-{i}")
    world.pod("waits", cpu=200)
    world.settle()
    return world


def behind(world: World, client: Client) -> tuple[WriteBehind, list[ev.Event]]:
    outcomes: list[ev.Event] = []
    client.world = world
    decider: Any = SimpleNamespace(state=world.state, active=True, report=outcomes.append)
    rates = Rates(conditions_per_s=1_000.0, events_per_s=20.0)
    return WriteBehind(decider, client, holder="test", busy=lambda: False, rates=rates), outcomes  # type: ignore[arg-type]


async def test_a_burst_of_events_keeps_no_pod_from_hearing_why_it_waits(world: World) -> None:
    client = Client()
    writer, outcomes = behind(world, client)
    for stored in world.log.commits:
        writer.notice(decode(stored))
    running = asyncio.create_task(writer.run())
    while not outcomes:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    running.cancel()
    assert client.conditions == ["waits"]
    assert len(client.events) < 80
    assert [type(outcome) for outcome in outcomes] == [ev.ConditionsReported]


async def test_a_pod_that_goes_before_its_write_begins_costs_nothing(world: World) -> None:
    """The simulator of faults found it, seed 462: the write begins a turn of the loop after it was chosen."""
    client = Client()
    writer, _ = behind(world, client)
    for stored in world.log.commits:
        writer.notice(decode(stored))
    chosen = list(writer._due_conditions(10))
    world.deleted("waits")
    assert [await write.make() for write in chosen] == [0]
    assert client.conditions == []


async def test_a_pod_that_somebody_else_wrote_is_looked_at_now_and_written_in_the_next_round(world: World) -> None:
    """The simulator of faults found it, seed 39787: a binder that was stopped and replaced woke up, was refused, read the
    pod's new version and overwrote with it what its successor had said, before it knew of that."""
    client = Client()
    client.elsewhere = "4711"
    writer, outcomes = behind(world, client)
    for stored in world.log.commits:
        writer.notice(decode(stored))
    await told(writer)
    assert not outcomes
    assert (client.conditions, list(writer._pods)) == ([], ["waits"])
    client.elsewhere, before = "4712", writer._pods.copy()
    assert [await write.make() for write in list(writer._due_conditions(10))] == [2], (
        "the write that was refused, and the look"
    )
    assert writer._pods == before
    await writer._round(Rate(1_000.0), writer._due_conditions)
    assert (client.conditions, list(writer._pods)) == (["waits"], [])
    assert not outcomes


@pytest.mark.parametrize("seen", [None, ("another", ""), ("waits", "n0")])
async def test_a_pod_that_is_another_or_bound_by_now_is_not_told_that_it_waits(world: World, seen: Any) -> None:
    client = Client()
    client.elsewhere = "4711"

    async def get_pod(namespace: str, name: str) -> Any:
        uid, node = seen or ("", "")
        pod = SimpleNamespace(uid=uid, resource_version="4711", node_name=node)
        return SimpleNamespace(metadata=pod, spec=pod) if seen else None

    client.get_pod = get_pod  # type: ignore[method-assign]
    writer, outcomes = behind(world, client)
    for stored in world.log.commits:
        writer.notice(decode(stored))
    await told(writer)
    assert not writer._pods
    assert not outcomes


async def test_a_pod_that_comes_to_a_gang_that_was_refused_is_told_what_it_waits_for() -> None:
    """The simulator of faults found it, seed 43847: its coming wakes nobody, so that no refusal named it."""
    world, client = World(), Client()
    world.node("n0", cpu=2)
    world.pod_group("train", 3)
    world.pod("train-0", "train")
    world.settle()
    writer, _ = behind(world, client)
    before = len(world.log.commits)
    world.pod("train-1", "train")
    world.settle()
    for stored in world.log.commits[before:]:
        writer.notice(decode(stored))
    await writer._round(Rate(1_000.0), writer._due_conditions)
    assert client.conditions == ["train-1"]
    assert [one["reason"] for one in client.said] == ["WaitingForMembers"]


async def test_pods_that_wait_are_told_when_their_pod_group_comes_and_cannot_be_read_and_when_it_goes() -> None:
    world, client = World(), Client()
    world.node("n0")
    world.pod("train-0", "train", dialect="volcano/v1beta1")
    world.settle()
    writer, _ = behind(world, client)
    about = {"kind": "PodGroup.scheduling.volcano.sh", "namespace": "default", "name": "train", "uid": "u"}
    what = {"field": "spec.minMember", "value": "abc", "expected": "an integer"}
    for event in (ev.DeclarationRejected(**about, resource_version="1", **what), ev.RejectionEnded(**about)):
        before = len(world.log.commits)
        world.facts(event)
        for stored in world.log.commits[before:]:
            writer.notice(decode(stored))
        await writer._round(Rate(1_000.0), writer._due_conditions)
        writer._report_conditions()
    rejected, waits = (one["message"] for one in client.said)
    assert rejected.endswith("is rejected: spec.minMember is 'abc'; expected an integer")
    assert waits.endswith("waits for its PodGroup")


async def test_a_round_that_is_cancelled_before_its_writes_begin_leaves_nothing_unawaited(world: World) -> None:
    """The simulator of faults warned of it, now and then: a binder that ends in the middle of a round."""
    writer, _ = behind(world, Client())
    for stored in world.log.commits:
        writer.notice(decode(stored))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        running = asyncio.create_task(writer._round(Rate(1_000.0), writer._due_conditions))
        await asyncio.sleep(0)
        assert not writer._pods  # chosen, and not begun
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        del running
        gc.collect()
    assert [str(one.message) for one in heard if "never awaited" in str(one.message)] == []


async def test_what_an_api_server_that_restarts_did_not_hear_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fact has to come that says so once more: the gang of the last fact may be at its end."""
    monkeypatch.setattr(write_behind, "ROUND_S", 0.005)
    monkeypatch.setattr(write_behind, "AGAIN_S", 0.02)
    world, client = World(), Client()
    world.node("n0", cpu=2)
    world.pod_group("train", 1)
    world.pod("train-0", "train")
    world.pod("waits", cpu=200)
    world.settle()
    writer, outcomes = behind(world, client)
    for stored in world.log.commits:
        writer.notice(decode(stored))
    client.away = True
    running = asyncio.create_task(writer.run())
    while len(writer._failed) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    client.away = False
    while not (client.phases and outcomes and set(client.events) == {"train-0", "waits"}):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    running.cancel()
    assert client.phases == ["Running"]
    assert client.conditions == ["waits"]


def said(log: MemoryLog) -> list[ev.Event]:
    return [event for stored in log.commits for event in decode(stored).events]


async def told(writer: WriteBehind) -> None:
    await writer._round(Rate(1_000.0), writer._due_conditions)
    writer._report_conditions()


async def test_a_condition_whose_write_had_no_answer_is_not_taken_for_the_one_before() -> None:
    """It may have been written: when the pod waits again for what it was told last, that is said again. And the object
    changes, so that the write without an answer fails if it comes still later."""
    world, client = World(), Client()
    world.node("n0", cpu=4)
    world.pod("waits", cpu=200)
    world.settle()
    writer, outcomes = behind(world, client)
    for stored in world.log.commits:
        writer.notice(decode(stored))
    await told(writer)
    world.append("binder", outcomes, cause="outcome")
    first = world.state.cohorts[world.state.groups["pod/default/waits"].cohort]
    condition, first.condition = first.condition, "InsufficientRoom: node(s) were unschedulable"
    writer._pods["waits"] = None
    client.away = True
    await told(writer)
    client.away, first.condition = False, condition
    writer._pods["waits"] = None
    await told(writer)
    assert client.conditions == ["waits", "waits"]
    assert ["lastProbeTime" in said for said in client.said] == [False, True]
    writer._pods["waits"] = None
    await told(writer)
    assert client.conditions == ["waits", "waits"]


async def test_after_a_start_conditions_are_said_again_that_a_binder_before_may_have_changed(world: World) -> None:
    """The simulator of faults found it, seed 8091: it had told the pod something else, and ended before the log knew."""
    before, outcomes = behind(world, Client())
    for stored in world.log.commits:
        before.notice(decode(stored))
    await told(before)
    world.append("binder", outcomes, cause="outcome")
    client = Client()
    writer, _ = behind(world, client)
    writer.resume()
    for _ in range(2):
        await told(writer)
    assert client.conditions == ["waits"]
    assert "lastProbeTime" in client.said[0]


async def test_a_status_whose_write_had_no_answer_is_not_taken_for_the_one_before() -> None:
    world, client = World(), Client()
    world.node("n0", cpu=2)
    world.pod_group("train", 1)
    world.pod("train-0", "train")
    world.settle()
    writer, _ = behind(world, client)
    gang = world.state.gangs["default/train"]
    for away in (False, True, False):
        client.away = away
        if away:
            with pytest.raises(Unreachable):
                await writer._write_gang(gang.key, world.state.pod_groups[gang.pod_group], {"phase": "Unknown"}, {})
        else:
            writer._gangs[gang.key] = None
            await writer._round(Rate(1_000.0), writer._due_gangs)
    assert client.phases == ["Running", "Running"]


async def test_a_pod_group_that_somebody_else_wrote_is_looked_at_now_and_written_in_the_next_round() -> None:
    """As a pod is: a binder that was stopped and replaced wakes up, and does not overwrite what its successor said."""
    world, client = World(), Client()
    client.elsewhere = "4711"
    world.pod_group("train", 1)
    writer, _ = behind(world, client)
    writer.notice(decode(world.log.commits[-1]))
    await writer._round(Rate(1_000.0), writer._due_gangs)
    assert (client.phases, list(writer._gangs)) == ([], ["default/train"])
    await writer._round(Rate(1_000.0), writer._due_gangs)
    assert (client.phases, list(writer._gangs)) == (["Pending"], [])


class Reader:
    """What users read of a world, brought up to date commit by commit."""

    def __init__(self, world: World) -> None:
        self.world, self.client = world, Client()
        self.writer, self.outcomes = behind(world, self.client)
        self.seen = 0

    def notice(self) -> None:
        for stored in self.world.log.commits[self.seen :]:
            self.writer.notice(decode(stored))
        self.seen = len(self.world.log.commits)

    async def round(self, *, logged: bool = True) -> None:
        """One round; without `logged` the log has not heard of it yet."""
        self.notice()
        await self.writer._round(Rate(1_000.0), self.writer._due_gangs)
        await told(self.writer)
        if logged and self.outcomes:
            said, self.outcomes[:] = list(self.outcomes), []
            self.world.append("binder", said, cause="outcome")
            self.notice()


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_pod_that_is_gone_at_once_counts_no_longer_in_the_status_of_its_pod_group(resumed: bool) -> None:
    """Deleted by force, or while nobody looked: no fact says before that it is on its way out."""
    world = World()
    world.node("n0")
    world.pod_group("train", 2)
    for name in ("train-0", "train-1"):
        world.pod(name, "train")
    world.settle()
    reader = Reader(world)
    if resumed:
        reader.writer.resume()
        reader.seen = len(world.log.commits)
    await reader.round()
    world.deleted("train-1")
    await reader.round()
    assert reader.client.phases == ["Running", "Pending"]


async def test_a_gang_runs_once_its_binding_has_an_answer() -> None:
    """The fact may come later, or another time."""
    world = World()
    world.node("n0")
    world.pod_group("train", 1)
    world.pod("train-0", "train")
    reader = Reader(world)
    await reader.round()
    world.plan()
    world.judge()
    await reader.round()
    bound = ev.PodBound(uid="train-0", namespace="default", name="train-0", node="n0")
    world.append("binder", [bound], cause="outcome")
    await reader.round()
    assert reader.client.phases == ["Scheduling", "Running"]


@pytest.mark.parametrize(
    ("happens", "phase"),
    [
        (lambda world: world.finished("train-0"), "Finished"),
        (lambda world: world.finished("train-0", succeeded=False), "Failed"),
        (lambda world: world.deleted("train-0"), "Pending"),
    ],
)
async def test_a_gang_says_what_became_of_its_pod(happens: Callable[[World], None], phase: str) -> None:
    world = World()
    world.node("n0")
    world.pod_group("train", 1)
    world.pod("train-0", "train")
    world.settle()
    reader = Reader(world)
    await reader.round()
    happens(world)
    await reader.round()
    assert reader.client.phases == ["Running", phase]


async def test_volcanos_controller_hears_that_a_pod_is_being_deleted() -> None:
    world = World()
    world.node("n0")
    world.pod_group("train", 1, dialect="volcano/v1beta1")
    world.pod("train-0", "train", dialect="volcano/v1beta1")
    world.settle()
    reader = Reader(world)
    await reader.round()
    world.terminating("train-0")
    await reader.round()
    assert reader.client.phases == ["Running", "Running"], "one runs, none runs"


async def test_no_more_is_written_at_a_time_than_may_be_and_the_oldest_first() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.pod_group(name, 2)
        world.pod(f"{name}-0", name)
    world.plan()
    writer, _ = behind(world, Client())
    for stored in world.log.commits:
        writer.notice(decode(stored))
    for name in ("a", "b", "c"):
        writer._events.append(scheduled(ev.PodBound(uid=name, namespace="default", name=name, node="n0"), 1))
    for due in (writer._due_gangs, writer._due_conditions, writer._due_events):
        assert len(list(due(2))) == 2
    assert (list(writer._gangs), list(writer._pods)) == (["default/c"], ["c-0"])
    assert [event.regarding[3] for event in writer._events] == ["c"]


async def test_a_gang_without_a_pod_group_or_without_anything_to_say_gets_no_status() -> None:
    world = World()
    world.gang("train", 2, 2)
    world.pod_group("native", 2, dialect="kubernetes/v1alpha2")
    reader = Reader(world)
    await reader.round()
    assert not reader.client.phases


async def test_under_a_lasting_load_there_is_a_round_every_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, rounds, sleep = 1_000.0, list[float](), asyncio.sleep
    writer, _ = behind(World(), Client())
    writer._busy = lambda: True

    async def passes(delay_s: float) -> None:
        nonlocal now_s
        now_s += delay_s
        await sleep(0)

    def due(_: int) -> Iterator[Write]:
        rounds.append(now_s)
        return iter(())

    monkeypatch.setattr(asyncio, "sleep", passes)
    monkeypatch.setattr(write_behind.time, "monotonic", lambda: now_s)
    running = asyncio.create_task(writer._now_and_then(Rate(1.0), due))
    while len(rounds) < 4:
        await sleep(0)
    running.cancel()
    gaps = [after - before for before, after in itertools.pairwise([1_000.0, *rounds])]
    assert all(5.0 <= gap <= 5.5 for gap in gaps)


async def test_a_start_tells_a_pod_group_without_pods_of_its_phase() -> None:
    """Volcano's controller makes its pods when it has heard."""
    world, client = World(), Client()
    world.pod_group("train", 1)
    writer, _ = behind(world, client)
    writer.resume()
    await writer._round(Rate(1_000.0), writer._due_gangs)
    assert client.phases == ["Pending"]


async def test_a_gang_that_finds_no_room_for_the_rest_of_it_says_so() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.pod_group("train", 2)
    world.pod("train-0", "train", node="n0")
    world.pod("train-1", "train")
    reader = Reader(world)
    await reader.round()
    world.plan()
    await reader.round()
    assert reader.client.phases == ["Scheduling", "Unknown"]


async def test_a_gang_that_waited_for_room_with_another_of_its_group_says_when_that_waits_no_more() -> None:
    """The simulator of faults found it, seed 3366 over the trace: the pod that waited was of another gang, whose status
    was written anew when it was deleted; this one's said Unknown for good."""
    world = World()
    world.node("n0", cpu=3)
    for name, minimum in (("a", 2), ("b", 1)):
        groups = ("default/a", "default/b")
        world.pod_group(name, minimum, dialect="koordinator/v1alpha1", groups=groups, match_policy="once-satisfied")
    for name in ("a-0", "a-1", "b-0"):
        world.pod(name, name[0], dialect="koordinator/v1alpha1")
    world.settle()
    world.deleted("a-1")
    reader = Reader(world)
    world.pod("b-1", "b", cpu=5, dialect="koordinator/v1alpha1")
    world.plan()
    reader.writer.resume()
    await reader.round()
    assert reader.client.phases == ["Unknown", "Running"]
    world.deleted("b-1")
    await reader.round()
    assert reader.client.phases == ["Unknown", "Running", "Pending"]


async def test_a_refusal_of_a_group_that_is_gone_concerns_nobody() -> None:
    world, client = World(), Client()
    world.pod("waits", cpu=200)
    (refused,) = world.plan_without_appending()
    world.deleted("waits")
    world.append("planner.a", [refused], cause="decide")
    writer, _ = behind(world, client)
    writer.notice(decode(world.log.commits[-1]))
    assert not writer._pods


async def test_a_gang_that_a_pod_left_for_another_says_so() -> None:
    world = World()
    for name in ("old", "new"):
        world.pod_group(name, 2)
    for name in ("p0", "p1"):
        world.pod(name, "old")
    reader = Reader(world)
    await reader.round()
    assert sorted(reader.client.phases) == ["Pending", "Scheduling"]
    world.pod("p1", "new")
    await reader.round()
    assert reader.client.phases[2:] == ["Pending"]


async def test_what_has_finished_stays_finished_when_its_pods_are_removed() -> None:
    world = World()
    world.node("n0")
    world.pod_group("train", 1)
    world.pod("train-0", "train")
    world.settle()
    world.finished("train-0")
    reader = Reader(world)
    await reader.round()
    world.deleted("train-0")
    await reader.round()
    assert reader.client.phases == ["Finished"]
    assert not reader.writer._gang_of


@pytest.mark.parametrize("stands", ["Finished", "Failed", "Completed", "Running"])
async def test_what_has_ended_has_ended_after_a_takeover_too(stands: str) -> None:
    """Its pods are gone, so that the log says no more than that it has none."""
    world = World()
    world.node("n0")
    world.pod_group("train", 1)
    world.pod("train-0", "train")
    world.settle()
    world.finished("train-0", succeeded=stands != "Failed")
    world.deleted("train-0")
    reader = Reader(world)
    client = reader.client
    client.stands, client.elsewhere = stands, "4711"
    reader.writer.resume()
    for _ in range(3):
        await reader.round()
    expected = "Pending" if stands == "Running" else "as it was"
    assert client.phases == [expected]
    world.pod("train-1", "train")
    client.elsewhere = ""
    await reader.round()
    assert client.phases == [expected, "Scheduling"]


async def test_a_gang_that_failed_and_was_removed_failed_and_does_not_run() -> None:
    """The simulator of faults found it: it said Failed, and that its other pods ran, when they had been evicted."""
    world = World()
    world.node("n0")
    world.pod_group("train", 2)
    for name in ("train-0", "train-1"):
        world.pod(name, "train")
    world.settle()
    reader = Reader(world)
    world.finished("train-0", succeeded=False)
    await reader.round()
    reader.client.stands = "Failed"
    world.deleted("train-1")
    await reader.round()
    assert reader.client.phases == ["Failed", "as it was"]


async def test_a_gang_that_failed_is_pending_again_when_too_few_pods_come() -> None:
    """The simulator of faults found it, seed 311: that was due already while how it had ended was left, so that it seemed
    to have been written."""
    world = World()
    world.node("n0")
    world.pod_group("train", 3)
    pods = ["train-0", "train-1", "train-2"]
    for name in pods:
        world.pod(name, "train")
    world.settle()
    world.finished(pods[0], succeeded=False)
    reader = Reader(world)
    await reader.round()
    reader.client.stands = "Failed"
    for name in pods[1:]:
        world.deleted(name)
    await reader.round()
    world.pod("train-3", "train")
    await reader.round()
    assert reader.client.phases == ["Failed", "as it was", "Pending"]


@pytest.mark.parametrize(("dialect", "looks"), [("coscheduling/v1alpha1", 1), ("volcano/v1beta1", 0)])
async def test_what_stands_on_a_pod_group_is_read_only_where_its_gang_may_have_ended(dialect: str, looks: int) -> None:
    """Volcano's controller makes pods when it has heard: a look at each PodGroup would let it wait twice as long."""
    world = World()
    world.node("n0")
    world.pod_group("train", 1, dialect=dialect)
    reader = Reader(world)
    client = reader.client
    await reader.round()
    assert client.looked == looks
    world.pod("train-0", "train", dialect=dialect)
    world.settle()
    await reader.round()
    world.finished("train-0")
    await reader.round()
    assert client.looked == looks
    assert len(client.phases) == 3


async def test_pods_that_are_set_aside_are_told_so() -> None:
    """The binder's own word: no planner refuses them."""
    world = World()
    world.node("n0", cpu=1)
    world.pod_group("train", 2)
    for name in ("train-0", "train-1"):
        world.pod(name, "train")
    world.propose("default/train", {"train-0": "n0", "train-1": "n0"})
    reader = Reader(world)
    await reader.round()
    world.judge()
    await reader.round()
    assert reader.client.conditions == ["train-0", "train-1"]
    assert {one["reason"] for one in reader.client.said} == {"SetAside"}


async def test_a_word_of_which_the_log_hears_late_is_taken_back_if_it_is_not_true_any_more() -> None:
    """Told of another reason, and refused as before until the log knew: it seemed to have been told that already."""
    world = World()
    world.node("n0", cpu=4)
    world.pod("waits", cpu=200)
    world.settle()
    reader = Reader(world)
    await reader.round()
    cohort = world.state.cohorts[world.state.groups["pod/default/waits"].cohort]
    condition = cohort.condition
    for reason in ("InsufficientRoom: node(s) were unschedulable", condition):
        cohort.condition = cohort.message = reason
        reader.writer._pods["waits"] = None
        await reader.round(logged=False)
    for _ in range(2):
        await reader.round()
    assert reader.client.said[-1]["message"] == condition
    assert world.state.pods["waits"].reported == condition


async def test_a_pod_that_is_placed_before_its_write_begins_is_not_told_that_it_waits(world: World) -> None:
    client = Client()
    writer, _ = behind(world, client)
    for stored in world.log.commits:
        writer.notice(decode(stored))
    chosen = list(writer._due_conditions(10))
    world.node("n1", cpu=400)
    world.pass_s(20)
    world.settle()
    assert world.where("waits") == ["n1"]
    assert [await write.make() for write in chosen] == [0]
    assert client.conditions == []


async def test_what_is_gone_costs_a_request_and_no_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    writer, _ = behind(world, Client())

    async def gone() -> int:
        raise NotFound("patch", 404, "NotFound", "")

    assert await writer._write(write_behind.Write(gone, lambda: None)) == 1
    assert not writer._failed
    assert not caplog.records


async def test_a_refusal_for_good_is_not_said_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    writer, _ = behind(world, Client())

    async def forbidden() -> int:
        raise Forbidden("patch", 403, "Forbidden", "no")

    assert await writer._write(write_behind.Write(forbidden, lambda: None)) == 1
    assert not writer._failed
    assert [record.getMessage() for record in caplog.records] == [
        "written behind, and refused: patch: 403 Forbidden: no"
    ]


async def test_a_condition_says_since_when_and_keeps_that_when_only_its_message_changes(world: World) -> None:
    """As the kube-scheduler has it: the time is that of the status, which is False from the first word on."""
    client = Client()
    writer, _ = behind(world, client)
    for reason in ("", "InsufficientRoom"):
        world.state.pods["waits"].reported = reason
        for stored in world.log.commits:
            writer.notice(decode(stored))
        await writer._round(Rate(1_000.0), writer._due_conditions)
    first, again = client.said
    assert datetime.fromisoformat(first["lastTransitionTime"]).tzinfo is not None
    assert "lastTransitionTime" not in again


async def test_what_was_written_to_a_pod_group_is_forgotten_with_it(world: World) -> None:
    writer, _ = behind(world, Client())

    async def rounds() -> None:
        for stored in world.log.commits[seen:]:
            writer.notice(decode(stored))
        await writer._round(Rate(1_000.0), writer._due_gangs)

    seen = 0
    world.pod_group("train", 2)
    await rounds()
    assert list(writer._written) == ["default/train"]
    seen = len(world.log.commits)
    world.pod_group_deleted("train")
    await rounds()
    assert not writer._written


async def test_what_was_seen_of_a_pod_is_forgotten_with_it(world: World) -> None:
    client = Client()
    client.elsewhere = "4711"
    writer, _ = behind(world, client)
    for stored in world.log.commits:
        writer.notice(decode(stored))
    await writer._round(Rate(1_000.0), writer._due_conditions)
    assert list(writer._versions) == ["waits"]
    assert writer._in_doubt == {"waits"}
    world.deleted("waits")
    writer.notice(decode(world.log.commits[-1]))
    assert not writer._versions
    assert not writer._in_doubt


async def test_nothing_is_written_while_bindings_are_on_their_way(world: World) -> None:
    client = Client()
    writer, _ = behind(world, client)
    bindings, looks = True, 0

    def busy() -> bool:
        nonlocal looks
        looks += 1
        return bindings

    writer._busy = busy
    for stored in world.log.commits:
        writer.notice(decode(stored))
    running = asyncio.create_task(writer.run())
    while looks < 6:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    assert (client.conditions, client.events) == ([], [])
    bindings = False
    while not (client.conditions and client.events):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    running.cancel()


async def test_under_a_lasting_load_it_is_written_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_behind, "ROUND_S", 0.005)
    monkeypatch.setattr(write_behind, "OVERDUE_S", 0.02)
    client = Client()
    writer, outcomes = behind(world, client)
    writer._busy = lambda: True
    writer.resume()
    running = asyncio.create_task(writer.run())
    await until(lambda: outcomes, "a condition to be written and reported")
    running.cancel()
    assert client.conditions == ["waits"]


async def test_a_start_tells_again_of_what_was_rejected() -> None:
    """The binder before may have ended before it did. Its name is the same, so that nothing is told twice."""
    world, client = World(), Client()
    about = {"kind": "Pod", "namespace": "default", "name": "bad", "uid": "uid-bad", "resource_version": "1"}
    world.facts(ev.DeclarationRejected(**about, field="spec", value="x", expected="y"))
    writer, _ = behind(world, client)
    writer.resume()
    await writer._round(Rate(1_000.0), writer._due_events)
    assert client.events == ["bad"]


async def test_one_pod_of_a_group_gets_an_event_for_each_thing_that_it_waits_for() -> None:
    world = World()
    world.pod_group("train", 3)
    for name in ("train-0", "train-1"):
        world.pod(name, "train")
    world.settle()
    reader = Reader(world)
    for reason in ("", "InsufficientRoom: Insufficient cpu", "", "InsufficientRoom: Insufficient cpu"):
        if reason:
            next(iter(world.state.cohorts.values())).condition = reason
        reader.writer._pods.update(dict.fromkeys(("train-0", "train-1")))
        await reader.round()
    assert reader.client.conditions == ["train-0", "train-1"] * 2
    assert reader.client.events == ["train-0"] * 2


@pytest.mark.parametrize(
    ("kept", "told"), [(20_000, ["a-0", "b-0"]), (1, ["a-0", "b-0"]), (0, ["a-0", "b-0", "a-1", "b-1"])]
)
async def test_what_was_told_to_groups_is_remembered_within_bounds(
    kept: int, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_behind, "EVENTS_KEPT", kept)
    world = World()
    for name in ("a", "b"):
        world.pod_group(name, 3)
        for index in range(2):
            world.pod(f"{name}-{index}", name)
    world.settle()
    reader = Reader(world)
    for name in ("a-0", "b-0", "a-1", "b-1"):
        reader.notice()
        reader.writer._pods.clear()
        reader.writer._pods[name] = None
        await reader.round(logged=False)
    assert reader.client.events == told
    assert len(reader.writer._told) <= kept + 1


async def test_a_request_without_an_answer_holds_up_its_own_queue_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_behind, "ROUND_S", 0.005)
    client, asked = Client(), asyncio.Event()

    async def hangs(*_: Any, **__: Any) -> str:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(client, "patch_pod_group_status", hangs)
    world.pod_group("train", 1)
    world.pod("train-0", "train")
    world.settle()
    writer, outcomes = behind(world, client)
    running = asyncio.create_task(writer.run())
    for stored in world.log.commits:
        writer.notice(decode(stored))
    await asked.wait()
    for stored in world.log.commits:
        writer.notice(decode(stored))
    while not (client.conditions == ["waits"] and len(client.events) > 50 and outcomes):  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    running.cancel()
    assert not client.phases


def test_what_was_saved_up_may_be_written_at_once_and_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(write_behind.time, "monotonic", lambda: now_s)
    rate, allowed = Rate(10.0), []
    for pause_s, writes in ((0, 50), (0, 0), (1, 10), (1, 30), (1, 0), (2, 0), (100, 0)):
        now_s += pause_s
        allowed.append(rate.allowance())
        rate.spend(writes)
    assert allowed == [50, 0, 10, 10, 0, 10, 50]


async def test_of_a_burst_the_oldest_events_are_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a binder keeps so many at most, of what is to be written and of what failed."""
    monkeypatch.setattr(write_behind, "EVENTS_KEPT", 5)
    client = Client()
    writer, _ = behind(world, client)
    for stored in world.log.commits:
        writer.notice(decode(stored))
    client.away = True
    for _ in range(2):
        await writer._round(Rate(1_000.0), writer._due_events)
        assert len(writer._failed) == 5
        for stored in world.log.commits:
            writer.notice(decode(stored))
    client.away = False
    await writer._round(Rate(1_000.0), writer._due_events)
    assert client.events == [one.name for one in said(world.log) if isinstance(one, ev.PodBound)][-5:]


async def test_what_was_seen_of_a_pod_group_is_remembered_for_its_turn_however_many_there_are() -> None:
    """Every status that a process before this one wrote is newer than the fact. With 20,000 of them all was forgotten
    before its turn came again: nobody's status was ever written."""
    world, client = World(), Client()
    client.elsewhere = "4711"
    for number in range(200):
        world.pod_group(f"train{number}", 1)
    writer, _ = behind(world, client)
    writer.resume()
    for _ in range(2 * 200 // 50):
        await writer._round(Rate(1_000.0), writer._due_gangs)
    assert len(writer._statuses) == len(client.phases) == 200


async def test_pod_groups_that_come_and_go_are_not_remembered() -> None:
    world, client = World(), Client()
    writer, _ = behind(world, client)
    for number in range(500):
        world.pod_group(f"train{number}", 1)
        writer.notice(decode(world.log.commits[-1]))
        await writer._round(Rate(1_000.0), writer._due_gangs)
        world.pod_group_deleted(f"train{number}")
    assert len(client.phases) == 500
    assert len(writer._statuses) < 100
