"""Commits that take little: what otherwise needs a hundred thousand pods."""

from __future__ import annotations

import pytest

from events.memory import MemoryLog
from services.planner import limits
from services.state import commits


def bound(patch: pytest.MonkeyPatch, decision_bytes: int, *, pods_named: int = 50_000) -> None:
    """A decision takes so many bytes; events that release or mark pods name so many."""
    patch.setattr(commits, "DECISION_BYTES", decision_bytes)
    patch.setattr(commits, "PODS_SURELY_FIT", 0)
    patch.setattr(commits, "PODS_NAMED", pods_named)
    patch.setattr(limits, "AROUND_BYTES", 60)


def largest(log: MemoryLog, after: int = 0) -> int:
    """Bytes of the largest decision behind a place."""
    decided = [one for one in log.commits if one.sequence > after and b'"cause":"decide"' in one.header]
    return max(len(one.payload) for one in decided)
