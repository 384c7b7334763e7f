"""Histories that are one-sided: of each kind of step and of fault they have none, some, or many (Groce et al., "Swarm
Testing", ISSTA 2012). Where all histories are the same mixture of everything, what takes six things of one kind, or the
absence of one that clears things up, is met by next to none of them. Seeds before `WIDER_FROM` are without this.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from tests.simulation.faults import Draw
from tests.simulation.planting import WIDER_FROM

ONE_SIDED = 0.4
"""How many histories are."""
TIMES = (0.0, 0.0, 1.0, 1.0, 4.0)
"""How much more often than in the others something happens in one of them."""
USUAL = ("pod", "gang", "declared_gang")
"""What all have: without pods nothing happens."""


class Swarm:
    """What one history has more of, and less."""

    def __init__(self, seed: int) -> None:
        source = random.Random(f"{seed}/swarm")
        self._source = source if seed >= WIDER_FROM and source.random() < ONE_SIDED else None
        self.longer = 1 if self._source is None else 2
        """So many times as long it may go on, until enough has happened."""

    def weights(self, usual: Mapping[str, float]) -> dict[str, float]:
        """Of steps, in this history; never nothing at all."""
        drawn = {kind: weight * (1.0 if kind in USUAL else self._times()) for kind, weight in usual.items()}
        return drawn if any(drawn.values()) else dict(usual)

    def rows(self, usual: Sequence[Draw]) -> list[Draw]:
        """Of the table that faults are drawn from."""
        return [row._replace(weight=row.weight * self._times()) for row in usual]

    def _times(self) -> float:
        return 1.0 if self._source is None else self._source.choice(TIMES)
