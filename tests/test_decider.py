"""How a deciding service reads the log, where that is not a matter of one service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

import events as ev
from events import envelope, subjects
from events.envelope import Commit, Header, Stored
from events.log import LogError
from events.memory import MemoryLog
from services import decider as deciding
from services.decider import GATHERED_OUTCOMES, Decider, Deciding, LogTime
from services.state.fold import State
from services.state.form import UnknownVersion
from services.writer import GATHERED_BYTES, SteppedDown, Writer
from tests.second import BOTH
from tests.waiting import until
from tests.world import SECOND_NS, World

SUBJECT = subjects.subject("test", "binder")


def nothing(state: State) -> Deciding:
    none: Iterator[None] = iter(())
    yield from none
    return ()


async def test_a_process_that_wakes_up_replaced_does_nothing_of_what_its_successor_intends() -> None:
    """SIGSTOP, and another took over: what it reads now is not its own to carry out (design, rule 5)."""
    log, seen = MemoryLog("test"), list[Commit]()
    decider = Decider(log, Writer(log, "binder"), nothing, applied=seen.append)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="old")))
    await until(lambda: decider.active, "the first to be at work")
    permit = ev.GangPermitted(group="pod/default/a", proposals=(), bindings=(), dropped=())
    for event, cause in ((ev.BinderTaken(holder="new"), "taken"), (permit, "decide")):
        header = Header(writer="binder", epoch=0, basis=1, time_ns=0, cause=cause)
        log.append_now(SUBJECT, header, envelope.encode_events([event]), log._last[SUBJECT])
    with pytest.raises(SteppedDown, match="was taken by another process at 2"):
        await asyncio.wait_for(running, 60)
    assert [commit.sequence for commit in seen] == []


async def test_a_standby_that_leaves_waits_for_the_end_of_its_turn() -> None:
    """A lease that was claimed just now is given back: that takes the connection, which is closed after this."""
    log, waits, ended = MemoryLog("test"), asyncio.Event(), asyncio.Event()

    async def its_turn() -> None:
        try:
            waits.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.set()

    decider = Decider(log, Writer(log, "binder"), nothing)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="standby"), its_turn))
    await waits.wait()
    decider.leave(ev.Renewed())
    await running
    assert ended.is_set()
    assert log.commits == []


async def test_whoever_is_active_and_leaves_says_so_and_nothing_behind_it() -> None:
    """A shard's last word, by which others have its groups at once."""
    log = MemoryLog("test")
    decider = Decider(log, Writer(log, "planner.a"), nothing)
    running = asyncio.create_task(decider.run(ev.PlannerTaken(shard="a", holder="test")))
    await until(lambda: decider.active, "it to be at work")
    decider.leave(ev.PlannerLeft(shard="a"))
    decider.report(ev.Renewed())
    await asyncio.wait_for(running, 60)
    last = envelope.decode(log.commits[-1])
    assert (last.header.cause, last.events) == ("left", [ev.PlannerLeft(shard="a")])
    assert last.sequence == 2


async def test_a_standby_stays_one_when_another_takes_the_subject() -> None:
    log, turn, turns = MemoryLog("test"), asyncio.Event(), list[str]()

    async def its_turn() -> None:
        turns.append("waits")
        await turn.wait()

    decider = Decider(log, Writer(log, "binder"), nothing)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="standby"), its_turn))
    await until(lambda: turns, "it to stand by")
    header = Header(writer="binder", epoch=0, basis=0, time_ns=0, cause="taken")
    log.append_now(SUBJECT, header, envelope.encode_events([ev.BinderTaken(holder="other")]), 0)
    await until(lambda: decider.state.sequence == 1 or running.done(), "it to read that")
    turn.set()
    await until(lambda: decider.active or running.done(), "it to be at work")
    assert not running.done()
    running.cancel()


