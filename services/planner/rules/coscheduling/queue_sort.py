"""Seed 000, Extension points, QueueSort.

    1. When priorities are different, they are compared based on their priorities.
    2. When podA and podB are both regularPods, it follows the same logic of default in-tree PrioritySort.
    3. When podA is regularPod, podB is pgPod, they are compared according to podA's timestamp and podB's
       LastFailureTimestamp. When podA is pgPod, podB is regularPod: ditto.
    4. When podA and podB are both pgPods: compare the LastFailureTimestamp of the podGroup.
       4.2 If equal, we will compare the UID of PodGroup. (To keep the pods of the same PodGroup together.)

The text's pods are Muster's groups: a group is one entry of the queue, so its pods never interleave with another's. Its
time is `Group.queued_ns`: a group starts with the creation of its first pod ("initialized the first time the pod belongs
to the PodGroup is encountered") and takes the time of its last failure, which is the shard's own log time; PrioritySort's
timestamp, the time at which a pod entered the queue, behaves alike. Where the text is silent: a group's priority is the
highest of its members', and the UID of a group is its key, which is unique at any time and outlives a re-created object.
"""

from __future__ import annotations

from services.state.records import Group

QueueKey = tuple[int, int, str]


def queue_key(group: Group) -> QueueKey:
    """Groups in ascending order of this key are in queue order."""
    return (-group.priority, group.queued_ns, group.key)
