"""Simulated OpenPAI clusters as federators that are processes have them: without limits, at times in trouble."""

from __future__ import annotations

import random
from collections.abc import Mapping

from services.simulator.openpai.jobs import Cluster
from services.simulator.openpai.limits import Limits
from services.simulator.openpai.server import LateFault, Served

NO_LIMITS = Limits(requests_per_minute=0, lists_per_minute=0, submissions_per_hour=0)
FAULTS = 3


def err(cluster: Served, source: random.Random) -> None:
    """`FAULTS` of its next answers: one is lost, one refuses a stop, and a submission lands later."""
    cluster.faults.plan(verb=source.choice(("submit", "submit", "stop", "list")), hang_up=True, applied=True)
    cluster.faults.plan(verb="stop", status=source.choice((403, 429, 500)))
    cluster.faults.plan(LateFault(verb="submit", hang_up=True, late_ms=source.randrange(3_000)))


def alive(clusters: Mapping[str, Cluster]) -> dict[str, list[str]]:
    """Jobs by name: where something of them is not over."""
    found: dict[str, list[str]] = {}
    for alias, cluster in clusters.items():
        now_ms = cluster.clock()
        for job in cluster.jobs.values():
            if job.now(now_ms).sub_state != "Completed":
                found.setdefault(job.name.rpartition(f"-{alias}")[0], []).append(alias)
    return found
