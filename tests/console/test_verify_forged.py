"""Verify: what was forged where nothing else depends on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import events as ev
from events import envelope
from events.envelope import Stored
from events.homes import open_log
from events.log import EventLog
from services.console.kinds.cluster import Checks
from services.console.verify import verify
from services.state.clock import JUMP_NS
from services.state.fold import State
from tests.binder.failing import fail, running
from tests.console.test_verify import altered, find, world
from tests.homes import folded, put_snapshot
from tests.world import SECOND_NS, World

__all__ = ["world"]


async def filed(path: Path, commits: list[Stored]) -> EventLog:
    log = await open_log(str(path), "test", create=True)
    log.append_stored(commits)  # type: ignore[attr-defined]
    return log


def says_otherwise(stored: Stored, basis: int) -> Stored:
    """The refusal with another word, over another basis, and the message id of just these bytes."""
    events = [
        msgspec.structs.replace(event, detail="a lie") if isinstance(event, ev.GroupsRefused) else event
        for event in envelope.decode(stored).events
    ]
    header = msgspec.structs.replace(envelope.decode_header(stored), basis=basis)
    return msgspec.structs.replace(
        stored, payload=envelope.encode_events(events), header=envelope.encode_header(header)
    )


async def test_a_basis_behind_its_writers_commit_is_a_difference_in_a_purged_log_too(
    world: World, tmp_path: Path
) -> None:
    """As it was: counted as of before the log's beginning, where nobody can decide again, and nothing more was asked."""
    commits = world.log.commits
    target = [one for one in commits if b'"GroupsRefused"' in one.payload][-1]
    before = [one for one in commits if one.subject == target.subject and one.sequence < target.sequence][-1]
    cut = before.sequence - 1
    forged = says_otherwise(target, cut - 1)
    log = await filed(tmp_path / "x.db", [forged if one is target else one for one in commits[cut:]])
    await put_snapshot(log, folded(commits, cut))
    report = await verify(log)
    assert report.difference is not None
    assert report.difference.sequence == target.sequence
    assert report.difference.what == f"its basis {cut - 1} lies before its writer's own commit {before.sequence}"


@pytest.mark.parametrize("where", [ev.BinderTaken, ev.NodeObserved])
async def test_bytes_that_are_not_those_of_their_message_id_are_a_difference(world: World, where: type) -> None:
    """As it was: of a fact on which no decision hangs, or of who took a subject, anything could be said later on."""
    sequence, _ = find(world.log, where)
    stored = world.log.commits[sequence - 1]
    payload = stored.payload.replace(b"test", b"tess").replace(b"uid-n", b"uid-m")
    assert payload != stored.payload
    report = await verify(altered(world.log, sequence, payload=payload))
    assert report.difference is not None
    assert (report.difference.sequence, report.differences) == (sequence, 1)
    assert report.difference.what == "its bytes are not those that its message id was made of"


async def test_so_they_are_in_a_purged_log(world: World, tmp_path: Path) -> None:
    """But for the first commit on its subject there: behind what that was said, nobody knows any more."""
    cut = world.state.sequence
    for name in ("x", "y"):
        world.node(name)
    commits = world.log.commits
    last = commits[-1]
    for index in (-2, -1):
        stored = commits[index]
        forged = msgspec.structs.replace(stored, payload=stored.payload.replace(b"uid-", b"uis-"))
        assert forged.payload != stored.payload
        log = await filed(tmp_path / f"{index}.db", [forged if one is stored else one for one in commits[cut:]])
        await put_snapshot(log, folded(commits, cut))
        report = await verify(log)
        assert (report.start, report.differences) == (cut, 1 if stored is last else 0)


async def test_a_writer_whose_last_commit_was_purged_expected_none(world: World, tmp_path: Path) -> None:
    """An archive has what the log has no more: behind it, or behind nothing."""
    commits = list(world.log.commits)
    last = max(one.sequence for one in commits if one.subject.endswith("ingest"))
    stored = commits[last - 1]
    for expected, code in ((0, 0), (last + 7, 1)):
        other = envelope.message_id(stored.subject, expected, stored.payload)
        commits[last - 1] = msgspec.structs.replace(stored, message_id=other)
        log = await filed(tmp_path / f"{expected}.db", commits)
        assert (await verify(log)).exit_code == code
        await log.close()