async def test_outcomes_share_commits_that_are_bounded_whatever_the_api_server_says() -> None:
    """Thousands of bindings that one webhook refuses with a long message."""
    log = MemoryLog("test")
    decider = Decider(log, Writer(log, "binder"), nothing)
    texts = ["x" * 20_000] * 500 + [""] * (GATHERED_OUTCOMES + 1)
    for number, text in enumerate(texts):
        about = {"uid": str(number), "namespace": "default", "name": "p", "node": "n", "assigned_node": ""}
        decider.report(ev.BindingFailed(reason="Forbidden", message=text, **about))
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    try:
        await until(lambda: not decider.outcomes, "all outcomes to be in the log")
        await until(lambda: decider.state.sequence == decider.writer.last, "them to be folded")
    finally:
        running.cancel()
    gathered = [envelope.decode(stored) for stored in log.commits if b'"cause":"outcome"' in stored.header]
    assert [event.uid for commit in gathered for event in commit.events] == [str(n) for n in range(len(texts))]
    assert max(len(commit.events) for commit in gathered) == GATHERED_OUTCOMES
    assert max(len(stored.payload) for stored in log.commits) <= GATHERED_BYTES
    assert len(gathered) < 20


def test_log_time_begins_at_the_wall_clock_or_the_logs_own_and_runs_on_whatever_is_set(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who takes over on a host whose clock is behind would otherwise tick again only when it has caught up."""
    wall_ns, passed_ns = [5_000_000_000], [70]
    monkeypatch.setattr(deciding.time, "time_ns", lambda: wall_ns[0])
    monkeypatch.setattr(deciding.time, "monotonic_ns", lambda: passed_ns[0])
    clocks = {"wall": LogTime(), "log": LogTime(), "offset": LogTime(offset_ms=2)}
    for name, clock in clocks.items():
        clock.start(9_000_000_000 if name == "log" else 1_000_000_000)
    wall_ns[0], passed_ns[0] = 0, 73
    now_ns = {name: clock.now_ns() for name, clock in clocks.items()}
    assert now_ns == {"wall": 5_000_000_003, "log": 9_000_000_003, "offset": 5_002_000_003}
    assert caplog.messages == []
    LogTime().start(41_000_000_000)
    assert [message.partition(" s ahead")[0] for message in caplog.messages] == ["the log's time is 41"]


async def test_a_process_that_takes_over_goes_on_from_the_log_time_of_the_one_before() -> None:
    log, clock, ahead_ns = MemoryLog("test"), LogTime(), 2**62
    header = Header(writer="binder", epoch=0, basis=0, time_ns=0, cause="tick")
    log.append_now(SUBJECT, header, envelope.encode_events([ev.Ticked(time_ns=ahead_ns, jumped_ns=0)]), 0)
    decider = Decider(log, Writer(log, "binder"), nothing, clock=clock)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    await until(lambda: decider.active, "it to be at work")
    running.cancel()
    assert clock.now_ns() >= ahead_ns
    assert [envelope.decode_header(stored).basis for stored in log.commits] == [0, 1]


class Watch(LogTime):
    """Log time as the test has it."""

    def __init__(self, now_ns: int) -> None:
        super().__init__()
        self.ns = now_ns

    def start(self, log_time_ns: int) -> None:
        pass

    def now_ns(self) -> int:
        return self.ns


def waiting_gang() -> World:
    """One of two pods has waited at permit for a second, of its ten."""
    world = World()
    world.node("n0", cpu=1)
    world.propose("default/train", {world.gang("train", 2, 2)[0]: "n0"})
    world.judge()
    world.pass_s(1)
    return world


@pytest.mark.parametrize("waiting_is_judged", [True, False], ids=["binder", "planner"])
async def test_a_binder_that_takes_over_leaves_out_the_time_without_one(waiting_is_judged: bool) -> None:
    """Design, section 3: waiting time counts only while a binder is active. Backoffs go on."""
    world = waiting_gang()
    clock, writer = Watch(world.now_ns + 20 * SECOND_NS), Writer(world.log, "binder")
    decider = Decider(world.log, writer, nothing, clock=clock, absence_counts=not waiting_is_judged)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="next")))
    await until(lambda: decider.active and decider.state.sequence == world.state.sequence + 2, "its first tick")
    running.cancel()
    assert decider.state.groups["default/train"].permit_due is not waiting_is_judged


async def test_a_binder_that_stood_still_leaves_out_that_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP, or a log that was away: until the log was last heard it was active, and has read to its end."""
    monkeypatch.setattr("services.decider.ASKED_NS", 10_000_000)
    world = waiting_gang()
    clock = Watch(world.now_ns)
    decider = Decider(world.log, Writer(world.log, "binder"), nothing, clock=clock, absence_counts=False)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    await until(lambda: decider.state.sequence == world.state.sequence + 2, "its first tick")
    clock.ns += 2 * SECOND_NS
    await until(lambda: decider._heard_ns == clock.ns, "it to hear the log again")
    heard_ns = clock.ns
    clock.ns += 18 * SECOND_NS
    await until(lambda: decider.state.sequence == world.state.sequence + 3, "its ticks to be folded")
    running.cancel()
    assert list(envelope.decode(world.log.commits[-1]).events) == [
        ev.Ticked(time_ns=heard_ns, jumped_ns=0),
        ev.Ticked(time_ns=clock.ns, jumped_ns=18 * SECOND_NS),
    ]
    assert not decider.state.groups["default/train"].permit_due


async def test_a_log_that_was_away_is_asked_for_until_it_is_back_and_that_time_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deciding, "ASKED_NS", SECOND_NS // 1_000)
    world = waiting_gang()
    clock, end, asked, back = Watch(world.now_ns), world.log.end, list[int](), asyncio.Event()
    decider = Decider(world.log, Writer(world.log, "binder"), nothing, clock=clock, absence_counts=False)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    await until(lambda: decider.state.sequence == world.state.sequence + 2, "its first tick")

    async def away() -> int:
        if asyncio.current_task() in listening:
            asked.append(clock.ns)
            raise LogError("no server")
        await back.wait()
        return await end()

    listening = [task for task in asyncio.all_tasks() if task.get_name() == "listening for binder"]

    monkeypatch.setattr(world.log, "end", away)
    for _ in range(9):
        clock.ns += 2 * SECOND_NS
        await until(lambda: asked and asked[-1] == clock.ns, "it to ask")
    monkeypatch.setattr(world.log, "end", end)
    back.set()
    await until(lambda: decider.state.sequence == world.state.sequence + 3, "its ticks to be folded")
    running.cancel()
    last = envelope.decode(world.log.commits[-1]).events[-1]
    assert last == ev.Ticked(time_ns=clock.ns, jumped_ns=18 * SECOND_NS)
    assert not decider.state.groups["default/train"].permit_due


async def test_a_binder_that_takes_long_to_decide_is_active_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: what took more than 3 s, time and again, was left out each time, and no deadline came."""
    monkeypatch.setattr(deciding, "ASKED_NS", SECOND_NS // 100)
    world = waiting_gang()
    clock = Watch(world.now_ns)

    def slowly(state: State) -> Deciding:
        while clock.ns < world.now_ns + 20 * SECOND_NS:
            yield
            heard_ns, clock.ns = decider._heard_ns, clock.ns + SECOND_NS
            while decider._heard_ns == heard_ns:
                yield
        return ()

    decider = Decider(world.log, Writer(world.log, "binder"), slowly, clock=clock, absence_counts=False)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    await until(lambda: decider.active and decider.state.groups["default/train"].permit_due, "its deadline")
    running.cancel()


class Deaf(MemoryLog):
    """It takes commits and sends them, and never says where it ends."""

    async def end(self) -> int:
        await asyncio.Event().wait()
        return 0


async def test_a_log_that_is_slow_to_say_where_it_ends_holds_up_no_outcome() -> None:
    world = waiting_gang()
    clock = Watch(world.now_ns)
    decider = Decider(world.log, Writer(world.log, "binder"), nothing, clock=clock, absence_counts=False)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    await until(lambda: decider.active and decider._heard_ns == clock.ns, "it to be at work")
    world.log.__class__ = Deaf
    clock.ns += 2 * SECOND_NS
    decider.report(ev.PodEvicted(uid="1", namespace="default", name="p"))
    await until(lambda: b"PodEvicted" in world.log.commits[-1].payload, "the outcome to be in the log")
    running.cancel()


async def test_a_standby_does_not_ask_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is active does, and what waits is judged by its clock."""
    monkeypatch.setattr(deciding, "ASKED_NS", SECOND_NS // 1_000)
    world, asked = waiting_gang(), list[int]()
    end = world.log.end

    async def counted() -> int:
        asked.append(len(asked))
        return await end()

    async def never() -> None:
        await asyncio.Event().wait()

    world.log.end = counted  # type: ignore[method-assign]
    decider = Decider(world.log, Writer(world.log, "binder"), nothing, absence_counts=False)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="next"), never))
    await until(lambda: decider.state.sequence == world.state.sequence, "it to have read the log")
    await asyncio.sleep(0.05)
    running.cancel()
    assert not asked


