"""Faults: what may go wrong, when, and what it hits.

A history's faults are drawn before it begins, as data: so one can be left out, and the rest stays as it is. A fault is
armed at its time. Some strike then (a crash, an outage, a clock that jumps: `tests.simulation.world`); others wait for
the next request of their kind and hit that one, so that every step between an intent, its effect and its outcome is hit
sooner or later. A request is a commit on its way to the log, or anything that is asked of the API server.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from tests.simulation.processes import Process


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a history."""

    at_s: float
    """Seconds from the start at which it is armed."""
    kind: str
    on: str = ""
    """What it waits for: append, proposal or verdict (appends too), store; list, watch, get, bind, patch, evict, event,
    version. Empty: it strikes at once."""
    slot: str = ""
    """Whose: ingest, planner.a, planner.b, binder, snapshot, retention; empty: anybody's."""
    for_s: float = 0.0
    """How long it lasts, or how late something comes."""
    code: int = 0
    """The HTTP status of an answer, or JetStream's number."""
    times: int = 1
    """How many requests it hits."""
    what: str = ""
    """What else there is to choose: an event that is not known, a subject."""
    nth: int = 0
    """Which of all such requests of its slot's it waits for, from 1; 0: the next."""

    @property
    def name(self) -> str:
        return f"{self.on} {self.kind}".strip()


class Request(Protocol):
    """Something that leaves a process for a server."""

    process: Process
    name: str
    """Of the object that it is about; a commit's events."""

    def arrive(self, after_s: float = 0.0, *, answer: bool = True, answer_after_s: float = 0.0) -> None:
        """It takes effect after its latency and so much more; is it answered, and how much later?"""

    def refuse(self, code: int) -> None:
        """An answer that says no, whatever happened."""

    def fail(self, after_s: float, *, sent: bool = True) -> None:
        """Its sender learns that there will be no answer."""


class Surroundings(Protocol):
    """What a fault can do beside the request that it hits."""

    def kill(self, process: Process) -> None: ...

    def stop(self, process: Process, for_s: float) -> None: ...

    def refuse(self, on: str, pod: str, for_s: float) -> None: ...

    def keep(self, pod: str, for_s: float) -> None: ...

    def race(self, kind: str, pod: str) -> None: ...

    def join(self, shard: str, for_s: float) -> None: ...


Strike = Callable[[Request, Fault, Surroundings], Any]

STRIKES: dict[str, Strike] = {
    "lost": lambda request, fault, _: request.fail(fault.for_s),
    "late": lambda request, fault, _: (request.arrive(fault.for_s, answer=False), request.fail(fault.for_s / 4)),
    "slow": lambda request, fault, _: request.arrive(fault.for_s),
    "twice": lambda request, fault, _: (request.arrive(), request.arrive(fault.for_s, answer=False)),
    "unanswered": lambda request, fault, _: (request.arrive(answer=False), request.fail(fault.for_s)),
    "answered late": lambda request, fault, _: request.arrive(answer_after_s=fault.for_s),
    "refused": lambda request, fault, _: request.refuse(fault.code),
    "misled": lambda request, fault, _: request.refuse(fault.code),
    "failed": lambda request, fault, _: (request.arrive(answer=False), request.refuse(fault.code)),
    "unreachable": lambda request, fault, _: request.fail(0.001, sent=False),
    "late, refused meanwhile": lambda request, fault, around: (
        request.arrive(fault.for_s, answer=False),
        request.fail(0.05),
        around.refuse(fault.on, request.name, fault.for_s),
    ),
    "late, fence refused": lambda request, fault, around: (
        STRIKES["late, refused meanwhile"](request, fault, around),
        around.refuse("patch", request.name, fault.for_s),
    ),
    "late, fence kept": lambda request, fault, around: (
        STRIKES["late, refused meanwhile"](request, fault, around),
        around.keep(request.name, fault.for_s),
    ),
    "webhook": lambda request, fault, around: (
        request.refuse(403),
        around.refuse(fault.on, request.name, fault.for_s),
    ),
    "late, failed": lambda request, fault, _: (
        request.arrive(fault.for_s, answer=False),
        request.refuse(fault.code),
    ),
    "kept as it is": lambda request, fault, around: (
        around.keep(request.name, fault.for_s),
        request.arrive(),
    ),
    "crash before": lambda request, fault, around: around.kill(request.process),
    "crash after": lambda request, fault, around: (request.arrive(), around.kill(request.process)),
    "stop before": lambda request, fault, around: (
        request.arrive(fault.for_s),
        around.stop(request.process, fault.for_s),
    ),
    "overtaken": lambda request, fault, around: (
        around.race(fault.what, request.name),
        request.arrive(fault.for_s),
    ),
    "overtaken by a shard": lambda request, fault, around: (
        around.join(fault.what, fault.for_s * 8),
        request.arrive(fault.for_s),
    ),
    "stop after": lambda request, fault, around: (request.arrive(), around.stop(request.process, fault.for_s)),
}
"""What a fault does to the request that it hits. What is not here is a race: something else comes first."""


