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
from collections.abc import Callable, Iterable, Iterator
from statistics import median

import msgspec

from events.subjects import FEDERATION_ROLES, WRITES
from services.state.fold import APPLY
from tests.simulation.history import history, plan
from tests.simulation.plan import Outcome
from tests.simulation.planting import COMPARED, MIXED

WORKERS = 2
OWN = frozenset[type]().union(*(events for role, events in WRITES.items() if role not in FEDERATION_ROLES))
"""A federation has a log of its own."""
COLLECT_EVERY = 3
"""Seeds. They leave some megabytes each."""
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
    tried: Counter[str] = msgspec.field(default_factory=Counter)
    failed: dict[int, Outcome] = {}

    def count(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.virtual_s += outcome.virtual_s
        self.events.append(outcome.events)
        self.commits.append(outcome.commits)
        self.struck.append(sum(outcome.faults.values()))
        self.faults.update(outcome.faults)
        self.seen.update(outcome.seen)
        self.tried.update(outcome.tried)
        if outcome.violation:
            self.failed[outcome.seed] = outcome

    def add(self, more: Tally) -> None:
        self.seeds += more.seeds
        self.virtual_s += more.virtual_s
        self.events += more.events
        self.commits += more.commits
        self.struck += more.struck
        self.faults.update(more.faults)
        self.seen.update(more.seen)
        self.tried.update(more.tried)
        self.failed |= more.failed

    def last_line(self) -> str:
        hours, faults = self.virtual_s / 3600, self.faults.total()
        return f"{self.seeds} seeds, {len(self.failed)} violations, {hours:.1f} virtual hours, {faults} faults"

    def tables(self) -> str:
        """Medians, faults by kind, coverage of the fold's table of transitions."""
        if not self.seeds:
            return ""
        table = [event.__name__ for event in APPLY if event in OWN]
        never = sorted(name for name in table if name not in self.seen)
        return "\n".join(
            [
                f"median of a history: {median(self.events):g} events in {median(self.commits):g} commits, "
                f"{median(self.struck):g} faults; least: {min(self.events)} events, {min(self.struck)} faults",
                "faults by kind: " + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())),
                f"events of the fold's table: {len(table) - len(never)} of {len(table)} seen"
                + (f"; never: {', '.join(never)}" if never else ""),
                "besides: " + ", ".join(f"{name} {count}" for name, count in sorted(self.tried.items())),
                "events by type: " + ", ".join(f"{name} {count}" for name, count in sorted(self.seen.items())),
            ]
        )


def histories(seeds: Iterable[int], workload: str = MIXED) -> Iterator[Outcome]:
    """Run these. What a garbage collection would end in the middle of a history is no part of it, so there is none."""
    gc.disable()
    gc.freeze()  # what is garbage already, too: to look for it takes as long as half a history beside all of pytest's
    try:
        for number, seed in enumerate(seeds, 1):
            yield history(plan(seed, workload)).run()
            if number % COLLECT_EVERY == 0:
                gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()


def share(first: int, seeds: int, worker: int, workers: int, compared: int) -> Iterator[int]:
    """One process's."""
    return (seed for seed in range(first, first + seeds) if seed % workers == worker or seed % compared == 0)


def run_many(
    first: int,
    seeds: int,
    *,
    told: Callable[[Tally], None] = lambda _: None,
    extra: tuple[str, ...] = (),
    until_failure: bool = False,
    workers: int = WORKERS,
    compared: int = COMPARED,
) -> Tally:
    """All of them; `told` sees the tally after each. `extra` are arguments for the processes; all of them run one of
    every `compared` seeds.

    `until_failure`: only until one failed and no smaller one can any more.
    """
    tally, seen = Tally(), Seen(workers, compared)
    with selectors.DefaultSelector() as selector:
        given = ("--compared", str(compared), *extra)
        children = [_child(first, seeds, worker, workers, given) for worker in range(workers)]
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


def _child(first: int, seeds: int, worker: int, workers: int, extra: tuple[str, ...]) -> subprocess.Popen[bytes]:
    given = ("--from", str(first), "--seeds", str(seeds), "--worker", str(worker), "--workers", str(workers))
    command = [sys.executable, "-m", "tests.simulation", "work", *given, *extra]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": str(worker + 1)})


class Seen:
    """Which seeds came back, and the histories of those that are run by all processes."""

    def __init__(self, workers: int, compared: int) -> None:
        self._workers, self._compared = workers, compared
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
        return all(
            self._times[one] == (self._workers if one % self._compared == 0 else 1) for one in range(first, seed)
        )
