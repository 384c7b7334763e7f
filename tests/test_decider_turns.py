"""Whose turn it is in a deciding service where more than one commit is due."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import events as ev
from events import envelope, subjects
from events.envelope import Header
from events.memory import MemoryLog
from services import decider as deciding
from services.decider import Decider, Deciding
from services.state.fold import State
from services.writer import Spacing, Writer
from tests.test_decider import nothing
from tests.waiting import until


class SlowLog(MemoryLog):
    """Takes longer over a commit than those of one kind are apart."""

    async def append(self, *about: Any, **more: Any) -> int:
        await asyncio.sleep(0.02)
        return await super().append(*about, **more)


async def test_outcomes_have_their_turn_though_there_is_always_something_to_decide() -> None:
    """As it was: over a log that takes its time they came when nothing was left to decide, with a lost shard's
    partitions, and the bindings that are to be asked for anew, among them."""
    log, decisions = SlowLog("test"), 30

    def always(state: State) -> Deciding:
        yield from ()
        said = sum(envelope.decode_header(stored).cause == "decide" for stored in log.commits)
        return [ev.Renewed()] if decider.active and said < decisions else []

    decider = Decider(log, Writer(log, "binder"), always)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    await until(lambda: decider.active, "it to be at work")
    decider.report(ev.ShardLost(shard="1", taken=1))
    await until(lambda: not decider.outcomes, "the outcome to be said")
    running.cancel()
    causes = [envelope.decode_header(stored).cause for stored in log.commits]
    assert causes.count("decide") < decisions / 2
    never_s = Spacing().due_s
    assert min(decider._decision_spacing.due_s, decider._outcome_spacing.due_s) > never_s, "both are spaced"


class Overdue(Decider):
    """All is due all the time; it says what went first."""

    def __init__(self, log: MemoryLog) -> None:
        decide: Any = None
        super().__init__(log, Writer(log, "binder"), decide)
        self.said: list[str] = []

    async def _append_tick(self) -> bool:
        self.said.append("tick")
        return True

    async def _append_decision(self) -> bool:
        self.said.append("decision")
        return True

    async def _append_outcomes(self) -> bool:
        self.said.append("outcomes")
        return True


async def test_no_tick_comes_behind_another_and_outcomes_that_are_overdue_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decider, now_s = Overdue(MemoryLog("test")), 0.0
    monkeypatch.setattr(deciding, "time", SimpleNamespace(monotonic=lambda: now_s))
    decider._outcome_spacing.due_s = 0.0
    for _ in range(4):
        await decider._append_due()
    now_s = Spacing.LONGEST_S
    await decider._append_due()
    assert decider.said == ["tick", "decision", "tick", "decision", "outcomes"]


async def test_commits_of_a_kind_wait_until_theirs_may_go_out_and_go_out_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a flood of bindings is a flood of commits, and each wakes every reader."""
    log, now_s = MemoryLog("test"), 1.0
    wall = SimpleNamespace(monotonic=lambda: now_s, monotonic_ns=lambda: 0, perf_counter=lambda: 0.0)

    def always(state: State) -> Deciding:
        yield from ()
        return [ev.Renewed()]

    decider = Decider(log, Writer(log, "binder"), always)
    await decider.writer.take(ev.BinderTaken(holder="test"))
    monkeypatch.setattr(deciding, "time", wall)
    decider._decision_spacing.sent(now_s)
    decider._outcome_spacing.sent(now_s)
    decider.report(ev.ShardLost(shard="1", taken=1))
    assert not await decider._append_due()
    said = [envelope.decode_header(log.commits[-1]).cause]
    now_s += Spacing.FIRST_S
    for _ in range(2):
        assert await decider._append_due()
        said.append(envelope.decode_header(log.commits[-1]).cause)
    assert said == ["taken", "decide", "outcome"]


async def test_who_has_nothing_to_do_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    log, looked = MemoryLog("test"), list[int]()
    decider = Decider(log, Writer(log, "binder"), nothing)
    turns = decider._turns

    def counted() -> Any:
        looked.append(decider.state.sequence)
        return turns()

    monkeypatch.setattr(decider, "_turns", counted)
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    await until(lambda: looked, "it to be at work")
    for _ in range(100):
        await asyncio.sleep(0)
    running.cancel()
    assert looked == [1]


class Crowded(MemoryLog):
    """Somebody else is always a little faster."""

    async def append(self, *about: Any, **more: Any) -> int:
        admin = subjects.subject(self.cluster, "admin")
        header = Header(writer="admin", epoch=0, basis=0, time_ns=0, cause="admin")
        self.append_now(admin, header, b"[]", self._last.get(admin, 0))
        return await super().append(*about, **more)


async def test_what_others_said_before_ones_own_commit_is_folded_before_it() -> None:
    log, seen = Crowded("test"), list[int]()

    def twice(state: State) -> Deciding:
        yield from ()
        return [ev.Renewed()] if state.sequence < 6 else []

    decider = Decider(log, Writer(log, "binder"), twice, applied=lambda commit: seen.append(commit.sequence))
    running = asyncio.create_task(decider.run(ev.BinderTaken(holder="test")))
    await until(lambda: decider.state.sequence == 6, "two decisions to be folded")
    running.cancel()
    assert seen == [3, 4, 5, 6]
