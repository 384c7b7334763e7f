"""Follow, fold, decide, append: the loop that planner and binder share.

A `Decider` reads the log into its state, and whenever it has read everything there is, its own last commit included, it
may say something: a tick that is due, outcomes that its effects brought, or what the core decides over exactly this
state. One commit is in flight at a time, so each decision stands on all earlier ones; under load what arrives meanwhile
is folded together and decided on together. Deciding runs in slices, and folding in batches, with a turn of the event
loop in between: a busy service still answers pings and renews its lease. A standby follows and folds as well: when its
turn comes, nothing is left to read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from events import Event, Renewed, VersionsAnnounced
from events.envelope import Commit, Stored, encode_events
from events.log import EventLog, LogError
from events.snapshots import Kept
from services import telemetry
from services.start import FOLD_BYTES, check, in_slices, state_at
from services.state.clock import JUMP_NS, absence, tick, wanted_in_ns
from services.state.fold import State
from services.state.form import UnknownVersion
from services.state.records import Clock
from services.state.versions import UNSAID
from services.writer import Outbox, Spacing, SteppedDown, Writer

if TYPE_CHECKING:
    from services.tracing import Traces

logger = logging.getLogger("muster.decider")
LAG_EVERY_S = 5.0
"""How often the log is asked for its end, for the metric alone."""
GATHERED_OUTCOMES = 2_000
"""Outcomes that share a commit, at most."""
ASKED_NS, ABSENT_NS = 1_000_000_000, 3_000_000_000
"""Where time without the log is not to count: how often the log is asked whether it is there, and after how long without
an answer it counts as away."""
Deciding = Generator[None, None, Sequence[Event]]
"""A decision under way: it yields between slices of work, and returns its events."""


class LogTime:
    """The service's clock for log time: the wall clock at the start, monotone from there, never behind the log's own."""

    def __init__(self, offset_ms: int = 0) -> None:
        self._offset_ns = offset_ms * 1_000_000
        self._ahead_ns = 0

    def start(self, log_time_ns: int) -> None:
        wall_ns = time.time_ns() + self._offset_ns
        if (ahead_ns := log_time_ns - wall_ns) > JUMP_NS:
            logger.warning(
                "the log's time is %.0f s ahead of this machine's clock, and goes on from there: either this clock is "
                "behind, or that of a process that wrote before was ahead",
                ahead_ns / 1e9,
            )
        self._ahead_ns = max(wall_ns, log_time_ns) - time.monotonic_ns()

    def now_ns(self) -> int:
        return time.monotonic_ns() + self._ahead_ns


class Decider:
    """One deciding writer: `decide` is the core, `outcomes` what its effects brought."""

    def __init__(
        self,
        log: EventLog,
        writer: Writer,
        decide: Callable[[State], Deciding],
        *,
        supports: VersionsAnnounced = UNSAID,
        clock: LogTime | None = None,
        applied: Callable[[Commit], None] | None = None,
        started: Callable[[], Generator[None, None, None]] | None = None,
        absence_counts: bool = True,
    ) -> None:
        """`supports`: what `decide` and the fold can. `applied` sees each commit that was folded since this became the
        active writer; before that, `started` runs once, in slices. `absence_counts`: whether deadlines go on while no
        process is active, or the log is away."""
        self.log = log
        self.writer = writer
        self.state = State()
        self.tail_bytes = 0
        """What was folded since the snapshot from which the state was restored."""
        self.outcomes = Outbox(max_events=GATHERED_OUTCOMES)
        self.active = False
        """Whether the subject is taken and everything up to that is folded."""
        self._base: Kept | None = None
        """The snapshot from which the state was restored."""
        self._leaving: Event | None = None
        self._decide, self._supports = decide, supports
        self._clock = clock or LogTime()
        self._applied = applied
        self._started = started
        self._absence_counts = absence_counts
        self._heard_ns = 0
        """Until when, in log time, this process was active and the log was there; 0 before it is active."""
        self._traces: Traces | None = None
        self._deciding_s = 0.0
        self._unread: deque[Stored] = deque()
        self._stirred, self._folded = asyncio.Event(), asyncio.Event()
        self._begun = self._confirmed = 0
        """Commits of this process behind the first: those that it began to append, and how many of these are folded."""
        self._asked = False
        """Whether somebody waits for a commit that is not begun yet."""
        self._news = True
        """Whether something was folded since the core last decided nothing."""
        self._decision_spacing = Spacing()
        self._outcome_spacing = Spacing()
        self._ticked = False
        """Whether the last of this process's ticks, decisions and outcomes was a tick."""

    def report(self, outcome: Event) -> None:
        """Append an outcome soon, under load with those that come meanwhile; only the first wakes the loop."""
        self.outcomes.add((outcome,))
        if len(self.outcomes) == 1:
            self._stirred.set()

    def leave(self, last: Event) -> None:
        """End `run` soon: with this commit, or without one while the subject is not taken yet."""
        self._leaving = last
        self._stirred.set()

    async def hear_all(self) -> None:
        """Wait until everything is folded that the log holds by now. For effects whose precondition was read from the
        cluster, and not from the log: a process that was replaced by now never comes back from here.

        What a server says of the log's end is no help: one that is cut off says what it was (seed 727798). That a commit
        of one's own is acknowledged, and folded, says that nobody had the subject before it.
        """
        behind = self._begun
        self._asked = True
        self._stirred.set()
        while self._confirmed <= behind:
            self._folded.clear()
            await self._folded.wait()

    async def catch_up(self) -> None:
        """The state at the log's end as of now."""
        self.state, self._base, self.tail_bytes, _ = await state_at(self.log)
        self._read_versions()
        telemetry.SET_ASIDE.add(self.state.set_aside, writer=self.writer.name)

    async def run(self, taken: Event, turn: Callable[[], Awaitable[None]] | None = None) -> None:
        """Catch up, wait for the turn, take the writer's subject, decide until replaced (SteppedDown), cancelled, or told
        to `leave`."""
        await self.catch_up()
        if not telemetry.is_on():
            return await self._run(taken, turn)
        measuring = asyncio.create_task(self._measure_lag(), name=f"lag of {self.writer.name}")
        try:
            await self._run(taken, turn)
        finally:
            measuring.cancel()

    def _read_versions(self) -> None:
        """The writer's commits name the versions that are in force. Raises UnknownVersion without code for them."""
        self.writer.rules, self.writer.state = self.state.rules_version, self.state.state_version
        if self.writer.rules not in self._supports.rules:
            raise UnknownVersion(
                f"at {self.state.sequence} it is decided by rules version {self.writer.rules}, which this code lacks"
            )

    async def _measure_lag(self) -> None:
        while True:
            with suppress(LogError):
                end = await self.log.end()  # more may be folded by the time at which that is heard
                telemetry.LAG.set(max(0, end - self.state.sequence), writer=self.writer.name)
            await asyncio.sleep(LAG_EVERY_S)

    async def _run(self, taken: Event, turn: Callable[[], Awaitable[None]] | None) -> None:
        reading = asyncio.create_task(self._read(), name=f"reading for {self.writer.name}")
        listening = asyncio.create_task(self._listen(), name=f"listening for {self.writer.name}")
        try:
            if turn is not None and not await self._stand_by(turn, reading):
                return
            await self.writer.take(taken, self._supports, basis=self.state.sequence)
            while not reading.done():
                await self._fold()
                if self.state.sequence >= self.writer.last:
                    if not self.active:
                        await self._activate()
                    if await self._leave_out_absence():
                        continue
                    if self._leaving is not None:
                        await self._append([self._leaving], "left")
                        return
                    if await self._append_due():
                        continue
                    await self._wait()
                else:
                    await self._stirred.wait()
                self._stirred.clear()
            reading.result()
        finally:
            listening.cancel()
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _stand_by(self, turn: Callable[[], Awaitable[None]], reading: asyncio.Task[None]) -> bool:
        """Fold what comes until the turn does; False when told to leave before."""
        waiting = asyncio.ensure_future(turn())
        waiting.add_done_callback(lambda _: self._stirred.set())
        try:
            while not (waiting.done() or reading.done() or self._leaving is not None):
                await self._fold()
                await self._stirred.wait()
                self._stirred.clear()
            if reading.done():
                reading.result()
            if waiting.done():
                await waiting
                return True
            return False
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})  # it may have a lease to give back

    @property
    def _log_time(self) -> Clock:
        """This writer's, as it stands: `State.clock` would make one, and asking must not change the state."""
        return self.state.clocks.get(self.writer.name) or Clock()

    async def _activate(self) -> None:
        self._clock.start(self._log_time.time_ns)
        self.active = True
        if telemetry.is_on():
            from services.tracing import traces

            self._traces = traces(self.state, self.writer.name)
        if self._started is not None:
            await in_slices(self._started())

    async def _listen(self) -> None:
        """While something waits, ask the log once a second whether it is there. This goes on beside the loop: a process
        that takes long to decide is active all the same. After too long without an answer the loop asks by itself
        (`_leave_out_absence`)."""
        while not self._absence_counts:
            await asyncio.sleep(ASKED_NS / 1e9)
            if not (self.active and self._log_time.armed):
                continue
            with suppress(LogError):
                await self.log.end()
                now_ns = self._clock.now_ns()
                if now_ns - self._heard_ns <= ABSENT_NS:
                    self._heard_ns = now_ns
                    continue
            self._stirred.set()

    async def _leave_out_absence(self) -> bool:
        """Append ticks that leave out the time in which nobody had the subject, this process stood still, or the log
        did not answer; whether any were needed."""
        now_ns = self._clock.now_ns()
        if self._absence_counts or not self._log_time.armed:
            self._heard_ns = now_ns
        if now_ns - self._heard_ns <= ABSENT_NS:
            return False
        await self.log.end()
        heard_ns, self._heard_ns = self._heard_ns, self._clock.now_ns()
        passed = absence(self._log_time, heard_ns, self._heard_ns)
        if passed:
            await self._append(passed, "tick")
        return bool(passed)

    async def _read(self) -> None:
        try:
            async for batch in self.log.follow(self.state.sequence):
                read_to = self._read_to
                if new := [stored for stored in batch if stored.sequence > read_to]:
                    self._unread.extend(new)
                    self._stirred.set()
        finally:
            self._stirred.set()  # a log that cannot be followed any more is news, too

    @property
    def _read_to(self) -> int:
        """The last sequence that was folded, or waits to be."""
        return self._unread[-1].sequence if self._unread else self.state.sequence

    async def _fold(self) -> None:
        """Fold what was read. Raises SteppedDown at the commit by which another process took the subject: what is
        intended behind it is for that process to do. And SnapshotDenied."""
        folded = self.tail_bytes
        while self._unread:
            self._fold_one(self._unread.popleft())
            if self.tail_bytes - folded >= FOLD_BYTES:
                folded = self.tail_bytes
                await asyncio.sleep(0)
        if self.state.sequence >= self.writer.last:
            self._confirmed = self._begun
        self._folded.set()
        self._read_versions()

    def _fold_one(self, stored: Stored) -> None:
        commit = self.state.apply_stored(stored)
        if self._base is not None:
            check(self.state, self._base)
        self.tail_bytes += len(stored.header) + len(stored.payload)
        self._news = True
        if commit is None:
            telemetry.SET_ASIDE.add(1, writer=self.writer.name)
            return
        if self.writer.was_taken_by(commit):
            raise SteppedDown(f"{self.writer.subject} was taken by another process at {commit.sequence}")
        if self.active and self._applied is not None:
            self._applied(commit)
        if self._traces is not None:
            self._traces.applied(commit, self._deciding_s)

    async def _append_due(self) -> bool:
        """Append at most one commit; whether there was one."""
        self.writer.epoch = self.state.epoch
        for append in self._turns():
            if await append():
                self._ticked = append == self._append_tick
                return True
        if (now_s := time.monotonic()) >= self._renew_at_s:
            self._outcome_spacing.sent(now_s)
            await self._append([Renewed()], "renew")
            return True
        return False

    @property
    def _renew_at_s(self) -> float:
        """As soon as outcomes may come, where somebody waits to `hear_all`."""
        return self._outcome_spacing.due_s if self._asked else self.writer.renew_at_s

    def _turns(self) -> Sequence[Callable[[], Awaitable[bool]]]:
        """Ticks, decisions, outcomes. But no tick comes behind another where there is something else, and no outcomes
        wait for longer than they are apart at most: over a slow log all may be due all the time."""
        turns = [self._append_tick, self._append_decision, self._append_outcomes]
        if self._ticked:
            turns = turns[1:] + turns[:1]
        if time.monotonic() >= self._outcome_spacing.due_s + Spacing.LONGEST_S:
            turns.sort(key=self._append_outcomes.__ne__)
        return turns

    async def _append_tick(self) -> bool:
        due = tick(self._log_time, self._clock.now_ns())
        if due is not None:
            await self._append([due], "tick")
        return due is not None

    async def _append_decision(self) -> bool:
        if not self._news or time.monotonic() < self._decision_spacing.due_s:
            return False
        began_s = time.perf_counter()
        decided = await in_slices(self._decide(self.state))  # nothing is folded meanwhile
        if not decided:
            self._news = False
            return False
        self._decision_spacing.sent(time.monotonic())
        self._deciding_s = time.perf_counter() - began_s
        await self._append(decided, "decide")
        telemetry.CYCLE_S.record(time.perf_counter() - began_s, writer=self.writer.name)
        return True

    async def _append_outcomes(self) -> bool:
        if not self.outcomes or time.monotonic() < self._outcome_spacing.due_s:
            return False
        self._outcome_spacing.sent(time.monotonic())
        await self._append_payload(*self.outcomes.cut(), "outcome")
        return True

    async def _append(self, decided: Sequence[Event], cause: str) -> None:
        await self._append_payload(encode_events(decided), len(decided), cause)

    async def _append_payload(self, payload: bytes, events: int, cause: str) -> None:
        """Append a commit. Acknowledged, it stands in the log: where nothing else came in between it is folded from
        here, a wake-up earlier than the reader brings it."""
        self._begun += 1
        self._asked = False
        await self.writer.append_payload(payload, events, basis=self.state.sequence, cause=cause)
        own = self.writer.stored
        if own is not None and own.sequence == self._read_to + 1:
            self._unread.append(own)

    async def _wait(self) -> None:
        """Until something is read or brought, or a tick, gathered outcomes or a renewal are due."""
        due_s = self._renew_at_s
        if self._news:
            due_s = min(due_s, self._decision_spacing.due_s)
        if self.outcomes:
            due_s = min(due_s, self._outcome_spacing.due_s)
        timeout_s = max(0.0, due_s - time.monotonic())
        wanted_ns = wanted_in_ns(self._log_time, self._clock.now_ns())
        if wanted_ns is not None:
            timeout_s = min(timeout_s, wanted_ns / 1e9)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._stirred.wait()
