"""Who belongs to what, asked of the state: members, and what they count for."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from events import dialects
from services.state import tallies
from services.state.naming import named_by
from services.state.records import BOUND, HELD, PENDING, PERMITTED, SUCCEEDED, TERMINATING, Gang, Group

if TYPE_CHECKING:
    from services.state.fold import State


def members(state: State, group: Group) -> list[str]:
    """UIDs of the group's pods, in the order in which the log first saw them."""
    if group.pod:
        return [group.pod]
    return [uid for key in group.gangs for uid in state.gangs[key].members]


def placeable(state: State, uid: str) -> bool:
    """Whether the pod may be proposed now: pending, not gated, without a claim."""
    pod = state.pods[uid]
    return uid not in state.claims and pod.status == PENDING and not pod.fact.gated


def unplaced(state: State, group: Group) -> bool:
    """Whether the group has something to place."""
    if group.pod:
        return placeable(state, group.pod)
    return any(tallies.of(state, state.gangs[key]).placeable for key in group.gangs)


class Census(NamedTuple):
    """A gang's members by what they count for."""

    total: int
    """Seed 000, Pre-Filter 1: the gang's pods, terminating ones excluded."""
    running: int
    """Bound or succeeded."""
    waiting: int
    """Those whose permit or hold stands."""
    placeable: dict[str, list[str]]
    """UIDs that may be proposed now, by scheduling class, in the order in which the log first saw them."""

    @property
    def have(self) -> int:
        """Seed 000, Permit: Running and WaitingPods."""
        return self.running + self.waiting


def census(state: State, members: Collection[str]) -> Census:
    """One pass over members of a gang."""
    pods, claims = state.pods, state.claims
    leaving = running = waiting = 0
    by_class: dict[str, list[str]] = {}
    for uid in members:
        pod = pods[uid]
        status = pod.status
        if status == PENDING:
            claim = claims.get(uid)
            if claim is not None:
                waiting += claim.stage in (HELD, PERMITTED)
            elif not (fact := pod.fact).gated:
                of_class = by_class.get(fact.scheduling_class)
                if of_class is None:
                    by_class[fact.scheduling_class] = [uid]
                else:
                    of_class.append(uid)
        elif status == TERMINATING:
            leaving += 1
        else:
            running += status in (BOUND, SUCCEEDED)
    return Census(len(members) - leaving, running, waiting, by_class)


def counted(gang: Gang, census: Census) -> int:
    """How many of these count for the gang's minimum, by its match policy."""
    return census.waiting if match_policy(gang) == dialects.ONLY_WAITING else census.have


def match_policy(gang: Gang) -> str:
    return gang.declaration.match_policy if gang.declaration is not None else dialects.WAITING_AND_RUNNING


def rules_off(gang: Gang) -> bool:
    """Whether the gang's rules are off for its further pods: it was satisfied once (seed 002, After Gang)."""
    return gang.started and match_policy(gang) == dialects.ONCE_SATISFIED


def strict(gang: Gang) -> bool:
    """Whether a pod that finds no place keeps the others of its gang from theirs (seed 002, Strict and NonStrict)."""
    return gang.declaration is None or gang.declaration.mode == "Strict"


def running(state: State, gang: Gang) -> int:
    """Members that run: bound, permitted to be, or succeeded."""
    return tallies.of(state, gang).running


def total(state: State, gang: Gang) -> int:
    """Seed 000, Pre-Filter 1: the gang's pods, terminating ones excluded."""
    return len(gang.members) - tallies.of(state, gang).leaving


def outside(state: State, group: Group) -> list[str]:
    """Keys of the gangs that the group's gangs name and that do not belong to it, sorted: they are not there, or name
    none of these back. A gang whose rules are off waits for none."""
    gangs = (state.gangs[key] for key in group.gangs)
    named = {name for gang in gangs if not rules_off(gang) for name in named_by(gang)}
    return sorted(named.difference(group.gangs))