async def test_an_outcome_wakes_a_service_to_which_nothing_else_happens() -> None:
    log, asked = MemoryLog("test"), list[int]()

    def counted(state: State) -> Deciding:
        asked.append(state.sequence)
        return nothing(state)

    decider = Decider(log, Writer(log, "binder"), counted)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    await until(lambda: decider.active, "it to be at work")
    for _ in range(100):
        await asyncio.sleep(0)  # it has nothing left to do
    assert asked == [1], "of what it has thought about it does not think again"
    decider.report(ev.PodEvicted(uid="1", namespace="default", name="p"))
    await until(lambda: len(log.commits) == 2, "the outcome to be in the log")
    running.cancel()


async def test_decisions_that_come_back_to_back_wait_for_their_time_and_for_nothing_else() -> None:
    def three_times(state: State) -> Deciding:
        yield
        return [ev.Renewed()] if state.sequence < 4 else []

    log = MemoryLog("test")
    running = asyncio.create_task(Decider(log, Writer(log, "binder"), three_times).run(ev.BinderTaken(holder="test")))
    await until(lambda: len(log.commits) == 4, "three decisions")
    running.cancel()


@pytest.mark.parametrize("says", [[ev.Renewed()], []], ids=["something", "nothing"])
async def test_what_is_read_while_it_decides_counts_for_the_next_decision_and_wakes_it(says: list[ev.Event]) -> None:
    """What it decided stands on the state with which it began; and nobody else will wake it to the rest."""
    log, seen = MemoryLog("test"), list[tuple[int, int]]()

    def slowly(state: State) -> Deciding:
        began = state.sequence
        if not seen:
            header = Header(writer="admin", epoch=0, basis=0, time_ns=0, cause="admin")
            log.append_now(subjects.subject("test", "admin"), header, b"[]", 0)
            for _ in range(20):
                yield  # and it is read
        seen.append((began, state.sequence))
        return says if began == 1 else []

    starts = list[int]()

    def start() -> Generator[None, None, None]:
        starts.append(decider.state.sequence)
        assert not seen, "before anything is decided"
        yield

    decider = Decider(log, Writer(log, "binder"), slowly, started=start)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    end = 2 + len(says)
    await until(lambda: decider.state.sequence == end and len(seen) > 1, "it to decide on what came meanwhile")
    running.cancel()
    assert decider.tail_bytes == sum(len(stored.header) + len(stored.payload) for stored in log.commits)
    assert starts == [1], "what it is to do is looked through once"
    assert seen[0] == (1, 1)
    assert [envelope.decode_header(stored).basis for stored in log.commits[2:]] == [1] * len(says)


