"""How many of a gang's members run, are alive, leave, and may be placed: counted as that changes, and derived when a
state is restored.

Each fact about a member may ask for it. Counted anew each time, the end of a gang of 10,000 pods would take minutes of
every process that reads the log. So whatever it depends on is changed here: a pod's status, its open intent, whether it
has a claim, its fact, its gang, and which members say that the gang ran out of waiting time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from events.facts import PodObserved
from services.state.records import BOUND, PENDING, SUCCEEDED, TERMINATING, Gang, Pod
from services.state.slices import at_once
from services.state.speakers import Speakers, declares

if TYPE_CHECKING:
    from services.state.fold import State

OTHER, LIVE, DONE, LEAVING = range(4)
"""How a member counts: it runs (bound, or permitted to be), did its work, is terminating; `OTHER`: none of these."""
SLICE_MEMBERS = 8_192
"""Counted between two yields: some 10 ms."""
_COUNTS_AS = {BOUND: LIVE, SUCCEEDED: DONE, TERMINATING: LEAVING}


@dataclass(slots=True)
class Tally:
    """Of one gang that has members."""

    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    """How a member counts → members."""
    tasks: dict[str, list[int]] = field(default_factory=dict)
    """The same of each task that members name."""
    priorities: dict[int, int] = field(default_factory=dict)
    """Priority → members that have it."""
    placeable: int = 0
    """Pending, not gated, without a claim."""
    overdue: int = 0
    """Pending, and among those that say that the gang timed out."""
    speakers: Speakers | None = field(default=None, compare=False)
    """Which of them declare something; None: nobody had to look for more than the first few (`declarations`)."""

    @property
    def running(self) -> int:
        """Bound, permitted to be, or succeeded."""
        return self.counts[LIVE] + self.counts[DONE]

    @property
    def live(self) -> int:
        """Of these, those that have not succeeded."""
        return self.counts[LIVE]

    @property
    def leaving(self) -> int:
        """Terminating."""
        return self.counts[LEAVING]

    def running_of(self, task: str) -> int:
        return self._of(task, LIVE) + self._of(task, DONE)

    def staying_of(self, task: str) -> int:
        """Members of the task that are not terminating."""
        return self.running_of(task) + self._of(task, OTHER)

    def _of(self, task: str, standing: int) -> int:
        if task:
            return self.tasks[task][standing] if task in self.tasks else 0
        return self.counts[standing] - sum(counts[standing] for counts in self.tasks.values())


_NONE = Tally()


def task_of(fact: PodObserved) -> str:
    """The task that a gang's member says it is of; empty for none."""
    return (fact.gang.task or "") if fact.gang is not None else ""


def of(state: State, gang: Gang) -> Tally:
    """The gang's. Do not write to it."""
    return state.tallies.get(gang.key, _NONE)


def has_priority(state: State, gang: Gang, priority: int) -> bool:
    """Whether a member has it."""
    return priority in of(state, gang).priorities


def highest_priority(state: State, gangs: Iterable[str]) -> int:
    """Of the pods of these gangs, of which there is one."""
    return max(priority for key in gangs if key in state.tallies for priority in state.tallies[key].priorities)


def counted(state: State) -> dict[str, Tally]:
    """Gang → its tally, from the records."""
    return at_once(counted_in_slices(state))


def counted_in_slices(state: State) -> Generator[None, None, dict[str, Tally]]:
    """`counted`, with a yield now and then."""
    found: dict[str, Tally] = {}
    members = ((key, uid) for key, gang in state.gangs.items() for uid in gang.members)
    for number, (key, uid) in enumerate(members, 1):
        _add(found.setdefault(key, Tally()), state, uid, state.pods[uid], 1)
        if number % SLICE_MEMBERS == 0:
            yield
    return found


# ---------------------------------------------------------------------------------------------------------- transitions


def joined(state: State, uid: str, pod: Pod) -> None:
    """The pod is a member of its gang now."""
    tally = state.tallies.get(pod.gang)
    if tally is None:
        tally = state.tallies[pod.gang] = Tally()
    _add(tally, state, uid, pod, 1)
    if tally.speakers is not None:
        tally.speakers.put(uid, declared=declares(state, pod.gang, uid))


