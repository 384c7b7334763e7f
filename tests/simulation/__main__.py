"""The simulator's command line.

python -m tests.simulation faults --seeds 1000 [--from K]       run seeds; without --from, behind those that were counted
python -m tests.simulation faults --minutes 8                   as many as are begun within so long, of those asked for
python -m tests.simulation faults --workload dlrm               over the services of a real cluster, from 0, uncounted
python -m tests.simulation faults --workload federated          a federator over two such clusters, from 0, uncounted
python -m tests.simulation sweep [NAME …] [--pairs]              each fault at each place of small histories, and each two
python -m tests.simulation replay SEED [--steps … --faults …]   one history, or some of it
python -m tests.simulation plants [NAME …] [--workload SWEEP]   plant bugs, and see how many seeds find each
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from math import inf

import msgspec

from tests.simulation import planting, plants

if "--plant" in sys.argv:  # before anything of the services is imported
    planting.install(plants.PLANTS[sys.argv[sys.argv.index("--plant") + 1]])

from tests.simulation import counter, shorten, sweep
from tests.simulation.history import WORKLOADS, history, plan
from tests.simulation.plan import DENSE_OF, LOSSY_OF, PHASES_OF, Plan
from tests.simulation.planting import AGAIN_FROM, BEYOND_FROM, DENSE_FROM, MIXED
from tests.simulation.runner import WORKERS, Tally, histories, run_many, share
from tests.simulation.small import PREFIX, SCRIPTS
from tests.simulation.sweep import PAIRS

SHORTENED = 3
"""Failing seeds of a run that are shortened."""
TOLD_EVERY_S = 10.0
PORTION = 200
"""Seeds between two writes of the counter."""
PLANT_SEEDS = 1_000
"""Seeds after which a planted bug counts as not found."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    faults = commands.add_parser("faults", help="run seeds")
    faults.add_argument("--seeds", type=int, default=1_000)
    faults.add_argument("--from", type=int, dest="first")
    faults.add_argument("--minutes", type=float, help="begin no more portions after so long")
    swept = commands.add_parser("sweep", help="each fault at each place of small histories")
    swept.add_argument("names", nargs="*", choices=[*SCRIPTS, []])
    swept.add_argument("--pairs", action="store_true", help="two faults each: crashes, pauses, lost and late answers")
    swept.add_argument("--most", type=int, help="so many histories of each, of all kinds, instead of all")
    replay = commands.add_parser("replay", help="run one history, or some of it")
    replay.add_argument("seed", type=int)
    replay.add_argument("--steps", type=_indices)
    replay.add_argument("--faults", type=_indices)
    replay.add_argument("--commits", type=int, default=40, help="how many of its last commits are shown")
    planted = commands.add_parser("plants", help="plant bugs, and see how many seeds find each")
    planted.add_argument("names", nargs="*", choices=[*plants.PLANTS, []])
    planted.add_argument("--within", type=int, default=PLANT_SEEDS, help="seeds after which a bug counts as not found")
    worker = commands.add_parser("work", help="what `faults` starts")
    worker.add_argument("--seeds", type=int, required=True)
    worker.add_argument("--from", type=int, dest="first", required=True)
    worker.add_argument("--worker", type=int, required=True)
    worker.add_argument("--workers", type=int, required=True)
    worker.add_argument("--compared", type=int, default=planting.COMPARED)
    planted.add_argument(
        "--workload", choices=sweep.WORKLOADS, help="in the histories of this sweep, not in its seeds'"
    )
    for command in (faults, swept, planted):
        command.add_argument("--workers", type=int, default=WORKERS, help="processes; two find what sets decide")
    for command in (faults, replay, worker):
        command.add_argument("--workload", choices=WORKLOADS, default=MIXED, help="what users do; not mixed: uncounted")
    for command in (replay, worker):
        command.add_argument("--plant", choices=plants.PLANTS, help="with this bug")
    given = parser.parse_args()
    match given.command:
        case "faults":
            return _faults(given.first, given.seeds, given.minutes, given.workers, given.workload)
        case "sweep":
            return _sweep(given.names or list(SCRIPTS), PAIRS if given.pairs else PREFIX, given.most, given.workers)
        case "replay":
            chosen = _chosen(plan(given.seed, given.workload), given.steps, given.faults)
            return _replay(chosen, given.commits)
        case "plants":
            return _plants(given.names or list(plants.PLANTS), given.within, given.workers, given.workload)
    own = share(given.first, given.seeds, given.worker, given.workers, given.compared)
    for outcome in histories(own, given.workload):
        sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")
        sys.stdout.buffer.flush()
    return 0


