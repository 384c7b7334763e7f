"""Seed 002, Implementation Details, QueueSortPlugin.

    1. Firstly, compare the priorities of the two pods, the higher priority is at the front of the queue.
    2. Secondly, compare creationTimestamp of two pods, if pod belongs to a Gang, then we compare creationTimestamp of the
       Gang, the one created first will be at the front of the queue.
    3. Finally, compare pod's namespace, if pod belongs to a Gang, then we compare Gang name.

A refusal moves nobody: a gang that failed keeps its place, and is passed only while it may not be tried. The text leaves
open what a gang's creation is: its PodGroup's, else that of its first pod, as in Koordinator's code. Its third sentence
names a pod's namespace and a gang's name; both have both here, namespace first. A pod and a gang, or gangs of two
dialects, of one name are told apart by their keys. Koordinator's later code put gangs that were tried longer ago first,
between its 1 and 2; the text has nothing of it, nor has the code of July 2026, which leaves the order to Kubernetes.
"""

from __future__ import annotations

from events import dialects
from services.state import queueing
from services.state.fold import State
from services.state.records import Group


def place(state: State, group: Group) -> tuple[int | str, ...]:
    """Priority, descending; creation; namespace and name; key."""
    if group.pod:
        fact = state.pods[group.pod].fact
        namespace, name = fact.namespace, fact.name
    else:
        namespace, name = dialects.name_of(group.key)
    return -queueing.priority(state, group), queueing.created_ns(state, group), namespace, name, group.key
