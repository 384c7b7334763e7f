"""Gang groups come, change and go: gangs that name each other become one group, and part again.

Declarations change a gang's group at the end of the commit that brings them. While anything of an affected group is
proposed or held, membership is frozen, until after the commit that settles that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.state import groups
from services.state.naming import component, named_by
from services.state.partitions import partition_of
from services.state.records import AWAITING, Group

if TYPE_CHECKING:
    from services.state.fold import State


def regroup(state: State) -> tuple[str, ...]:
    """Form the groups anew of all gangs that wait for it, where nothing of these groups is proposed or held. Those gangs.

    Of gangs whose groups may change each other the first answers for all: thousands may name each other in one commit.
    """
    formed: dict[str, None] = {}
    frozen: set[str] = set()
    for key in list(state.regrouping):
        gang = state.gangs.get(key)
        if gang is not None and key not in formed:
            if key in frozen or _frozen(state.groups.get(gang.group)):
                continue
            touched = _touched(state, key)
            if not _regrouped(state, touched):
                frozen.update(touched)
                continue
            formed.update(dict.fromkeys(touched))
        del state.regrouping[key]
    return tuple(formed)


def _regrouped(state: State, touched: dict[str, tuple[str, ...]]) -> bool:
    before = {group.key: group for key in touched if (group := state.groups.get(state.gangs[key].group)) is not None}
    if any(_frozen(group) for group in before.values()):
        return False
    components = {touched[key]: None for key in sorted(touched)}
    kept = {group.key for group in before.values() if group.gangs in components and _in_place(state, group)}
    for key, group in before.items():
        if key not in kept:
            groups.drop(state, group)
    for gangs in components:
        if gangs[0] in kept:
            groups.wake(state, before[gangs[0]])
        else:
            _form(state, gangs, before)
    return True


def _frozen(group: Group | None) -> bool:
    """Membership is frozen from proposal to settlement."""
    return group is not None and (group.phase == AWAITING or bool(group.held))


def _touched(state: State, key: str) -> dict[str, tuple[str, ...]]:
    """The gangs whose groups this one's declaration may change → the gangs with which each belongs together now."""
    found: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    todo = [key]
    while todo:
        one = todo.pop()
        if one in found:
            continue
        gangs = component(state, one)
        for member in gangs:
            found[member] = gangs
            group = state.groups.get(state.gangs[member].group)
            if group is not None and group.key not in seen:
                seen.add(group.key)
                todo += group.gangs
    return found


def _in_place(state: State, group: Group) -> bool:
    return group.partition == _partition(state, group.gangs)


def _partition(state: State, gangs: tuple[str, ...]) -> int:
    """The partition of the smallest namespace/gang that these gangs declare, whether that gang exists or not."""
    named = dict.fromkeys(names for key in gangs if (names := named_by(state.gangs[key])))  # mostly all name the same
    return partition_of(min(map(min, named), default=gangs[0]))


def _form(state: State, gangs: tuple[str, ...], before: dict[str, Group]) -> None:
    """These gangs are one group from here on; they bring the best place in the queue that one of them had."""
    members = [uid for key in gangs for uid in state.gangs[key].members]
    came_from = [before[key] for key in dict.fromkeys(state.gangs[key].group for key in gangs) if key in before]
    if not members:
        for key in gangs:
            groups.alone(state, state.gangs[key])
        return
    pods, key = state.pods, gangs[0]
    group = state.groups[key] = Group(
        key,
        _partition(state, gangs),
        state.sequence,
        min(one.created_ns for one in came_from),
        gangs=gangs,
        priority=max(pods[uid].fact.priority for uid in members),
        attempts=max(one.attempts for one in came_from),
        failed_ns=min(one.failed_ns for one in came_from),
        changed=state.sequence,
    )
    for one in gangs:
        state.gangs[one].group = key
    for uid in members:
        pods[uid].group = key
    groups.make_ready(state, group)
