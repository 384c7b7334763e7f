"""What a client knows of a log: commits that stand at their places, by which he finds out that it is another (D84)."""

from __future__ import annotations

from typing import NamedTuple

from events.answers import MESSAGE_ID
from events.consumer import COMMIT
from events.envelope import Stored

KNOWN = 3
"""Who is in doubt whether its commit is there sends it again: the same may stand behind other commits than before. It is
one of each writer at most."""


class Known(NamedTuple):
    """A commit, without its payload: its id is a digest of that."""

    sequence: int
    subject: str
    message_id: str
    header: str

    @classmethod
    def of(cls, sequence: int, subject: str, headers: dict[str, str]) -> Known:
        return cls(sequence, subject, headers.get(MESSAGE_ID, ""), headers.get(COMMIT, ""))

    @classmethod
    def read(cls, commit: Stored) -> Known:
        return cls(commit.sequence, commit.subject, commit.message_id, commit.header.decode("utf-8", "replace"))
