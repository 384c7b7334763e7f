"""The log in NATS JetStream: one stream for a cluster, one message for a commit.

Appending is fenced by ``Nats-Expected-Last-Subject-Sequence`` on the writer's own subject, one append in flight. An
answer that was lost is settled by the subject's last message: ours by its id, or another writer's.

Reading is an ephemeral pull consumer under two standing pull requests whose messages come to a plain subscription: the
fastest of nats-py's ways by far, as there is one task switch for many messages and no acknowledgement. Sequences are
contiguous, so whatever is lost between (a slow consumer, a server that died, a consumer that vanished) shows as a gap
or as silence, and the consumer is made anew behind the last commit that was read.

Servers that do not sync each message lose what they acknowledged when their machines do, and one that is given a backup
has what it had then: sequences come a second time, for other commits, and no expected sequence and no gap shows it. So
whoever connects again looks first whether the last commit that it knows still stands where it stood.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from events import envelope, subjects
from events.answers import (
    EXPECTED,
    EXPECTED_LAST,
    MESSAGE_ID,
    MESSAGE_TOO_LARGE,
    STREAM_NOT_FOUND,
    Message,
    NotLast,
    Refused,
    StreamAnswer,
    StreamState,
    Unanswered,
    api,
    decode_stream,
    decoded,
)
from events.connection import Connection
from events.consumer import COMMIT, TRACE, Consumer, Gap, stored
from events.envelope import Header, Stored
from events.known import KNOWN, Known
from events.log import Bounds, Conflict, LogError, Purged, TooLarge, Unavailable, check_place, check_purge, check_size
from events.object_store import ObjectStore
from events.patience import patiently

_logger = logging.getLogger(__name__)
T = TypeVar("T")
DEDUPLICATION_S = 120
GAP_ATTEMPTS = 3
IMPORT_WINDOW, IMPORT_WINDOW_BYTES = 64, 1 << 20
"""Commits that are on their way at a time when a log is copied into NATS, and bytes."""


def _windows(commits: list[Stored]) -> Iterator[list[Stored]]:
    """One commit at least."""
    window: list[Stored] = []
    size = 0
    for commit in commits:
        size += len(commit.payload)
        if window and (len(window) == IMPORT_WINDOW or size > IMPORT_WINDOW_BYTES):
            yield window
            window, size = [], len(commit.payload)
        window.append(commit)
    if window:
        yield window


class _Stale(Unanswered):
    """The stream is said to end before what this client has seen of it, or to have something else there.

    A server that led the stream and was stopped meanwhile says what it knew, until it hears of its successor. Whoever
    believed it would start from an old state, or take the log for damaged.
    """


class _SameId(LogError):
    """Of an archive: what was purged in between may have been said again, as a policy that is set as it was."""


class JetStreamLog:
    """An `EventLog` in a NATS server. Get one from `open`.

    One in another JetStream domain, behind a leaf node, is read over the connection that is there: name its `domain`.
    """

    def __init__(self, connection: Connection, cluster: str, replicas: int = 1, *, domain: str = "") -> None:
        self.cluster = cluster
        self.domain = domain
        self.connection = connection
        self.stream = subjects.stream(cluster)
        self._own = subjects.subject(cluster, "")
        self.snapshots = ObjectStore(connection, cluster, replicas)
        self._seen = 0
        """The last sequence that is known here to be there: it was acknowledged, or read."""
        self._known: list[Known] = []
        """The last `KNOWN` commits that were acknowledged here, read, or looked for."""
        self._found_behind = connection.breaks
        """Behind so many breaks of the connection it was found to be there."""

    @classmethod
    async def open(
        cls, url: str, cluster: str, *, create: bool = True, replicas: int = 1, **credentials: Any
    ) -> JetStreamLog:
        """Connects, and with `create` makes the stream where it is absent.

        `credentials` are nats-py's (user, password, token, user_credentials, …).
        Raises Unavailable, Denied, and LogError for a cluster that has no log there.
        """
        log = cls(await Connection(url).connect(**credentials), cluster, replicas)
        try:
            await log._find_or_create(create, replicas)
        except BaseException:
            await log.close()
            raise
        return log

    async def append(
        self, subject: str, header: Header, payload: bytes, expected: int, *, traceparent: str = ""
    ) -> int:
        """Raises Conflict, TooLarge, Unavailable, Denied."""
        message_id = envelope.message_id(subject, expected, payload)
        header_bytes = envelope.encode_header(header)
        check_size(subject, header_bytes, payload)
        headers = {EXPECTED: str(expected), MESSAGE_ID: message_id, COMMIT: header_bytes.decode()}
        if traceparent:
            headers[TRACE] = traceparent
        try:
            return await self._publish(subject, headers, payload)
        except (Unanswered, NotLast) as doubt:
            try:
                return await patiently(self._settle, subject, headers, payload, expected)
            except Conflict as conflict:
                raise conflict from doubt

    async def last(self, subject: str) -> Stored | None:
        """Asked of the stream's leader: a replica may be behind, and this settles who wrote last."""
        return await patiently(self._last_now, subject)

    async def at(self, sequence: int) -> Stored | None:
        """Asked of the stream's leader, which refuses to look for the place before the first. Raises LogError where it
        lacks what was seen there, and was not purged."""
        if not sequence:
            return None
        return await self._surely(self._at_now, sequence)

    async def bounds(self) -> Bounds:
        state = await self._state()
        return Bounds(max(1, state.first_seq), state.last_seq)

    async def end(self) -> int:
        return (await self._state()).last_seq

    async def end_now(self, within_s: float) -> int:
        """The end, asked once. Raises Unanswered, LogError."""
        return (await self._state_now(within_s)).last_seq

    async def read(self, after: int = 0, until: int | None = None) -> AsyncIterator[list[Stored]]:
        """Raises Purged, Unavailable when the server cannot be reached, LogError when commits are missing."""
        state = await self._state()
        stop = state.last_seq if until is None else min(until, state.last_seq)
        if stop >= state.first_seq:
            async with aclosing(self._batches(after, stop, state)) as batches:
                async for batch in batches:
                    yield batch
        elif after < stop:
            check_place(self.stream, after, state.first_seq)

    def follow(self, after: int = 0) -> AsyncIterator[list[Stored]]:
        """Raises Purged, LogError when commits are missing, Denied; goes through everything else."""
        return self._batches(after, None)

    async def stays(self, for_s: float) -> None:
        """Looks behind each break of the connection. Raises LogError, Denied; goes through everything else."""
        wake = asyncio.Event()
        self.connection.wake.add(wake)
        with suppress(TimeoutError):
            async with asyncio.timeout(for_s):
                try:
                    while True:
                        with suppress(Unavailable):
                            await self._surely(self._find_known)
                        await wake.wait()
                        wake.clear()
                finally:
                    self.connection.wake.discard(wake)

    async def purge(self, first: int) -> None:
        """Raises Unavailable, Denied, and LogError where it is not the log that was read."""
        check_purge(first, await self.end())
        await self._surely(self._purge_once, first)

    async def _purge_once(self, first: int) -> None:
        await self._find_known()
        await self.connection.ask(f"{api(self.domain)}.STREAM.PURGE.{self.stream}", {"seq": first})

    async def close(self) -> None:
        await self.connection.close()

    async def append_stored(self, commits: list[Stored]) -> None:
        """Import: writes commits of another home at their own sequences, many in flight.

        Each must follow the one before it: when one is lost or refused, the rest is refused as well, and what is there is
        a beginning. An empty stream that must begin behind 1 is made to. Raises LogError where the sequences cannot be
        kept.
        """
        if not commits:
            return
        await self._begin_at(commits[0].sequence)
        for window in _windows(commits):
            try:
                await self._import_all(window)
            except (Unanswered, NotLast, _SameId) as error:
                await self._import_more(window, error)

    # ------------------------------------------------------------------------------------------------------- appending

    async def _publish(self, subject: str, headers: dict[str, str], payload: bytes, *, at: int = 0) -> int:
        """Raises _Stale, Unanswered too where there is no connection: what nats-py kept for the next one would be in the
        log before anybody had looked which log it is. `at`: where it belongs, if it was written before; raises _SameId,
        LogError where it does not come to stand there."""
        await self._find_known()
        if not self.connection.client.is_connected:
            raise Unanswered(f"{subject}: not connected to {self.connection.url}")
        try:
            sequence = await self.connection.publish(subject, payload, headers)
        except Refused as refused:
            if refused.number == MESSAGE_TOO_LARGE:
                raise TooLarge(f"{subject}: {len(payload)} bytes; the stream's max_msg_size is less") from refused
            raise
        if 0 < sequence < at:
            raise _SameId(f"commit {at} has the message id of commit {sequence}, for which the server takes it")
        if at and sequence != at:
            raise LogError(f"{self.stream}: commit {at} became {sequence}: the log is not a continuation")
        self._knows(Known.of(sequence, subject, headers))
        return sequence

    async def _settle(self, subject: str, headers: dict[str, str], payload: bytes, expected: int) -> int:
        """The answer was lost, or says that ours is not next: who wrote last tells whether it was ourselves."""
        last = await self._last_now(subject)
        if last is not None and last.message_id == headers[MESSAGE_ID]:
            self._knows(Known.read(last))
            return last.sequence
        found = 0 if last is None else last.sequence
        if 0 < found < expected <= self._seen:
            raise _Stale(f"{subject}: the server says that {found} is its last, but {expected} was written after it")
        if found != expected:
            raise Conflict(subject, expected, found)
        await self._look_for_known()
        try:
            return await self._publish(subject, headers, payload)
        except NotLast as error:  # a commit arrived since the question: whose?
            raise Unanswered(str(error)) from error

    async def _last_now(self, subject: str) -> Stored | None:
        message = await self.connection.last_message(self.stream, subject, domain=self.domain)
        if message is None:
            return None
        self._seen = max(self._seen, message.seq)
        return self._stored(message)

    def _stored(self, message: Message) -> Stored:
        return stored(message.seq, message.subject, message.headers, message.data, of=self._own)

    async def _at_now(self, sequence: int) -> Stored | None:
        message = await self.connection.message_at(self.stream, sequence, self.domain)
        if message is not None:
            found = self._stored(message)
            self._knows(Known.read(found))
            return found
        if sequence <= self._seen and (await self._state_now()).first_seq <= sequence:
            raise _Stale(f"{self.stream} has no commit {sequence}, which was there")
        return None

    async def _import_more(self, commits: list[Stored], error: LogError) -> None:
        while True:
            if isinstance(error, _SameId):
                _logger.warning("%s: %s; it forgets that after %d s", self.stream, error, DEDUPLICATION_S)
                await asyncio.sleep(DEDUPLICATION_S)
            try:
                return await patiently(self._import_rest, commits)
            except _SameId as another:
                error = another

    async def _import_all(self, commits: list[Stored]) -> None:
        """Raises what was said of the first that failed."""
        answers = await asyncio.gather(*map(self._import, commits), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    async def _import_rest(self, commits: list[Stored]) -> None:
        """Some answers were lost: what is not there is sent again. Raises Unanswered, LogError for another's commit."""
        end = (await self._state_now()).last_seq
        sent = [commit for commit in commits if commit.sequence <= end]
        there = await asyncio.gather(*(self._at_now(commit.sequence) for commit in sent))
        for commit, found in zip(sent, there, strict=True):
            if found is None or (found.subject, found.message_id) != (commit.subject, commit.message_id):
                what = f"commit {commit.sequence} is somebody else's: the log is not a continuation"
                raise LogError(f"{self.stream}: {what}")
        try:
            await self._import_all([commit for commit in commits if commit.sequence > end])
        except NotLast as error:  # one before it was lost
            raise Unanswered(str(error)) from error

    async def _import(self, commit: Stored) -> None:
        headers = {
            MESSAGE_ID: commit.message_id,
            COMMIT: commit.header.decode("utf-8", "replace"),
            TRACE: commit.traceparent,
        }
        present = {name: value for name, value in headers.items() if value}
        present[EXPECTED_LAST] = str(commit.sequence - 1)
        await self._publish(commit.subject, present, commit.payload, at=commit.sequence)

    # ---------------------------------------------------------------------------------------------------------- stream

    async def _find_or_create(self, create: bool, replicas: int) -> None:
        try:
            found = (await patiently(self._told)).config.num_replicas
            # Whoever takes one by hand may not say how many: what a purged log begins with is as safe as the log.
            self.snapshots = ObjectStore(self.connection, self.cluster, max(replicas, found))
            return
        except Refused as refused:
            if refused.number != STREAM_NOT_FOUND:
                raise
        if not create:
            raise LogError(
                f"{self.connection.url}: no log of a cluster {self.cluster!r} (no stream {self.stream}); "
                "another is named by --cluster, or behind the URL"
            )
        await patiently(self.connection.create_stream, self._configuration(replicas))

    def _configuration(self, replicas: int) -> dict[str, Any]:
        return {
            "name": self.stream,
            "subjects": [subjects.subject(self.cluster, ">")],
            "storage": "file",
            "retention": "limits",
            "discard": "new",  # should an operator set a limit: refuse rather than forget
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "num_replicas": replicas,
            "duplicate_window": DEDUPLICATION_S * 1_000_000_000,
        }

    async def _begin_at(self, sequence: int) -> None:
        state = await self._state()
        if state.last_seq == sequence - 1:
            return
        if state.last_seq:
            raise LogError(f"{self.stream} ends at {state.last_seq}: commit {sequence} does not continue it")
        await self._patiently(f"STREAM.PURGE.{self.stream}", {"seq": sequence})

    async def _state(self) -> StreamState:
        """Never older than what was seen."""
        return await self._surely(self._state_now)

    async def _state_now(self, within_s: float | None = None) -> StreamState:
        return (await self._told(within_s)).state

    async def _told(self, within_s: float | None = None) -> StreamAnswer:
        seen = self._seen  # when it is asked: what is acknowledged while the answer is on its way, it cannot know
        answer = await self.connection.ask(f"{api(self.domain)}.STREAM.INFO.{self.stream}", within_s=within_s)
        told = decoded(decode_stream, self.stream, answer)
        if told.state.last_seq < seen:
            raise _Stale(f"{self.stream} ends at {told.state.last_seq} and lost what was there up to {seen}")
        self._seen = max(self._seen, told.state.last_seq)
        return told

    def _knows(self, commit: Known) -> None:
        """It is there. One of nobody's is known as such: another log may have somebody's there."""
        self._seen = max(self._seen, commit.sequence)
        if not self._known or self._known[-1].sequence < commit.sequence:
            self._known = [*self._known[1 - KNOWN :], commit]

    async def _find_known(self) -> None:
        """Look for it, unless nobody has been away since. Raises as that does."""
        while (breaks := self.connection.breaks) != self._found_behind:
            await self._look_for_known()
            self._found_behind = breaks

    async def _look_for_known(self) -> None:
        """Whether this is still the log of which commits are known: the last one, and behind a break those before it,
        too. Raises _Stale, what `ask` raises, and LogError where nobody can tell."""
        if not self._known or self.domain:  # then a consumer begins with the last (`_consume`)
            return
        *before, last = self._known
        if not await self._stands(last):  # purged, or deleted; or the log ended before, and came to there just now
            self._is_not_purged(await self._state_now())
            await self._stands(last)
        if self._broke:
            for known in before:
                await self._stands(known)

    async def _stands(self, known: Known) -> bool:
        """Whether anything does in its place. Raises _Stale for another, and what `ask` raises."""
        message = await self.connection.message_at(self.stream, known.sequence)
        if message is not None and Known.read(self._stored(message)) != known:
            raise _Stale(self._is_another(known))
        return message is not None

    @property
    def _broke(self) -> bool:
        """Whether the connection did since the log was found to be the one that is known."""
        return self.connection.breaks != self._found_behind

    def _is_not_purged(self, state: StreamState) -> None:
        """Else another may have been in the place of what is known, where the connection broke since. Raises LogError."""
        if self._known and self._known[-1].sequence < state.first_seq and self._broke:
            gone = f"commit {self._known[-1].sequence} was purged while the connection was away"
            raise LogError(f"{self.stream}: {gone}: nobody can tell whether this is the log that was read")

    def _is_known(self, commit: Stored) -> None:
        """It comes a second time, or is the last that was there before anything was read. Raises LogError."""
        found = Known.read(commit)
        for known in self._known:
            if known.sequence == found.sequence and known != found:
                raise LogError(self._is_another(known))
        self._knows(found)

    def _is_another(self, known: Known) -> str:
        lost = "is another than was there: the log has lost what it acknowledged"
        return f"{self.stream}: commit {known.sequence} {lost}"

    async def _surely(self, ask: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Raises LogError when all that comes is stale, for as long as patience lasts."""
        try:
            return await patiently(ask, *arguments)
        except _Stale as stale:
            raise LogError(str(stale)) from stale

    async def _patiently(self, verb: str, body: Any = None) -> bytes:
        return await patiently(self.connection.ask, f"{api(self.domain)}.{verb}", body)

    # --------------------------------------------------------------------------------------------------------- reading

    async def _batches(
        self, after: int, stop: int | None, state: StreamState | None = None
    ) -> AsyncGenerator[list[Stored]]:
        """Contiguous batches behind `after`, up to `stop` or for ever; a consumer is made as often as it takes.

        `state`: the stream's, where it was asked just now.
        """
        place, gaps = after, 0
        while stop is None or place < stop:
            consumer: Consumer = await patiently(self._consume, place, state, forever=stop is None)
            state = None
            try:
                while stop is None or place < stop:
                    batch = await consumer.take()
                    if batch[0].sequence == place:
                        self._is_known(batch.pop(0))
                        if not batch:
                            continue
                    if stop is not None and batch[-1].sequence > stop:
                        batch = [commit for commit in batch if commit.sequence <= stop]
                        if not batch:
                            raise Purged(f"{self.stream}: what follows {place}, up to {stop}, was purged meanwhile")
                    place, gaps = batch[-1].sequence, 0
                    for commit in batch[-KNOWN:]:
                        self._knows(Known.read(commit))
                    yield batch
            except Gap as gap:
                gaps += 1
                if gaps == GAP_ATTEMPTS:
                    raise LogError(f"{gap}, however often it is pulled") from gap
            except Unanswered:
                pass  # made anew, behind what was read
            finally:
                await consumer.close()

    async def _consume(self, place: int, state: StreamState | None) -> Consumer:
        """A consumer of what follows `place`; over a leaf node, where nobody may ask for what is there, with that. Raises
        LogError when the stream no longer holds it, or is another, and Unanswered where it may be another than was looked
        at: who is stopped in between finds the answer of before beside another server."""
        breaks = self.connection.breaks
        self._seen = max(self._seen, place)
        await self._surely(self._look_for_known)
        state = state or await self._state()
        check_place(self.stream, place, state.first_seq)
        if self.domain:
            self._is_not_purged(state)
        first = max(place if self.domain else place + 1, state.first_seq)
        average = state.bytes // max(1, state.messages)
        consumer = Consumer(self.connection, self.stream, first, self.domain, commit_bytes=average)
        await consumer.open()
        if self.connection.breaks != breaks:
            await consumer.close()
            raise Unanswered(f"{self.stream}: the connection was made anew")
        return consumer
