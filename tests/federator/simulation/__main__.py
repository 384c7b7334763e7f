"""``python -m tests.federator.simulation``: many histories, or one."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter

from tests.federator.simulation import ended
from tests.federator.simulation.portions import WORLDS, work


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.federator.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--from", type=int, dest="first", default=0)
    parser.add_argument("--world", choices=WORLDS, default="core", help="who runs, over which clusters")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plant", default="", help="with this rule broken (tests.federator.plants)")
    parser.add_argument("--replay", type=int, metavar="SEED", help="one history, its log printed")
    given = parser.parse_args()
    if given.replay is not None:
        return _replay(given.replay, given.plant, given.world)
    portion = 250
    portions = [
        (begin, min(portion, given.first + given.seeds - begin), given.plant, given.world)
        for begin in range(given.first, given.first + given.seeds, portion)
    ]
    began_s = time.monotonic()
    failed: list[tuple[int, str]] = []
    count: Counter[str] = Counter()
    with multiprocessing.Pool(given.workers) as pool:
        for found, faults in pool.imap_unordered(work, portions):
            failed += found
            count += faults
    for name, number in sorted(count.items()):
        print(f"{number:10,}  {name}")
    which = f" --world {given.world}" if given.world != "core" else ""
    which += f" --plant '{given.plant}'" if given.plant else ""
    for seed, violation in sorted(failed)[:10]:
        print(f"seed {seed}: {violation}")
        print(f"replay it: python -m tests.federator.simulation --replay {seed}{which}")
    took_s = time.monotonic() - began_s
    each_ms = took_s * given.workers * 1_000 / given.seeds
    print(
        f"{given.seeds:,} histories from {given.first}, {count.total():,} faults, {len(failed)} violated; "
        f"{took_s:.0f} s, {each_ms:.1f} ms each"
    )
    return 1 if failed else 0


def _replay(seed: int, plant: str, which: str) -> int:
    if plant:
        from tests.federator import plants

        plants.PLANTS[plant]()
    world = WORLDS[which](seed)
    violation = ended(world)
    for number, commit in enumerate(world.log, 1):
        for event in commit:
            print(number, event)
    print(violation or "nothing was violated")
    return 1 if violation else 0


if __name__ == "__main__":
    sys.exit(main())
