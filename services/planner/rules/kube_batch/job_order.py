"""Seed 004, kube-batch, gang-scheduler (allocate); translated.

    - queues and jobs are both priority queues; […] take out the job of the queue
    - the tasks of one queue run one after another. Priorities may be set between queues: the tasks in the queue of the
      higher priority are scheduled first.
    - job ready (a job has 10 [tasks], minMember=5): the job is put at the end of the jobs; the 5 pods that are left have
      no high priority for scheduling, and may be put aside.

A *job* is a group. Its priority is its PodGroup's, else its pods' (`services.state.queueing`). The two statements on jobs
are met together: a ready job goes behind the others of its own priority. The text says nothing of the rest; kube-batch
goes on by creation. Here too, and a refusal moves nobody.

Between queues the text wants an order that the log cannot have yet: a declaration names its queue, of which no fact is
read (queues' shares and actions come later). So all queues are alike, and the order of jobs decides among all of them.
"""

from __future__ import annotations

from services.state import membership, queueing
from services.state.fold import State
from services.state.records import Gang, Group


def place(state: State, group: Group) -> tuple[int | str, ...]:
    """Priority, descending; what is not ready; creation; key."""
    return -queueing.priority(state, group), ready(state, group), queueing.created_ns(state, group), group.key


def ready(state: State, group: Group) -> bool:
    """Whether each gang of the group has its minimum: what is left of it may be put aside. A pod alone is never."""
    gangs = [state.gangs[key] for key in group.gangs]
    return bool(gangs) and all(gang.satisfied and _has_minimum(state, gang) for gang in gangs)


def _has_minimum(state: State, gang: Gang) -> bool:
    return gang.declaration is not None and membership.running(state, gang)[0] >= gang.declaration.min_member
