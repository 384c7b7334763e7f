"""`simulate --log` into a file that has a log already: whether that is the one of this simulation."""

from __future__ import annotations

from weakref import finalize

import msgspec
import pytest

from events import memory
from events.envelope import Stored
from events.memory import MemoryLog
from services.console import commands
from tests.events.writing import append, fill

BATCH, COMMITS = 2, 40


class Told(Stored, frozen=True, kw_only=True, weakref=True):
    """A commit that was read."""


class Counting(MemoryLog):
    """It counts how many of those that it told are held at once."""

    held = 0
    most = 0

    def _batch(self, after: int, stop: int) -> list[Stored]:
        return [self._told(stored) for stored in super()._batch(after, stop)]

    def _told(self, stored: Stored) -> Told:
        told = Told(**msgspec.structs.asdict(stored))
        self.held += 1
        self.most = max(self.most, self.held)
        finalize(told, self._let_go)
        return told

    def _let_go(self) -> None:
        self.held -= 1


async def logs_of(*lengths: int) -> list[Counting]:
    logs = [Counting("test") for _ in lengths]
    for log, length in zip(logs, lengths, strict=True):
        await fill(log, "binder", length)
    return logs


async def test_two_logs_are_compared_a_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: both were held as a whole."""
    monkeypatch.setattr(memory, "BATCH", BATCH)
    log, other = await logs_of(COMMITS, COMMITS)
    assert await commands._are_alike(log, other)
    assert max(log.most, other.most) <= 2 * BATCH, "one, and the next"


@pytest.mark.parametrize("length", [COMMITS - 1, COMMITS + 1])
async def test_a_log_that_is_shorter_or_longer_is_another(length: int) -> None:
    log, other = await logs_of(COMMITS, length)
    assert not await commands._are_alike(log, other)


@pytest.mark.parametrize("at", [1, BATCH, COMMITS // 2, COMMITS])
async def test_a_log_that_differs_in_one_commit_is_another(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "BATCH", BATCH)
    log, other = await logs_of(COMMITS, at - 1)
    for number in range(at, COMMITS + 1):
        await append(other, "binder", number if number != at else 0, number - 1)
    assert not await commands._are_alike(log, other)
    assert log.most <= 2 * BATCH
