"""The federation's own log is set back: it is as it was some seconds ago, and the clusters go on as they are.

As `tests.simulation.set_back`, where it is a cluster's. Here what is lost was the only word of what is there: jobs that
were accepted, and run; which run is kept; that what is held had been let go. A user whose job the log has lost submits it
again, or does not.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from events.envelope import Stored
from tests.simulation.bucket import Put
from tests.simulation.federation.witness import Witness
from tests.simulation.set_back import AWAY_S, UNDER_ALL, WITH_SNAPSHOTS, Backup, made

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.federation.history import Federation

SUBMITTED_AGAIN = 0.5
"""Of how many jobs that are lost."""
WITHIN_S = (0.5, 20.0)


class Copy(NamedTuple):
    """A backup of all streams."""

    log: Backup
    bodies: dict[int, Put] | None


def strike(federation: Federation, fault: Fault) -> bool:
    """The backup is made now; if nothing is calm by then, it is restored."""
    broker = federation.broker
    bodies = dict(broker.bodies.messages) if fault.what == WITH_SNAPSHOTS else None
    copy = Copy(made(broker, fault.what), bodies)
    federation.loop.after(fault.for_s, _restored, federation, copy, fault.what)
    return True


def _restored(federation: Federation, copy: Copy, what: str) -> None:
    broker = federation.broker
    if federation.is_calm or not broker.up or not copy.log.can_be(broker, what, 0):
        return
    source = random.Random(f"{federation.seed}/set back/{len(broker.stored)}")
    away_s = source.uniform(*AWAY_S)
    if what != UNDER_ALL:
        for process in federation.supervisor.ever:
            federation.supervisor.kill(process)
    broker.stop(federation.loop.now_s + away_s)
    broker.restore(copy.log)
    if copy.bodies is not None:
        broker.bodies.restore(copy.bodies, [])
    federation.witness = _as_of(federation.witness, copy.log.stored, len(federation.supervisor.ever))
    federation.count[f"the federation's log set back{f', {what}' if what else ''}"] += 1
    for request in federation.submitted.values():
        if request.name not in federation.witness.told.names and source.random() < SUBMITTED_AGAIN:
            federation.loop.after(source.uniform(*WITHIN_S), federation.safely, federation.submit, request)


def _as_of(before: Witness, log: list[Stored], started: int) -> Witness:
    """Who has seen this log up to there, and knows what is lost. `started`: how many processes were, by then."""
    witness = Witness()
    for stored in log:
        witness.landed(stored, None)
    witness.lost = before.lost | {uid: None for uid in before.federated if uid not in witness.federated}
    witness.accepted |= before.accepted
    witness.let_go |= before.let_go
    witness.kept |= before.kept
    witness.names |= before.names
    witness.before = started
    return witness
