"""Replay: the state at a place, by sequence and by time."""

import json
import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import events as ev
from events import envelope, subjects
from events.envelope import Header
from events.memory import MemoryLog
from services.cli.muster import app
from services.console.replay import BadPlace, read_place, replay, when
from services.console.summary import summary, waiting_groups
from services.state import snapshot
from services.state.fold import State
from tests.why import why_waiting
from tests.world import SECOND_NS, World


@pytest.fixture
def world() -> World:
    world = World()
    world.node("n0", cpu=4)
    world.gang("train", 4, 4)
    world.gang("large", 9, 9)
    world.pod("later", gated=True)
    world.settle()
    return world


def folded(world: World, until: int) -> State:
    state = State()
    for stored in world.log.commits[:until]:
        state.apply_stored(stored)
    return state


async def test_the_end_is_the_live_state(world: World) -> None:
    assert snapshot.digest(await replay(world.log)) == snapshot.digest(world.state)


async def test_every_place_has_its_state(world: World) -> None:
    for sequence in range(1, len(world.log.commits) + 1):
        state = await replay(world.log, str(sequence))
        assert state.sequence == sequence
        assert snapshot.digest(state) == snapshot.digest(folded(world, sequence))


async def test_a_place_behind_the_end_is_an_error(world: World) -> None:
    end = len(world.log.commits)
    with pytest.raises(BadPlace, match=f"the log ends at {end}"):
        await replay(world.log, str(end + 1))


async def test_a_time_ends_before_the_first_younger_commit() -> None:
    log = MemoryLog("timed")
    last = 0
    for second in range(3):
        header = Header(writer="ingest", epoch=0, basis=0, time_ns=second * SECOND_NS, cause="facts")
        event = ev.IngestTaken(holder=str(second))
        last = log.append_now(subjects.subject("timed", "ingest"), header, envelope.encode_events([event]), last)
    assert (await replay(log, "1970-01-01T00:00:01Z")).sequence == 2
    assert (await replay(log, "1970-01-01T01:00:00.999999+01:00")).sequence == 1
    assert (await replay(log, "1969-12-31T23:59:59Z")).sequence == 0
    assert (await replay(log, "2020-01-01")).sequence == 3
    assert [await when(log, sequence) for sequence in (0, 1, 2, 3)] == [
        "",
        "",
        *(f"1970-01-01T00:00:0{n}.000000000Z" for n in (1, 2)),
    ]
    with pytest.raises(BadPlace, match=r"--at 2200-01-01T.*: still to come; the log ends at 3, 1970-01-01T00:00:02"):
        await replay(log, "2200-01-01")
    far = Header(writer="ingest", epoch=0, basis=0, time_ns=(1 << 63) - 1, cause="facts")
    payload = envelope.encode_events([ev.IngestTaken(holder="its clock is off")])
    log.append_now(subjects.subject("timed", "ingest"), far, payload, last)
    assert (await replay(log, "2200-01-01")).sequence == 3


async def test_what_is_nobodys_commit_says_nothing_of_the_time(world: World) -> None:
    """Who may read the log can put a message onto a writer's subject. As it was: with a time to come in its header no
    later place of the log had a time any more."""
    end = world.state.sequence
    forged = Header(writer="admin", epoch=0, basis=0, time_ns=(1 << 63) - 1, cause="facts")
    world.log.append_now(subjects.subject("test", "ingest"), forged, b"[]", world.log._last["muster.test.ingest"])
    world.state.apply_stored(world.log.commits[-1])
    world.node("n1")
    assert (await replay(world.log, "2026-01-01")).sequence == end + 2
    assert await when(world.log, end + 1) == ""


def test_a_time_without_a_zone_is_utc_wherever_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        found = read_place("1970-01-02")
    time.tzset()
    assert found == (None, 86_400 * SECOND_NS)


@pytest.mark.parametrize(
    ("fraction", "beyond_ns"),
    [("", 0), (".5", 500_000_000), (".000001234", 1_234), (".0000012", 1_200), (",123456789", 123_456_789)],
)
def test_a_time_has_its_nanoseconds(fraction: str, beyond_ns: int) -> None:
    """As the log's times are told; Python's have microseconds alone."""
    assert read_place(f"1970-01-01T00:00:01{fraction}Z") == (None, SECOND_NS + beyond_ns)


