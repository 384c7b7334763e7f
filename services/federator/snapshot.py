"""What of a federation's state is recorded, and its form (`services.state.form`): jobs, clusters, and of which
jobs something is to be said.
"""

from __future__ import annotations

from typing import Any

import msgspec

import events as ev
from services.federator.records import Cluster, Job
from services.federator.state import State
from services.state.form import Form
from services.state.records import Clock


class Snapshot(msgspec.Struct):
    """What of a `State` is recorded, by the names of its attributes; everything else is derived from it."""

    sequence: int
    holder: str
    clock: Clock
    jobs: dict[str, Job]
    clusters: dict[str, Cluster]
    actionable: dict[str, None]
    snapshots: dict[int, ev.SnapshotTaken]
    ignored: dict[str, int]
    set_aside: int


def _derive(state: State, found: dict[str, Any]) -> None:
    """Names, and the places that are open, from the jobs."""
    for uid, job in state.jobs.items():
        state.names[job.name] = uid
        for place in job.places.values():
            state.index(uid, place)
        state.time(job)


FORM = Form(Snapshot, State, _derive)
"""A federation's."""
