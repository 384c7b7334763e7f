"""Each part of tracing and counting alone: what a service tells when it follows a log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import events as ev
from events.log import Unavailable
from events.memory import MemoryLog
from events.objects import Membership
from services.binder import core as judging
from services.decider import Decider
from services.kubernetes.access import direct
from services.kubernetes.client import Client
from services.kubernetes.errors import Unreachable
from services.state.fold import State
from services.telemetry.sdk import Sdk
from services.tracing import Binding, TracedGather, Traces, traces
from services.writer import SteppedDown, Writer
from tests.telemetry.views import totals
from tests.waiting import until
from tests.world import World

pytestmark = pytest.mark.usefixtures("on")


def replay(
    world: World,
    writer: str,
    states: list[State] | None = None,
    *,
    active_from: int = 0,
    told: list[Traces] | None = None,
) -> State:
    """What `writer` tells when it follows the log of that world, active behind this place; `states` gets what it folds,
    `told` what tells."""
    state = State()
    if states is not None:
        states.append(state)
    for stored in world.log.commits[:active_from]:
        state.apply_stored(stored)
    telling = traces(state, writer)
    if told is not None:
        told.append(telling)
    for stored in world.log.commits[active_from:]:
        commit = state.apply_stored(stored)
        assert commit is not None
        telling.applied(commit, 0.001)
    return state


def planned(*names: str) -> World:
    """A gang of which one member suffices, and that has a place for all of these."""
    world = World()
    world.node("n0")
    for name in names:
        world.pod(name, "train", minimum=1)
    world.plan("a")
    return world


async def test_a_watch_that_nobody_answers_is_counted(metrics: InMemoryMetricReader) -> None:
    async with Client(direct("http://127.0.0.1:1")) as client:
        with pytest.raises(Unreachable):
            async for _ in client.stream("watch pods", "/api/v1/pods?watch=1", 60.0):
                pass
    assert totals(metrics)["muster.kubernetes.requests", "WATCH", "unreachable"] == 1


async def test_each_append_is_a_span_which_its_commit_carries_and_is_counted(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> None:
    log = MemoryLog("test")
    writer = Writer(log, "ingest")
    await writer.take(ev.IngestTaken(holder="one"))
    assert writer.stored is not None
    assert writer.traceparent == writer.stored.traceparent == log.commits[0].traceparent
    await Writer(log, "ingest").take(ev.IngestTaken(holder="other"))
    with pytest.raises(SteppedDown):
        await writer.append([ev.Renewed(), ev.Renewed()], basis=0, cause="renew")
    told = spans.get_finished_spans()
    assert [span.name for span in told] == ["append"] * 3
    assert [dict(span.attributes or {}) for span in told] == [
        {"writer": "ingest", "cause": cause, "events": events}
        for cause, events in (("taken", 1), ("taken", 1), ("renew", 2))
    ]
    carried = [stored.traceparent.split("-")[2] for stored in log.commits]
    assert carried == [f"{span.context.span_id:016x}" for span in told[:2]]
    counted = totals(metrics)
    assert counted["muster.log.commits", "ingest", "taken"] == 2
    assert counted["muster.log.events", "ingest"] == 2
    assert counted["muster.log.conflicts", "ingest"] == 1


class Far(MemoryLog):
    """Its end cannot be asked for at first, and is seven commits ahead."""

    asked = 0

    async def end(self) -> int:
        self.asked += 1
        if self.asked == 1:
            raise Unavailable("no server")
        return 7


async def test_how_far_behind_a_service_is_goes_on_being_counted(
    metrics: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is away for a moment ends it as little as it ends the service."""
    monkeypatch.setattr("services.decider.LAG_EVERY_S", 0.0)
    log = Far("test")
    decider = Decider(log, Writer(log, "planner.a"), lambda state: iter(()))  # type: ignore[arg-type,return-value]
    measuring = asyncio.create_task(decider._measure_lag())
    await until(lambda: log.asked > 2, "its end to be asked for again")
    measuring.cancel()
    assert totals(metrics)["muster.log.lag", "planner.a"] == 7


def test_members_that_come_later_are_bound_in_the_same_trace(spans: InMemorySpanExporter) -> None:
    world = World()
    world.node("n0")
    for name in ("a", "b"):
        world.pod(name, "train", minimum=2)
    world.settle()
    world.pod("c", "train", minimum=2)
    world.settle()
    replay(world, "binder")
    finished = spans.get_finished_spans()
    assert [span.name for span in finished] == ["permit", "bind", "gang", "permit", "bind"]
    assert len({span.context.trace_id for span in finished}) == 1