def left(state: State, uid: str, pod: Pod, *, last: bool) -> None:
    """The pod is about to be no member of its gang any more; `last`: nor is anybody else."""
    if last:
        del state.tallies[pod.gang]
        return
    tally = state.tallies[pod.gang]
    _add(tally, state, uid, pod, -1)
    if tally.speakers is not None:
        tally.speakers.drop(uid)


def set_fact(state: State, uid: str, pod: Pod, fact: PodObserved) -> None:
    """The pod was observed anew: it may be of another task or priority, or declare something else."""
    tally = state.tallies[pod.gang] if pod.gang else None
    if tally is not None:
        _add(tally, state, uid, pod, -1)
    pod.fact = fact
    if tally is not None:
        _add(tally, state, uid, pod, 1)
        if tally.speakers is not None:
            tally.speakers.put(uid, declared=declares(state, pod.gang, uid))


def set_status(state: State, uid: str, pod: Pod, status: str) -> None:
    before, pod.status = pod.status, status
    if pod.gang and status != before:
        _move(state, pod, _standing(state, uid, before), _standing(state, uid, status))
        if PENDING in (before, status):
            _count_waiting(state.tallies[pod.gang], state, uid, pod, 1 if status == PENDING else -1)


def intend(state: State, uid: str) -> None:
    """The pod's binding is intended."""
    pod = state.pods[uid]
    if pod.gang and pod.status == PENDING and uid not in state.permitted:
        _move(state, pod, OTHER, LIVE)
    state.permitted[uid] = None


def settle_intent(state: State, uid: str) -> None:
    """The intent has its outcome, if there is one."""
    if uid in state.permitted:
        del state.permitted[uid]
        pod = state.pods[uid]
        if pod.gang and pod.status == PENDING:
            _move(state, pod, LIVE, OTHER)


def claimed(state: State, pod: Pod, sign: int) -> None:
    """The pod got a claim (1), or has none any more (-1)."""
    if pod.gang and pod.status == PENDING and not pod.fact.gated:
        state.tallies[pod.gang].placeable -= sign


def says_timed_out(state: State, gang: Gang, uid: str) -> None:
    """The member says, or is to say, that the gang ran out of waiting time."""
    if uid not in gang.timed_out:
        gang.timed_out[uid] = None
        state.tallies[gang.key].overdue += state.pods[uid].status == PENDING


def unsays_timed_out(state: State, gang: Gang, uid: str) -> None:
    if uid in gang.timed_out:
        del gang.timed_out[uid]
        state.tallies[gang.key].overdue -= state.pods[uid].status == PENDING


def all_unsay_timed_out(state: State, gang: Gang) -> None:
    gang.timed_out.clear()
    if gang.key in state.tallies:
        state.tallies[gang.key].overdue = 0


def _standing(state: State, uid: str, status: str) -> int:
    """How a pod of this status counts for its gang."""
    return LIVE if status == PENDING and uid in state.permitted else _COUNTS_AS.get(status, OTHER)


def _move(state: State, pod: Pod, before: int, after: int) -> None:
    if before == after:
        return
    tally = state.tallies[pod.gang]
    tally.counts[before] -= 1
    tally.counts[after] += 1
    if task := task_of(pod.fact):
        tally.tasks[task][before] -= 1
        tally.tasks[task][after] += 1


def _add(tally: Tally, state: State, uid: str, pod: Pod, sign: int) -> None:
    fact, priorities, standing = pod.fact, tally.priorities, _standing(state, uid, pod.status)
    tally.counts[standing] += sign
    if pod.status == PENDING:
        _count_waiting(tally, state, uid, pod, sign)
    members = priorities.get(fact.priority, 0) + sign
    if members:
        priorities[fact.priority] = members
    else:
        del priorities[fact.priority]
    if task := task_of(fact):
        of_task = tally.tasks.setdefault(task, [0, 0, 0, 0])
        of_task[standing] += sign
        if not any(of_task):
            del tally.tasks[task]


def _count_waiting(tally: Tally, state: State, uid: str, pod: Pod, sign: int) -> None:
    """One more (1) or one fewer (-1) is pending."""
    if uid not in state.claims and not pod.fact.gated:
        tally.placeable += sign
    if uid in state.gangs[pod.gang].timed_out:
        tally.overdue += sign