@pytest.mark.parametrize(
    "text", ["yesterday", "-1", "٣", "12:00", "1.5", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+23:59"]
)
def test_what_is_no_place_says_what_was_expected(text: str) -> None:
    with pytest.raises(BadPlace, match="expected a sequence, or a time such as"):
        read_place(text)


@pytest.mark.parametrize("digits", [21, 5_000])
def test_a_number_that_is_too_long_for_a_sequence_is_called_that(digits: int) -> None:
    """As it was: "expected a sequence, or a time", which it looks like."""
    with pytest.raises(BadPlace, match=r"^--at 9+: expected a sequence of at most 20 digits$"):
        read_place("9" * digits)


async def test_the_summary_counts_and_names_reasons(world: World) -> None:
    found = summary(await replay(world.log))
    assert found["nodes"] == 1
    assert found["pods"] == {"bound": 4, "pending": 10}
    assert found["waiting"] == 10
    assert found["claims"] == {"bound": 4}
    assert found["refused"] == {"InsufficientRoom": 1}
    assert found["gangs"] == {"declared": 2, "undeclared": 0, "satisfied": 1}
    waiting = waiting_groups(world.state)
    assert waiting["pod/default/later"] == (1, "its scheduling gates are not removed")
    pods, why = waiting["default/large"]
    assert pods == 9
    assert why.startswith("0/1 nodes are available: 1 Insufficient cpu.")


async def test_the_summary_counts_what_is_on_its_way_and_who_is_there() -> None:
    world = World(shards=("a", "b"))
    world.node("n0", cpu=2)
    world.pod("foreign", candidate=False)
    world.pod("proposed")
    world.propose("pod/default/proposed", {"proposed": "n0"})
    world.leave("b")
    world.append("binder", [ev.ShardLost(shard="z", taken=1)], cause="outcome")
    found = summary(world.state)
    assert (found["sequence"], found["synced"], found["epoch"]) == (world.state.sequence, True, world.state.epoch)
    assert (found["pods"], found["waiting"]) == ({"pending": 2}, 1), "another scheduler's does not wait for this one"
    assert (found["proposals"], found["claims"]) == (1, {"proposed": 1})
    assert (found["groups"], found["evictions"], found["nominations"]) == ({"awaiting": 1}, 0, 0)
    assert (found["shards"], found["live_shards"]) == (["planner.a", "planner.b"], ["planner.a"])
    assert found["holders"] == dict.fromkeys(("binder", "ingest", "planner.a", "planner.b"), "test")
    assert (found["ignored"], found["set_aside"], found["rejections"]) == ({"ShardLost": 1}, 0, [])
    assert list(waiting_groups(world.state)) == ["pod/default/proposed"]


def test_for_people_it_is_a_table_with_a_place_and_who_waits(log: Path) -> None:
    shown = CliRunner().invoke(app, ["replay", str(log)])
    assert shown.exit_code == 0
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in shown.stdout.splitlines()]
    place = json.loads(CliRunner().invoke(app, ["replay", str(log), "--json"]).stdout)
    for name in ("sequence", "end", "time", "nodes", "waiting", "epoch"):
        assert [name, str(place[name])] in rows
    assert ["pod/default/b", "1", place["waiting_groups"]["pod/default/b"]["why"]] in rows
    assert f"digest {place['digest']}" in shown.stdout
    shown = CliRunner().invoke(app, ["replay", str(log), "--at", "0"])
    assert re.search(r"│ time +│ before the first commit +│", shown.stdout)
    assert "Waiting" not in shown.stdout


def test_why_a_pod_waits() -> None:
    world = World()
    world.node("n0")
    world.pod_group("train", 2, waiting_time_ms=60_000)
    for i in range(2):
        world.pod(f"train-{i}", "train", dialect="coscheduling/v1alpha1")

    def why(uid: str) -> str:
        return why_waiting(world.state, world.state.pods[uid])

    assert why("train-0") == "to be tried"
    world.propose("default/train", {"train-0": "n0"})
    assert why("train-0") == "proposed: n0"
    world.judge()
    assert why("train-0") == "waits on node n0 for the rest of its gang"


def test_a_gang_whose_shard_is_gone_is_to_be_tried() -> None:
    """Each shard that comes or goes had half of those that wait say that nobody tried them yet."""
    world = World(shards=("a", "b"))
    world.node("n0", cpu=1)
    world.gang("train", 2, 2)
    owner = world.state.owner(world.state.groups["default/train"])
    assert waiting_groups(world.state) == {"default/train": (2, "to be tried")}
    world.plan(owner)
    world.leave(owner)
    world.judge()
    assert waiting_groups(world.state) == {"default/train": (2, "to be tried")}


def test_a_gang_on_its_way_to_several_nodes_says_how_many() -> None:
    world = World()
    for i in range(3):
        world.node(f"n{i}", cpu=1)
    uids = world.gang("train", 3, 3)
    world.propose("default/train", {uid: f"n{i}" for i, uid in enumerate(uids)})
    assert waiting_groups(world.state) == {"default/train": (3, "proposed: 3 nodes")}
    world.judge()
    assert waiting_groups(world.state) == {"default/train": (3, "permitted: 3 nodes")}


def test_pods_of_a_gang_that_wait_for_different_things_are_told_apart() -> None:
    """Two hold room and two find none: what the first says alone would hide what the gang lacks."""
    world = World()
    for i in range(2):
        world.node(f"n{i}", cpu=1)
    world.koordinator("default/train", 4, 4, {"mode": "NonStrict", "waiting_time_ms": 600_000})
    world.settle()
    pods, why = waiting_groups(world.state)["default/train"]
    assert pods == 4
    lacking, _, holding = why.partition("; ")
    assert lacking.startswith("2 of them: 0/2 nodes are available: 2 Insufficient cpu")
    assert holding == "2 of them: waits on 2 nodes for the rest of its gang"
