"""Verify: every decision again, and every way in which a log can lie."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import events as ev
from events import envelope, memory
from events.envelope import decode_header
from events.homes import copy, open_log
from events.memory import MemoryLog
from services.cli.muster import app
from services.console import verify as verification
from services.console.kinds.cluster import Checks
from services.console.verify import Verifier, verify
from services.state import commits, snapshot
from services.state.fold import State
from services.state.form import UnknownCommit
from services.state.slices import at_once
from services.state.validate import Violated
from tests.binder.failing import fail, running
from tests.homes import folded, put_snapshot
from tests.world import World


@pytest.fixture
def world() -> World:
    """Gangs that fit, one that waits, single pods, a timeout's worth of ticks, a node that goes."""
    world = World()
    for i in range(4):
        world.node(f"n{i}", cpu=4)
    world.gang("train", 6, 6)
    world.gang("large", 20, 20)
    world.gang("never", 90, 90)
    for i in range(3):
        world.pod(f"alone-{i}")
    world.settle()
    world.pass_s(2)
    world.node("n9", cpu=16)
    world.settle()
    world.pass_s(12)
    world.settle()
    return world


def altered(log: MemoryLog, sequence: int, **fields: object) -> MemoryLog:
    """The same log with other bytes at one place."""
    other = MemoryLog(log.cluster)
    other.commits = list(log.commits)
    other.commits[sequence - 1] = msgspec.structs.replace(log.commits[sequence - 1], **fields)
    return other


def find(log: MemoryLog, kind: type) -> tuple[int, list[ev.Event]]:
    """The first commit with an event of this kind: its sequence and events."""
    for stored in log.commits:
        events = envelope.decode(stored).events
        if any(isinstance(event, kind) for event in events):
            return stored.sequence, events
    raise AssertionError(f"no {kind.__name__} in the log")


