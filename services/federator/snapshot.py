"""What is recorded of a federation's state, and its form (`services.state.form`): jobs, clusters, which jobs have a
decision due, which are over, and late runs of forgotten ones.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec

import events as ev
from services.federator.records import Cluster, Job, Stray
from services.federator.state import SLICE_JOBS, State
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
    origin: str = ""
    """A snapshot of before there were origins has none; nor was any job over."""
    over: dict[str, None] = {}
    strays: dict[str, dict[str, Stray]] = {}


def _derive(state: State, found: dict[str, Any]) -> Generator[None, None, None]:
    """Names, and the places that are open, from the jobs; a cluster may have none any more. With a yield now and then."""
    yield
    for account in state.clusters:
        state.open[account], state.timed[account] = {}, {}
    for number, (uid, job) in enumerate(state.jobs.items(), 1):
        if number % SLICE_JOBS == 0:
            yield
        state.names[job.name] = uid
        for place in job.places.values():
            state.index(uid, place)
        state.time(job)


LATER: dict[str, object] = {"origin": ""}
FORM = Form(Snapshot, State, _derive, later=LATER)
"""A federation's."""
