"""A portion of the histories, as a process of a pool takes it: one that is spawned, as since Python 3.14, does not import
a package's ``__main__``, finds no function there, and its pool waits for ever.
"""

from __future__ import annotations

from collections import Counter

from tests.federator.held import HeldWorld
from tests.federator.served import HeldServed, Served
from tests.federator.simulation import World, run

WORLDS: dict[str, type[World]] = {
    "core": World,
    "held": HeldWorld,
    "service": Served,
    "held-service": HeldServed,
}


def work(given: tuple[int, int, str, str]) -> tuple[list[tuple[int, str]], Counter[str]]:
    """`given`: the first seed, how many, a plant, a world. What was violated, by seed; the faults."""
    first, seeds, plant, world = given
    count: Counter[str] = Counter()
    failed = []
    if plant:
        from tests.federator import plants

        plants.PLANTS[plant]()
    for seed in range(first, first + seeds):
        violation, faults = run(seed, WORLDS[world])
        count += faults
        if violation:
            failed.append((seed, violation))
    return failed, count
