"""Seed 000, Extension points, QueueSort.

    1. When priorities […] are different, they are compared based on their priorities. […]
    2. When podA and podB are both regularPods […], it follows the same logic of default in-tree PrioritySort plugin.
    3. When podA is regularPod, podB is pgPod. they are compared according to podA's timestamp and podB's
       LastFailureTimestamp […]. When podA is pgPod, podB is regularPod. Ditto
    4. When podA and podB are both pgPods. Compare the […] LastFailureTimestamp of the podGroup. […]
       2. If LastFailureTimestampA is equal to LastFailureTimestampB, we will compare the UID of PodGroup. (The purpose is
          […] to keep the pods of the same PodGroup together)

The text's pods are Muster's groups: a group is one entry of the queue, so its pods never interleave with another's. The
time of its last failure is the shard's own log time, and a quorum clears it, as the text's Permit deletes the
PodGroupInfo.

Where the text is silent, what the later code (kubernetes-sigs/scheduler-plugins, TestLess) says is taken:

- A group that did not fail has the time of its PodGroup's creation; without a PodGroup that of its first pod
  ("initialized the first time the pod belongs to the PodGroup is encountered").

Where the two differ, the text is followed:

- A single pod that was refused goes behind by the time of its refusal: PrioritySort's timestamp is that at which a pod
  entered the queue. The later code compares the first attempts, so that such a pod keeps its place.
- The last tie-break is the group's key in place of the UID: it is as unique, and outlives an object that is made anew.
  The later code compares the names of the pods, by which pods of two groups of one second interleave.

Neither of them knows a priority of a group (`services.state.queueing`): the later code compares each pod's own.

`tests/planner/rules/coscheduling/test_queue_sort.py` has a test for each sentence, in its words; `queue_orders` is the
table in which a profile's name leads here.
"""

from __future__ import annotations

from services.state import queueing
from services.state.fold import State
from services.state.records import Group


def place(state: State, group: Group) -> tuple[int | str, ...]:
    """Priority, descending; last failure, else creation; key."""
    return -queueing.priority(state, group), group.failed_ns or queueing.created_ns(state, group), group.key
