"""How many seeds were run so far, and what came of them: `counter.json`, which goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.simulation.runner import Tally

PATH = Path(__file__).with_name("counter.json")


class Counted(msgspec.Struct, frozen=True):
    """All runs that went on behind the last one; those that name their first seed are not counted again."""

    next: int = 0
    """The seed to go on with. 531,400 to 679,999 were left out, and 682,200 to 683,999: later ones have all that they
    have, and more."""
    seeds: int = 0
    """How many were run."""
    virtual_hours: float = 0.0
    events: int = 0
    faults: dict[str, int] = {}
    seen: dict[str, int] = {}
    tried: dict[str, int] = {}
    failed: list[int] = []
    """Seeds that failed and were not seen to pass since."""

    def after(self, tally: Tally, first: int, *, goes_on: bool) -> Counted:
        passed = range(first, first + tally.seeds)
        failed = {seed for seed in self.failed if seed not in passed} | set(tally.failed)
        if not goes_on:
            return msgspec.structs.replace(self, failed=sorted(failed))
        return Counted(
            next=self.next + tally.seeds,
            seeds=self.seeds + tally.seeds,
            virtual_hours=round(self.virtual_hours + tally.virtual_s / 3600, 3),
            events=self.events + sum(tally.events),
            faults=_sum(self.faults, tally.faults),
            seen=_sum(self.seen, tally.seen),
            tried=_sum(self.tried, tally.tried),
            failed=sorted(failed),
        )


def _sum(before: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + more.get(name, 0) for name in sorted(before.keys() | more.keys())}


def read() -> Counted:
    return msgspec.json.decode(PATH.read_bytes(), type=Counted) if PATH.exists() else Counted()


def write(counted: Counted) -> None:
    """Whole or not at all: a run may be ended at any moment."""
    new = PATH.with_suffix(".new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(counted), indent=1) + b"\n")
    new.replace(PATH)