async def test_what_a_start_looks_through_goes_in_slices() -> None:
    """As it was: in one piece, in which a binder of many pods gave its lease no turn."""
    log, turns, others = MemoryLog("test"), list[int](), [0]

    def start() -> Generator[None, None, None]:
        for _ in range(3):
            turns.append(others[0])
            yield

    decider = Decider(log, Writer(log, "binder"), nothing, started=start)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    for _ in range(100):
        others[0] += 1
        await asyncio.sleep(0)
    running.cancel()
    assert len(turns) == len(set(turns)) == 3, "somebody else had a turn in between"


async def test_between_messages_that_are_set_aside_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: only a commit of somebody known gave a turn."""
    monkeypatch.setattr(deciding, "FOLD_BYTES", 1)
    log = MemoryLog("test")
    strange = Stored(sequence=0, subject="muster.test.stranger", message_id="", header=b"", payload=b"?")
    log.commits += [msgspec.structs.replace(strange, sequence=number) for number in range(1, 51)]
    decider, seen = Decider(log, Writer(log, "binder"), nothing), [0]
    decider._unread.extend(log.commits)
    running = asyncio.create_task(decider._fold())
    while not running.done():
        seen.append(decider.state.set_aside)
        await asyncio.sleep(0)
    assert decider.state.set_aside == len(log.commits)
    assert max(after - before for before, after in pairwise([*seen, len(log.commits)])) == 1


class Unfollowed(MemoryLog):
    """It has lost its place, or its permission, while it is read."""

    async def follow(self, after: int = 0) -> AsyncIterator[list[Stored]]:
        await asyncio.sleep(0)
        for batch in ():
            yield batch
        raise LogError("commits are missing")


@pytest.mark.parametrize("turn", [None, asyncio.Event().wait], ids=["active", "standby"])
async def test_a_log_that_cannot_be_followed_any_more_is_no_clean_end(turn: Any) -> None:
    """Whoever runs the service would not start it again."""
    log = Unfollowed("test")
    with pytest.raises(LogError, match="missing"):
        await asyncio.wait_for(Decider(log, Writer(log, "binder"), nothing).run(ev.BinderTaken(holder="x"), turn), 60)


def switch(log: MemoryLog) -> None:
    """Others than this one decide by the second rules from here on."""
    header = Header(writer="admin", epoch=0, basis=0, time_ns=0, cause="admin")
    switched = ev.VersionsSwitched(rules=2, state=1)
    log.append_now(subjects.subject("test", "admin"), header, envelope.encode_events([switched]), 0)


@pytest.mark.parametrize("standby", [False, True], ids=["before it starts", "while it stands by"])
async def test_who_lacks_the_rules_that_came_into_force_takes_nothing_over(standby: bool) -> None:
    log, turn, waits = MemoryLog("test"), asyncio.Event(), asyncio.Event()

    async def its_turn() -> None:
        waits.set()
        await turn.wait()

    if not standby:
        switch(log)
    running = asyncio.create_task(
        Decider(log, Writer(log, "binder"), nothing).run(ev.BinderTaken(holder="old"), its_turn if standby else None)
    )
    if standby:
        await until(waits.is_set, "it to stand by")
        switch(log)
    with pytest.raises(UnknownVersion, match="rules version 2"):
        await asyncio.wait_for(running, 60)
    assert len(log.commits) == 1


async def test_a_commit_names_the_rules_by_which_it_was_decided() -> None:
    """By what it says there `muster verify` decides again."""

    def by_the_second(state: State) -> Deciding:
        yield
        return [ev.Renewed()] if state.rules_version == 2 and state.sequence == 2 else []

    log = MemoryLog("test")
    decider = Decider(log, Writer(log, "binder"), by_the_second, supports=BOTH)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    await until(lambda: decider.active, "it to be at work")
    switch(log)
    await until(lambda: len(log.commits) == 3, "a decision")
    running.cancel()
    assert [envelope.decode_header(stored).rules for stored in log.commits] == [1, 1, 2]