class Faults:
    """Those that are armed and wait for a request, and what each kind has hit."""

    def __init__(self, around: Surroundings) -> None:
        self.hits: Counter[str] = Counter()
        self._around = around
        self._sent: Counter[tuple[str, str]] = Counter()
        self._armed: dict[str, list[tuple[Fault, list[int]]]] = {}

    def arm(self, fault: Fault) -> None:
        self._armed.setdefault(fault.on, []).append((fault, [fault.times]))

    def lift(self) -> None:
        """No request fails any more."""
        self._armed.clear()

    def send(self, on: str, request: Request, also: str = "") -> None:
        """A request leaves its process."""
        fault = (self.hit(also, request.process) if also else None) or self.hit(on, request.process)
        if fault is None:
            request.arrive()
        elif strike := STRIKES.get(fault.kind):
            strike(request, fault, self._around)
        else:
            self._around.race(fault.kind, request.name)
            request.arrive()

    def hit(self, on: str, process: Process) -> Fault | None:
        """The fault that waits for this, counted."""
        nth, waiting = self.sent(on, process), self._armed.get(on)
        if not waiting:
            return None
        for position, (fault, left) in enumerate(waiting):
            if fault.slot in ("", process.slot) and fault.nth in (0, nth):
                left[0] -= 1
                if not left[0]:
                    del waiting[position]
                self.hits[fault.name] += 1
                return fault
        return None

    def sent(self, on: str, process: Process) -> int:
        """One more of its kind leaves a process of this slot: how many did by now."""
        self._sent[on, process.slot] += 1
        return self._sent[on, process.slot]


# ------------------------------------------------------------------------------------------------------------ the draw


class Draw(NamedTuple):
    """A row of the table that faults are drawn from."""

    weight: float
    kind: str
    on: tuple[str, ...] = ("",)
    slots: tuple[str, ...] = ("",)
    for_s: tuple[float, float] = (0.0, 0.0)
    codes: tuple[int, ...] = (0,)
    times: int = 1
    """At most."""
    what: tuple[str, ...] = ("",)


WRITERS = ("ingest", "planner.a", "planner.b", "binder")
DECIDERS = WRITERS[1:]
PLANNERS = ("planner.a", "planner.b")
READERS = ("ingest", "binder")
"""Who speaks to the API server."""
LOG = ("append",)
PROPOSAL = ("proposal",)
BEFORE = ("member goes", "minimum rises", "minimum moves", "room taken")
BETWEEN = ("minimum moves", "label moves", "room taken")
"""What comes just before a proposal, and between it and its verdict (`races.OF_COMMITS`)."""
STORE = ("store",)
EFFECTS = ("bind", "patch", "evict", "event")
ASKED = (*EFFECTS, "bind", "bind", "get", "list", "watch")
BUSY = (429, 500, 503, 504)
UNKNOWN = ("BindingRenewed", "RoomNominated", "GangHeld", "ConditionsReported", "NodeDeleted", "PodTerminating")
"""Events that an older version of the code may not know."""

