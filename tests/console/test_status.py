"""Status: of a log in a file, of one that runs, again and again."""

from __future__ import annotations

import asyncio
import io
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

import events as ev
from events import envelope, subjects
from events.envelope import Header, Stored
from events.homes import open_log
from events.jetstream import JetStreamLog
from events.lease import Lease
from events.log import LogError, Unavailable
from events.memory import MemoryLog
from services.cli.muster import app
from services.console.status import Observer, picture, watch
from services.console.summary import summary
from services.state import cohorts
from tests.homes import put_commits, put_snapshot
from tests.waiting import until
from tests.world import SECOND_NS, World

runner = CliRunner()


def said(*arguments: str) -> dict:
    result = runner.invoke(app, ["status", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


async def of(world: World) -> dict:
    return await (await Observer.of(world.log)).status("test")


def printed(found: dict, width: int = 200) -> str:
    shown = io.StringIO()
    Console(file=shown, width=width).print(picture(found))
    return shown.getvalue()


async def test_writers_shards_and_who_waits_as_the_log_says() -> None:
    world = World(shards=("a", "b"))
    world.node("n0", cpu=2)
    world.gang("large", 3, 3)
    for i in range(5):
        world.pod(f"p{i}")
    for shard in ("a", "b"):
        world.plan(shard)
    world.lose("b")
    found = await of(world)
    assert found["end"] == world.state.sequence
    assert set(found["writers"]) == {"admin", "ingest", "planner.a", "planner.b", "binder"}
    binder = found["writers"]["binder"]
    assert (binder["holder"], binder["last"], binder["cause"], binder["lag"]) == ("test", found["end"], "outcome", 0)
    assert [(shard["alive"], shard["partitions"]) for shard in found["shards"].values()] == [(True, 32), (False, 32)]
    waiting = {group.phase for group in world.state.groups.values()}
    assert waiting == {"awaiting", "parked"}
    assert found["proposals"] == len(world.state.proposals)
    assert found["waiting"]["InsufficientRoom"] == sum(shard["refused"] for shard in found["shards"].values())
    assert found["waiting"]["to be tried"] == sum(shard["to_try"] for shard in found["shards"].values()) == 0
    assert "planner.b" not in (await of(_gone(world)))["writers"]


def _gone(world: World) -> World:
    """Its partitions have changed hands."""
    world.judge()
    return world


async def test_lag_is_what_the_last_decision_had_not_seen() -> None:
    world = World()
    world.node("n0")
    world.pod("p")
    decided, basis = world.plan_without_appending(), world.state.sequence
    for i in range(3):
        world.node(f"m{i}")
    world.append("planner.a", decided, cause="decide", basis=basis)
    assert (await of(world))["writers"]["planner.a"]["lag"] == 3


async def test_outcomes_and_ticks_lag_as_decisions_do() -> None:
    world = World(shards=("a",))
    basis = world.state.sequence
    for i in range(3):
        world.node(f"m{i}")
    world.append("binder", [ev.ShardLost(shard="z", taken=1)], cause="outcome", basis=basis)
    world.append("planner.a", [ev.Ticked(time_ns=world.now_ns, jumped_ns=0)], cause="tick", basis=basis)
    writers = (await of(world))["writers"]
    assert (writers["binder"]["lag"], writers["planner.a"]["lag"]) == (3, 4)


async def test_who_names_no_basis_has_no_lag() -> None:
    """Ingest decides nothing."""
    world = World()
    fact = ev.PriorityClassObserved(name="c", uid="u", resource_version="1", value=1, preempts=True)
    world.append("ingest", [fact], basis=0)
    assert (await of(world))["writers"]["ingest"]["lag"] == 0


async def test_who_has_something_to_say_and_says_nothing_lags_behind_the_logs_end() -> None:
    """A shard that hangs, or cannot read: its last decision had seen everything."""
    world = World(shards=("a", "b"))
    for i in range(4):
        world.node(f"n{i}", cpu=2)
    world.settle(("a", "b"))
    for i in range(6):
        world.pod(f"p{i}")
    before = world.state.sequence
    world.plan("a")
    world.node("n9")
    writers = (await of(world))["writers"]
    assert before - 6 <= writers["planner.b"]["lag"] <= world.state.sequence
    assert writers["planner.b"]["lag"] > 6
    assert writers["planner.a"]["lag"] == 0
    assert writers["binder"]["lag"] > 0, "a proposal waits for it"
    assert writers["admin"]["lag"] == 0, "nothing waits for it"
    world.settle(("a", "b"))
    assert {writer["lag"] for writer in (await of(world))["writers"].values()} == {0}


async def test_who_may_be_tried_is_gone_through_once_for_all_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: for each planner again. Of 100,000 pods and 32 shards a look took 1.1 s, and there is one a second."""
    world = World(shards=tuple("abcd"))
    for number in range(20):
        world.pod(f"p{number}")
    listed, waiting = list[int](), cohorts.waiting_in_slices
    monkeypatch.setattr(cohorts, "waiting_in_slices", lambda state: listed.append(1) or waiting(state))
    shards = (await of(world))["shards"]
    assert sum(shard["to_try"] for shard in shards.values()) == 20
    assert len(listed) == 1


async def test_rates_are_of_the_last_seconds() -> None:
    world = World()
    world.node("n0", cpu=1)
    world.pod("p")
    world.pod("q")
    before = await of(world)
    basis = world.state.sequence
    for uid in ("p", "q"):
        world.propose(f"pod/default/{uid}", {uid: "n0"}, basis=basis)
    judged = world.judge()
    assert [type(event) for event in judged] == [ev.GangPermitted, ev.ProposalRefused]
    world.node("n1")
    found = await of(world)
    assert found["conflicts_per_s"] == 1 / found["window_s"]
    assert round((found["decisions_per_s"] - before["decisions_per_s"]) * found["window_s"]) == 2
    assert found["open_intents"] == 1


async def test_of_who_said_nothing_for_long_the_last_word_is_known_and_is_in_no_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.console.status.TAIL_COMMITS", 3)
    log = MemoryLog("test")
    said = {"binder": ev.BinderTaken(holder="test")}
    for writer, second in (("admin", 0), ("binder", 1), ("ingest", 100), ("ingest", 101), ("ingest", 111)):
        header = Header(writer=writer, epoch=0, basis=0, time_ns=second * SECOND_NS, cause="facts")
        subject, events = subjects.subject("test", writer), [said.get(writer, ev.Renewed())]
        log.append_now(subject, header, envelope.encode_events(events), log._last.get(subject, 0))
    found = await (await Observer.of(log)).status("test")
    for writer, sequence, age_s in (("admin", 1, 111), ("binder", 2, 110)):
        assert (found["writers"][writer]["last"], found["writers"][writer]["age_s"]) == (sequence, age_s)
    assert found["events_per_s"] == 2 / found["window_s"], "of the last ten seconds"


async def test_a_writer_whose_clock_is_ahead_keeps_no_more_than_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.console.status.MOST_RECENT", 5)
    log = MemoryLog("test")
    observer = await Observer.of(log)
    for second in (3_600, *range(20)):
        header = Header(writer="ingest", epoch=0, basis=0, time_ns=second * SECOND_NS, cause="facts")
        subject = subjects.subject("test", "ingest")
        log.append_now(subject, header, envelope.encode_events([ev.Renewed()]), log._last.get(subject, 0))
    observer.fold(log.commits)
    assert len(observer._recent) <= 5


async def test_a_writer_whose_clock_is_ahead_makes_nobody_else_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: with a shard 40 days ahead all others had said nothing for 40 days, and the rates were that shard's."""
    monkeypatch.setattr("services.console.status.time.time_ns", lambda: 20 * SECOND_NS)
    monkeypatch.setattr("services.console.status.holder_of", AsyncMock(return_value=""))
    leases = Mock(JetStreamLog, connection=Mock(client=Mock(is_connected=True), **{"answers_for_s.return_value": 1.0}))
    log, observer = MemoryLog("test"), Observer(World(shards=("a",)).state, leases)
    for second in range(1, 20):
        for writer, ahead_s in (("ingest", 0), ("planner.a", 3_600)):
            time_ns, subject = (second + ahead_s) * SECOND_NS, subjects.subject("test", writer)
            header = Header(writer=writer, epoch=0, basis=0, time_ns=time_ns, cause="facts")
            log.append_now(subject, header, envelope.encode_events([ev.Renewed()]), log._last.get(subject, 0))
    for stored in log.commits:
        observer._note_stored(stored)
    found = await observer.status("test")
    assert [found["writers"][writer]["age_s"] for writer in ("ingest", "planner.a")] == [1, 1]
    assert found["events_per_s"] == 2, "of the last ten seconds"


@pytest.mark.parametrize("connected", [False, True])
async def test_leases_that_cannot_be_asked_for_are_not_known(connected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: while two of three servers were away, the third kept the connection, and nothing was said."""

    async def away(*_: object) -> str:
        raise Unavailable("no answer")

    monkeypatch.setattr("services.console.status.holder_of", away)
    answers = {"answers_for_s.return_value": 0.0}
    leases = Mock(JetStreamLog, connection=Mock(client=Mock(is_connected=connected), **answers))
    found = await Observer(World().state, leases).status("test")
    assert found["writers"]["binder"]["lease"] is None
    assert found["connected"] is False
    assert "NATS is away: this is what was known" in printed(found)


async def test_leases_are_asked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: one after the other, and while NATS was away each took its two seconds."""
    everybody = asyncio.Barrier(len(World(shards=("a", "b")).state.holders))

    async def asked(*_: object) -> str:
        async with everybody:
            return "somebody"

    monkeypatch.setattr("services.console.status.holder_of", asked)
    answers = {"answers_for_s.return_value": 1.0}
    leases = Mock(JetStreamLog, connection=Mock(client=Mock(is_connected=True), **answers))
    async with asyncio.timeout(60):
        found = await Observer(World(shards=("a", "b")).state, leases).status("test")
    assert {found["writers"][writer]["lease"] for writer in ("binder", "planner.a", "planner.b")} == {"somebody"}
    assert "NATS is away" not in printed(found)


async def test_of_a_log_without_a_commit_there_is_no_age() -> None:
    """As it was: that its last commit was of 1970, and that an ingest read the cluster which nobody had begun."""
    found = await (await Observer.of(MemoryLog("fresh"))).status("fresh")
    assert (found["age_s"], found["connected"]) == (None, None)
    assert printed(found).startswith(
        "fresh: commit 0, none that can be read; no ingest has read the cluster, nobody decides\n"
    )


async def test_a_log_without_a_binder_or_a_planner_says_why_nothing_is_placed() -> None:
    """As it was: pods waited to be tried, nobody lagged, and each shard had nothing to try."""
    log = World(shards=()).log
    assert "there is no planner: nothing is placed" in printed(await (await Observer.of(log)).status("test"))
    log = MemoryLog("test")
    for writer, taken in (
        ("ingest", ev.IngestTaken(holder="i")),
        ("planner.0", ev.PlannerTaken(shard="0", holder="p")),
    ):
        header = Header(writer=writer, epoch=0, basis=0, time_ns=0, cause="taken")
        log.append_now(subjects.subject("test", writer), header, envelope.encode_events([taken]), 0)
    header = Header(writer="ingest", epoch=0, basis=0, time_ns=0, cause="facts")
    synced = envelope.encode_events([ev.ClusterSynced(nodes=0, pods=0)])
    log.append_now(subjects.subject("test", "ingest"), header, synced, 1)
    assert "; there is no binder: nothing is placed" in printed(await (await Observer.of(log)).status("test"))


async def test_a_small_terminal_shows_what_is_now_first() -> None:
    """Of what is too high for it, `--watch` shows the beginning. As it was: lists of writers and shards."""
    world = World(shards=tuple(f"s{number}" for number in range(40)))
    beginning = printed(await of(world), width=80).split("\n")[:20]
    for word in ("decisions/s", "proposals to judge", "rejected objects", "to be tried"):
        assert any(word in line for line in beginning)


async def test_a_terminal_of_24_lines_shows_the_shards_of_a_small_muster() -> None:
    """As it was: their table was cut to its title."""
    shown = printed(await of(World(shards=("a", "b"))), width=80).rstrip().split("\n")
    assert len(shown) < 24
    assert [line.split()[0] for line in shown[-2:]] == ["a", "b"]


@pytest.mark.parametrize(("lease", "told"), [(None, "–"), ("", "free"), ("test", "held"), ("another", "another")])
async def test_a_writer_and_a_shard_have_a_row_each(lease: str | None, told: str) -> None:
    world = World(shards=("a", "b"))
    world.pod("web")
    world.lose("b")
    found = await of(world)
    found["writers"]["binder"] |= {"lease": lease, "age_s": 1.5, "lag": 7}
    rows = [line.split() for line in printed(found).splitlines()]
    assert ["binder", "test", told, str(world.state.sequence), "1.5", "7"] in rows
    tried = world.state.owner(world.state.groups["pod/default/web"])
    for shard, alive in (("a", "yes"), ("b", "no")):
        assert [shard, alive, "32", str(int(shard == tried)), "0"] in rows


async def test_objects_that_are_not_taken_as_they_are_are_counted() -> None:
    world = World()
    assert (await of(world))["rejected"] == 0
    misspelt = {"resource_version": "1", "field": "spec.minMember", "value": "lots", "expected": "an integer"}
    world.facts(ev.DeclarationRejected(kind="PodGroup", namespace="a", name="g", uid="u", **misspelt))
    found = await of(world)
    assert found["rejected"] == 1
    assert "rejected objects: 1 (muster replay names them)" in printed(found)


async def test_nodes_that_hold_more_than_they_offer_are_named() -> None:
    """Nobody said so, of a node that shrank or of pods that somebody else placed (7.2)."""
    world = World()
    world.node("n0", cpu=2)
    world.gang("train", 2, 2)
    world.settle()
    assert (await of(world))["overdrawn"] == {}
    world.node("n0", cpu=1, memory_gi=1)
    world.node("n1", cpu=2)
    found = await of(world)
    assert found["overdrawn"] == {"n0": f"2000 of 1000 cpu_milli, {2 << 30} of {1 << 30} memory_bytes"}
    assert summary(world.state)["overdrawn"] == found["overdrawn"]
    assert "2000 of 1000 cpu_milli" in printed(found)
    world.pod("foreign", node="n1", candidate=False, cpu=3)
    assert (await of(world))["overdrawn"]["n1"] == "3000 of 2000 cpu_milli"
    world.facts(ev.NodeDeleted(name="n0", uid="uid-n0"))
    assert list((await of(world))["overdrawn"]) == ["n1"]


async def test_what_was_ignored_and_set_aside_is_counted() -> None:
    world = World(shards=("a",))
    world.append("binder", [ev.ShardLost(shard="z", taken=1)], cause="outcome")
    found = await of(world)
    assert (found["ignored"], found["set_aside"]) == ({"ShardLost": 1}, 0)


def test_of_a_file_there_are_no_leases(log: Path) -> None:
    found = said(str(log))
    assert found["cluster"] == "simulated"
    assert found["age_s"] == 0
    assert {writer["lease"] for writer in found["writers"].values()} == {None}
    assert found["waiting"] == {"to be tried": 0, "InsufficientRoom": 1}
    assert found["shards"] == {"0": {"alive": True, "partitions": 64, "to_try": 0, "refused": 1}}


def test_for_people_it_is_tables(log: Path) -> None:
    shown = runner.invoke(app, ["status", str(log)])
    assert shown.exit_code == 0, shown.output
    for word in ("planner.0", "InsufficientRoom", "partitions", "decisions/s"):
        assert word in shown.stdout


@pytest.mark.parametrize("how", ["argument", "flag"])
def test_of_a_live_log_leases_have_their_holders(log: Path, nats: str, how: str) -> None:
    assert runner.invoke(app, ["import", str(log), nats]).exit_code == 0
    where = [nats] if how == "argument" else ["--nats", nats]

    async def look() -> dict:
        live = await open_log(nats, "simulated")
        assert isinstance(live, JetStreamLog)
        async with Lease(live.connection, "simulated", "planner.0", "somebody else", 60):
            found = await asyncio.to_thread(said, *where, "--cluster", "simulated")
        await live.close()
        return found

    writers = asyncio.run(look())["writers"]
    assert writers["planner.0"]["lease"] == "somebody else"
    assert writers["planner.0"]["holder"] == "simulate"
    assert writers["binder"]["lease"] == ""
    assert writers["binder"]["age_s"] > 0


async def test_watching_goes_on_with_the_log() -> None:
    world = World()
    looks = watch(world.log)
    assert (await anext(looks))["end"] == world.state.sequence
    world.node("n0")
    while (found := await anext(looks))["end"] != world.state.sequence:
        pass
    assert found["writers"]["ingest"]["last"] == world.state.sequence
    await looks.aclose()
    await until(lambda: len(asyncio.all_tasks()) == 1, "nobody to follow the log any more")


class Lost(MemoryLog):
    """It can be read, and not be followed."""

    async def follow(self, after: int = 0) -> AsyncIterator[list[Stored]]:
        for batch in ():
            yield batch
        raise LogError("commits are missing")


async def test_a_log_that_cannot_be_followed_any_more_ends_the_watching_with_a_word() -> None:
    with pytest.raises(LogError, match="commits are missing"):
        async for _ in watch(Lost("test")):
            pass


def test_a_commit_behind_a_snapshot_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """As it was: a traceback. The fold begins at the snapshot; only the rates ask what the commit says."""
    world = World()
    world.node("n0")
    path, before = tmp_path / "log.db", world.log.commits[:-1]
    unheard = msgspec.structs.replace(world.log.commits[-1], payload=b'[{"type":"Unheard"}]')

    async def filed() -> None:
        log = await open_log(str(path), "test", create=True)
        await put_commits(log, [*before, unheard])
        await put_snapshot(log, world.state)
        await log.close()

    asyncio.run(filed())
    result = runner.invoke(app, ["status", str(path)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(rf"error: commit {unheard.sequence} on .*: Invalid value 'Unheard'.*\n", result.stderr)


def test_watching_as_json_is_one_object_a_line(log: Path) -> None:
    command = [sys.executable, "-m", "services", "status", str(log), "--watch", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = [json.loads(watching.stdout.readline()) for _ in range(2)]
        watching.terminate()
    assert watching.returncode == 0
    assert not [*log.parent.glob(f"{log.name}-*")], "nothing is left beside the file"
    assert lines[0]["end"] == lines[1]["end"] > 0