def test_a_large_cycle_is_decided_again_in_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: a connection whose turn came after each batch only was taken for one that had gone."""
    monkeypatch.setattr(commits, "SLICE_UNITS", 1)
    verifier = Verifier(world.log.cluster)
    verifier.expect(world.log.commits)
    slices = len(list(verifier.check(world.log.commits)))
    verifier.finish()
    assert verifier.report.verified
    assert slices > verifier.report.decided


async def test_every_decision_is_reproduced(world: World) -> None:
    report = await verify(world.log)
    assert report.verified
    assert report.exit_code == 0
    assert report.decided == report.reproduced == report.causes["decide"] >= 5
    assert report.decisions >= report.decided
    assert report.digest == snapshot.digest(world.state)
    assert report.last == len(world.log.commits)
    assert report.causes["tick"] > 0
    assert report.outcomes == len(world.bound())


async def test_a_log_in_a_file_verifies_alike(world: World, tmp_path) -> None:
    file = await open_log(str(tmp_path / "log.db"), "test", create=True)
    await copy(world.log, file)
    assert await verify(file) == await verify(world.log)
    await file.close()


async def test_another_node_in_a_proposal_is_a_difference(world: World) -> None:
    sequence, events = find(world.log, ev.GangPlaced)
    index, placed = next((i, e) for i, e in enumerate(events) if isinstance(e, ev.GangPlaced))
    nodes = [msgspec.structs.replace(a, node="n3" if a.node != "n3" else "n2") for a in placed.required]
    events[index] = msgspec.structs.replace(placed, required=tuple(nodes))
    report = await verify(altered(world.log, sequence, payload=envelope.encode_events(events)))
    assert report.exit_code == 1
    assert report.difference is not None
    assert (report.difference.sequence, report.difference.writer) == (sequence, "planner.a")
    assert report.difference.logged[index]["required"] != report.difference.decided[index]["required"]


async def test_a_verdict_that_permits_less_is_a_difference(world: World) -> None:
    sequence, events = find(world.log, ev.GangPermitted)
    index, permit = next((i, e) for i, e in enumerate(events) if isinstance(e, ev.GangPermitted))
    events[index] = msgspec.structs.replace(permit, bindings=permit.bindings[:-1])
    report = await verify(altered(world.log, sequence, payload=envelope.encode_events(events)))
    assert report.exit_code == 1
    assert report.difference is not None
    assert (report.difference.sequence, report.difference.writer) == (sequence, "binder")


async def test_a_decision_under_another_epoch_is_a_difference(world: World) -> None:
    sequence, _ = find(world.log, ev.GangPlaced)
    header = msgspec.structs.replace(decode_header(world.log.commits[sequence - 1]), epoch=7)
    report = await verify(altered(world.log, sequence, header=envelope.encode_header(header)))
    assert report.exit_code == 1
    assert "epoch is 7" in report.difference.what


async def test_a_basis_that_is_not_before_the_commit_is_a_difference(world: World) -> None:
    sequence, _ = find(world.log, ev.GangPlaced)
    header = msgspec.structs.replace(decode_header(world.log.commits[sequence - 1]), basis=sequence)
    report = await verify(altered(world.log, sequence, header=envelope.encode_header(header)))
    assert report.exit_code == 1
    assert f"basis {sequence}" in report.difference.what


@pytest.mark.parametrize(("kind", "writer"), [(ev.GangPlaced, "planner.a"), (ev.GangPermitted, "binder")])
async def test_a_decision_that_is_said_twice_is_a_difference(world: World, kind: type, writer: str) -> None:
    """Its writer has not read its own word back. The bytes are what the rules decide at that basis."""
    sequence, events = find(world.log, kind)
    basis = decode_header(world.log.commits[sequence - 1]).basis
    world.append(writer, events, cause="decide", basis=basis)
    report = await verify(world.log)
    assert (report.exit_code, report.differences) == (1, 1)
    assert report.difference.sequence == len(world.log.commits)
    assert f"its basis {basis} lies before its writer's own commit" in report.difference.what


async def test_a_decision_hidden_among_the_inputs_is_a_difference(world: World) -> None:
    sequence, _ = find(world.log, ev.GangPlaced)
    header = msgspec.structs.replace(decode_header(world.log.commits[sequence - 1]), cause="outcome")
    report = await verify(altered(world.log, sequence, header=envelope.encode_header(header)))
    assert report.exit_code == 1
    assert "GangPlaced under the cause 'outcome'" in report.difference.what


NEVER: dict[str, Any] = {"uid": "never-0", "namespace": "default", "name": "never-0"}


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (ev.PodBound(uid="never-0", namespace="default", name="never-0", node="n1"), "PodBound, intended was nothing"),
        (
            ev.BindingFailed(**NEVER, node="n1", reason="Rejected", message="", assigned_node=""),
            "BindingFailed, intended was nothing",
        ),
        (ev.BindingRenewed(**NEVER, node="n1", resource_version="9"), "BindingRenewed, intended was nothing"),
        (ev.PodEvicted(uid="alone-0", namespace="default", name="alone-0"), "PodEvicted, intended was nothing"),
        (ev.EvictionFailed(**NEVER, message="no"), "EvictionFailed, intended was nothing"),
        (ev.TimeoutMarked(pods=(("never-0", "9"),)), "TimeoutMarked, intended was nothing"),
        (ev.TimeoutMarkRenewed(pods=(("never-0", "9"),)), "TimeoutMarkRenewed, intended was nothing"),
        (ev.TimeoutMarkFailed(**NEVER, message="no"), "TimeoutMarkFailed, intended was nothing"),
    ],
)
async def test_an_outcome_without_its_intent_is_a_difference(world: World, outcome: ev.Event, said: str) -> None:
    world.append("binder", [outcome], cause="outcome")
    report = await verify(world.log)
    assert report.exit_code == 1
    assert said in report.difference.what
    assert report.difference.sequence == len(world.log.commits)


async def test_of_an_intent_there_is_one_outcome() -> None:
    """As it was: a permit that had failed stood for a binding that came behind, of which no state knew."""
    world = World()
    world.node("n0")
    world.pod("alone")
    about: dict[str, Any] = {"uid": "alone", "namespace": "default", "name": "alone", "node": "n0"}
    refused = ev.BindingFailed(**about, reason="Rejected", message="no", assigned_node="")
    for said in (refused, ev.PodBound(**about)):
        world.plan()
        world.judge()
        renewed = ev.BindingRenewed(**about, resource_version="9")
        world.append("binder", [renewed, said], cause="outcome")
        world.pass_s(2)
    assert (await verify(world.log)).verified
    world.append("binder", [ev.PodBound(**about)], cause="outcome")
    report = await verify(world.log)
    assert (report.exit_code, report.differences) == (1, 1)
    assert report.difference.what == "event 0: PodBound, intended was nothing"


async def test_a_binding_to_another_node_than_was_permitted_is_a_difference(world: World) -> None:
    sequence, events = find(world.log, ev.PodBound)
    index, bound = next((i, e) for i, e in enumerate(events) if isinstance(e, ev.PodBound))
    events[index] = msgspec.structs.replace(bound, node="elsewhere")
    report = await verify(altered(world.log, sequence, payload=envelope.encode_events(events)))
    assert report.exit_code == 1
    assert f"PodBound, intended was {bound.node}" in report.difference.what


async def test_an_eviction_and_a_mark_that_were_intended_are_no_difference() -> None:
    world, uids = running("evict")
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.pass_s(40)
    world.judge()
    world.koordinator("default/timed", 9, 9, {"mode": "NonStrict", "waiting_time_ms": 1_000})
    world.node("n9", cpu=1)
    world.plan()
    world.judge()
    world.pass_s(3)
    world.judge()
    assert world.state.evictions
    assert world.state.marks
    (first, *_), (mark, *_) = world.state.evictions.values(), world.state.marks
    gone = ev.PodEvicted(uid=first.uid, namespace="default", name=first.name)
    world.append("binder", [gone, ev.TimeoutMarked(pods=((mark, world.version()),))], cause="outcome")
    report = await verify(world.log)
    assert report.difference is None, report.difference.what
    assert report.exit_code == 0
    assert report.outcomes == 3 + 2


@pytest.mark.parametrize("answered", [False, True])
async def test_what_became_of_a_binding_that_was_taken_back_is_no_difference(answered: bool) -> None:
    """Etcd was restored from a backup, and the binder had not read of it. Of what was answered nothing else may come."""
    world = World()
    world.node("n0")
    for name in ("alike", "alone"):
        world.pod(name)
    world.plan()
    world.judge()
    waiting, about = world.state.pods["alone"].fact, {"uid": "alone", "namespace": "default", "name": "alone"}
    if answered:
        refused = ev.BindingFailed(**about, node="n0", reason="Rejected", message="", assigned_node="")
        world.append("binder", [refused], cause="outcome")
    world.facts(ev.NodeDeleted(name="n0", uid=world.state.nodes["n0"].fact.uid))
    world.node("n1")
    world.facts(ev.PodDeleted(**about), waiting)
    world.plan()
    world.judge()
    assert world.state.claims["alone"].node == "n1"
    world.append("binder", [ev.PodBound(**about, node="n0"), ev.PodBound(**about, node="n1")], cause="outcome")
    assert (await verify(world.log)).exit_code == int(answered)
    assert world.where("alone") == ["n1"]


async def test_another_rules_version_is_not_verifiable_here(world: World) -> None:
    sequence, _ = find(world.log, ev.GangPlaced)
    header = msgspec.structs.replace(decode_header(world.log.commits[sequence - 1]), rules=envelope.FIRST_VERSION + 1)
    report = await verify(altered(world.log, sequence, header=envelope.encode_header(header)))
    assert (report.exit_code, report.unverifiable, report.differences) == (5, 1, 0)
    assert f"rules version {envelope.FIRST_VERSION + 1}" in report.why_unverifiable
    assert report.reproduced == report.decided - 1


async def test_of_several_that_are_not_verifiable_the_first_is_named(world: World) -> None:
    first, (later, _) = find(world.log, ev.GangPlaced)[0], find(world.log, ev.GangPermitted)
    log = world.log
    for sequence in (first, later):
        header = msgspec.structs.replace(decode_header(log.commits[sequence - 1]), rules=99)
        log = altered(log, sequence, header=envelope.encode_header(header))
    report = await verify(log)
    assert report.unverifiable == 2
    assert report.why_unverifiable.startswith(f"commit {min(first, later)} was decided by rules version 99")


async def test_a_decision_that_is_no_json_is_named_as_any_other(world: World) -> None:
    sequence, _ = find(world.log, ev.GangPlaced)
    for payload in (b"[", b"[" * 100_000, b'["\xff"]'):
        with pytest.raises(UnknownCommit, match=f"{sequence}"):
            await verify(altered(world.log, sequence, payload=payload))


async def test_in_whatever_batches_it_comes_it_is_told_from_its_first_commit_to_its_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "BATCH", 4)
    end, told = len(world.log.commits), list[tuple[int, int]]()
    report = await verify(world.log, progress=lambda done, of: told.append((done, of)))
    assert (report.first, report.last) == (1, end)
    assert told == [(min(done, end), end) for done in range(4, end + 4, 4)]


async def test_a_difference_outweighs_what_is_not_verifiable(world: World) -> None:
    sequence, _ = find(world.log, ev.GangPlaced)
    header = msgspec.structs.replace(decode_header(world.log.commits[sequence - 1]), rules=99)
    log = altered(world.log, sequence, header=envelope.encode_header(header))
    permit, _ = find(world.log, ev.GangPermitted)
    assert (await verify(altered(log, permit, payload=b"[]"))).exit_code == 1


async def test_another_state_version_is_not_verifiable_here(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything behind it, in whatever batches the log is read."""
    monkeypatch.setattr(memory, "BATCH", 4)
    header = msgspec.structs.replace(decode_header(world.log.commits[7]), state=envelope.FIRST_VERSION + 1)
    report = await verify(altered(world.log, 8, header=envelope.encode_header(header)))
    assert (report.exit_code, report.verified) == (5, False)
    assert "commit 8 on it was folded by state version" in report.why_unverifiable
    rest = len(world.log.commits) - 7
    assert (report.folded, report.last, report.unverifiable) == (7, 7, rest)
    assert report.digest == snapshot.digest(folded(world.log.commits, 7))


