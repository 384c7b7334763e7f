"""The queue orders that a profile may name (`Profile.queue_order`).

Each gives a group its place: groups in ascending order of it are in queue order. A place is unique to its group, and a
group is one entry of the queue; so the pods of a group never interleave with another's, whatever the order.
"""

from __future__ import annotations

from collections.abc import Callable

from services.planner.rules.coscheduling import queue_sort as coscheduling
from services.planner.rules.koordinator import queue_sort as koordinator
from services.planner.rules.kube_batch import job_order as kube_batch
from services.state.fold import State
from services.state.records import Group

QueueOrder = Callable[[State, Group], tuple[int | str, ...]]

QUEUE_ORDERS: dict[str, QueueOrder] = {
    "coscheduling": coscheduling.place,
    "koordinator": koordinator.place,
    "kube-batch": kube_batch.place,
}
"""The names that a profile may give."""
