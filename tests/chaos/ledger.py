"""The log as a reader sees it the whole time, against what services were told of it.

The ledger follows the log through everything, folds it, and remembers a digest of each commit. At the end the log is read
again: a commit that changed or vanished, a gap, an acknowledged commit that is not there or is another, are violations.
Acknowledgements are the services' own word: at level debug a writer logs sequence and message id of each.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

import events as ev
from events.envelope import Commit, Stored
from events.log import EventLog, LogError
from services.state.validate import Violated

AGAIN_S = 0.5


class Acknowledged(NamedTuple):
    """What a service wrote into its own output."""

    service: str
    sequence: int
    message_id: str


class Folded(Protocol):
    """The fold of a cluster's log, or of a federation's."""

    sequence: int

    def apply_stored(self, stored: Stored) -> Commit | None: ...


S = TypeVar("S", bound=Folded)


class Ledger(Generic[S]):
    """`state` is the fold of what was read so far; `validate` raises Violated where that cannot be."""

    def __init__(self, state: S, validate: Callable[[S], None]) -> None:
        self.state = state
        self._validate = validate
        self.counted: Counter[str] = Counter()
        """Commits, and events by type."""
        self.violations: list[str] = []
        self.permitted: dict[tuple[str, str], tuple[int, int]] = {}
        """(UID, node) → the commit by which the binder first decided so, and its time, in ns since 1970 by its writer's
        clock."""
        self._digests: list[bytes] = []

    def read(self, batch: Iterable[Stored]) -> None:
        for stored in batch:
            if stored.sequence <= len(self._digests):
                if digest(stored) != self._digests[stored.sequence - 1]:
                    self.violations.append(f"commit {stored.sequence} is another than it was (7.7)")
                continue
            if stored.sequence != len(self._digests) + 1:
                self.violations.append(f"commit {stored.sequence} follows {len(self._digests)}: a gap (rule 2)")
                return
            self._digests.append(digest(stored))
            commit = self.state.apply_stored(stored)
            self.counted["commits"] += 1
            if commit is None:
                if stored.subject.endswith(".\ufffd"):  # `hurting` had it written
                    continue
                self.violations.append(f"{stored.sequence} on {stored.subject} is nobody's commit")
                continue
            self.counted.update(type(event).__name__ for event in commit.events)
            for event in commit.events:
                if isinstance(event, ev.DisagreementDetected):
                    self.violations.append(f"{stored.sequence}: planner and binder disagree: {event} (rule 4)")
                elif isinstance(event, ev.GangPermitted):
                    for assignment in event.bindings:
                        for binding in assignment.pods:
                            first = commit.sequence, commit.header.time_ns
                            self.permitted.setdefault((binding.uid, assignment.node), first)
        try:
            self._validate(self.state)
        except Violated as violated:
            self.violations.append(f"at {self.state.sequence}: {violated}")

    def permitted_ns(
        self, acknowledged: Iterable[Acknowledged], offsets_ms: Mapping[str, int]
    ) -> dict[tuple[str, str], int]:
        """(UID, node) → when the binder first decided so, in ns since 1970. Of whose writer was not told of a commit only
        the earliest is known: as if its clock were the one that is furthest ahead.
        """
        ahead_ms = {one.sequence: offsets_ms[one.service] for one in acknowledged}
        furthest_ms = max(offsets_ms.values())
        return {
            where: time_ns - ahead_ms.get(sequence, furthest_ms) * 1_000_000
            for where, (sequence, time_ns) in self.permitted.items()
        }

    async def follow(self, log: EventLog) -> None:
        """For ever. A log that lost what was read is a violation, and no reason to stop looking."""
        while True:
            try:
                async for batch in log.follow(self.state.sequence):
                    self.read(batch)
            except LogError as error:
                self.violations.append(f"following the log: {error}")
            await asyncio.sleep(AGAIN_S)

    def compare(self, commits: list[Stored], acknowledged: Iterable[Acknowledged]) -> int:
        """With the whole log, read again; how many acknowledgements were found in it."""
        self.read(commits)
        ids = {stored.sequence: stored.message_id for stored in commits}
        if len(ids) < len(self._digests):
            self.violations.append(f"the log has {len(ids)} commits, and had {len(self._digests)} (7.7)")
        found = 0
        for one in acknowledged:
            if ids.get(one.sequence) == one.message_id:
                found += 1
            else:
                there = ids.get(one.sequence, "nothing")
                self.violations.append(
                    f"{one.service} was told {one.message_id} at {one.sequence}: there is {there} (7.7)"
                )
        self.counted["acknowledged"] = found
        return found


def digest(stored: Stored) -> bytes:
    """Of all of it."""
    parts = (stored.subject.encode(), stored.message_id.encode(), stored.header, stored.payload)
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()


def acknowledgements(logs: Mapping[str, Path]) -> Iterator[Acknowledged]:
    """From the services' output, by name. A line that was cut off by a kill is none."""
    for service, path in logs.items():
        for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
            if '"acknowledged"' in line:
                with suppress(ValueError, KeyError, TypeError):
                    said = json.loads(line)
                    yield Acknowledged(service, int(said["sequence"]), str(said["id"]))
