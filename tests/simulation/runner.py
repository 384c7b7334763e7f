"""Many seeds on both cores, in processes that hash strings differently.

Each process runs every other seed and writes an outcome as a line of JSON. Some seeds are run by both: one seed is one
history, whatever PYTHONHASHSEED, or something depends on the order of a set.
"""

from __future__ import annotations

import gc
import os
import selectors
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median

import msgspec

from services.state.fold import APPLY
from tests.simulation.world import Outcome, plan, run

WORKERS = 2
COMPARED = 16
"""Every so many seeds, one is run by all processes."""
COLLECT_EVERY = 10
_decode = msgspec.json.Decoder(Outcome).decode


class Tally(msgspec.Struct):
    """What came of many seeds."""

    seeds: int = 0
    virtual_s: float = 0.0
    events: list[int] = []
    commits: list[int] = []
    struck: list[int] = []
    """Faults of each history."""
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    seen: Counter[str] = msgspec.field(default_factory=Counter)
    failed: dict[int, Outcome] = {}

    def count(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.virtual_s += outcome.virtual_s
        self.events.append(outcome.events)
        self.commits.append(outcome.commits)
        self.struck.append(sum(outcome.faults.values()))
        self.faults.update(outcome.faults)
        self.seen.update(outcome.seen)
        if outcome.violation:
            self.failed[outcome.seed] = outcome

    def last_line(self) -> str:
        hours, faults = self.virtual_s / 3600, self.faults.total()
        return f"{self.seeds} seeds, {len(self.failed)} violations, {hours:.1f} virtual hours, {faults} faults"

    def tables(self) -> str:
        """Medians, faults by kind, coverage of the fold's table of transitions."""
        if not self.seeds:
            return ""
        never = sorted(event.__name__ for event in APPLY if event.__name__ not in self.seen)
        return "\n".join(
            [
                f"median of a history: {median(self.events):g} events in {median(self.commits):g} commits, "
                f"{median(self.struck):g} faults; least: {min(self.events)} events, {min(self.struck)} faults",
                "faults by kind: " + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())),
                f"events of the fold's table: {len(APPLY) - len(never)} of {len(APPLY)} seen"
                + (f"; never: {', '.join(never)}" if never else ""),
                "events by type: " + ", ".join(f"{name} {count}" for name, count in sorted(self.seen.items())),
            ]
        )


def work(first: int, seeds: int, worker: int, workers: int) -> Iterator[Outcome]:
    """One process's share."""
    gc.disable()  # what a collection would end in the middle of a history is no part of it
    gc.freeze()
    for seed in range(first, first + seeds):
        if seed % workers == worker or seed % COMPARED == 0:
            yield run(plan(seed))
            if seed % COLLECT_EVERY == 0:
                gc.collect()


def run_many(
    first: int,
    seeds: int,
    *,
    told: Callable[[Tally], None] = lambda _: None,
    extra: tuple[str, ...] = (),
    until_failure: bool = False,
) -> Tally:
    """All of them; `told` sees the tally after each. `extra` are arguments for the processes.

    `until_failure`: only until one failed and no smaller one can any more.
    """
    tally, seen = Tally(), Seen()
    with selectors.DefaultSelector() as selector:
        children = [_child(first, seeds, worker, extra) for worker in range(WORKERS)]
        for child in children:
            assert child.stdout is not None
            selector.register(child.stdout, selectors.EVENT_READ, bytearray())
        try:
            while selector.get_map():
                for outcome in _outcomes(selector):
                    seen.take(outcome, tally)
                    told(tally)
                if until_failure and tally.failed and seen.all_up_to(min(tally.failed), first):
                    return tally
        finally:
            for child in children:
                child.kill()
                child.wait()
    if tally.seeds != seeds:
        raise RuntimeError(f"{tally.seeds} of {seeds} seeds came back; the processes ended with {children}")
    return tally


def _outcomes(selector: selectors.BaseSelector) -> list[Outcome]:
    """What the processes have written."""
    outcomes: list[Outcome] = []
    for key, _ in selector.select():
        chunk = os.read(key.fd, 1 << 20)
        if not chunk:
            selector.unregister(key.fileobj)
        key.data.extend(chunk)
        *lines, rest = bytes(key.data).split(b"\n")
        key.data[:] = rest
        outcomes += map(_decode, lines)
    return outcomes


def _child(first: int, seeds: int, worker: int, extra: tuple[str, ...]) -> subprocess.Popen[bytes]:
    share = ("--from", str(first), "--seeds", str(seeds), "--worker", str(worker))
    command = [sys.executable, "-m", "tests.simulation", "work", *share, *extra]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": str(worker + 1)})


class Seen:
    """Which seeds came back, and the histories of those that are run by all processes."""

    def __init__(self) -> None:
        self._digests: dict[int, str] = {}
        self._times: Counter[int] = Counter()

    def take(self, outcome: Outcome, tally: Tally) -> None:
        seed = outcome.seed
        self._times[seed] += 1
        found = self._digests.setdefault(seed, outcome.digest + outcome.violation)
        if self._times[seed] == 1:
            tally.count(outcome)
        elif found != outcome.digest + outcome.violation and seed not in tally.failed:
            outcome.violation = (
                "another PYTHONHASHSEED, another history: the order of a set decides something (section 5)"
            )
            tally.failed[seed] = outcome

    def all_up_to(self, seed: int, first: int) -> bool:
        return all(self._times[one] == (WORKERS if one % COMPARED == 0 else 1) for one in range(first, seed))
