"""The log as an interface: append a commit under an expected sequence, read from a place, follow.

Three homes keep it, and one test suite runs against each: `memory`, `sqlite`, `jetstream`. Fencing is the log's own:
`append` names the sequence of the last message that the writer knows on its own subject, and a writer that was
replaced meets a `Conflict` and steps down.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from events.envelope import Header, Stored

MAX_COMMIT_BYTES = 8_000_000
"""What a commit may take with its header, in every home: one message of a server with `max_payload` 8 MB."""


class LogError(Exception):
    """The log could not do what was asked."""


class Conflict(LogError):
    """Somebody else appended to this subject: the expected sequence is not the subject's last any more."""

    def __init__(self, subject: str, expected: int, actual: int | None = None) -> None:
        self.subject, self.expected, self.actual = subject, expected, actual
        found = "another" if actual is None else str(actual)
        super().__init__(f"{subject}: expected last sequence {expected}, found {found}: another writer has taken over")


class Unavailable(LogError):
    """The log's home cannot be reached, or did not answer within the bounds of retrying."""


class TooLarge(LogError):
    """The commit is larger than one message may be."""


def check_size(subject: str, header: bytes, payload: bytes) -> None:
    """Raises TooLarge."""
    size = len(header) + len(payload)
    if size > MAX_COMMIT_BYTES:
        raise TooLarge(f"{subject}: a commit of {size} bytes; at most {MAX_COMMIT_BYTES} go into one message")


class EventLog(Protocol):
    """One cluster's log."""

    cluster: str

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

    async def end(self) -> int:
        """The sequence of the log's last commit; 0 when it is empty."""
        ...

    def read(self, after: int = 0, until: int | None = None) -> AsyncIterator[list[Stored]]:
        """Batches of commits behind `after`, in order and without gaps, up to `until` (default: the end as of now)."""
        ...

    def follow(self, after: int = 0) -> AsyncIterator[list[Stored]]:
        """Like `read`, but waits for more at the end. A batch is what was there, never empty. Reconnects by itself."""
        ...

    async def close(self) -> None: ...
