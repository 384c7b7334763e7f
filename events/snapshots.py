"""Where snapshots of the state are kept, beside each of the log's homes: opaque bytes under the sequence they stand for.

JetStream's object store has them for a log in NATS (`events.object_store`), a table for one in an SQLite file
(`events.sqlite`), and a dict for one in memory. What comes back is what was put, or `BrokenSnapshot`; whether it is the
right state, the caller checks.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from events.log import LogError


class BrokenSnapshot(LogError):
    """A snapshot that is listed and cannot be had back as it was put."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot as its store lists it."""

    sequence: int
    """It is the state after this commit."""
    digest: str
    """Of the state."""
    state: int
    """The version of the fold that made it."""
    bytes: int
    """As it is kept."""
    commit: str = ""
    """A digest of that commit, by which the log knows its own; in snapshots of earlier versions its message id; empty
    where it is not known."""


class Snapshots(Protocol):
    """A log's snapshots. Their number is small; each is put whole, and replaces one of the same sequence."""

    async def put(self, kept: Kept, data: bytes) -> None:
        """Raises LogError."""
        ...

    async def listed(self) -> list[Kept]:
        """The newest first. Raises LogError."""
        ...

    async def get(self, kept: Kept) -> bytes:
        """Raises BrokenSnapshot, LogError."""
        ...

    async def delete(self, kept: Kept) -> None:
        """Does nothing where it is gone already. Raises LogError."""
        ...


class MemorySnapshots:
    """In memory, for `events.memory`."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Kept, bytes]] = {}

    async def put(self, kept: Kept, data: bytes) -> None:
        self._kept[kept.sequence] = kept, data

    async def listed(self) -> list[Kept]:
        return [self._kept[sequence][0] for sequence in sorted(self._kept, reverse=True)]

    async def get(self, kept: Kept) -> bytes:
        found = self._kept.get(kept.sequence)
        if found is None or found[0] != kept:
            raise BrokenSnapshot(f"snapshot {kept.sequence} is gone")
        return found[1]

    async def delete(self, kept: Kept) -> None:
        self._kept.pop(kept.sequence, None)
