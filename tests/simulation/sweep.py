"""Every fault at every place of a small history, one after the other: what seeds draw, without the luck.

A script is run once without faults, and each request that a process makes is written down, as is each moment at which
something landed in the log. Then it is run again for each place and each fault that may strike there; and, as pairs, once
more for each crash, pause or lost answer with each of these behind it. All histories of a script differ by their faults
alone, so that what comes before a fault is what was written down.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

from tests.simulation.faults import ASKED, DONE, DRAWS, FEDERATOR, LATEST, NEWEST, OF_FEDERATOR, WIDER, Draw, Fault
from tests.simulation.federation.small import SmallFederation
from tests.simulation.plan import Plan
from tests.simulation.small import CRASHES, PAIRED, PREFIX, SCRIPTS, Place, SmallWorld, script_of, steps_of

PAIRS = "pairs-"
"""What names of workloads begin with whose histories have two faults each."""
WORKLOADS = (*(PREFIX + name for name in SCRIPTS), *(PAIRS + name for name in SCRIPTS))
EVERYWHERE = ("append", "store", "ask", *DONE, *dict.fromkeys(ASKED))
ROWS = (
    *(*DRAWS, *WIDER, *NEWEST, *LATEST, *OF_FEDERATOR),
    Draw(1, "lost", ("ask",)),
    Draw(1, "unanswered", ("ask",)),
    Draw(1, "crash before", EVERYWHERE),
    Draw(1, "crash after", EVERYWHERE),
    Draw(1, "stop before", EVERYWHERE, for_s=(0.5, 12.0)),
    Draw(1, "stop after", EVERYWHERE, for_s=(0.5, 12.0)),
)
"""What may strike: as seeds draw it, and crashes and pauses wherever somebody asks for something."""
EFFECTIVE = ("append", "store", "bind", "patch", "evict", *DONE)
"""Where each of `PAIRED` is tried behind each: at commits, effects and parts of snapshots; elsewhere crashes alone."""
SOON_S = 1e-6
"""So much behind a moment something strikes that waits for no request."""


class Swept(NamedTuple):
    """A script's history without faults, and all that may strike it."""

    places: list[Place]
    moments: list[float]
    faults: list[Fault]

    def told(self) -> str:
        kinds = ", ".join(f"{on} {count}" for on, count in sorted(Counter(place.on for place in self.places).items()))
        return f"{len(self.places)} requests ({kinds}) and {len(self.moments)} commits"


def history(plan: Plan) -> SmallWorld | SmallFederation:
    return SmallFederation(plan) if SCRIPTS[script_of(plan.workload)].federated else SmallWorld(plan)


def run(script: str, *faults: Fault) -> SmallWorld | SmallFederation:
    """Its history with these."""
    world = history(Plan(0, steps_of(SCRIPTS[script]), list(faults), PREFIX + script, exact=True))
    world.run()
    return world


@cache
def swept(script: str) -> Swept:
    """First what pairs are made of, then all else that strikes requests, then moments; each in an order in which any part
    of it is of all kinds."""
    world, from_s = run(script), SCRIPTS[script].from_s
    places = [place for place in world.places if place.at_s >= from_s]
    moments = [moment for moment in world.moments if moment >= from_s]
    requests = [fault for place in places for fault in _at(place)]
    strikes = [fault for moment in moments for fault in _behind(moment, SCRIPTS[script].federated)]
    source, faults = random.Random(script), dict[Fault, None]()
    for found in (paired(places), requests, strikes):
        source.shuffle(found)
        faults |= dict.fromkeys(found)
    return Swept(places, moments, list(faults))


def _at(place: Place) -> Iterator[Fault]:
    """All that may strike this request."""
    for row in ROWS:
        for slot, code, what, for_s in _ways(row) if place.on in row.on else ():
            if slot in ("", place.slot):
                at = {"on": place.on, "slot": place.slot, "nth": place.nth}
                yield Fault(at_s=place.armed_s, kind=row.kind, code=code, what=what, for_s=for_s, **at)


def _behind(moment: float, federated: bool) -> Iterator[Fault]:
    """All that may strike then and waits for no request: a federation's process, or a cluster."""
    for row in ROWS:
        for slot, code, what, for_s in _ways(row) if row.on == ("",) and (row.slots == FEDERATOR) == federated else ():
            yield Fault(at_s=moment + SOON_S, kind=row.kind, slot=slot, code=code, what=what, for_s=for_s)


def _ways(row: Draw) -> Iterator[tuple[str, int, str, float]]:
    """Whose, with which code, what else, and how long: the shortest, and the longest."""
    return product(row.slots, row.codes, dict.fromkeys(row.what), dict.fromkeys(row.for_s))


@cache
def pairs(script: str) -> list[tuple[Fault, ...]]:
    """Each fault that is paired, with each of those that may strike behind it in the history that it makes."""
    found: list[tuple[Fault, ...]] = []
    for first in paired(swept(script).places):
        world = run(script, first)
        behind = [place for place in world.places if place.at_s > world.struck_s]
        found += [(first, second) for second in paired(behind)]
    random.Random(script).shuffle(found)
    return found


def paired(places: Sequence[Place]) -> list[Fault]:
    """What strikes these and is paired: whatever comes between an intent, its effect and its outcome."""
    each = [fault for place in places for fault in _at(place)]
    found = [one for one in each if one.kind in (PAIRED if one.on in EFFECTIVE else CRASHES)]
    return list(dict.fromkeys(found))


def _cases(workload: str) -> Sequence[tuple[Fault, ...]]:
    script = script_of(workload)
    return pairs(script) if workload.startswith(PAIRS) else [(fault,) for fault in swept(script).faults]


def histories(workload: str) -> int:
    """How many there are: one without faults, and one for each case."""
    return 1 + len(_cases(workload))


def plan(number: int, workload: str) -> Plan:
    """The one of this number; the first, and whatever is behind the last, is without faults."""
    faults = [fault for case in _cases(workload)[number - 1 : number] for fault in case] if number else []
    return Plan(number, steps_of(SCRIPTS[script_of(workload)]), faults, workload, exact=True)
