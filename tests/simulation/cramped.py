"""Histories in which every bound of the services is met at once: pages, commits, slices and caches have room for next to
nothing, so that a dozen pods do what otherwise takes a hundred thousand. Seeds before `WIDER_FROM` are
without all this.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from events import consumer
from services import decider, start, writer
from services.binder.rules.koordinator import deadlock
from services.binder.service import effects, write_behind
from services.ingest import normalise
from services.ingest import service as ingest
from services.kubernetes.client import Client
from services.planner import placement
from services.state import fold, form
from tests.bounds import FORGETFUL
from tests.simulation.planting import WIDER_FROM

CRAMPED = 0.25
"""In how many histories."""
SERVICES: tuple[tuple[Any, str, object], ...] = (
    (Client.pages, "__kwdefaults__", {"limit": 3}),
    (consumer, "PULL_MESSAGES", 5),
    (ingest, "SLICE", 3),
    (ingest, "BEHIND", 5),
    (normalise, "CLASSES_KEPT", 2),
    (start, "FOLD_EVENTS", 3),
    (decider, "FOLD_EVENTS", 3),
    (decider, "GATHERED_OUTCOMES", 2),
    (writer.Outbox.__init__, "__kwdefaults__", {"max_events": 4, "max_bytes": 600}),
    (effects, "REPEATED", 1),
    (effects, "LOAD", 1),
    (write_behind, "SPARE", 0),
    (write_behind, "BURST_WRITES", 20.0),
)
"""How they get and say things: pages, pulls, commits, rounds. (where, name, how much)"""
DECIDING: tuple[tuple[Any, str, int], ...] = (
    (placement, "CHUNK_PODS", 2),
    (fold, "SWEPT_AFTER", 8),
    (form, "PORTION", 3),
    (deadlock, "ASKED", 1),
)
"""What a decision, the fold or a digest depends on: the same for who decides again."""


@contextmanager
def cramped(seed: int) -> Iterator[ExitStack]:
    """While a history is made and verified; what is closed before the latter is about what nobody may depend on."""
    drawn = seed >= WIDER_FROM and random.Random(f"{seed}/cramped").random() < CRAMPED
    with ExitStack() as throughout, ExitStack() as meanwhile:
        if drawn:
            _patch(throughout, DECIDING)
            _patch(meanwhile, (*FORGETFUL, *SERVICES))
        yield meanwhile


def _patch(stack: ExitStack, bounds: tuple[tuple[Any, str, object], ...]) -> None:
    for where, name, few in bounds:
        stack.enter_context(patch.object(where, name, few))
