"""What happens in one history, drawn from its seed before it begins; and what came of it."""

from __future__ import annotations

import random

import msgspec

from tests.simulation import dlrm, koordinator, upstream, workload
from tests.simulation import faults as faulty
from tests.simulation.faults import Fault
from tests.simulation.workload import Step, Workload

MIXED, DLRM = "mixed", "dlrm"
WORKLOADS: dict[str, type[Workload]] = {MIXED: Workload, DLRM: dlrm.Services}
"""What users do: a little of everything, or the services of a real cluster."""

EVENTS, FAULTS = 300, 5
"""What a history has at least."""
TROUBLE_S = 28.0
"""How long trouble lasts; then, until a history has what it must have, in windows of `WINDOW_S`."""
WINDOW_S, WINDOWS = 4.0, 15
ALL_HERE_S = 20.0
"""When all services of the trace have come once."""


class Plan(msgspec.Struct, frozen=True):
    """What happens in a history, as drawn."""

    seed: int
    steps: list[Step]
    faults: list[Fault]
    workload: str = MIXED
    """A name in `WORKLOADS`."""
    exact: bool = False
    """All of this and no more, be it less than a history has at least: while a failure is being shortened."""


class Outcome(msgspec.Struct):
    """What came of a history."""

    seed: int
    events: int = 0
    commits: int = 0
    virtual_s: float = 0.0
    faults: dict[str, int] = {}
    seen: dict[str, int] = {}
    tried: dict[str, int] = {}
    """What else is worth knowing that a run does: starts from a snapshot, purges, …"""
    digest: str = ""
    """Of the history: every message of the log, and where every pod went."""
    violation: str = ""


def plan(seed: int, of: str = MIXED) -> Plan:
    """What the seed says, of this workload. Whether what is behind `TROUBLE_S` happens depends on what did before."""
    source, weights = random.Random(seed), WORKLOADS[of].weights
    steps = workload.draw(source, source.randint(22, 34), 0.2, TROUBLE_S, weights)
    faults = faulty.draw(source, source.randint(8, 16), 0.5, TROUBLE_S)
    for window in range(WINDOWS):
        begin_s = TROUBLE_S + window * WINDOW_S
        steps += workload.draw(source, 4, begin_s, begin_s + WINDOW_S, weights)
        faults += faulty.draw(source, 1, begin_s, begin_s + WINDOW_S)
    if of == DLRM:
        coming = random.Random(f"{seed}/coming")
        steps += workload.draw(coming, max(dlrm.COUNT), 0.2, ALL_HERE_S, {"service": 1.0})
        return Plan(seed, steps, faults, of)
    for users in (koordinator, upstream):
        if seed >= users.FROM:
            source = random.Random(f"{seed}/{users.__name__.rpartition('.')[2]}")
            more = workload.draw(source, source.randint(2, 5), 0.2, TROUBLE_S, users.WEIGHTS)
            among = 4 * len(more)
            steps = [*steps[:among:2], *steps[among:], *more]  # each for two others, as it makes more of a history
    return Plan(seed, steps, faults, of)
