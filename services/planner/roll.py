"""The roll of a gang: who of it is there, and how many more must have a node before any of its group is bound."""

from __future__ import annotations

from typing import NamedTuple

from services.planner.rules.koordinator import after_gang, non_strict
from services.planner.rules.volcano import task_minimums
from services.state import lacking, membership
from services.state.fold import State
from services.state.membership import Census
from services.state.records import Gang


class Quota(NamedTuple):
    """A minimum, and the members of a gang, or of one of its tasks, that must reach it."""

    of: str
    """What has the minimum, for messages: ``gang ml/train``, ``task worker of gang ml/train``."""
    minimum: int
    census: Census
    have: int
    """How many of them count for it already."""
    task: str = ""

    @property
    def lacks(self) -> int:
        """Members that must have a node yet; none, or fewer, when the minimum is reached."""
        return self.minimum - self.have

    @property
    def placeable(self) -> int:
        return sum(map(len, self.census.placeable.values()))


class Roll(NamedTuple):
    """A gang of the group with its quotas: its own, and where they count its tasks'."""

    gang: Gang
    whole: Quota
    tasks: tuple[Quota, ...]
    constrained: bool
    """Whether its rules are on for the pods that it has to place."""
    together: bool
    """Whether its minimum is placed together or not at all."""

    @property
    def quotas(self) -> tuple[Quota, ...]:
        return (self.whole, *self.tasks)

    @property
    def lacks(self) -> int:
        """Members that must have a node before any of the group is bound."""
        return max(self.whole.lacks, sum(max(task.lacks, 0) for task in self.tasks), 0) if self.constrained else 0

    @property
    def all_or_none(self) -> bool:
        return self.constrained and self.together


def roll_call(state: State, gang: Gang) -> Roll:
    minimum = gang.declaration.min_member if gang.declaration is not None else 1
    whole = _quota(lacking.named(gang, ""), minimum, gang, membership.census(state, gang.members))
    tasks = [
        _quota(lacking.named(gang, name), least, gang, membership.census(state, members))._replace(task=name)
        for name, (members, least) in task_minimums.tasks(state, gang).items()
    ]
    return Roll(gang, whole, tuple(tasks), after_gang.constrained(gang), non_strict.together(gang))


def _quota(of: str, minimum: int, gang: Gang, census: Census) -> Quota:
    return Quota(of, minimum, census, membership.counted(gang, census))