def reached(state: State, key: str) -> bool:
    """Whether the gang exists, and as many of it run, or are permitted to, as must start together."""
    gang = state.gangs.get(key)
    if gang is None or gang.declaration is None:
        return False
    return rules_off(gang) or running(state, gang) >= gang.declaration.min_member


def awaited(state: State, group: Group) -> str:
    """The first gang outside of the group that the group has to wait for; empty: none."""
    return next((key for key in outside(state, group) if not reached(state, key)), "")


def short(state: State, gang: Gang, task: str = "") -> bool:
    """Whether the gang, or its task, is declared and has fewer pods than must start together."""
    if gang.declaration is None or rules_off(gang):
        return False
    there, minimum = there_of(state, gang, task)
    return there < minimum


def there_of(state: State, gang: Gang, task: str = "") -> tuple[int, int]:
    """(pods of the gang, or of its task, that are not terminating; how many must start together)."""
    if task:
        return tallies.of(state, gang).staying_of(task), task_minimums(gang).get(task, 0)
    return total(state, gang), gang.declaration.min_member if gang.declaration is not None else 1


def too_few(state: State, gang: Gang) -> bool:
    """Whether a declared gang is short of pods, or one of its tasks is."""
    return any(short(state, gang, task) for task in ("", *task_minimums(gang)))


def lacks(state: State, gang: Gang) -> int:
    """Members that must have a node before any of them is bound: of the gang's minimum, or of its tasks'."""
    if rules_off(gang):
        return 0
    minimum = gang.declaration.min_member if gang.declaration is not None else 1
    minimums = task_minimums(gang)
    members = by_task(state, gang) if minimums else {}
    of_tasks = sum(max(0, least - counted(gang, census(state, members[name]))) for name, least in minimums.items())
    return max(0, minimum - counted(gang, census(state, gang.members)), of_tasks)


def task_minimums(gang: Gang) -> dict[str, int]:
    """Volcano's minimums of single tasks. They count only if the gang's own minimum is at least their sum."""
    if gang.declaration is None or not gang.declaration.task_minimums:
        return {}
    minimums = gang.declaration.task_minimums
    return minimums if sum(minimums.values()) <= gang.declaration.min_member else {}


def by_task(state: State, gang: Gang) -> dict[str, list[str]]:
    """Task → UIDs of its members; of a task that has a minimum and that no pod names, none."""
    found: dict[str, list[str]] = {name: [] for name in task_minimums(gang)}
    for uid in gang.members:
        found.setdefault(task(state, uid), []).append(uid)
    return found


def task(state: State, uid: str) -> str:
    """The task that a gang's member says it is of; empty for none."""
    return tallies.task_of(state.pods[uid].fact)


def broken(state: State, gang: Gang, of_task: str) -> bool:
    """Whether some of the gang are alive, and it is below its own minimum or that of this task."""
    return tallies.of(state, gang).live > 0 and below_minimum(state, gang, of_task)


def below_minimum(state: State, gang: Gang, of_task: str, more: int = 0) -> bool:
    """Whether the gang, or the task `of_task`, would be below its minimum although `more` of its pods ran."""
    if gang.declaration is None:
        return False
    below = running(state, gang) + more < gang.declaration.min_member
    return below or below_task_minimum(state, gang, of_task, more)


def below_task_minimum(state: State, gang: Gang, of_task: str, more: int = 0) -> bool:
    """Whether the task has a minimum, and would be below it although `more` of its pods ran."""
    least = task_minimums(gang).get(of_task, 0)
    if not least:
        return False
    return tallies.of(state, gang).running_of(of_task) + more < least


def has_minimum(state: State, gang: Gang) -> bool:
    """Whether as many of the gang run, and of each of its tasks, as must start together."""
    if gang.declaration is None or running(state, gang) < gang.declaration.min_member:
        return False
    return not any(below_task_minimum(state, gang, of_task) for of_task in task_minimums(gang))
