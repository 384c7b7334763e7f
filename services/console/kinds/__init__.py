"""What kind of log it is, a cluster's or a federation's, and what the console asks of each kind.

A log says so itself, by who wrote its first commit: the federator writes into a federation's, and into no other
(`events.subjects`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from typing import Any, NamedTuple, Protocol

from events import Event
from events.log import EventLog, first_role
from events.subjects import FEDERATION, FEDERATION_ROLES, WRITES
from services.console.errors import Unusable
from services.console.kinds import cluster, federation
from services.federator.snapshot import FORM as FEDERATIONS
from services.state.form import Form
from services.state.snapshot import FORM as CLUSTERS


class Checks(Protocol):
    """One verification's knowledge of a kind of log, beside its state. Made of the state from which it is folded."""

    rules: Mapping[str, Collection[int]]
    """Those who decide, by role → the versions of their rules that this code has."""
    inputs: Mapping[str, frozenset[type]]
    """What they may append without deciding, by cause."""
    times: dict[str, int]
    """Log time in ns, by writer."""
    before: int
    """Outcomes whose intent lies before the state from which it is folded."""

    def decide(self, writer: str) -> Generator[None, None, list[Event]]:
        """What the rules say over the state as it is now, in slices."""
        ...

    def broken(self, decided: list[Event]) -> str:
        """What of this, decided over the state as it is now, must never be, whatever the rules say; else empty."""
        ...

    def taken(self, event: Event) -> None:
        """Who writes from here on."""
        ...

    def decided(self, events: list[Event]) -> None:
        """What was intended."""
        ...

    def unintended(self, event: Event) -> str | None:
        """None for an outcome that has its intent; else what was intended instead, or ''."""
        ...

    def inert(self) -> str:
        """What is wrong with the commit that was folded last, where events that change nothing are wrong; else empty."""
        ...

    def validate(self) -> None:
        """Raises Violated."""
        ...


class Kind(NamedTuple):
    """A kind of log."""

    form: Form[Any]
    checks: Callable[[Any], Checks]
    summary: Callable[[Any], dict[str, Any]]
    """The state in numbers, ready for JSON."""
    waiting: Callable[[Any], tuple[str, dict[str, dict[str, Any]]]]
    """What waits, and why: what they are called, and each by its name."""
    one: str
    """What one of them is."""
    roles: frozenset[str]
    """Who writes into it."""


CLUSTER = Kind(
    CLUSTERS, cluster.Checks, cluster.summary, cluster.waiting, "group", frozenset(WRITES.keys() - FEDERATION_ROLES)
)
FEDERATED = Kind(FEDERATIONS, federation.Checks, federation.summary, federation.waiting, "job", FEDERATION_ROLES)


async def kind_of(log: EventLog) -> Kind:
    """Raises LogError."""
    federated = log.cluster == FEDERATION or await first_role(log) in FEDERATION_ROLES
    return FEDERATED if federated else CLUSTER


async def check_of_a_cluster(log: EventLog, otherwise: str) -> None:
    """`otherwise`: what to say of a federation's log. Raises Unusable, LogError."""
    if await kind_of(log) is not CLUSTER:
        raise Unusable(f"this is the log of a federation: {otherwise}")


async def check_of_a_federation(log: EventLog) -> None:
    """Raises Unusable, LogError."""
    if await kind_of(log) is not FEDERATED:
        raise Unusable(f"this is the log of the cluster {log.cluster!r}, not of a federation: it has no jobs")
