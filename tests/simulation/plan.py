"""What happens in one history, drawn from its seed before it begins; and what came of it."""

from __future__ import annotations

import random
from typing import TypeVar

import msgspec

from tests.simulation import (
    devices,
    dlrm,
    edits,
    foretold,
    kinds,
    koordinator,
    newcomers,
    openings,
    releases,
    rollouts,
    unreadable,
    upgrades,
    upstream,
    workload,
)
from tests.simulation import faults as faulty
from tests.simulation.faults import Fault
from tests.simulation.federation.training import OF_OPERATORS, Training
from tests.simulation.planting import (
    AGAIN_FROM,
    BEYOND_FROM,
    DENSE,
    DENSE_FEDERATED,
    DENSE_FROM,
    DLRM,
    FED_FROM,
    FEDERATED,
    FEDERATIONS,
    FURTHER_FROM,
    LATEST_FROM,
    LEASED_FROM,
    LONG,
    LONG_FEDERATED,
    LOSSY,
    LOSSY_FEDERATED,
    MIXED,
    NEWEST_FROM,
    PARTED_FROM,
    SET_BACK_FROM,
    UNDONE_FROM,
    UPGRADED_FROM,
    WIDER_FROM,
)
from tests.simulation.swarm import Swarm
from tests.simulation.workload import Step, Workload

Item = TypeVar("Item", Step, Fault)
WORKLOADS: dict[str, type[Workload]] = {MIXED: Workload, DLRM: dlrm.Services, FEDERATED: Training}
"""What users do: a little of everything, the services of a real cluster, or jobs for one of several clusters."""
PHASES_OF = {LONG: MIXED, LONG_FEDERATED: FEDERATED}
"""What long histories have in each of their phases."""
DENSE_OF = {DENSE: MIXED, DENSE_FEDERATED: FEDERATED}
"""What dense ones have more of."""
LOSSY_OF = {LOSSY: MIXED, LOSSY_FEDERATED: FEDERATED}
"""In what the logs of lossy ones lose what they had."""
MORE_OF = PHASES_OF | DENSE_OF | LOSSY_OF
WORKLOADS |= {name: WORKLOADS[of] for name, of in MORE_OF.items()}

EVENTS, FAULTS = 300, 5
"""What a history has at least."""
IN_TROUBLE, PEACE_S = 270, 3.0
"""So many of its events come in trouble, and most of the others while it comes to rest: where they don't, users go on in
peace, for so long at a time."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How dense trouble is: so much of it first, and then, until a history has what it must have, in windows."""

    trouble_s: float
    steps: tuple[int, int]
    faults: tuple[int, int]
    """How many of them at first, at least and at most."""
    window_s: float
    windows: int
    window_steps: int
    windows_for_fault: int
    """One of so many windows has one."""