DRAWS = (
    Draw(3, "lost", LOG),
    Draw(4, "late", LOG, for_s=(0.5, 6.0)),
    Draw(3, "twice", LOG, for_s=(0.001, 3.0)),
    Draw(4, "unanswered", LOG),
    Draw(3, "answered late", LOG, for_s=(1.0, 5.0)),
    Draw(2, "refused", LOG, codes=(503, 10164), times=4),
    Draw(2, "slow", LOG, for_s=(0.1, 1.9)),
    Draw(7, "overtaken", LOG, DECIDERS, for_s=(0.01, 0.4), times=4, what=("anything", "member fails")),
    Draw(5, "overtaken", PROPOSAL, PLANNERS, for_s=(0.02, 0.4), times=4, what=BEFORE),
    Draw(4, "overtaken", ("verdict",), ("binder",), for_s=(0.02, 0.4), times=4, what=BETWEEN),
    Draw(3, "overtaken by a shard", LOG, PLANNERS, for_s=(0.05, 1.9), times=2, what=("c", "d")),
    Draw(3, "crash before", LOG, WRITERS),
    Draw(5, "crash after", LOG, WRITERS),
    Draw(3, "stop before", LOG, WRITERS, for_s=(0.5, 12.0)),
    Draw(3, "stop after", LOG, WRITERS, for_s=(0.5, 12.0)),
    Draw(2, "gap", ("read",), WRITERS),
    Draw(3, "lost", ASKED, for_s=(0.1, 20.0)),
    Draw(5, "late", ("bind", "bind", "patch", "evict"), for_s=(0.5, 12.0)),
    Draw(2, "slow", ASKED, for_s=(0.1, 12.0)),
    Draw(3, "twice", EFFECTS, for_s=(0.001, 5.0)),
    Draw(5, "unanswered", EFFECTS, for_s=(0.1, 20.0)),
    Draw(4, "refused", ASKED, codes=BUSY, times=4),
    Draw(4, "failed", EFFECTS, codes=(500, 504), times=2),
    Draw(2, "unreachable", ASKED, times=3),
    Draw(2, "refused", ("watch",), codes=(403, 410)),
    Draw(2, "refused", ("list",), codes=(410,)),
    Draw(2, "refused", ("evict",), codes=(403, 429), times=2),
    Draw(4, "webhook", ("bind",), for_s=(0.0, 8.0), times=3),
    Draw(4, "late, refused meanwhile", ("bind",), for_s=(0.5, 8.0), times=2),
    Draw(3, "late, fence refused", ("bind",), for_s=(0.5, 8.0), times=2),
    Draw(3, "late, refused meanwhile", ("evict",), for_s=(0.5, 8.0), times=3),
    Draw(3, "crash before", ("bind", "patch", "evict", "list", "watch")),
    Draw(5, "crash after", ("bind", "bind", "patch", "evict", "list")),
    Draw(4, "stop before", ("bind", "bind", "patch"), for_s=(0.5, 12.0)),
    Draw(3, "stop after", ("bind", "patch"), for_s=(0.5, 12.0)),
    Draw(2, "pod deleted", ("bind", "patch"), times=3),
    Draw(3, "pod made anew", ("bind", "bind", "evict"), times=2),
    Draw(2, "pod made anew", ("evict",), times=2),
    Draw(3, "pod annotated", ("bind", "patch"), times=4),
    Draw(2, "pod stolen", ("bind",), times=2),
    Draw(2, "node deleted", ("bind",)),
    Draw(2, "group deleted", ("bind",)),
    Draw(2, "pod relabelled", ("bind",), times=2),
    Draw(2, "group changed", ("bind",), times=2),
    Draw(3, "crash", slots=WRITERS),
    Draw(1, "crash of all"),
    Draw(3, "stop", slots=WRITERS, for_s=(0.5, 45.0)),
    Draw(2, "restart", slots=WRITERS),
    Draw(4, "join", for_s=(0.5, 12.0), what=("c", "d")),
    Draw(4, "double", slots=WRITERS, for_s=(0.0, 4.0)),
    Draw(2, "clock jump", slots=WRITERS, for_s=(-3_600.0, 3_600.0)),
    Draw(3, "lag", slots=WRITERS, for_s=(1.0, 10.0)),
    Draw(2, "disconnect", slots=WRITERS, for_s=(0.05, 5.0)),
    Draw(2, "partition", slots=WRITERS, for_s=(0.2, 12.0)),
    Draw(1.5, "log down", for_s=(0.1, 8.0)),
    Draw(1.5, "power loss", for_s=(0.5, 5.0)),
    Draw(2, "consumer lost", slots=WRITERS),
    Draw(1.5, "foreign message", slots=WRITERS),
    Draw(1, "policy changed"),
    Draw(3, "watch cut"),
    Draw(3, "watch expired", for_s=(0.0, 5.0)),
    Draw(2, "history dropped"),
    Draw(4, "stale and twice"),
    Draw(2, "watch lag", for_s=(0.5, 8.0)),
    Draw(1.5, "API server restart", for_s=(0.2, 6.0)),
    Draw(1, "lost", STORE),
    Draw(1, "unanswered", STORE),
    Draw(1, "crash after", STORE, times=2),
    Draw(4, "snapshot damaged"),
    Draw(3, "snapshot altered"),
    Draw(2, "older version", slots=DECIDERS, what=UNKNOWN),
)
"""What faults are drawn from."""