def test_a_gang_whose_pods_are_all_replaced_has_one_root(spans: InMemorySpanExporter) -> None:
    """As it was: while none of its pods was bound its next ones were its first, and two spans had one id."""
    world = World()
    world.node("n0")
    world.pod("a", "train", minimum=1)
    world.settle()
    bound = world.state.sequence
    world.pod("b", "train", minimum=1)
    world.deleted("a")
    world.settle()
    replay(world, "binder")
    assert [span.name for span in spans.get_finished_spans()] == ["permit", "bind", "gang", "permit", "bind"]
    spans.clear()
    replay(world, "binder", active_from=bound)
    assert [span.name for span in spans.get_finished_spans()] == ["permit", "bind"], "of a binder that took over"


@pytest.mark.parametrize("bound", [0, 1])
def test_a_binder_that_takes_over_tells_the_end_of_what_was_under_way(spans: InMemorySpanExporter, bound: int) -> None:
    """As it was: a gang whose binder was killed while it bound it had a trace without a root."""
    world = planned("a", "b")
    world.pod("alone")
    world.plan("a")
    world.judge()
    for uid in ("a", "b")[:bound]:
        world.append("binder", [ev.PodBound(uid=uid, namespace="default", name=uid, node="n0")], cause="outcome")
    over = world.state.sequence
    world.bind()
    world.pod("c", "train", minimum=1)
    world.settle()
    replay(world, "binder", active_from=over)
    told = [(span.name, (span.attributes or {})["muster.group"]) for span in spans.get_finished_spans()]
    assert [name for name, group in told if group == "default/train"] == ["bind", "gang", "permit", "bind"]
    assert [name for name, group in told if group == "pod/default/alone"] == ["bind", "gang"]
    assert (spans.get_finished_spans()[0].attributes or {})["pods"] == 2


def test_a_binder_that_takes_over_while_a_further_pod_is_bound_tells_no_second_root(
    spans: InMemorySpanExporter,
) -> None:
    world = planned("a")
    world.judge()
    world.bind()
    world.pod("b", "train", minimum=1)
    world.plan("a")
    world.judge()
    over = world.state.sequence
    world.bind()
    replay(world, "binder", active_from=over)
    assert [span.name for span in spans.get_finished_spans()] == ["bind"]


def test_a_gang_of_which_a_pod_was_bound_by_somebody_else_has_a_root(spans: InMemorySpanExporter) -> None:
    """As it was: its trace had none, as its first pods that were bound were not the first with a node."""
    world = World()
    world.node("n0")
    world.pod("a", "train", minimum=2)
    world.assigned("a", "n0")
    world.pod("b", "train", minimum=2)
    world.settle()
    replay(world, "binder")
    assert [span.name for span in spans.get_finished_spans()] == ["permit", "bind", "gang"]


def test_of_roots_that_were_told_only_those_of_gangs_that_are_there_are_known(spans: InMemorySpanExporter) -> None:
    world = World()
    world.node("n0")
    for number in range(9):
        world.pod(f"p{number}")
        world.settle()
        world.deleted(f"p{number}")
    told: list[Traces] = []
    replay(world, "binder", told=told)
    assert sum(span.name == "gang" for span in spans.get_finished_spans()) == 9
    (binding,) = told
    assert isinstance(binding, Binding)
    assert not binding._rooted


def test_a_gang_that_comes_again_under_its_name_is_another_trace(spans: InMemorySpanExporter) -> None:
    world = World()
    world.node("n0")
    for _ in range(2):
        world.pod("a", "train", minimum=1)
        world.settle()
        world.facts(ev.PodDeleted(uid="a", namespace="default", name="a"))
    replay(world, "planner.a")
    finished = spans.get_finished_spans()
    assert [span.name for span in finished] == ["plan", "plan"]
    assert len({span.context.trace_id for span in finished}) == 2