PACES = {
    MIXED: Pace(
        trouble_s=13.0, steps=(18, 26), faults=(8, 14), window_s=1.0, windows=60, window_steps=1, windows_for_fault=2
    ),
    DLRM: Pace(
        trouble_s=28.0, steps=(22, 34), faults=(8, 16), window_s=4.0, windows=15, window_steps=4, windows_for_fault=1
    ),
    FEDERATED: Pace(
        trouble_s=20.0, steps=(28, 44), faults=(8, 14), window_s=2.0, windows=20, window_steps=2, windows_for_fault=1
    ),
}
"""As short as it can be with as much in it: a second in which little happens costs as much as one with a fault."""
PACES |= {name: PACES[of] for name, of in MORE_OF.items()}
PHASES, PHASE_S = 12, 1_000.0
"""Of a long history: how many times trouble begins, and what the plan has between two of its beginnings."""
IDLE, IDLE_S = 0.1, 400.0
"""Before how many of them nothing happens at first, and for how long: longer than what is due by itself takes."""
OF_PHASES = 200_000_000
"""From here on are the seeds that the phases of long histories are drawn from."""
USERS = {koordinator: (2, 5), upstream: (2, 5), unreadable: (0, 3), kinds: (0, 2), rollouts: (1, 3)} | {
    newcomers: (2, 5),
    edits: (3, 7),
    openings: (0, 2),
    devices: (2, 5),
    releases: (1, 4),
    foretold: (0, 2),
    upgrades: (2, 5),
}
"""Those that later seeds have besides, and how many of their steps, at least and at most."""
USERS_OF = {MIXED: USERS, DLRM: dlrm.USERS}
OF_LEASES, OF_PARTED = (2, 6), (0, 2)
Later = dict[str, tuple[int, tuple[int, int], tuple[faulty.Draw, ...]]]
LATER: Later = {
    "wider": (WIDER_FROM, (0, 2), faulty.WIDER),
    "newest": (NEWEST_FROM, (0, 2), faulty.NEWEST),
    "latest": (LATEST_FROM, (0, 1), faulty.LATEST),
    "further": (FURTHER_FROM, (1, 4), faulty.FURTHER),
    "set back": (SET_BACK_FROM, (0, 1), faulty.SET_BACK),
    "apart": (FED_FROM, (0, 2), faulty.APART),
    "fed": (FED_FROM, (5, 12), faulty.FED),
    "leased": (LEASED_FROM, OF_LEASES, faulty.LEASED),
    "parted": (PARTED_FROM, OF_PARTED, faulty.PARTED),
    "set back again": (AGAIN_FROM, (0, 4), faulty.SET_BACK),
    "upgraded": (UPGRADED_FROM, (1, 4), faulty.UPGRADED),
}
"""From which seed on there are faults of a table, and how many, at least and at most."""
BEYOND = (1, 3)
"""And of the last one."""
ARE_DENSE = 1 / 3
"""Of later seeds."""
DENSER = (3, 8)
"""Of dense histories: how many more there are of one of these tables, and of what strikes whole processes, servers and
watches, half as often as those."""
SET_BACK_MORE, PARTED_MORE, STRUCK_MORE = (2, 4), (0, 2), (2, 6)
"""Of lossy histories: how many more times a log is set back, servers are parted, and whole processes, servers and watches
are struck."""
STRIKING = tuple(row for row in faulty.DRAWS if row.on == ("",))
OF_FEDERATIONS = (
    faulty.OF_FEDERATOR,
    faulty.OF_MEMBERS,
    faulty.BEYOND,
    faulty.MISLED,
    faulty.SET_BACK,
    faulty.UNDONE,
)
"""And the tables of federated ones."""
OF_FEDERATOR = (5, 14)
"""So many faults of the federator federated histories have, at least and at most."""
OPERATORS = (1, 4)
"""And steps of their operators."""
USERS_OF_MEMBERS = {koordinator: (4, 10), kinds: (0, 2)}
"""Those that their clusters have besides."""
RESTORED = (0, 1)
"""How often the etcd of one of their clusters is restored."""
LATER_OF_FEDERATIONS: Later = {
    "set back": (SET_BACK_FROM, (0, 2), faulty.SET_BACK),
    "undone": (UNDONE_FROM, (1, 3), faulty.UNDONE),
    "leased": (DENSE_FROM, OF_LEASES, faulty.LEASED),
    "parted": (PARTED_FROM, OF_PARTED, faulty.ALL_PARTED),
    "set back again": (AGAIN_FROM, (0, 3), faulty.SET_BACK),
}
"""As `LATER`, of federated histories."""
ALL_HERE_S = 20.0
"""When all services of the trace have come once."""


class Plan(msgspec.Struct, frozen=True):
    """What happens in a history, as drawn."""

    seed: int
    steps: list[Step]
    faults: list[Fault]
    workload: str = MIXED
    """A name in `WORKLOADS`, or of a sweep."""
    exact: bool = False
    """All of this and no more, be it less than a history has at least: while a failure is being shortened."""

    @property
    def last_s(self) -> float:
        return max((one.at_s for one in (*self.steps, *self.faults)), default=0.0)

    def phases(self) -> list[Plan]:
        """What happens in each, from its beginning on: trouble, and then rest. Only long histories have several."""
        if self.workload not in PHASES_OF:
            return [self]
        return [
            msgspec.structs.replace(self, steps=_in_phase(self.steps, number), faults=_in_phase(self.faults, number))
            for number in range(PHASES)
        ]

    def idle_s(self, number: int) -> float:
        """How long nothing happens before this phase, which is not the first."""
        return IDLE_S if random.Random(f"{self.seed}/idle/{number}").random() < IDLE else 0.0


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