async def test_what_this_code_has_no_word_for_is_not_verifiable_where_other_rules_wrote_it(world: World) -> None:
    """In a commit of its own rules it is no commit, as ever."""
    payload = b'[{"type":"NotYetInvented"}]'
    for sequence, _ in (find(world.log, ev.GangPlaced), find(world.log, ev.NodeObserved)):
        header = msgspec.structs.replace(decode_header(world.log.commits[sequence - 1]), rules=7)
        log = altered(world.log, sequence, header=envelope.encode_header(header), payload=payload)
        report = await verify(log)
        assert (report.exit_code, report.folded) == (5, sequence - 1)
        assert report.unverifiable == len(log.commits) - sequence + 1
        assert f"commit {sequence} on" in report.why_unverifiable
        with pytest.raises(UnknownCommit, match="NotYetInvented"):
            await verify(altered(world.log, sequence, payload=payload))


async def test_a_log_without_its_beginning_is_not_verifiable(world: World, tmp_path) -> None:
    file = await open_log(str(tmp_path / "tail.db"), "test", create=True)
    file.append_stored(world.log.commits[5:])
    report = await verify(file)
    assert report.exit_code == 5
    assert "begins at 6" in report.why_unverifiable
    await put_snapshot(file, folded(world.log.commits, 9))
    report = await verify(file)
    await file.close()
    assert (report.exit_code, report.start, report.unfolded) == (0, 9, 4)