WIDER = (
    Draw(3, "unwelcome", slots=READERS, for_s=(0.5, 10.0), codes=(401, 403)),
    Draw(2, "unwelcome", slots=READERS, for_s=(0.5, 15.0), codes=(401, 403), what=(*EFFECTS, "get", "list", "watch")),
    Draw(2, "refused", ASKED, codes=(401, 403), times=4),
    Draw(2, "refused", LOG, codes=(10023, 10077), times=8),
)
"""And what later seeds have besides: tokens and permissions that somebody takes away and gives back; a log without
room."""


NEWEST = (
    Draw(1, "etcd restored", for_s=(0.3, 9.0)),
    Draw(3, "misled", (*EFFECTS, "get", "list"), codes=(1200, 1302, 1404, 1502), times=3),
    Draw(1, "misled", ("watch",), codes=(1302, 1404, 1502), times=3),
)
"""And the newest: an etcd that is restored from a backup; pages of a proxy's in the place of answers."""


NAMES = ("koord-scheduler", "muster", "muster,default-scheduler", "muster,koord-scheduler,default-scheduler")
LATEST = (
    Draw(3, "etcd restored", for_s=(0.3, 9.0), what=("", "raised")),
    Draw(2, "away", slots=("ingest",), for_s=(4.0, 25.0), what=("down", "deaf")),
    Draw(2, "names changed", for_s=(1.0, 20.0), what=NAMES),
)
"""And the latest: restores after which the versions are raised; an ingest that is away for long; one that is
started with other names of schedulers, and later with the former."""


FURTHER = (
    Draw(3, "refused", ("bind", "bind", "patch", "evict"), codes=(404, 409), times=3),
    Draw(3, "failed", ("bind",), codes=(1409,), times=3),
    Draw(3, "late, failed", ("bind",), for_s=(0.2, 8.0), codes=(1409,), times=2),
    Draw(2, "refused", ("bind",), codes=(1409,), times=3),
    Draw(3, "late, fence kept", ("bind",), for_s=(0.5, 8.0), times=2),
    Draw(2, "late, refused meanwhile", ("patch",), for_s=(0.5, 8.0), times=3),
    Draw(3, "kept as it is", ("patch",), for_s=(0.0, 8.0), times=3),
    Draw(3, "unwelcome", slots=("binder",), for_s=(3.0, 20.0), codes=(429,), what=("evict",)),
    Draw(3, "policies tried", for_s=(1.0, 12.0), times=5),
    Draw(2, "misled", (*EFFECTS, "get", "list", "watch"), codes=(2404,), times=3),
    Draw(2, "misrouted", slots=READERS, for_s=(0.1, 3.0)),
    Draw(2, "overtaken", PROPOSAL, PLANNERS, for_s=(0.02, 0.4), times=6, what=("device goes",)),
)
"""And the last: webhooks that answer 404 and 409, or put a pod's status back as it was; a storage that fails as a binding
is written, which the API server tells as a conflict, be it written or not; a budget that lets nobody go for long; an
admin who tries out policies; a gateway that has lost the API server, and says so in its words, of whatever is
asked, or as one of several servers does not know of PodGroups; devices that go while they are given to somebody."""


BEYOND = (
    Draw(2, "policy turned", for_s=(0.0, 0.0), what=("nothing asked for", "less kept")),
    Draw(4, "policy turned", for_s=(0.0, 3.0), what=("nothing kept", "less kept", "nobody evicted", "nobody evicted")),
    Draw(2, "watch silent", for_s=(6.0, 14.0)),
    Draw(4, "away", slots=("binder",), for_s=(2.0, 12.0), what=("down",)),
    Draw(2, "etcd restored", for_s=(0.5, 4.0), what=("ungated",)),
)
"""And behind those: a policy that turns just when something depends on it; watches that say nothing, and end so; a binder
that is away for long; a restore to before pods lost their gates, of which by then some are proposed."""