async def what_differs(world: World, writer: str, *events: ev.Event, cause: str, **fields: int) -> str:
    """Of the world's log with one more commit, whose message id is that of its bytes."""
    assert (await verify(world.log)).verified
    world.append(writer, list(events), cause=cause, **fields)
    report = await verify(world.log)
    assert report.difference is None or report.difference.sequence == len(world.log.commits)
    return "" if report.difference is None else report.difference.what


@pytest.mark.parametrize(
    ("writer", "cause", "said"),
    [
        ("ingest", "facts", "GangPermitted is not for ingest to say"),
        ("admin", "admin", "GangPermitted is not for admin to say"),
        ("planner.a", "outcome", "GangPermitted is not for planner to say"),
    ],
)
async def test_what_is_not_its_writers_to_say_is_a_difference(world: World, writer: str, cause: str, said: str) -> None:
    """As it was of facts and policies: fold and feed pass over it, and so did this, though it stands in the log."""
    _, events = find(world.log, ev.GangPermitted)
    permit = next(event for event in events if type(event) is ev.GangPermitted)
    assert await what_differs(world, writer, permit, cause=cause) == said


async def test_an_outcome_that_a_planner_tells_is_a_difference() -> None:
    """As it was: it answered the binder's intent, though no state knows of it; what the binder said then was the lie."""
    world = World()
    world.node("n0")
    world.pod("alone")
    world.plan()
    world.judge()
    bound = ev.PodBound(uid="alone", namespace="default", name="alone", node="n0")
    assert await what_differs(world, "planner.a", bound, cause="outcome") == ("PodBound is not for planner to say")


@pytest.mark.parametrize("left", [False, True])
async def test_a_shard_comes_and_goes_by_its_own_word(world: World, left: bool) -> None:
    """As it was: outsiders were told that another one had, of which no state knew."""
    event = ev.PlannerLeft(shard="b") if left else ev.PlannerTaken(shard="b", holder="new")
    said = await what_differs(world, "planner.a", event, cause="left" if left else "taken")
    assert said == f"event 0: {type(event).__name__} of b, by planner.a"


async def test_a_writer_that_renews_its_last_word_or_leaves_is_no_difference(world: World) -> None:
    assert await what_differs(world, "planner.a", ev.Renewed(), cause="renew") == ""
    assert await what_differs(world, "planner.a", ev.PlannerLeft(shard="a"), cause="left") == ""


@pytest.mark.parametrize("writer", ["ingest", "admin"])
async def test_facts_and_policies_are_no_decisions(world: World, writer: str) -> None:
    """As it was: they were counted among the decisions, and never decided again."""
    said = await what_differs(world, writer, ev.Renewed(), cause="decide")
    assert said == f"a decision of a {writer}, where binder, planner may decide"


@pytest.mark.parametrize("writer", ["binder", "ingest"])
async def test_an_input_has_read_nothing_that_is_not_there_yet(world: World, writer: str) -> None:
    """As it was: of what is no decision any basis and any epoch was believed."""
    here = len(world.log.commits) + 1
    said = await what_differs(world, writer, ev.Renewed(), cause="renew", basis=here)
    assert said == f"nothing can have been read at its basis {here}"


async def test_an_input_has_read_its_writers_own_commits(world: World) -> None:
    """But for who takes over, and for facts, which stand on none."""
    own = world.log._last["muster.test.binder"]
    assert not await what_differs(world, "ingest", ev.Renewed(), cause="renew", basis=0)
    assert not await what_differs(world, "binder", ev.Renewed(), cause="renew", basis=own)
    taken, own = ev.BinderTaken(holder="new"), world.log._last["muster.test.binder"]
    assert not await what_differs(world, "binder", taken, cause="taken", basis=own - 1)
    own = world.log._last["muster.test.binder"]
    said = await what_differs(world, "binder", ev.Renewed(), cause="renew", basis=own - 1)
    assert said == f"its basis {own - 1} lies before its writer's own commit {own}"


