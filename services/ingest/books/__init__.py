"""A book for each kind of object: what is known of it, and what an observation adds to that.

`pods`, `named` (nodes, PodGroups, PriorityClasses) and `workloads` are the books. They share a `ledger`, and `writes`
says what the binder did to pods before ingest began. Events that a book returns are folded into it already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from events import Event
from services.ingest.identity import Key


class Book(Protocol):
    """The objects of one kind."""

    def holder(self, key: Key) -> str:
        """The UID of the object that has the name, as far as is known; else empty."""

    def known(self) -> Iterator[tuple[str, Key]]:
        """(UID, key) of all that is there now, whatever comes or goes until they are gone through."""

    def said(self, uid: str, key: Key) -> int | None:
        """The version of the last fact about the object, or about another of its name; None: the log says nothing."""

    def observe(self, seen: Any, listed: bool) -> list[Event]:
        """What brings the log up to an object that is not older than what is known. `listed`: it is from a list."""

    def gone(self, uid: str, key: Key) -> list[Event]:
        """The object is gone: what says so, if the log knows it."""