def _in_phase(items: list[Item], number: int) -> list[Item]:
    """Those of this phase, by its own time."""
    return [_moved(one, -PHASE_S * number) for one in items if one.at_s // PHASE_S == number]


def _moved(one: Item, by_s: float) -> Item:
    return msgspec.structs.replace(one, at_s=round(one.at_s + by_s, 3))


def _long(seed: int, workload: str) -> Plan:
    """Phases that are drawn as other histories are, each with weights of its own, on what the one before has left."""
    steps: list[Step] = []
    faults: list[Fault] = []
    for number in range(PHASES):
        phase, begin_s = plan(OF_PHASES + PHASES * seed + number, PHASES_OF[workload], since=seed), PHASE_S * number
        drawn = phase.steps[0].number
        turnover = [Step(0.0, "turnover", one) for one in (drawn, drawn + 1)] if number else []  # of each member one
        steps += [_moved(one, begin_s) for one in (*turnover, *phase.steps)]
        faults += [_moved(one, begin_s) for one in phase.faults]
    return Plan(seed, steps, faults, workload)


def _is_dense(seed: int) -> bool:
    return random.Random(f"{seed}/is dense").random() < ARE_DENSE


def _denser(drawn: Plan) -> Plan:
    """The same, and more of one kind: what is rare comes together."""
    seed, workload = drawn.seed, drawn.workload
    source = random.Random(f"{seed}/dense")
    table = source.choice(OF_FEDERATIONS if workload in FEDERATIONS else _later(seed))
    scale = sum(row.weight for row in table) / sum(row.weight for row in STRIKING) / 2
    among = (*table, *(row._replace(weight=row.weight * scale) for row in STRIKING))
    more = faulty.draw(source, source.randint(*DENSER), 0.5, PACES[workload].trouble_s, among)
    return msgspec.structs.replace(drawn, faults=[*drawn.faults, *more])


def _lossier(drawn: Plan) -> Plan:
    """The same, and its logs are set back more often, and servers parted, while processes come and go."""
    of_federation = drawn.workload in FEDERATIONS
    tables = (
        (SET_BACK_MORE, (*faulty.SET_BACK, *faulty.UNDONE) if of_federation else faulty.SET_BACK),
        (PARTED_MORE, faulty.ALL_PARTED if of_federation else faulty.PARTED),
        (STRUCK_MORE, STRIKING),
    )
    source, faults = random.Random(f"{drawn.seed}/lossy"), list(drawn.faults)
    for counts, table in tables:
        faults += faulty.draw(source, source.randint(*counts), 0.5, PACES[drawn.workload].trouble_s, table)
    return msgspec.structs.replace(drawn, faults=faults)


def _later(seed: int) -> list[tuple[faulty.Draw, ...]]:
    """The first seeds have none of these."""
    return [table for first, _, table in LATER.values() if seed >= first] or [faulty.DRAWS]


def plan(seed: int, of: str = MIXED, *, since: int | None = None) -> Plan:
    """What the seed says, of this workload. Whether what comes in windows happens depends on what did before. `since`:
    the seed of the long history that this is a phase of."""
    kind_of = seed if since is None else since
    if of in PHASES_OF:
        return _long(seed, of)
    if of in DENSE_OF:
        return _denser(msgspec.structs.replace(_drawn(seed, DENSE_OF[of], kind_of), workload=of))
    if of in LOSSY_OF:
        return _lossier(msgspec.structs.replace(_drawn(seed, LOSSY_OF[of], kind_of), workload=of))
    drawn = _drawn(seed, of, kind_of)
    return _denser(drawn) if kind_of >= DENSE_FROM and _is_dense(seed) else drawn


def _drawn(seed: int, of: str, kind_of: int) -> Plan:
    """`kind_of`: the seed that says what there is to be drawn."""
    goes_beyond = kind_of >= BEYOND_FROM
    source, swarm, pace = random.Random(seed), Swarm(seed), PACES[of]
    weights, rows = swarm.weights(WORKLOADS[of].weights), swarm.rows(faulty.DRAWS)
    steps = workload.draw(source, source.randint(*pace.steps), 0.2, pace.trouble_s, weights)
    faults = faulty.draw(source, source.randint(*pace.faults), 0.5, pace.trouble_s, rows)
    for window in range(pace.windows * swarm.longer):
        begin_s = pace.trouble_s + window * pace.window_s
        steps += workload.draw(source, pace.window_steps, begin_s, begin_s + pace.window_s, weights)
        if window % pace.windows_for_fault == 0:
            faults += faulty.draw(source, 1, begin_s, begin_s + pace.window_s, rows)
    if of == DLRM:
        coming = random.Random(f"{seed}/coming")
        steps += workload.draw(coming, max(dlrm.COUNT), 0.2, ALL_HERE_S, {"service": 1.0})
        if seed < LATEST_FROM:
            return Plan(seed, steps, faults, of)
    if of == FEDERATED:
        return _federated(Plan(seed, steps, faults, of), swarm, goes_beyond)
    for users, drawn in USERS_OF[of].items():
        if seed >= users.FROM and (goes_beyond or users is not foretold):
            source = random.Random(f"{seed}/{users.__name__.rpartition('.')[2]}")
            more = workload.draw(source, source.randint(*drawn), 0.2, pace.trouble_s, swarm.weights(users.WEIGHTS))
            among = 4 * len(more)
            steps = [*steps[:among:2], *steps[among:], *more]  # each for two others, as it makes more of a history
    faults += _of_tables(seed, LATER, pace.trouble_s)
    if goes_beyond:
        source = random.Random(f"{seed}/beyond")
        faults += faulty.draw(source, source.randint(*BEYOND), 0.5, pace.trouble_s, faulty.BEYOND)
    return Plan(seed, steps, faults, of)


def _of_tables(seed: int, tables: Later, until_s: float) -> list[Fault]:
    """Those of each that the seed is late enough for."""
    faults = []
    for name, (first, drawn, table) in tables.items():
        if seed >= first:
            source = random.Random(f"{seed}/{name}")
            faults += faulty.draw(source, source.randint(*drawn), 0.5, until_s, table)
    return faults


def _federated(drawn: Plan, swarm: Swarm, goes_beyond: bool) -> Plan:
    """The same, with what happens to the federator, and what came later."""
    seed, steps, faults, until_s = drawn.seed, list(drawn.steps), list(drawn.faults), PACES[drawn.workload].trouble_s
    source = random.Random(f"{seed}/federator")
    faults += faulty.draw(source, source.randint(*OF_FEDERATOR), 0.5, until_s, faulty.OF_FEDERATOR)
    source = random.Random(f"{seed}/backups")
    faults += faulty.draw(source, source.randint(*RESTORED), 0.5, until_s, faulty.OF_MEMBERS)
    if goes_beyond:
        source = random.Random(f"{seed}/operators")
        steps += workload.draw(source, source.randint(*OPERATORS), 0.2, until_s, OF_OPERATORS)
        for users, counts in USERS_OF_MEMBERS.items():
            weights = swarm.weights(users.WEIGHTS)
            steps += workload.draw(source, source.randint(*counts), 0.2, until_s, weights)
        for table in (faulty.BEYOND, faulty.MISLED):
            faults += faulty.draw(source, source.randint(*BEYOND), 0.5, until_s, table)
    faults += _of_tables(seed, LATER_OF_FEDERATIONS, until_s)
    return Plan(seed, steps, faults, drawn.workload)
