"""How a service appends to the log: taking its subject over, one commit in flight, stepping down when replaced.

`Writer` knows the last sequence on its own subject and appends behind exactly that; the log refuses whoever is not the
last writer any more (`events.log`). `Outbox` holds what need not be one commit, and cuts it where one would be too
large. `Gather` sends it: alone, an event goes out at once; under load, what arrives within a gap of `Spacing` shares a
commit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from events import Event, Renewed, SchedulingClassObserved, envelope
from events.envelope import FIRST_VERSION, Commit, Header, Stored
from events.log import Conflict, EventLog
from events.subjects import subject
from services import telemetry

RENEW_AFTER_S = 6 * 3600.0
"""A writer that appended nothing for so long renews its subject: nobody purges what is younger than a day."""
GATHERED_EVENTS, GATHERED_BYTES = 4_096, 1_000_000
"""Where commits that may be split are split: far below `events.log.MAX_COMMIT_BYTES`, so that no reader is held up."""
TAKEN = "taken"
"""The cause of the commit with which a process becomes a subject's writer."""
logger = logging.getLogger("muster.writer")
_encode = msgspec.json.Encoder().encode


class SteppedDown(Exception):
    """Another process has taken this writer's place. Nothing more may be decided or done here."""


class Writer:
    """The one writer of a subject, while it is: ``Writer(log, "ingest")``, then `take`, then `append`."""

    def __init__(self, log: EventLog, name: str, *, clock_offset_ms: int = 0) -> None:
        """`name` is the writer as the subject has it: ingest, planner.<shard>, binder, admin, federator."""
        self.log, self.name, self.epoch = log, name, 0
        self.rules = self.state = FIRST_VERSION
        """The versions in force where this writer has read to."""
        self.subject = subject(log.cluster, name)
        self.last = 0
        """The sequence of this subject's last commit, as far as this writer knows."""
        self.stored: Stored | None = None
        """The last commit of this writer that was acknowledged, as the log holds it."""
        self.renew_at_s = float("inf")
        """When to append `Renewed`, on the monotone clock, if nothing else is appended until then."""
        self.traceparent = ""
        """The trace context that the last commit carries; empty while telemetry is off."""
        self._clock_offset_ns = clock_offset_ms * 1_000_000
        self._in_flight = asyncio.Lock()

    async def take(self, *taken: Event, basis: int = 0) -> int:
        """Append the ``…Taken`` event, and what this process has to say of itself, behind whatever stands last on the
        subject; its sequence.

        `basis`: how far this process has read the log, which may be less far than its subject goes.

        Raises SteppedDown when another process took it at the same moment, LogError. Whoever had it before may have said
        one thing more meanwhile: then this is said behind that.
        """
        last = await self.log.last(self.subject)
        while True:
            self.last = last.sequence if last is not None else 0
            try:
                return await self.append(taken, basis=basis, cause=TAKEN)
            except SteppedDown:
                last = await self.log.last(self.subject)
                if last is None or last.sequence == self.last or _takes(last):
                    raise

    def was_taken_by(self, commit: Commit) -> bool:
        """Whether another process took the subject with this commit, since this one did."""
        return commit.header.cause == TAKEN and commit.subject == self.subject and 0 < self.last < commit.sequence

    async def append(self, events: Sequence[Event], *, basis: int, cause: str) -> int:
        """Append one commit; its sequence. Calls queue up behind each other. Raises SteppedDown, LogError."""
        return await self.append_payload(envelope.encode_events(events), len(events), basis=basis, cause=cause)

    async def append_payload(self, payload: bytes, events: int, *, basis: int, cause: str) -> int:
        """`append` for so many events that are encoded already, as one JSON array."""
        async with self._in_flight:
            header = Header(
                writer=self.name,
                epoch=self.epoch,
                basis=basis,
                time_ns=time.time_ns() + self._clock_offset_ns,
                cause=cause,
                rules=self.rules,
                state=self.state,
            )
            behind = self.last
            with telemetry.span("append", writer=self.name, cause=cause, events=events) as self.traceparent:
                try:
                    self.last = await self.log.append(
                        self.subject, header, payload, self.last, traceparent=self.traceparent
                    )
                except Conflict as conflict:
                    telemetry.CONFLICTS.add(1, writer=self.name)
                    raise SteppedDown(str(conflict)) from conflict
            if logger.isEnabledFor(logging.DEBUG):  # the id is a digest of the payload
                acknowledged = envelope.message_id(self.subject, behind, payload)
                logger.debug("acknowledged", extra={"sequence": self.last, "id": acknowledged})
            telemetry.COMMITS.add(1, writer=self.name, cause=cause)
            telemetry.EVENTS.add(events, writer=self.name)
            self.stored = Stored(
                sequence=self.last,
                subject=self.subject,
                message_id="",
                header=envelope.encode_header(header),
                payload=payload,
                traceparent=self.traceparent,
            )
            self.renew_at_s = time.monotonic() + RENEW_AFTER_S
            return self.last

    async def renew(self) -> None:
        """Keep the subject, which was taken, of a writer that decides nothing, for ever. Raises SteppedDown, LogError."""
        while True:
            await self.renewal_is_due()
            await self.append([Renewed()], basis=self.last, cause="renew")

    async def renewal_is_due(self) -> None:
        """Returns when nothing was appended for so long. Raises LogError where it is another log meanwhile."""
        while (left_s := self.renew_at_s - time.monotonic()) > 0:
            await self.log.stays(left_s)