def test_a_gang_of_which_nothing_was_bound_has_no_root_yet(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> None:
    world = planned("a")
    world.judge()
    failed = ev.BindingFailed(
        uid="a", namespace="default", name="a", node="n0", reason="Rejected", message="", assigned_node=""
    )
    world.append("binder", [failed], cause="outcome")
    replay(world, "binder")
    assert [span.name for span in spans.get_finished_spans()] == ["permit", "bind"]
    assert totals(metrics)["muster.pods", "failed"] == 1


def test_a_group_that_goes_before_its_verdict_is_forgotten(spans: InMemorySpanExporter) -> None:
    world = planned("a")
    world.facts(ev.PodDeleted(uid="a", namespace="default", name="a"))
    state = State()
    telling = traces(state, "binder")
    for stored in world.log.commits:
        commit = state.apply_stored(stored)
        assert commit is not None
        telling.applied(commit, 0.0)
    assert isinstance(telling, Binding)
    assert not telling._read_ns


def test_a_pod_that_went_before_its_permit_keeps_no_trace_open(spans: InMemorySpanExporter) -> None:
    """As it was: nobody told the end of this gang's binding, nor that of a later one of its name."""
    world = planned("a", "b")
    verdicts = judging.decide_now(world.state)
    world.deleted("b")
    world.append("binder", verdicts, cause="decide")
    world.bind()
    replay(world, "binder")
    finished = spans.get_finished_spans()
    assert [span.name for span in finished] == ["permit", "bind", "gang"]
    assert [(span.attributes or {})["pods"] for span in finished] == [1, 1, 1]


def test_a_pod_that_goes_while_it_is_bound_was_not_bound(spans: InMemorySpanExporter) -> None:
    world = planned("a", "b")
    world.judge()
    world.deleted("b")
    world.bind()
    replay(world, "binder")
    permit, bind, gang = spans.get_finished_spans()
    assert [(span.attributes or {})["pods"] for span in (permit, bind, gang)] == [2, 1, 1]
    assert {span.parent and span.parent.span_id for span in (permit, bind)} == {gang.context.span_id}
    assert gang.parent is None


@pytest.mark.parametrize("outcome", [ev.PodAssigned, ev.PodFinished])
def test_what_a_fact_says_first_has_no_outcome(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader, outcome: type
) -> None:
    """As it was: of a gang one of whose pods was seen bound before anybody had said that it was, nobody told the end."""
    world = planned("a", "b")
    world.judge()
    told = {"uid": "b", "namespace": "default", "name": "b", "resource_version": world.version()}
    more = {"node": "n0"} if outcome is ev.PodAssigned else {"succeeded": False, "reason": ""}
    world.facts(outcome(**told, **more))
    world.bind()
    replay(world, "binder")
    permit, bind, gang = spans.get_finished_spans()
    bound = 2 if outcome is ev.PodAssigned else 1
    assert [(span.attributes or {})["pods"] for span in (permit, bind, gang)] == [2, bound, bound]
    world.pod("c", "train", minimum=1)
    world.settle()
    spans.clear()
    replay(world, "binder")
    assert [span.name for span in spans.get_finished_spans()] == ["permit", "bind", "gang", "permit", "bind"]


def test_nothing_ends_before_it_began_where_the_api_servers_clock_is_ahead(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> None:
    """As it was: each pod that was bound was a warning of OpenTelemetry's, and no duration of its own."""
    world = World()
    world.node("n0")
    world.pod("a", "train", minimum=1, created_s=1 << 33)
    world.settle()
    replay(world, "binder")
    assert totals(metrics)["muster.pod.bound.duration",] == 1
    *parts, root = spans.get_finished_spans()
    assert root.start_time is not None
    assert all(part.start_time is not None and root.start_time <= part.start_time for part in parts)
    for span in (*parts, root):
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time


@pytest.mark.parametrize("created_s", [0, 900])
def test_each_part_begins_and_ends_with_a_commit(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, created_s: int
) -> None:
    """The time is the place in the log here, behind a quarter of an hour and more."""
    world = World()
    world.node("n0")
    world.pod("a", "train", minimum=1, created_s=created_s)
    refused = world.propose("default/train", {"a": "n0"})
    no = ev.ProposalRefused(group="default/train", proposal=refused, reason="NoRoom", node="n0", pod="a")
    world.append("binder", [no], cause="decide")
    world.plan("a")
    proposed = world.state.sequence
    world.propose("default/train", {})  # a later one, which is not what is waited for
    world.judge()
    permitted = world.state.sequence
    world.bind()
    bound = world.state.sequence - 1  # behind it is the fact
    telling: list[State] = []
    monkeypatch.setattr("services.tracing.time", SimpleNamespace(time_ns=lambda: 10**12 + telling[0].sequence))
    replay(world, "binder", telling)
    began = {span.name: (span.start_time, span.end_time) for span in spans.get_finished_spans()}
    proposed, permitted, bound = (10**12 + place for place in (proposed, permitted, bound))
    assert began == {
        "permit": (proposed, permitted),
        "bind": (permitted, bound),
        "gang": (created_s * 10**9 or proposed, bound),
    }


def test_a_planner_tells_of_its_own_decisions_from_when_it_began(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> None:
    world = World()
    world.node("n0")
    world.pod("a", "train", minimum=1)
    world.pod("large", cpu=99)
    world.settle()
    replay(world, "planner.z")
    assert not spans.get_finished_spans()
    assert metrics.get_metrics_data() is None
    replay(world, "planner.a")
    (plan,) = spans.get_finished_spans()
    assert (plan.start_time, plan.attributes) == (-1_000_000, {"muster.group": "default/train", "pods": 1})
    found = totals(metrics)
    assert found["muster.pods", "placed"] == 1
    assert found["muster.pods", "refused", "InsufficientRoom"] == 1


def test_of_a_gang_that_is_refused_the_pods_that_wait_are_counted(metrics: InMemoryMetricReader) -> None:
    """As it was: as many as it takes, whether there are more or, as while it waits for some, fewer."""
    world = World()
    world.node("n0")
    for name in ("a", "b", "c"):
        world.pod(name, "large", minimum=2, cpu=99)
    world.pod("d", "few", minimum=9)
    world.pod("e", cpu=99)
    world.settle()
    replay(world, "planner.a")
    found = totals(metrics)
    assert found["muster.pods", "refused", "InsufficientRoom"] == 3 + 1
    assert found["muster.pods", "refused", "TooFewPods"] == 1
    assert found["muster.pods", "refused"] == 5


async def test_ingest_knows_the_first_fact_of_a_group_as_the_fold_does(spans: InMemorySpanExporter) -> None:
    """Pods that come, go, move to another gang and are known from before; several in one commit."""
    world = World()
    world.node("n0")
    world.pod("old", "train", minimum=1)
    facts = [
        [observed(world, "new", "train"), observed(world, "a", "other")],
        [ev.PodDeleted(uid="a", namespace="default", name="a")],
        [observed(world, "b", "other"), observed(world, "single", "")],
        [observed(world, "b", "third"), observed(world, "again", "other")],
    ]
    state = State()
    for stored in world.log.commits:
        state.apply_stored(stored)
    writer = Writer(world.log, "ingest")
    await writer.take(ev.IngestTaken(holder="test"))
    gather = TracedGather(writer, [pod.fact for pod in state.pods.values()])
    sending = asyncio.create_task(gather.run())
    expected = []
    for commit in facts:
        gather.add(commit)
        await gather.flush()
        for stored in world.log.commits[state.sequence :]:
            state.apply_stored(stored)
        expected += [(key, group.since) for key, group in state.groups.items() if group.since == state.sequence]
    sending.cancel()

    told = [span for span in spans.get_finished_spans() if span.name == "ingest"]
    sdk = Sdk("test", "test", [], [])
    assert [span.context.trace_id for span in told] == [sdk.gang_context(*gang).trace_id for gang in expected]
    assert [gang for gang, _ in expected] == [
        "default/other",
        "default/other",
        "pod/default/single",
        "default/third",
        "default/other",
    ]


async def test_groups_that_ingest_sees_in_one_breath_begin_with_their_own_commits(spans: InMemorySpanExporter) -> None:
    """Two commits are sent of what was added at once; who is no candidate, or was seen before, begins nothing."""
    world = World()
    world.node("n0")
    world.pod("old", "train", minimum=1)
    writer = Writer(world.log, "ingest")
    await writer.take(ev.IngestTaken(holder="test"))
    taken = await world.log.end()
    gather = TracedGather(writer, [pod.fact for pod in world.state.pods.values()])
    gather._outbox.max_events = 2
    foreign = msgspec.structs.replace(observed(world, "foreign", ""), candidate=False)
    gather.add([observed(world, "old", "train"), foreign])
    gather.add([observed(world, "x", "first"), foreign, observed(world, "y", "second"), observed(world, "x", "first")])
    sending = asyncio.create_task(gather.run())
    await gather.flush()
    gather.add([observed(world, "z", "second"), gone("y"), observed(world, "v", "second")])
    gather.add([gone(uid) for uid in ("old", "x", "z", "v", "foreign")])
    await gather.flush()
    sending.cancel()
    assert not gather._members, "what is remembered of gangs goes with them"
    told = [span.context.trace_id for span in spans.get_finished_spans() if span.name == "ingest"]
    sdk = Sdk("test", "test", [], [])
    begun = [("default/first", taken + 2), ("default/second", taken + 3)]
    assert told == [sdk.gang_context(*gang).trace_id for gang in begun]


def observed(world: World, name: str, gang: str) -> ev.PodObserved:
    """A pod as ingest would have it, of a class that the log knows."""
    fact = world.state.pods["old"].fact
    membership = Membership(gang=f"default/{gang}", dialect="coscheduling/2020", declared=None) if gang else None
    return msgspec.structs.replace(fact, uid=name, name=name, gang=membership, resource_version=world.version())


def gone(uid: str) -> ev.PodDeleted:
    return ev.PodDeleted(uid=uid, namespace="default", name=uid)
