"""The log is set back: it is as it was some seconds ago, what came behind that never was, and the cluster goes on as it
is. Where it was set back in between, from another backup, what that lost is there again.

So it is where NATS is restored from a backup, or the log from an archive. Everything is stopped first, as operations.md
says, and started again in any order; what was on its way to the API server may land all the same. The bucket of
snapshots comes from the same backup, or is left as it is, and then has some of places that this log has yet to come to,
by other commits. And so it is where servers that do not sync each message lose power while everybody runs: who knows what
is lost must find out before he writes anything.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from events.envelope import Stored
from tests.simulation.bucket import Put
from tests.simulation.network import run_now
from tests.simulation.witness import Witness

if TYPE_CHECKING:
    from tests.simulation.broker import Broker
    from tests.simulation.faults import Fault
    from tests.simulation.processes import Process
    from tests.simulation.world import World

AWAY_S = (0.2, 4.0)
"""How long the server is away, or nobody is there."""
WITH_SNAPSHOTS, UNDER_ALL = "with its snapshots", "under all"


class Backup(NamedTuple):
    """What NATS holds at one moment."""

    first: int
    stored: list[Stored]
    bucket: dict[int, Put] | None
    """None: it is left as it is."""
    denied: list[int]
    leases: int
    """Where their stream ended."""

    def can_be(self, broker: Broker, what: str, archived: int) -> bool:
        """Whether the log can become this: what is archived stands in it, or it would be another log's; servers that lose
        power lose its end and no more; and who starts can, as of the snapshots on which it stands not all are damaged."""
        least = max(archived, len(self.stored) if what == UNDER_ALL else 0)
        snapshots = map(int, broker.bucket.names(self.bucket))
        stands = self.first == 1 or any(self.first - 1 <= place <= len(self.stored) for place in snapshots)
        return stands and self.stored != broker.stored and self.stored[:least] == broker.stored[:least]


def made(broker: Broker, what: str) -> Backup:
    """As of now."""
    bucket = dict(broker.bucket.messages) if what == WITH_SNAPSHOTS else None
    return Backup(broker.first, [*broker.stored], bucket, list(broker.bucket.denied), broker.leases.sequence)


def strike(world: World, fault: Fault) -> None:
    """The backup is made now; if nothing is calm by then, it is restored."""
    authors = [*world.witness.authors]
    world.loop.after(fault.for_s, _restored, world, made(world.broker, fault.what), authors, fault.what)


def _restored(world: World, backup: Backup, authors: list[Process | None], what: str) -> None:
    archive, broker = world.launch.archive, world.broker
    archived = 0 if archive is None else run_now(archive.bounds()).end
    if world.calm or not broker.up or not backup.can_be(broker, what, archived):
        return
    away_s = world.kube.source.uniform(*AWAY_S)
    if what != UNDER_ALL:
        world.supervisor.stop_all(away_s)
        world.feeds.stop_all()
    broker.stop(world.loop.now_s + away_s)
    broker.restore(backup)
    world.witness = _as_of(world.witness, backup, authors)
    world.tried[f"log set back{f', {what}' if what else ''}"] += 1


def _as_of(before: Witness, backup: Backup, authors: list[Process | None]) -> Witness:
    """Who has seen this log up to there, and what took hold in the cluster since."""
    witness, nothing = Witness(), SimpleNamespace(entries={})
    empty: Any = SimpleNamespace(pods=nothing, nodes=nothing, by_path={}, store=SimpleNamespace(revision=0))
    witness.api, witness.bound, witness.bound_by = empty, before.bound, before.bound_by
    witness.lives.follows(before.lives)
    for stored, author in zip(backup.stored, authors, strict=True):
        witness.landed(stored, author)
    witness.api, witness.names = before.api, before.names
    return witness