async def test_an_input_is_of_no_epoch_that_is_still_to_come(world: World) -> None:
    epoch = world.state.epoch
    assert not await what_differs(world, "binder", ev.Renewed(), cause="renew", epoch=epoch - 1)
    said = await what_differs(world, "binder", ev.Renewed(), cause="renew", epoch=epoch + 1)
    assert said == f"its epoch is {epoch + 1}, that of its place {epoch}"


@pytest.mark.parametrize(
    ("step_ns", "jumped_ns", "right"),
    [
        (-1, 0, False),
        (-1, -1, False),
        (0, 0, True),
        (JUMP_NS, 0, True),
        (JUMP_NS, JUMP_NS, True),
        (JUMP_NS + 1, 0, True),
        (JUMP_NS + 1, 1, False),
        (JUMP_NS + 1, JUMP_NS + 1, True),
        (SECOND_NS, SECOND_NS // 2, False),
    ],
)
async def test_a_clock_goes_on_in_steps_that_count_or_do_not(
    world: World, step_ns: int, jumped_ns: int, right: bool
) -> None:
    """A part of a step does not count, nor does a clock go back. What a simulation without a wall clock waits for, be it
    for longer than what is a jump elsewhere, counts."""
    now_ns = world.state.clocks["planner.a"].time_ns
    tick = ev.Ticked(time_ns=now_ns + step_ns, jumped_ns=jumped_ns)
    said = await what_differs(world, "planner.a", tick, cause="tick")
    told = f"the clock of planner.a went on by {step_ns} ns, of which {jumped_ns} are not to count"
    assert said == ("" if right else told)


async def test_a_purged_logs_clocks_go_on(world: World, tmp_path: Path) -> None:
    cut = world.state.sequence
    world.pass_s(2)
    assert any(b'"Ticked"' in one.payload for one in world.log.commits[cut:])
    for back_ns, code in ((0, 0), (3 * SECOND_NS, 1)):
        if back_ns:
            world.append("planner.a", [ev.Ticked(time_ns=world.now_ns - back_ns, jumped_ns=0)], cause="tick")
        log = await filed(tmp_path / f"{code}.db", world.log.commits[cut:])
        await put_snapshot(log, folded(world.log.commits, cut))
        assert (await verify(log)).exit_code == code
        await log.close()


@pytest.mark.parametrize("field", ["namespace", "name"])
@pytest.mark.parametrize("kind", [ev.PodBound, ev.BindingFailed, ev.BindingRenewed])
async def test_an_outcome_names_the_pod_by_its_name(kind: type, field: str) -> None:
    """As it was: who reads events was told that another pod is bound."""
    world = World()
    world.node("n0")
    world.pod("alone")
    world.plan()
    world.judge()
    about: dict[str, Any] = {"uid": "alone", "namespace": "default", "name": "alone", "node": "n0"}
    more = {
        ev.PodBound: {},
        ev.BindingFailed: {"reason": "Rejected", "message": "no", "assigned_node": ""},
        ev.BindingRenewed: {"resource_version": "9"},
    }[kind]
    said = await what_differs(world, "binder", kind(**about | more | {field: "other"}), cause="outcome")
    assert said == f"event 0: {kind.__name__}, intended was default/alone"


def torn_down() -> tuple[World, str]:
    """A world in which a pod is to be evicted."""
    world, uids = running("evict")
    fail(world, uids[1], "OutOfcpu")
    world.judge()
    world.pass_s(40)
    world.judge()
    return world, next(iter(world.state.evictions))


@pytest.mark.parametrize("kind", [ev.PodEvicted, ev.EvictionFailed])
async def test_of_an_eviction_that_was_intended_there_is_one_outcome(kind: type) -> None:
    """As it was: who was to be evicted once might be evicted as often as a log said."""
    world, uid = torn_down()
    fact = world.state.pods[uid].fact
    about: dict[str, Any] = {"uid": uid, "namespace": fact.namespace, "name": fact.name}
    outcome = kind(**about, **({"message": "no"} if kind is ev.EvictionFailed else {}))
    assert await what_differs(world, "binder", outcome, cause="outcome") == ""
    said = await what_differs(world, "binder", ev.PodEvicted(**about), cause="outcome")
    assert said == "event 0: PodEvicted, intended was nothing"


@pytest.mark.parametrize("kind", [ev.PodEvicted, ev.EvictionFailed])
async def test_what_became_of_an_eviction_names_it_too(kind: type) -> None:
    world, uid = torn_down()
    fact = world.state.pods[uid].fact
    about: dict[str, Any] = {"uid": uid, "namespace": fact.namespace, "name": "other"}
    outcome = kind(**about, **({"message": "no"} if kind is ev.EvictionFailed else {}))
    said = await what_differs(world, "binder", outcome, cause="outcome")
    assert said == f"event 0: {kind.__name__}, intended was {fact.namespace}/{fact.name}"


async def test_a_mark_that_failed_names_it_too() -> None:
    failed = ev.TimeoutMarkFailed(uid="a-0", namespace="default", name="other", message="")
    said = await what_differs(timed_out(), "binder", failed, cause="outcome")
    assert said == "event 0: TimeoutMarkFailed, intended was default/a-0"


def timed_out() -> World:
    world = World()
    world.koordinator("default/a", 2, 2, {"mode": "NonStrict", "waiting_time_ms": 1_000})
    world.node("n0", cpu=1)
    world.plan()
    world.judge()
    world.pass_s(3)
    world.judge()
    assert set(world.state.marks) == {"a-0", "a-1"}
    return world


@pytest.mark.parametrize("last", ["Marked", "Failed", "Renewed"])
async def test_of_a_mark_that_was_intended_there_is_one_outcome_however_often_it_was_renewed(last: str) -> None:
    world = timed_out()
    pods = (("a-0", "90"), ("a-1", "90"))
    assert await what_differs(world, "binder", ev.TimeoutMarkRenewed(pods=pods), cause="outcome") == ""
    assert await what_differs(world, "binder", ev.TimeoutMarkRenewed(pods=pods), cause="outcome") == ""
    assert await what_differs(world, "binder", ev.TimeoutMarked(pods=pods[:1]), cause="outcome") == ""
    again = {
        "Marked": ev.TimeoutMarked(pods=pods),
        "Failed": ev.TimeoutMarkFailed(uid="a-0", namespace="default", name="a-0", message=""),
        "Renewed": ev.TimeoutMarkRenewed(pods=pods),
    }[last]
    said = await what_differs(world, "binder", again, cause="outcome")
    assert said == f"event 0: TimeoutMark{last.removeprefix('Mark')}, intended was nothing"


async def test_who_takes_a_purged_log_intends_what_is_not_settled_there() -> None:
    """Who had it before may settle what was purged with its intent."""
    world = timed_out()
    written, open_ = (ev.TimeoutMarked(pods=((uid, "90"),)) for uid in ("a-0", "a-1"))
    assert await what_differs(world, "binder", written, cause="outcome") == ""
    for anew, said in ((False, None), (True, "")):
        checks = Checks(world.state)
        if anew:
            checks.taken(ev.BinderTaken(holder="new"))
        assert [checks.unintended(written), checks.unintended(open_)] == [said, None]
        assert checks.before == (not anew)


def test_a_binding_whose_permit_was_purged_is_no_difference_and_one_to_another_node_is() -> None:
    """That of a pod whose permit is still there, or of a binder that came later, has it before it."""
    world = World()
    world.node("n0")
    world.pod("alone")
    world.plan()
    world.judge()
    checks, about = Checks(world.state), {"namespace": "default", "name": "x"}
    assert checks.unintended(ev.PodBound(uid="alone", node="n1", **about | {"name": "alone"})) == "n0"
    assert checks.unintended(ev.PodBound(uid="purged", node="n1", **about)) is None
    assert checks.before == 1
    checks.taken(ev.BinderTaken(holder="new"))
    assert checks.unintended(ev.PodBound(uid="purged", node="n1", **about)) == ""


def test_an_intent_that_etcd_took_back_and_the_next_have_an_outcome_each() -> None:
    checks = Checks(State())
    about: dict[str, Any] = {"uid": "a", "namespace": "default", "name": "a"}
    intended = ev.EvictionIntended(**about, resource_version="1", reason="")
    checks.decided([intended, intended])
    assert [checks.unintended(ev.PodEvicted(**about)) for _ in range(3)] == [None, None, ""]