def _plants(names: list[str], within: int, workers: int, swept: str | None) -> int:
    """One line for each: after how many seeds it was found, or histories of a sweep, and by what."""
    missed = 0
    for name in names:
        plant = plants.PLANTS[name]
        first, compared, extra = plant.first, plant.compared, ("--plant", name, "--workload", swept or plant.workload)
        if swept is not None:
            first, within = 0, min(within, sweep.histories(swept))
        found = run_many(first, within, extra=extra, until_failure=True, workers=workers, compared=compared).failed
        missed += not found
        seed = min(found, default=first)
        by = f"{seed - first + 1:4} seeds  {found[seed].violation[:160]}" if found else f"not within {within} seeds"
        print(f"{name:32} {by}", flush=True)
    print(f"{len(names) - missed} of {len(names)} planted bugs found")
    return 1 if missed else 0


def _indices(text: str) -> list[int]:
    return [] if text == "none" else [int(index) for index in text.split(",")]


def _faults(first: int | None, seeds: int, minutes: float | None, workers: int, workload: str) -> int:
    """In portions, each of which is counted when it is over: a run may be ended at any moment."""
    tally, until_s = Tally(), inf if minutes is None else time.monotonic() + 60 * minutes
    begin = _first(workload) if first is None else first
    told, extra = _progress(tally), ("--workload", workload)
    for start in range(begin, begin + seeds, PORTION):
        if time.monotonic() >= until_s:
            print(f"{minutes:g} minutes are over: {tally.seeds} of {seeds} seeds from {begin} were run")
            break
        size = min(PORTION, begin + seeds - start)
        portion = run_many(start, size, told=told, workers=workers, extra=extra)
        tally.add(portion)
        for seed in sorted(portion.failed):
            print(f"seed {seed}: {portion.failed[seed].violation}", file=sys.stderr, flush=True)
        if workload == MIXED:
            counter.write(counter.read().after(portion, start, goes_on=first is None))
    print(tally.tables())
    for seed in sorted(tally.failed)[:SHORTENED]:
        _explain(plan(seed, workload), tally.failed[seed].violation, tally.failed[seed].virtual_s, workers)
    for seed in sorted(tally.failed)[SHORTENED:]:
        print(f"seed {seed}: {tally.failed[seed].violation}")
    print(tally.last_line())
    return 1 if tally.failed else 0


def _sweep(names: list[str], of: str, most: int | None, workers: int) -> int:
    failed = 0
    for name in names:
        count = sweep.histories(of + name)
        print(f"{of}{name}: {sweep.swept(name).told()}, {count} histories", flush=True)
        failed |= _faults(0, count if most is None else min(most, count), None, workers, of + name)
    return failed


def _first(workload: str) -> int:
    """Behind those that were counted; of others one that has everything."""
    if workload == MIXED:
        return counter.read().next
    firsts = {AGAIN_FROM: LOSSY_OF, DENSE_FROM: DENSE_OF, BEYOND_FROM: PHASES_OF}
    return next((first for first, workloads in firsts.items() if workload in workloads), 0)


def _progress(before: Tally) -> Callable[[Tally], None]:
    began_s = told_s = time.monotonic()

    def told(tally: Tally) -> None:
        nonlocal told_s
        if time.monotonic() - told_s > TOLD_EVERY_S:
            told_s = time.monotonic()
            done = f"{before.seeds} seeds, {len(before.failed)} violations; now " if before.seeds else ""
            print(f"{told_s - began_s:6.0f} s: {done}{tally.last_line()}", file=sys.stderr, flush=True)

    return told


def _explain(whole: Plan, violation: str, end_s: float, workers: int) -> None:
    print(f"seed {whole.seed}: {violation}\nshortening …", flush=True)
    items, world = shorten.shorten(whole, violation, end_s)
    print(shorten.described(world))
    again = shorten.command(whole, items)
    if world.outcome.violation:
        print(f"it ends with: {world.outcome.violation}\nreplay it: {again}", flush=True)
        return
    print("here it passes: what it does depends on PYTHONHASHSEED; replay it with those of the processes that ran it:")
    for hashes in range(1, workers + 1):
        print(f"PYTHONHASHSEED={hashes} {again}", flush=True)


def _chosen(whole: Plan, steps: list[int] | None, faults: list[int] | None) -> Plan:
    """These of its steps and faults; None: all."""
    if steps is None and faults is None:
        return whole
    steps = list(range(len(whole.steps))) if steps is None else steps
    faults = list(range(len(whole.faults))) if faults is None else faults
    return shorten.only(whole, [*(("step", index) for index in steps), *(("fault", index) for index in faults)])


def _replay(chosen: Plan, commits: int) -> int:
    world = history(chosen)
    outcome = world.run()
    print(shorten.described(world, commits))
    print(outcome.violation or f"no violation; {outcome.events} events, digest {outcome.digest}")
    return 1 if outcome.violation else 0


if __name__ == "__main__":
    sys.exit(main())