SET_BACK = (Draw(1, "log set back", for_s=(0.2, 8.0), what=("", "with its snapshots", "under all")),)
"""And a log that ends where it ended before: it is restored from a backup, or its servers lose what they acknowledged."""


APART = (Draw(1, "kind lags", for_s=(0.5, 9.0), what=("Pod", "Pod", "Node", "PodGroup", "PriorityClass")),)
"""And watches of one kind that lag behind those of others: what is named comes behind what names it."""


FEED, PUBLISH = ("feed",), ("publish",)
STRUCK = ("crash", "stop", "another", "restart", "lag", "disconnect", "cut off")
FED = (
    Draw(4, "lost", PUBLISH, FEED),
    Draw(4, "late", PUBLISH, FEED, for_s=(0.2, 6.0)),
    Draw(3, "twice", PUBLISH, FEED, for_s=(0.001, 3.0), times=3),
    Draw(3, "unanswered", PUBLISH, FEED),
    Draw(3, "answered late", PUBLISH, FEED, for_s=(0.5, 14.0)),
    Draw(3, "slow", PUBLISH, FEED, for_s=(0.1, 1.9), times=3),
    Draw(4, "refused", PUBLISH, FEED, codes=(503, 10077), times=4),
    Draw(3, "crash before", PUBLISH, FEED),
    Draw(4, "crash after", PUBLISH, FEED),
    Draw(3, "stop before", PUBLISH, FEED, for_s=(0.5, 12.0)),
    Draw(3, "stop after", PUBLISH, FEED, for_s=(0.5, 12.0)),
    Draw(9, "feed struck", for_s=(0.2, 9.0), what=STRUCK),
)
"""And of a feed, where there is one: what it publishes, and who does."""


LEASE = ("lease",)
LEASED = (
    Draw(4, "lost", LEASE),
    Draw(4, "late", LEASE, for_s=(0.2, 6.0)),
    Draw(2, "twice", LEASE, for_s=(0.001, 3.0)),
    Draw(4, "unanswered", LEASE),
    Draw(3, "answered late", LEASE, for_s=(0.3, 5.0)),
    Draw(3, "slow", LEASE, for_s=(0.1, 1.9)),
    Draw(3, "refused", LEASE, codes=(503, 503, 10077), times=6),
    Draw(3, "crash before", LEASE, WRITERS),
    Draw(4, "crash after", LEASE, WRITERS),
    Draw(3, "stop before", LEASE, WRITERS, for_s=(0.5, 12.0)),
    Draw(3, "stop after", LEASE, WRITERS, for_s=(0.5, 12.0)),
    Draw(3, "lease kept", for_s=(4.0, 40.0)),
    Draw(3, "lease gone", slots=WRITERS),
    Draw(1, "leases deleted"),
)
"""And of the leases: what their holders and standbys say, a server's clock that was ahead and is set right, so that
nothing is forgotten for long, and what somebody deletes by hand."""


PARTED = (Draw(1, "servers parted", for_s=(0.5, 25.0)),)
"""And one of three servers that is cut off from the others: it answers for a while as if it led."""


VERSION = ("version",)
UPGRADED = (
    Draw(3, "upgraded", for_s=(0.1, 12.0), what=("at once", "one by one")),
    Draw(0.5, "lost", VERSION),
    Draw(0.5, "slow", VERSION, for_s=(0.5, 12.0), times=2),
    Draw(0.5, "refused", VERSION, codes=(403, 429, 503), times=3),
    Draw(0.5, "misled", VERSION, codes=(1404, 1502), times=3),
    Draw(0.5, "crash after", VERSION),
)
"""And an API server that is upgraded, and what it answers who asks for its version."""


