"""The log as an interface: append a commit under an expected sequence, read from a place, follow.

Three homes keep it, and one test suite runs against each: `memory`, `sqlite`, `jetstream`. Fencing is the log's own:
`append` names the sequence of the last message that the writer knows on its own subject, and a writer that was
replaced meets a `Conflict` and steps down.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from events import subjects
from events.envelope import Header, Stored, header_of

if TYPE_CHECKING:
    from events.snapshots import Snapshots

MAX_COMMIT_BYTES = 8_000_000
"""What a commit may take with its header, in every home: one message of a server with `max_payload` 8 MB."""


class LogError(Exception):
    """The log could not do what was asked."""


class Conflict(LogError):
    """The expected sequence is not the subject's last any more: somebody else appended to it, or purged it."""

    def __init__(self, subject: str, expected: int, actual: int | None = None) -> None:
        self.subject, self.expected, self.actual = subject, expected, actual
        found = "another" if actual is None else str(actual)
        gone = actual is not None and actual < expected
        why = "what it wrote was purged or deleted" if gone else "another writer has taken over"
        super().__init__(f"{subject}: expected last sequence {expected}, found {found}: {why}")


class Unavailable(LogError):
    """The log's home cannot be reached, or did not answer within the bounds of retrying."""


class TooLarge(LogError):
    """The commit is larger than one message may be."""


class Purged(LogError):
    """The log no longer holds what follows the place that was asked for."""


def check_place(log: str, place: int, first: int) -> None:
    """Whether a reader can go on behind `place` in a log that begins at `first`; 0 is its beginning, wherever that is.

    Raises Purged.
    """
    if 0 < place < first - 1:
        raise Purged(f"{log} begins at {first}: what follows {place} was purged")


def check_purge(first: int, end: int) -> None:
    """A purge leaves the last commit. Raises ValueError."""
    if not 0 < first <= end:
        raise ValueError(f"a log that ends at {end} cannot begin at {first}")


def check_size(subject: str, header: bytes, payload: bytes) -> None:
    """Raises TooLarge."""
    size = len(header) + len(payload)
    if size > MAX_COMMIT_BYTES:
        raise TooLarge(f"{subject}: a commit of {size} bytes; at most {MAX_COMMIT_BYTES} go into one message")


class Bounds(NamedTuple):
    """Where a log begins and ends, as of one moment."""

    first: int
    """The sequence at which it begins: 1 until it is purged."""
    end: int
    """The sequence of its last commit; 0 when it is empty."""


class EventLog(Protocol):
    """One cluster's log."""

    cluster: str

    @property
    def snapshots(self) -> Snapshots:
        """Those of its state."""
        ...

    async def append(
        self, subject: str, header: Header, payload: bytes, expected: int, *, traceparent: str = ""
    ) -> int:
        """Append one commit; returns its sequence.

        `expected` is the sequence of the last commit on `subject` (0: none yet). A lost answer is settled inside: the
        subject's last message is read and compared by message id before anything is tried again.
        Raises Conflict, TooLarge, Unavailable.
        """
        ...

    async def last(self, subject: str) -> Stored | None:
        """The last commit on `subject`, or None."""
        ...

    async def at(self, sequence: int) -> Stored | None:
        """The commit there; None where there is none, or none any more."""
        ...

    async def bounds(self) -> Bounds: ...

    async def end(self) -> int:
        """The sequence of the log's last commit; 0 when it is empty."""
        ...

    def read(self, after: int = 0, until: int | None = None) -> AsyncIterator[list[Stored]]:
        """Batches of commits behind `after` (0: the log's beginning), in order and without gaps, up to `until` (default:
        the end as of now). Raises Purged."""
        ...

    def follow(self, after: int = 0) -> AsyncIterator[list[Stored]]:
        """Like `read`, but waits for more at the end. A batch is what was there, never empty. Reconnects by itself."""
        ...

    async def stays(self, for_s: float) -> None:
        """Returns after so long; for who reads nothing meanwhile. Raises LogError as soon as this is another log than was
        written to, as where it was set back."""
        ...

    async def purge(self, first: int) -> None:
        """Forget what stands before `first`, for good; the log begins there from now on.

        The last commit stays. A writer whose last commit goes has none: its next `…Taken` expects 0.
        """
        ...

    async def close(self) -> None: ...


async def first_role(log: EventLog) -> str:
    """The role of whoever wrote first of what is left of the log; empty where nobody did. It tells a cluster's log from a
    federation's, which are named alike.

    What is nobody's commit says nothing of the log: JetStream puts its answers wherever a client's request says, on a
    writer's subject, too. Raises LogError.
    """
    first, end = await log.bounds()
    for sequence in range(first, end + 1):
        stored = await log.at(sequence)
        if stored is not None and (header := header_of(stored)) is not None:
            return subjects.role_of(header.writer)
    return ""
