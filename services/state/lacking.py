"""What a group waits for that was refused before anything of it was tried: pods, another gang, its user.

Who or what that is, is a part of what its pods are told (`Cohort.condition`), and while it is so, a fact about the group
wakes nobody. Of several that lack something the first is named: once it has that, the group is tried again, and its pods
are told of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from events.dialects import TIMEOUT_ANNOTATION
from services.state import membership, tallies, timeouts
from services.state.membership import rules_off, short
from services.state.naming import named_by
from services.state.records import Cohort, Gang, Group

if TYPE_CHECKING:
    from services.state.fold import State

_NOT_THERE = "not there"


def subject(state: State, group: Group, reason: str) -> str:
    """Who or what a refusal of the group for `reason` is about; empty where that goes without saying."""
    if reason == "TooFewPods":
        return _first_short(state, group)
    if reason == "WaitingForGang":
        return _first_awaited(state, group)
    if reason == "GangTimedOut" and len(group.gangs) > 1:
        return " ".join(key for key in group.gangs if timeouts.gang_stands(state, state.gangs[key]))
    return ""


def stands(state: State, group: Group, cohort: Cohort) -> bool:
    """Whether the group still waits for what it was told, and none of its pods may be placed before that."""
    if cohort.reason == "GangTimedOut":
        return all(timeouts.gang_stands(state, state.gangs[key]) for key in _about(cohort).split() or group.gangs)
    gangs = [state.gangs[key] for key in group.gangs]
    if any(rules_off(gang) and tallies.of(state, gang).placeable for gang in gangs):
        return False
    if cohort.reason == "TooFewPods":
        return short(state, *_short_of(state, group, cohort))
    return _waits(state, group, cohort)


def message(state: State, group: Group, cohort: Cohort) -> str:
    """What a cohort is told: with how many pods there are now, and what is so of other gangs since before it was refused,
    of which the planner may not have known: each that had timed out, or that one which it names was gone. Empty: what the
    planner said is all there is."""
    if cohort.reason == "TooFewPods":
        return _pods(state, group, cohort)
    if cohort.reason == "WaitingForGang":
        return _other(cohort)
    if cohort.reason == "GangTimedOut" and (gangs := _about(cohort).split()):
        return over(gangs)
    return ""


def _pods(state: State, group: Group, cohort: Cohort) -> str:
    """Empty if there are enough."""
    gang, task = _short_of(state, group, cohort)
    if not short(state, gang, task):
        return ""
    return too_few(named(gang, task), *membership.there_of(state, gang, task))


def _other(cohort: Cohort) -> str:
    """Empty if none was awaited any more."""
    names, awaited, how = _awaited_of(cohort)
    return waits_for(names, awaited, there=how != _NOT_THERE) if names and awaited else ""


def waits_for(names: str, awaited: str, *, there: bool) -> str:
    """What a refusal says where one gang names another."""
    how = "does not run with its minimum" if there else "is not there"
    return f"gang {names} names {awaited} in its gang group, which {how} yet"


def over(gangs: Sequence[str]) -> str:
    """What a refusal of gangs whose waiting time is over says, and what their user may do."""
    of = f"gang {gangs[0]}" if len(gangs) == 1 else f"gangs {', '.join(gangs)}"
    return (
        f"{of}: the waiting time is over; to have it tried again, delete its pods, remove their annotation "
        f"{TIMEOUT_ANNOTATION}, or declare it otherwise"
    )


def named(gang: Gang, task: str) -> str:
    """A gang, or a task of it, as messages call it."""
    return f"task {task} of gang {gang.key}" if task else f"gang {gang.key}"


def too_few(of: str, there: int, minimum: int) -> str:
    """What a refusal for too few pods says. `of`: as `named` has it."""
    return f"{of} has {there} of its minimum of {minimum} pods: less than minAvailable"


def _about(cohort: Cohort) -> str:
    return cohort.condition.partition(": ")[2]


def _short_of(state: State, group: Group, cohort: Cohort) -> tuple[Gang, str]:
    """The gang, and its task or "", that has too few pods as the group was told."""
    key, _, task = _about(cohort).partition(" ")
    return state.gangs[key or group.gangs[0]], task


def _first_short(state: State, group: Group) -> str:
    for key in group.gangs:
        gang = state.gangs[key]
        tasks = membership.task_minimums(gang)
        for task in ("", *tasks):
            if short(state, gang, task):
                return f"{key} {task}".rstrip() if tasks or len(group.gangs) > 1 else ""
    return ""


def _first_awaited(state: State, group: Group) -> str:
    awaited = membership.awaited(state, group)
    names = next((key for key in group.gangs if awaited in named_by(state.gangs[key])), "")
    return f"{names} {awaited}" if awaited in state.gangs else f"{names} {awaited} {_NOT_THERE}"


def _awaited_of(cohort: Cohort) -> tuple[str, str, str]:
    """The gang that was told, the other one, and how that one is, as `_first_awaited` has it."""
    names, _, other = _about(cohort).partition(" ")
    awaited, _, how = other.partition(" ")
    return names, awaited, how


def _waits(state: State, group: Group, cohort: Cohort) -> bool:
    """Whether the gang that was told names the other one still, which does not run with its minimum yet."""
    names, awaited, how = _awaited_of(cohort)
    if membership.reached(state, awaited) or (how == _NOT_THERE and awaited in state.gangs):
        return False
    naming = state.named.get(awaited, {})
    waits = any(key in naming and not rules_off(state.gangs[key]) for key in group.gangs)
    return names in naming and waits
