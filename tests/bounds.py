"""Bounds that are met at once: what otherwise takes a hundred thousand pods, or weeks."""

from __future__ import annotations

import pytest

from events.memory import MemoryLog
from services.planner import core, limits, placement
from services.state import commits, nodes


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


def forget(patch: pytest.MonkeyPatch) -> None:
    """What is remembered so that it need not be computed again, or gathered so that it is counted at once, is next to
    nothing. Nobody may decide otherwise for that."""
    for name, few in (("SPARE", 0), ("PENDING", 40), ("FEW", 3), ("LABELS_KEPT", 1), ("RECOUNTED", 2)):
        patch.setattr(nodes, name, few)
    patch.setattr(placement, "REMEMBERED", 1)
    patch.setattr(placement.Left, "FRESH", 2)
    patch.setattr(core, "SLICE_ROWS", 0)
