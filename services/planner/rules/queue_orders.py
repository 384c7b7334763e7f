"""The queue orders that a profile may name (`Profile.queue_order`).

Each gives a group its place: groups in ascending order of it are in queue order. A place is unique to its group, and a
group is one entry of the queue; so the pods of a group never interleave with another's, whatever the order. An order
may give a gang's pods beyond its minimum a later place of their own: then the gang is in the queue twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from services.planner.rules.coscheduling import queue_sort as coscheduling
from services.planner.rules.koordinator import queue_sort as koordinator
from services.planner.rules.kube_batch import job_order as kube_batch
from services.state.fold import State
from services.state.records import Group

Place = tuple[int | str, ...]


class QueueOrder(NamedTuple):
    """Where in the queue a group is tried."""

    place: Callable[[State, Group], Place]
    rest: Callable[[State, Group], Place | None] | None = None
    """Where what it has beyond its minimum is tried; None: with the minimum."""


QUEUE_ORDERS: dict[str, QueueOrder] = {
    "coscheduling": QueueOrder(coscheduling.place),
    "koordinator": QueueOrder(koordinator.place),
    "kube-batch": QueueOrder(kube_batch.place, kube_batch.rest),
}
"""The names that a profile may give."""