def _takes(stored: Stored) -> bool:
    header = envelope.header_of(stored)
    return header is not None and header.cause == TAKEN


class Spacing:
    """How far apart one writer's commits of one kind are. Times are seconds of a monotone clock.

    A commit costs every reader a wake-up, and under load that is most of what it costs. So the first after a pause goes
    out at once, and while they come back to back the gap doubles from 10 ms to 100 ms: the pods of a small gang share a
    second commit 10 ms later, a flood of them is taken in ten times a second.
    """

    FIRST_S, LONGEST_S = 0.01, 0.1

    def __init__(self) -> None:
        self.due_s = float("-inf")
        """When the next commit may go out."""
        self._gap_s = 0.0

    def sent(self, now_s: float) -> None:
        """A commit goes out at `now_s`; there was a pause if it might have gone out a whole gap ago."""
        paused = now_s - self.due_s > self._gap_s
        self._gap_s = self.FIRST_S if paused else min(self._gap_s * 2, self.LONGEST_S)
        self.due_s = now_s + self._gap_s


class Outbox:
    """Events that may share commits or not, encoded, in the order in which they were added.

    A scheduling class and the pod that it was written for do share one. The class may be known only for room that is kept
    for others of it; if that were let go between two commits, the second would name a class that is gone.
    """

    def __init__(self, *, max_events: int = GATHERED_EVENTS, max_bytes: int = GATHERED_BYTES) -> None:
        """Commits of at most `max_events` and `max_bytes`, but for what does not fit alone."""
        self.max_events, self._max_bytes = max_events, max_bytes
        self._encoded: deque[tuple[bytes, int]] = deque()
        """What shares a commit, and of how many events that is."""

    def __len__(self) -> int:
        return len(self._encoded)

    def add(self, events: Iterable[Event]) -> None:
        together: list[bytes] = []
        for event in events:
            together.append(_encode(event))
            if not isinstance(event, SchedulingClassObserved):
                self._encoded.append((b",".join(together), len(together)))
                together.clear()
        assert not together, "a class was written for no pod"

    def cut(self) -> tuple[bytes, int]:
        """The next commit, off the queue: its payload, and of how many events that is."""
        chosen: list[bytes] = []
        size, count = 2, 0
        while self._encoded:
            encoded, events = self._encoded[0]
            size, count = size + len(encoded) + 1, count + events
            if chosen and (size > self._max_bytes or count > self.max_events):
                return b"[" + b",".join(chosen) + b"]", count - events
            chosen.append(encoded)
            self._encoded.popleft()
        return b"[" + b",".join(chosen) + b"]", count


class Gather:
    """Facts, which may share commits, in the order in which they were added. `run` sends them until it is cancelled."""

    def __init__(self, writer: Writer, outbox: Outbox | None = None) -> None:
        self._writer = writer
        self._outbox = Outbox() if outbox is None else outbox
        self._added = self._sent = 0
        self._more = asyncio.Event()
        self._progress = asyncio.Condition()
        self._failure: Exception | None = None

    @property
    def pending(self) -> int:
        """Events that are not acknowledged yet."""
        return self._added - self._sent

    def add(self, events: Sequence[Event]) -> None:
        """Queue them. Order is kept."""
        if events:
            self._outbox.add(events)
            self._added += len(events)
            self._more.set()

    async def flush(self, left: int = 0) -> None:
        """Wait until everything added so far, but for the last `left` events, is acknowledged. Raises as `run`."""
        goal = self._added - left
        async with self._progress:
            await self._progress.wait_for(lambda: self._sent >= goal or self._failure is not None)
        if self._failure is not None:
            raise self._failure

    async def run(self) -> None:
        """Send what is added. Raises SteppedDown, LogError."""
        try:
            await self._run()
        except Exception as error:
            self._failure = error
            async with self._progress:
                self._progress.notify_all()
            raise

    async def _run(self) -> None:
        spacing = Spacing()
        while True:
            await self._more.wait()
            if (wait_s := spacing.due_s - time.monotonic()) > 0 and len(self._outbox) < self._outbox.max_events:
                await asyncio.sleep(wait_s)
            spacing.sent(time.monotonic())
            await self._send(*self._outbox.cut())

    async def _send(self, payload: bytes, events: int) -> None:
        if not self._outbox:
            self._more.clear()
        await self._writer.append_payload(payload, events, basis=0, cause="facts")
        async with self._progress:
            self._sent += events
            self._progress.notify_all()
