"""Histories of a federation from a seed: n clusters, faults, and what must hold through all of it.

``python -m tests.federator.simulation --seeds N --from K [--world W] [--plant NAME]`` runs N histories and prints how
often each fault happened; ``--replay SEED`` prints one history's log. The federator's own core, fold, observations and
snapshots run, over clusters that are simulated (`tests.federator.clusters`) and a network that loses and delays
(`network`); only its `process` is another, without a loop. With ``--world service`` the service itself runs
(`tests.federator.served`), with ``held…`` over clusters that hold submissions (`tests.federator.held`).
What must hold stands in `tests.federator.audit`.
"""

from __future__ import annotations

from collections import Counter

from tests.federator.audit import Violation
from tests.federator.simulation.network import FAULTS_END_MS
from tests.federator.simulation.process import Process
from tests.federator.simulation.world import World


def run(seed: int, of: type[World] = World) -> tuple[str, Counter[str]]:
    """What was violated, if anything, and the faults."""
    world = of(seed)
    return ended(world), world.count


def ended(world: World) -> str:
    """Its whole history. Whatever ends it before its time is a violation, as an exception that nobody expects."""
    try:
        world.run()
    except Violation as violation:
        return str(violation)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


__all__ = ["FAULTS_END_MS", "Process", "World", "ended", "run"]
