"""Who may write what: subjects name the writer, and one table says which events each writer may append.

The server's permissions in `deploy/` are generated from this table (`events.permissions`). An event that its subject may
not carry is ignored by the fold, and counted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import get_args

from events import AdminEvents, BinderEvents, Event, Facts, FederatorEvents, PlannerEvents


def stream(cluster: str) -> str:
    """The name of a cluster's stream."""
    return f"muster-{cluster}"


def subject(cluster: str, writer: str) -> str:
    """The subject of a writer: ``muster.<cluster>.<writer>``."""
    return f"muster.{cluster}.{writer}"


def of_stream(stream: str) -> str:
    """With what the subjects of a log's stream begin."""
    return subject(stream.removeprefix("muster-"), "")


def writer_of(subject: str) -> str:
    """``ingest``, ``planner.<shard>``, ``binder``, ``admin``, ``federator``: what follows the cluster."""
    return subject.split(".", 2)[2] if subject.count(".") >= 2 else ""


def role_of(writer: str) -> str:
    """The role of a writer, a shard's without its name: ingest, planner, binder, admin, federator."""
    return writer.partition(".")[0]


@lru_cache(maxsize=256)  # the fold asks for each event of a planner's
def shard_of(writer: str) -> str:
    """The shard of ``planner.<shard>``; empty for another writer."""
    return writer.partition(".")[2]


WRITES: dict[str, frozenset[type]] = {
    "ingest": frozenset(get_args(Facts)),
    "planner": frozenset(get_args(PlannerEvents)),
    "binder": frozenset(get_args(BinderEvents)),
    "admin": frozenset(get_args(AdminEvents)),
    "federator": frozenset(get_args(FederatorEvents)),
}
"""For each role the events that it may append. An event has one role that writes it; `VersionsAnnounced`, `Ticked`,
`Renewed` and `SnapshotTaken` have several, each of which says it of itself."""

FEDERATION = "federation"
"""The federation's log is that of a cluster of this name. It has one writer, and no cluster has that one."""
FEDERATION_ROLES = frozenset(("federator",))
FEDERATOR_SERVICE = "muster-federator"
"""As NATS knows the micro service that answers on `jobs`."""


def jobs(federation: str) -> str:
    """What stands before the verb of a request to the federator: ``muster-jobs.<federation>``."""
    return f"muster-jobs.{federation}"


def may_write(role: str, event: Event) -> bool:
    return type(event) in WRITES.get(role, frozenset())


KEPT_BACK = ("feed-", "leases-")
EXPECTED_NAME = "letters, digits, '-' and '_', at most 64"
EXPECTED_CLUSTER = f"{EXPECTED_NAME}, without {' or '.join(KEPT_BACK)} in front"


def valid_cluster(name: str) -> bool:
    """A name that may be a cluster's: the log of one called ``feed-prod`` would have the name of the feed of ``prod``."""
    return valid_name(name) and not name.startswith(KEPT_BACK)


def valid_name(name: str) -> bool:
    """A cluster's or a shard's: one token of a subject."""
    return 0 < len(name) <= 64 and all(c.isalnum() or c in "-_" for c in name) and name.isascii()
