"""Seed 004, kube-batch, gang-scheduler (allocate); translated.

    - queues and jobs are both priority queues; […] take out the job of the queue
    - the tasks of one queue run one after another. Priorities may be set between queues: the tasks in the queue of the
      higher priority are scheduled first.
    - job ready (a job has 10 [tasks], minMember=5): the job is put at the end of the jobs; the 5 pods that are left have
      no high priority for scheduling, and may be put aside.

and its code, where tasks of one job are taken one by one:

    // job ready […]
    if ssn.JobReady(job) && !tasks.Empty() { jobs.Push(job); break }

A *job* is a group, whatever the dialect of its gangs: the order is the profile's. Its priority is its PodGroup's, else
its pods' (`services.state.queueing`). The statements on jobs are met together: a ready job goes behind the others of its
own priority. So a job that is not ready is in the queue twice: with its minimum, and with the tasks beyond it behind all
of its priority that are not ready (`rest`). Both go into one proposal. A pod alone is a job of one task, never ready.

The text says nothing more of the order of jobs; kube-batch goes on by creation. Here too, and a refusal moves nobody. As
the jobs are a priority queue, a ready one that is pushed back after a further task comes out again at once: the first of
them gets all of its tasks before the next. (In kube-batch a job's share of the cluster comes between; shares come later.)

Between queues the text wants an order that the log cannot have yet: a declaration names its queue, of which no fact is
read (queues' shares and actions come later). An order by their names or ages would give the first queue all that it asks
for, which shares are there to prevent. So all queues are alike, and the order of jobs decides among all of them.
"""

from __future__ import annotations

from services.state import membership, queueing
from services.state.fold import State
from services.state.records import Group


def place(state: State, group: Group) -> tuple[int | str, ...]:
    """Priority, descending; what is not ready; creation; key."""
    return -queueing.priority(state, group), ready(state, group), queueing.created_ns(state, group), group.key


def rest(state: State, group: Group) -> tuple[int | str, ...] | None:
    """Where the tasks beyond the minimum of a job are that is not ready; None: it has one place for all its tasks."""
    if group.pod or ready(state, group):
        return None
    return -queueing.priority(state, group), True, queueing.created_ns(state, group), group.key


def ready(state: State, group: Group) -> bool:
    """Whether each gang of the group has its minimum: what is left of it may be put aside. A pod alone is never."""
    gangs = [state.gangs[key] for key in group.gangs]
    return bool(gangs) and all(gang.started and membership.has_minimum(state, gang) for gang in gangs)
