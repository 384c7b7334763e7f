"""Commits that are well written and say what cannot be: they are folded or named, and nobody decides into a traceback."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import events as ev
from events import envelope, subjects
from events.envelope import Header, Stored
from events.policy import DEFAULT_POLICY
from services.binder import core as binder
from services.feed import core as feed
from services.planner import core as planner
from services.state import snapshot
from services.state.fold import State
from services.state.form import Damaged, UnknownCommit
from tests.events.samples import sample
from tests.events.stored import any_of
from tests.fuzz import examples
from tests.fuzz.generate import DEEP

NAMES = ("a", "b", "a/b", "pod/a/b", "default/train", "n0", "cpu_milli", "pending", "bound")
WRITERS = {"ingest": get_args(ev.Facts), "planner.a": get_args(ev.PlannerEvents), "binder": get_args(ev.BinderEvents)}
CLASSES = [
    msgspec.structs.replace(
        sample(ev.SchedulingClassObserved),
        digest=name,
        requests={"cpu_milli": 1_000, "pods": 1},
        node_selector={},
        required_affinity=None,
        unsupported=(),
    )
    for name in NAMES
]
NODE = msgspec.structs.replace(sample(ev.NodeObserved), name="n0", taints=(), unschedulable=False)
NODE = msgspec.structs.replace(NODE, allocatable={"cpu_milli": 8_000, "memory_bytes": 1 << 34, "pods": 10})
START: list[tuple[str, list[ev.Event]]] = [
    ("ingest", [*CLASSES, NODE, ev.ClusterSynced(nodes=1, pods=0)]),
    ("admin", [ev.PolicyChanged(policy=DEFAULT_POLICY)]),
    ("planner.a", [ev.PlannerTaken(shard="a", holder="h")]),
    ("binder", [ev.BinderTaken(holder="h")]),
]


def stored(sequence: int, writer: str, events: list[ev.Event], epoch: int = 0) -> Stored:
    header = Header(writer=writer, epoch=epoch, basis=max(0, sequence - 2), time_ns=0, cause="facts")
    return Stored(
        sequence=sequence,
        subject=subjects.subject("c", writer),
        message_id="",
        header=envelope.encode_header(header),
        payload=envelope.encode_events(events),
    )


def renamed(draw: st.DrawFn, value: object) -> object:
    """With names that other events may have, too, and small numbers: so that they meet."""
    if isinstance(value, str):
        return draw(st.sampled_from(NAMES))
    if type(value) is int:
        return draw(st.integers(0, 5) | st.just(value))
    if isinstance(value, msgspec.Struct):
        fields = {field: renamed(draw, getattr(value, field)) for field in value.__struct_fields__}
        return type(value)(**fields)
    if isinstance(value, tuple):
        return tuple(renamed(draw, part) for part in value)
    return (
        {renamed(draw, key): renamed(draw, part) for key, part in value.items()} if isinstance(value, dict) else value
    )


@st.composite
def commits(draw: st.DrawFn) -> list[tuple[str, list[ev.Event]]]:
    """Any events that their writers may append, about the same few things; a policy is one that may be set."""
    found: list[tuple[str, list[ev.Event]]] = []
    for _ in range(draw(st.integers(1, 12))):
        writer = draw(st.sampled_from(sorted(WRITERS)))
        kinds = [kind for kind in WRITERS[writer] if kind not in (ev.PolicyAdopted, ev.PartitionsAssigned)]
        written = [renamed(draw, draw(any_of(draw(st.sampled_from(kinds))))) for _ in range(draw(st.integers(1, 2)))]
        found.append((writer, [one for event in written for one in with_class(event)]))
    return found


def with_class(event: ev.Event) -> list[ev.Event]:
    """A pod with its class before it, as ingest says them: what nothing names any more is forgotten."""
    return [CLASSES[NAMES.index(event.scheduling_class)], event] if isinstance(event, ev.PodObserved) else [event]


@examples(40)
@given(commits())
def test_whatever_writers_say_is_folded_and_decided_upon(said: list[tuple[str, list[ev.Event]]]) -> None:
    state = State()
    for sequence, (writer, events) in enumerate(START, 1):
        state.apply_stored(stored(sequence, writer, events))
    state.apply_stored(stored(5, "binder", binder.decide_now(state)))
    for sequence, (writer, events) in enumerate(said, 6):
        state.apply_stored(stored(sequence, writer, events, state.epoch))
        for decided in (planner.decide_now(state, "a"), binder.decide_now(state)):
            envelope.encode_events(decided)
    assert snapshot.digest(snapshot.decode(snapshot.encode(state))) == snapshot.digest(state)


@pytest.mark.parametrize(
    ("writer", "event", "told"),
    [
        ("ingest", sample(ev.PodObserved), "event 1, PodObserved: KeyError('x')"),
        ("binder", sample(ev.PartitionsAssigned), "event 1, PartitionsAssigned: ValueError"),
        (
            "ingest",
            msgspec.structs.replace(sample(ev.NodeObserved), allocatable={"cpu_milli": 1 << 70}),
            "event 1, NodeObserved: OverflowError",
        ),
    ],
    ids=["class", "owners", "allocatable"],
)
def test_a_commit_that_cannot_be_folded_is_named_with_its_event(writer: str, event: ev.Event, told: str) -> None:
    """It ended `replay` with a traceback and a service with exit 1, as if Muster were wrong and not the log."""
    harmless: ev.Event = ev.Renewed()
    with pytest.raises(UnknownCommit) as error:
        State().apply_stored(stored(7, writer, [harmless, event]))
    assert f"commit 7 on muster.c.{writer}: {told}" in str(error.value)


@pytest.mark.parametrize(
    "header",
    [
        b'{"x":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"writer":"binder","epoch":0,"basis":0,"cause":"decide","time_ns":' + b"9" * 30 + b"}",
        b'{"writer":"binder\xff"}',
    ],
    ids=["deep", "time", "UTF-8"],
)
def test_a_stranger_s_header_stops_nobody(header: bytes) -> None:
    """Whoever may publish on a writer's subject could stop every service with brackets."""
    commit = msgspec.structs.replace(stored(3, "binder", []), header=header)
    state = State()
    assert state.apply_stored(commit) is None
    assert (state.sequence, state.set_aside) == (3, 1)
    assert feed.is_foreign(commit)


