"""Histories of the federator's service: nothing is violated, and who breaks it on purpose is found."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.federator import simulation
from tests.federator.served import HeldServed, Served, plants

HISTORIES = 40
FIRST = {
    "effects: doubt is none": 50,
    "polling: what runs again is not looked for": 150,
    "requests: the name is looked up before": 90,
}
"""The first history that is tried, where many before it find nothing."""
WITHIN = 400


@pytest.mark.parametrize("world", [Served, HeldServed])
def test_nothing_is_violated(world: type[Served]) -> None:
    count: Counter[str] = Counter()
    for seed in range(HISTORIES):
        violation, faults = simulation.run(seed, world)
        assert not violation, f"{world.__name__}, seed {seed}: {violation}"
        count += faults
    for fault in ("append crash after", "crash", "ended: SteppedDown", "log down", "looked", "starts from a snapshot"):
        assert count[fault], f"no history had: {fault}"


def test_a_history_does_not_end_while_a_body_is_cleared_away() -> None:
    """Seed 700182 ended between its two steps, with a part of a body that nobody could name any more."""
    world = Served(700_182)
    assert not simulation.ended(world)
    bodies = world.broker.bodies
    assert len(bodies.messages) == 2 * len(bodies.names())


def test_a_part_of_a_body_that_a_replaced_process_kept_goes() -> None:
    """Seed 165: it comes behind what its successor cleared, and nobody starts any more before all is at rest."""
    assert simulation.run(165, HeldServed)[0] == ""


@pytest.mark.parametrize("world", [Served, HeldServed])
def test_one_seed_is_one_history(world: type[Served]) -> None:
    for seed in range(3):
        one, other = world(seed), world(seed)
        assert simulation.ended(one) == simulation.ended(other) == ""
        assert one.log == other.log
        assert one.count == other.count


@pytest.mark.parametrize("name", plants.PLANTS)
def test_who_breaks_the_service_on_purpose_is_found(name: str) -> None:
    first = FIRST.get(name, 0)
    seeds, violation = plants.found(name, WITHIN, first)
    assert seeds, violation
    assert simulation.run(first + seeds - 1, plants.PLANTS[name][0])[0] == "", "found without the plant"
    assert not violation.startswith(("AttributeError", "TypeError", "NameError")), "the plant does not fit any more"
