"""Histories in which every bound of the services is met at once: pages, commits, slices and caches have room for next to
nothing, so that a dozen pods do what otherwise takes a hundred thousand. In others, or in the same, a decision may say
next to nothing: it is cut, and goes on when others have spoken; gangs are too large for a commit, wholly or but for some
of what is optional. Seeds before `WIDER_FROM` are without all this.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from events import consumer, feed
from services import decider, start, writer
from services.binder.rules.koordinator import deadlock
from services.binder.service import effects, pod_groups, rounds
from services.feed import service as publishing
from services.ingest import differ, normalise
from services.ingest import service as ingest
from services.kubernetes import share
from services.kubernetes.client import Client
from services.planner import limits, placement
from services.state import commits, deadlines, declarations, fits, form, snapshot, tallies
from tests.bounds import FORGETFUL
from tests.simulation import launch
from tests.simulation.planting import FURTHER_FROM, LATEST_FROM, NEWEST_FROM, WIDER_FROM

CRAMPED, TERSE = 0.25, 0.2
"""In how many histories: all bounds but those of a decision; those of a decision."""
DECISION_BYTES = (400, 700, 1_200)
"""What one may say: of a permit of three pods, of one of six, of one of ten or of three small ones."""
SERVICES: tuple[tuple[Any, str, object], ...] = (
    (Client.pages, "__kwdefaults__", {"limit": 3}),
    (consumer, "PULL_MESSAGES", 5),
    (ingest, "SLICE", 3),
    (ingest, "BEHIND", 5),
    (normalise, "CLASSES_KEPT", 2),
    (start, "FOLD_BYTES", 600),
    (decider, "FOLD_BYTES", 600),
    (decider, "GATHERED_OUTCOMES", 2),
    (writer.Outbox.__init__, "__kwdefaults__", {"max_events": 4, "max_bytes": 600}),
    (effects, "REPEATED_PER_S", 1),
    (launch, "CONCURRENCY", 1),
    (effects, "LOAD", 1),
    (pod_groups, "SPARE", 0),
    (rounds, "BURST_WRITES", 20.0),
    (feed, "WINDOW", 3),
    (publishing, "WINDOW", 3),
    (publishing, "PORTION_BYTES", 500),
)
"""How they get and say things: pages, pulls, commits, rounds. (where, name, how much)"""
DECIDING: tuple[tuple[Any, str, int], ...] = (
    (placement, "CHUNK_PODS", 2),
    (deadlines, "SWEPT_AFTER", 8),
    (form, "PORTION", 3),
    (deadlock, "ASKED", 1),
)
"""What a decision, the fold or a digest depends on: the same for who decides again."""
NEWEST: tuple[tuple[Any, str, int], ...] = (
    (declarations, "LOOKED_AT", 1),
    (differ, "SLICE_OBJECTS", 1),
    (differ, "SLICE_LISTED", 1),
    (snapshot, "SLICE_RECORDS", 1),
    (tallies, "SLICE_MEMBERS", 1),
)
"""Besides, in later histories."""
LATEST: tuple[tuple[Any, str, int], ...] = ((share, "LEAST", 1),)
"""And in the latest."""
FURTHER: tuple[tuple[Any, str, int], ...] = ((fits, "MOST_TAINTS", 2),)
"""And in those behind them, the same for who decides again."""
SAYING: tuple[tuple[Any, str, int], ...] = (
    (commits, "PODS_SURELY_FIT", 0),
    (commits, "PODS_NAMED", 2),
    (limits, "AROUND_BYTES", 100),
)
"""What a decision says: the same, too."""


@contextmanager
def cramped(seed: int) -> Iterator[ExitStack]:
    """While a history is made and verified; what is closed before the latter is about what nobody may depend on."""
    source = random.Random(f"{seed}/cramped")
    with ExitStack() as throughout, ExitStack() as meanwhile:
        if seed >= WIDER_FROM and source.random() < CRAMPED:
            _patch(throughout, (*DECIDING, *(FURTHER if seed >= FURTHER_FROM else ())))
            _patch(meanwhile, (*FORGETFUL, *SERVICES))
            _patch(meanwhile, (*(NEWEST if seed >= NEWEST_FROM else ()), *(LATEST if seed >= LATEST_FROM else ())))
        if seed >= WIDER_FROM and source.random() < TERSE:
            _patch(throughout, (*SAYING, (commits, "DECISION_BYTES", source.choice(DECISION_BYTES))))
        yield meanwhile


def _patch(stack: ExitStack, bounds: tuple[tuple[Any, str, object], ...]) -> None:
    for where, name, few in bounds:
        stack.enter_context(patch.object(where, name, few))
