"""What is hurt and when: an endless row of hurts from one seed, and nothing else.

Nobody waits for a hurt to end before the next one comes: a service is killed while its network is cut, a server fills up
while another is down. What is hurt already is left out by whoever carries the plan out (`hurting`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from events.permissions import FEDERATION_OPERATOR, KEEPER

INGEST = ("ingest-a", "ingest-b")
BINDERS = ("binder-a", "binder-b")
PLANNERS = ("planner-a", "planner-b")
GUEST = "planner-c"
"""It joins and leaves."""
FEED = "feed-a"
SUBSCRIBER = "subscriber-a"
"""Not a service of Muster's, but kept and hurt like them: whoever goes on under one name (`muster subscribe`)."""
FEDERATORS = ("federator-a", "federator-b")
SERVICES = (*INGEST, *BINDERS, *PLANNERS, GUEST, FEED, SUBSCRIBER, *FEDERATORS)
MEMBERS = ("v100", "p40", "k80")
"""The federation's clusters."""
NATS = ("one", "two", "three")
APISERVER, ETCD = "apiserver", "etcd"

ANSWERED = ("log", "lease", "snapshot")
"""Where somebody who may only read the feed has a server's answer written. Not into the feed itself: that may take the
place of a message, and then the feed ends."""

Targets = tuple[tuple[str, ...], ...]


class Deed(NamedTuple):
    """A way to hurt. `targets`: one of these groups is hit as a whole. `lasts_s`: shortest and longest, in seconds."""

    weight: int
    targets: Targets
    lasts_s: tuple[float, float]


def _each(*names: str) -> Targets:
    return tuple((name,) for name in names)


CLIENTS = (*INGEST, *BINDERS)
"""Services that talk to the API server."""
PAIRS = tuple(combinations(NATS, 2))
LEASE_S = 2.0

DEEDS: dict[str, Deed] = {
    "kill": Deed(44, _each(*SERVICES), (0, 0)),
    "kill role": Deed(10, (INGEST, BINDERS, PLANNERS, FEDERATORS), (0, 0)),
    "kill all": Deed(3, (SERVICES,), (0, 0)),
    "storm": Deed(4, (*_each(*SERVICES), BINDERS, PLANNERS), (3, 6)),
    "end": Deed(4, _each(*SERVICES), (0, 0)),
    "restarts": Deed(4, _each(*SERVICES), (0.3, 1.8)),
    "pause": Deed(9, _each(*SERVICES), (LEASE_S + 0.5, 9)),
    "policy": Deed(1, _each("admin"), (0, 0)),
    "guest": Deed(5, _each(GUEST), (0, 0)),
    "nobody's message": Deed(4, _each(*ANSWERED), (0, 0)),
    "purge": Deed(18, _each(KEEPER, KEEPER, FEDERATION_OPERATOR), (0.5, 8)),
    "kill nats": Deed(8, _each(*NATS), (0, 6)),
    "kill quorum": Deed(2, (*PAIRS, NATS), (0, 4)),
    "pause nats": Deed(4, (*_each(*NATS), *PAIRS), (1, 8)),
    "part nats": Deed(4, _each(*NATS), (2, 8)),
    "fill disk": Deed(3, (*_each(*NATS), *PAIRS, NATS), (2, 6)),
    "cut from nats": Deed(7, (*_each(*SERVICES), BINDERS, SERVICES), (1, 8)),
    "lossy to nats": Deed(6, (*_each(*SERVICES), SERVICES), (3, 8)),
    "answers lost from nats": Deed(4, _each(*SERVICES), (1, 8)),
    "resets from nats": Deed(5, (*_each(*SERVICES), SERVICES), (1, 8)),
    "cut from api": Deed(4, (*_each(*CLIENTS), CLIENTS), (1, 8)),
    "lossy to api": Deed(4, (*_each(*CLIENTS), CLIENTS), (3, 8)),
    "answers lost from api": Deed(4, _each(*CLIENTS), (1, 8)),
    "resets from api": Deed(3, (*_each(*CLIENTS), CLIENTS), (1, 8)),
    "kill apiserver": Deed(2, _each(APISERVER), (0, 3)),
    "kill etcd": Deed(2, _each(ETCD), (0, 3)),
    "pause apiserver": Deed(2, _each(APISERVER), (1, 6)),
    "pause etcd": Deed(2, _each(ETCD), (1, 6)),
    "cut from members": Deed(2, (*_each(*FEDERATORS), FEDERATORS), (1, 8)),
    "lossy to members": Deed(2, (*_each(*FEDERATORS), FEDERATORS), (3, 8)),
    "answers lost from members": Deed(2, _each(*FEDERATORS), (1, 8)),
    "resets from members": Deed(2, (*_each(*FEDERATORS), FEDERATORS), (1, 8)),
    "members err": Deed(8, _each(*MEMBERS), (0, 0)),
    "member cut off": Deed(3, (*_each(*MEMBERS), MEMBERS), (1, 8)),
}
"""Every way to hurt, and how often it comes beside the others."""

GAPS_S = (0.1, 2.2)
"""Between one hurt's beginning and the next one's."""


class Variant(NamedTuple):
    """What else differs from run to run. Times are shorter than the defaults, so that an episode comes to rest soon."""

    policy: dict[str, str]
    """Flags of ``muster policy set``."""
    bind_concurrency: int
    """Few bindings at once leave time between permit and effect."""
    clock_offsets_ms: dict[str, int]
    """By service."""
    pattern: str
    """To what the subscriber subscribes."""


def variant(seed: int) -> Variant:
    source = random.Random(f"variant {seed}")
    policy = {
        "--replacement-hold-ms": "8000",
        "--backoff-max-ms": "4000",
        "--replacement-policy": source.choice(["keep", "evict"]),
        "--node-score": source.choice(SCORES),
    }
    offsets = {name: source.choice([0, 0, 0, 700, -5_000, 600_000, -600_000]) for name in SERVICES}
    return Variant(policy, source.choice([1, 2, 8, 64]), offsets, source.choice(PATTERNS))


SCORES = ("least-allocated", "binpack")
PATTERNS = (">", "PodBound", "*.default.>")


class Hurt(NamedTuple):
    """`after_s` behind the beginning of the one before, the targets are hurt, for `lasts_s` where it is of that kind."""

    after_s: float
    deed: str
    targets: tuple[str, ...]
    lasts_s: float

    def __str__(self) -> str:
        lasting = f" for {self.lasts_s:.1f} s" if self.lasts_s else ""
        return f"{self.deed} {' '.join(self.targets)}{lasting}"


def plan(seed: int) -> Iterator[Hurt]:
    """The same for a seed on every machine."""
    source = random.Random(f"hurts {seed}")
    names = list(DEEDS)
    weights = [deed.weight for deed in DEEDS.values()]
    while True:
        name = source.choices(names, weights)[0]
        deed = DEEDS[name]
        targets = source.choice(deed.targets)
        yield Hurt(round(source.uniform(*GAPS_S), 3), name, targets, round(source.uniform(*deed.lasts_s), 3))