async def test_a_foreign_message_is_set_aside_and_counted(world: World) -> None:
    log = MemoryLog("test")
    log.commits = list(world.log.commits)
    log.commits.append(
        msgspec.structs.replace(log.commits[-1], sequence=len(log.commits) + 1, header=b"{}", payload=b"hello")
    )
    report = await verify(log)
    assert report.verified
    assert report.causes["foreign"] == 1


async def test_the_whole_state_is_checked_on_the_way(world: World) -> None:
    report = await verify(world.log, validate_every=1)
    assert report.verified


def test_how_often_it_is_checked_is_said_on_the_command_line(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []
    monkeypatch.setattr("services.console.kinds.cluster.validate_state", lambda state: checked.append(state.sequence))
    assert CliRunner().invoke(app, ["verify", str(log)]).exit_code == 0
    (end,) = checked
    assert CliRunner().invoke(app, ["verify", str(log), "--strict", "4"]).exit_code == 0
    assert checked[1:] == [*range(4, end + 1, 4), end]


async def test_a_state_that_is_not_sound_is_a_violation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where every decision is reproduced: then the rules are wrong."""

    def wrong(state: State) -> None:
        raise Violated("nothing may hold")

    monkeypatch.setattr("services.console.kinds.cluster.validate_state", wrong)
    report = await verify(world.log)
    assert report.violation == f"at {len(world.log.commits)}: nothing may hold"
    assert (report.verified, report.exit_code, report.differences) == (False, 1, 0)
    assert (await verify(world.log, validate_every=4)).violation == "at 4: nothing may hold"


async def test_strictly_the_state_of_its_snapshot_is_the_state(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot.FORM, "decode", lambda data: State())
    assert (await verify(world.log)).verified
    report = await verify(world.log, validate_every=100)
    assert report.violation == "the state of its snapshot has another digest (7.6)"


async def test_a_snapshots_commit_that_cannot_be_read_is_named_as_any_other(world: World) -> None:
    world.append("binder", [ev.Renewed()], cause="outcome")
    broken = altered(world.log, len(world.log.commits), payload=b'[{"type":"SnapshotTaken"}]')
    with pytest.raises(UnknownCommit, match=f"{len(world.log.commits)}"):
        await verify(broken)


async def test_an_empty_log_has_nothing_that_could_differ() -> None:
    report = await verify(MemoryLog("empty"))
    assert report.verified
    assert (report.decided, report.last) == (0, 0)


async def test_decisions_at_one_basis_by_two_writers_are_each_reproduced() -> None:
    """Planner and binder read the same place; whoever appends second decided before it saw the first."""
    world = World(shards=("a", "b"))
    for i in range(4):
        world.node(f"n{i}", cpu=4)
    for i in range(12):
        world.pod(f"pod-{i}")
    world.settle(("a", "b"))
    for i in range(2):
        world.pod(f"more-{i}")
    world.gang("crew", 2, 2)
    from services.planner import core as planner

    basis = world.state.sequence
    said = {shard: planner.decide_now(world.state, shard) for shard in ("a", "b")}
    for shard, decided in said.items():
        if decided:
            world.append(f"planner.{shard}", decided, cause="decide", basis=basis)
    world.settle(("a", "b"))
    report = await verify(world.log)
    assert report.verified
    assert all(said.values())


def test_the_word_that_a_pod_was_marked_may_come_when_its_intent_was_purged_and_its_user_has_acted() -> None:
    """Seed 14263: at the place from which the log is there, nothing says any more that the pod was marked."""
    world = World()
    world.node("n0")
    world.koordinator("default/a", 2, 2)
    world.propose("default/a", {"a-0": "n0"})
    world.judge()
    world.pass_s(600)
    world.judge()
    world.mark()
    for uid in ("a-0", "a-1"):
        world.says(uid, timed_out=False)
    checks = Checks(world.state)
    world.pod("later", "a")
    assert checks.unintended(ev.TimeoutMarked(pods=(("a-0", "5"),))) is None
    checks.taken(ev.PlannerTaken(shard="b", holder="new"))
    assert checks.unintended(ev.EvictionFailed(**NEVER, message="no")) is None
    assert checks.before == 2
    checks.taken(ev.BinderTaken(holder="new"))
    assert checks.unintended(ev.TimeoutMarked(pods=(("a-0", "5"),))) == "", "that one never knew of it"


def test_facts_that_nobody_decides_on_are_folded_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection answers pings in between, whatever is read in one batch; and while a digest is made."""
    world = World()
    for number in range(20):
        world.node(f"n{number}")
    commits = world.log.commits
    monkeypatch.setattr(verification, "FOLD_BYTES", 1)
    verifier = Verifier("test")
    verifier.expect(commits)
    places = [verifier.state.sequence for _ in verifier.check(commits)]
    assert set(range(len(commits))) <= set(places)
    assert sum(1 for _ in snapshot.FORM.digest_in_slices(world.state)) == len(list(snapshot.FORM.lines(world.state)))
    assert at_once(snapshot.FORM.digest_in_slices(world.state)) == snapshot.digest(verifier.state)
