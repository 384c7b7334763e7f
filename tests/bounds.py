"""Bounds that are met at once: what otherwise takes a hundred thousand pods, or weeks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from events.memory import MemoryLog
from services.binder import pace
from services.binder.rules.koordinator import deadlock
from services.planner import attempt, core, limits, placement, sharing
from services.state import cohorts, commits, fits, masks, nodes, rank

if TYPE_CHECKING:
    import pytest


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


FORGETFUL: tuple[tuple[Any, str, int], ...] = (
    (nodes, "SPARE", 0),
    (nodes, "PENDING", 40),
    (nodes, "FEW", 3),
    (nodes, "LABELS_KEPT", 1),
    (nodes, "SLICE_LOOKED", 0),
    (fits, "JUDGED", 1),
    (masks, "MASKED_BYTES", 1),
    (masks, "RECENT", 0),
    (nodes, "RECOUNTED", 2),
    (placement, "REMEMBERED", 1),
    (placement, "SHARES_KEPT", 1),
    (placement.Left, "FRESH", 2),
    (core, "SLICE_ROWS", 0),
    (attempt, "SLICE_PARTS", 1),
    (commits, "SLICE_UNITS", 1),
    (pace, "SLICE_CLASSES", 1),
    (pace, "SLICE_PODS", 1),
    (pace, "MANY", 1),
    (deadlock, "SLICE_HELD", 1),
    (sharing, "SLICE_GROUPS", 1),
    (cohorts, "SLICE_LISTED", 1),
    (rank, "SLICE_NAMES", 1),
)
"""What is remembered so that it need not be computed again, or gathered so that it is counted at once, is next to
nothing: (where, name, how much). Nobody may decide otherwise for that."""


def forget(patch: pytest.MonkeyPatch) -> None:
    for where, name, few in FORGETFUL:
        patch.setattr(where, name, few)
