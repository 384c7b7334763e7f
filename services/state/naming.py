"""Which gangs name each other (seed 002, GangGroup), and so wait for each other.

A declaration names the gangs of its gang group. Gangs that name each other, directly or through others, are one group
and are planned as one; a gang that is named and does not name back stays by itself, and those that name it wait for it.
So nobody waits for being named, and no two groups wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.state.records import Gang

if TYPE_CHECKING:
    from services.state.fold import State


def named_by(gang: Gang) -> tuple[str, ...]:
    """Keys of the gangs that it declares to be of its group, sorted, itself among them; empty: it stands alone."""
    return gang.declaration.groups if gang.declaration is not None else ()


def names_changed(state: State, gang: Gang, before: tuple[str, ...]) -> None:
    """The gang named `before`, and names others now: who waits for whom may have changed."""
    for key in before:
        named = state.named[key]
        named.pop(gang.key, None)
        if not named:
            del state.named[key]
    for key in named_by(gang):
        state.named.setdefault(key, {})[gang.key] = None
    state.regrouping[gang.key] = None


def component(state: State, key: str) -> tuple[str, ...]:
    """The gangs, sorted, that are named by this one and name it, directly or through others; itself among them.

    Gangs that nobody knows yet name nobody. Where those that are named name the same gangs, or none as they have no pods
    any more, the names need not be gone through one by one: a group of 128 gangs has 16,384.
    """
    names = named_by(state.gangs[key])
    there = [(one, named_by(state.gangs[one])) for one in names if one in state.gangs]
    if all(theirs in (names, ()) for _, theirs in there):
        return tuple(sorted(one for one, theirs in there if theirs)) if key in names else (key,)
    naming: dict[str, list[str]] = {key: []}
    todo = [key]
    while todo:
        one = todo.pop()
        for named in named_by(state.gangs[one]):
            if named not in state.gangs:
                continue
            if named not in naming:
                naming[named] = []
                todo.append(named)
            naming[named].append(one)
    found = {key: None}
    todo = [key]
    while todo:
        for one in naming[todo.pop()]:
            if one not in found:
                found[one] = None
                todo.append(one)
    return tuple(sorted(found))