FEDERATOR = ("federator",)
DONE = ("make", "change", "remove")
"""What the federator does to Jobs and PodGroups (`federation.ports`)."""
SEEN = (*DONE, "list", "get")
OF_FEDERATOR = (
    Draw(4, "lost", SEEN, FEDERATOR, for_s=(0.1, 20.0)),
    Draw(6, "late", DONE, FEDERATOR, for_s=(0.5, 20.0)),
    Draw(2, "slow", SEEN, FEDERATOR, for_s=(0.1, 12.0)),
    Draw(3, "twice", DONE, FEDERATOR, for_s=(0.001, 8.0)),
    Draw(5, "unanswered", DONE, FEDERATOR, for_s=(0.1, 20.0)),
    Draw(3, "refused", SEEN, FEDERATOR, codes=(403, 409, 429, 500, 503), times=4),
    Draw(3, "failed", DONE, FEDERATOR, codes=(500, 504), times=2),
    Draw(2, "unreachable", SEEN, FEDERATOR, times=3),
    Draw(1, "misled", SEEN, FEDERATOR, codes=(1200, 1302, 1404, 1502), times=3),
    Draw(4, "crash before", DONE, FEDERATOR),
    Draw(5, "crash after", DONE, FEDERATOR),
    Draw(4, "stop before", DONE, FEDERATOR, for_s=(0.5, 30.0)),
    Draw(3, "stop after", DONE, FEDERATOR, for_s=(0.5, 30.0)),
    Draw(2, "unwelcome", slots=FEDERATOR, for_s=(0.5, 15.0), codes=(401, 403), what=("", *SEEN)),
    *(row._replace(slots=FEDERATOR) for row in DRAWS if row.on == LOG and row.slots == ("",)),
    Draw(3, "crash before", LOG, FEDERATOR),
    Draw(5, "crash after", LOG, FEDERATOR),
    Draw(3, "stop before", LOG, FEDERATOR, for_s=(0.5, 30.0)),
    Draw(3, "stop after", LOG, FEDERATOR, for_s=(0.5, 30.0)),
    Draw(2, "gap", ("read",), FEDERATOR),
    Draw(1, "lost", STORE, FEDERATOR),
    Draw(4, "crash", slots=FEDERATOR),
    Draw(4, "stop", slots=FEDERATOR, for_s=(0.5, 45.0)),
    Draw(3, "restart", slots=FEDERATOR),
    Draw(2, "clock jump", slots=FEDERATOR, for_s=(-3_600.0, 3_600.0)),
    Draw(2, "disconnect", slots=FEDERATOR, for_s=(0.05, 5.0)),
    Draw(2, "partition", slots=FEDERATOR, for_s=(0.2, 12.0)),
    Draw(3, "leaf cut", slots=FEDERATOR, for_s=(0.05, 15.0)),
    Draw(1, "log down", slots=FEDERATOR, for_s=(0.1, 8.0)),
    Draw(1, "power loss", slots=FEDERATOR, for_s=(0.5, 5.0)),
)
"""And what federated histories have besides."""
LATE = tuple(Draw(1, kind, ("make",), FEDERATOR, for_s=(4.0, 20.0)) for kind in ("late", "twice"))
"""And later ones, of a job that is cancelled at once: what is made so late that the job may be forgotten."""
MISLED = (
    Draw(2, "refused", DONE, FEDERATOR, codes=(404,), times=4),
    Draw(1, "misled", SEEN, FEDERATOR, codes=(2404,), times=4),
)
"""And webhooks that say of what is there that it is not, and a gateway that does."""
UNDONE = tuple(row._replace(slots=FEDERATOR) for row in SET_BACK)
"""And the federation's own log."""
ALL_PARTED = tuple(row._replace(slots=("", *FEDERATOR)) for row in PARTED)
"""And servers of a member's NATS, or of the federation's."""
OF_MEMBERS = (Draw(1, "etcd restored", for_s=(0.3, 12.0), what=("", "raised")),)
"""And a federated history's clusters, some of them."""


def draw(
    source: random.Random, count: int, from_s: float, until_s: float, among: Sequence[Draw] = DRAWS
) -> list[Fault]:
    """`count` faults between these two seconds of a history."""
    rows = source.choices(among, [row.weight for row in among], k=count)
    drawn = [
        Fault(
            at_s=round(source.uniform(from_s, until_s), 3),
            kind=row.kind,
            on=source.choice(row.on),
            slot=source.choice(row.slots),
            for_s=round(source.uniform(*row.for_s), 3),
            code=source.choice(row.codes),
            times=source.randint(1, row.times),
            what=source.choice(row.what),
        )
        for row in rows
    ]
    return sorted(drawn, key=lambda fault: fault.at_s)