def test_a_resource_version_of_any_length_is_folded() -> None:
    """int() refuses what has more than 4300 digits, and every service folds the same fact."""
    state = State()
    for sequence, version in enumerate(("7", "9" * 5_000, "²", "8"), 1):
        node = msgspec.structs.replace(NODE, resource_version=version)
        state.apply_stored(stored(sequence, "ingest", [node]))
    fact = state.nodes["n0"].fact
    assert fact is not None
    assert fact.resource_version == "8"


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_time_of_a_header_is_a_time_in_the_feed(time_ns: int) -> None:
    assert feed.timestamp(time_ns).endswith("Z")


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        (b'"scheduling_class":"a"', b'"scheduling_class":"gone"', "do not fit each other: KeyError('gone')"),
        (b'"cpu_milli":8000', b'"cpu_milli":9999999999999999999', "do not fit each other: OverflowError"),
        (b'"status":"bound"', b'"status":"\xff"', "pods: 'utf-8' codec"),
        (b"epoch 0", b"epoch " + b"[" * DEEP, "epoch: "),
        (b'resources ["cpu_milli",', b"resources [", "do not fit each other: LookupError"),
    ],
    ids=["class", "number", "UTF-8", "deep", "columns"],
)
def test_a_snapshot_whose_records_do_not_fit_is_damaged(was: bytes, becomes: bytes, told: str) -> None:
    """A start from it ended with a traceback instead of looking at the one before."""
    state = State()
    bound = msgspec.structs.replace(sample(ev.PodObserved), scheduling_class="a", node="n0", status="bound", gang=None)
    state.apply_stored(stored(1, "ingest", [*CLASSES, NODE, bound]))
    data = snapshot.encode(state)
    assert was in data
    with pytest.raises(Damaged) as error:
        snapshot.decode(data.replace(was, becomes))
    assert told in str(error.value)
